/* The table of architectures (arch_rows.h names them), and canonical tensor names. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_arch *const rows[] = {
#define ROW(name) &nb_arch_##name,
    NB_ARCH_ROWS(ROW)
#undef ROW
};

size_t nb_arch_count(void) { return NB_COUNT(rows) + NB_ARCH_LISTED; }
const char *nb_arch_name(const nb_arch *a) { return a->name; }
bool nb_arch_f32_only(const nb_arch *a) { return a->f32_only; }
bool nb_arch_runs(const nb_arch *a) { return a->forward != NULL; }

const nb_arch *nb_arch_at(size_t i)
{
    if (i < NB_COUNT(rows)) return rows[i];
    return i < nb_arch_count() ? &nb_arch_listed[i - NB_COUNT(rows)] : NULL;
}

const nb_arch *nb_arch_find(nb_str name)
{
    for (size_t i = 0; i < nb_arch_count(); i++)
        if (nb_word_in(nb_arch_at(i)->ids, name)) return nb_arch_at(i);
    return NULL;
}

/* ---- canonical names ---- */

static nb_str joined(nb_arena *a, const char *head, nb_str tail)
{
    return nb_str_of(nb_arena_printf(a, "%s%.*s", head, NB_FMT_STR(tail)));
}

/* Things that are computed here or mean nothing to a forward. */
static bool dropped(const nb_config *c, nb_str name)
{
    if (nb_ends_any(name, "rotary_emb.inv_freq|rotary_emb.cos_cached|rotary_emb.sin_cached|.masked_bias|.attn.bias"))
        return true;
    /* A tied head is the embedding, even where the file holds a copy. */
    return c->tie_known && c->tie_embeddings && nb_ends_any(name, "lm_head.weight") &&
           !nb_begins_any(name, "draft.|mtp.");
}

static nb_str without_prefixes(const nb_config *c, nb_str name, nb_arena *a)
{
    if (dropped(c, name)) return (nb_str){NULL, 0};
    nb_str body = nb_name_body(name);
    bool had_prefix = body.p != name.p;
    /* MLX calls a stacked bank switch_mlp. */
    int64_t at = nb_str_find(body, NB_LIT(".mlp.switch_mlp."), 0);
    if (at >= 0) {
        size_t skip = (size_t)at + sizeof ".mlp.switch_mlp." - 1;
        char *p = nb_arena_printf(a, "%.*s.mlp.experts.%.*s", (int)at, body.p, (int)(body.n - skip), body.p + skip);
        if (!p) return name;
        body = nb_str_of(p);
        had_prefix = true;
    }
    if (nb_begins_any(body, "lm_head.|mtp.|vision|visual.|audio_tower.|multi_modal|backbone."))
        return had_prefix && !nb_begins_any(body, "vision|visual.|audio_tower.|multi_modal") ? body : name;
    bool text =
        nb_begins_any(body, "layers.|embed_tokens.|norm.|embed_tokens_per_layer.|per_layer_|hyper_connection_mixer.");
    if (!text && !had_prefix) return name;
    if (nb_str_starts(name, "model.") && body.p == name.p + 6) return name; /* canonical already */
    nb_str out = joined(a, "model.", body);
    return out.p ? out : name;
}

static nb_str replaced(nb_arena *a, nb_str name, const char *from, const char *to)
{
    int64_t at = nb_str_find(name, nb_str_of(from), 0);
    if (at < 0) return name;
    size_t rest = (size_t)at + strlen(from);
    char *p = nb_arena_printf(a, "%.*s%s%.*s", (int)at, name.p, to, (int)(name.n - rest), name.p + rest);
    return p ? nb_str_of(p) : name;
}

nb_str nb_arch_canonical(const nb_config *c, nb_str name, nb_arena *a)
{
    nb_str out = without_prefixes(c, name, a);
    for (const nb_spelling *s = out.p && c->arch ? c->arch->spellings : NULL; s && s->part; s++)
        out = replaced(a, out, s->part, s->canonical);
    return out;
}

nb_str nb_arch_respelled(const nb_arch *arch, nb_str name, nb_arena *a)
{
    for (const nb_spelling *s = arch ? arch->spellings : NULL; s && s->part; s++)
        name = replaced(a, name, s->canonical, s->part);
    return name;
}
