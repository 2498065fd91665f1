/* create/source_gguf: the inventory of a GGUF file. Its tensors get hub names; its metadata becomes config.json, a
 * tokenizer and a template (gguf_config.c). */
#include "base/file.h"
#include "create/plan.h"

#include <stdio.h>
#include <string.h>

typedef struct name_row {
    const char *from, *to; /* block part without ".weight" or ".bias" */
    const char *arch;      /* only for these ("a|b"), or NULL */
} name_row;

static const name_row block_names[] = {
    {"attn_norm", "input_layernorm", NULL},
    {"attn_q", "self_attn.q_proj", NULL},
    {"attn_k", "self_attn.k_proj", NULL},
    {"attn_v", "self_attn.v_proj", NULL},
    {"attn_output", "self_attn.o_proj", NULL},
    {"attn_q_norm", "self_attn.q_norm", NULL},
    {"attn_k_norm", "self_attn.k_norm", NULL},
    {"post_attention_norm", "post_attention_layernorm", "gemma3"},
    {"ffn_norm", "pre_feedforward_layernorm", "gemma3"},
    {"ffn_norm", "post_attention_layernorm", NULL},
    {"post_ffw_norm", "post_feedforward_layernorm", "gemma3"},
    {"ffn_gate", "mlp.gate_proj", NULL},
    {"ffn_up", "mlp.up_proj", NULL},
    {"ffn_down", "mlp.down_proj", NULL},
    {"ffn_gate_inp", "mlp.gate", NULL},
    {"ffn_gate_exps", "mlp.experts.gate_proj", NULL},
    {"ffn_up_exps", "mlp.experts.up_proj", NULL},
    {"ffn_down_exps", "mlp.experts.down_proj", NULL},
};
static const name_row top_names[] = {
    {"token_embd", "model.embed_tokens", NULL},
    {"output_norm", "model.norm", NULL},
    {"output", "lm_head", NULL},
};

static const char *map_part(const name_row *rows, size_t n, nb_str part, nb_str arch)
{
    for (size_t i = 0; i < n; i++)
        if (nb_str_is(part, rows[i].from) && (!rows[i].arch || nb_str_is(arch, rows[i].arch))) return rows[i].to;
    return NULL;
}

nb_str nb_gguf_hub_name(const nb_source *s, nb_str name, nb_arena *a)
{
    nb_str none = {0};
    const char *dot = name.n ? memrchr(name.p, '.', name.n) : NULL;
    if (!dot) return none;
    nb_str part = {name.p, (size_t)(dot - name.p)}, suffix = {dot, name.n - part.n};
    if (!nb_str_is(suffix, ".weight") && !nb_str_is(suffix, ".bias") && !nb_str_is(suffix, ".scale")) return none;
    char *out = NULL;
    if (nb_str_starts(part, "blk.")) {
        size_t i = 4;
        while (i < part.n && part.p[i] >= '0' && part.p[i] <= '9') i++;
        if (i == 4 || i - 4 > 6 || i + 1 >= part.n || part.p[i] != '.') return none;
        const char *to =
            map_part(block_names, NB_COUNT(block_names), (nb_str){part.p + i + 1, part.n - i - 1}, s->gguf_arch);
        if (to) out = nb_arena_printf(a, "model.layers.%.*s.%s%.*s", (int)(i - 4), part.p + 4, to, NB_FMT_STR(suffix));
    } else {
        const char *to = map_part(top_names, NB_COUNT(top_names), part, s->gguf_arch);
        if (to) out = nb_arena_printf(a, "%s%.*s", to, NB_FMT_STR(suffix));
    }
    return out ? nb_str_of(out) : none;
}

static nb_status take_tensors(nb_job *j, nb_source *s, nb_error *err)
{
    const nb_gguf *g = &s->gguf_file;
    s->t = NB_NEW_N(j->arena, nb_src_tensor, g->n + 1);
    if (!s->t) return nb_fail(err, NB_E_NO_MEMORY, "out of memory for %zu tensors", g->n);
    for (size_t i = 0; i < g->n; i++) {
        const nb_gguf_tensor *t = &g->tensors[i];
        nb_src_tensor *d = &s->t[i];
        *d = (nb_src_tensor){
            .name = nb_arena_str(j->arena, t->name), .ggml = t->type, .rank = t->rank, .off = t->off, .len = t->len};
        for (int k = 0; k < t->rank; k++) d->dim[k] = t->dim[t->rank - 1 - k];
        d->dtype = t->type == NB_GGML_F32    ? NB_DT_F32
                   : t->type == NB_GGML_F16  ? NB_DT_F16
                   : t->type == NB_GGML_BF16 ? NB_DT_BF16
                                             : NB_DT_NONE;
        if (!d->name.p) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (!nb_ggml_info(t->type))
            return nb_fail(err, NB_E_INVALID, "%s: tensor %.*s has unknown type %u (E_DTYPE_UNSUPPORTED)", s->path,
                           NB_FMT_STR(t->name), t->type);
    }
    s->n = g->n;
    return s->n ? nb_source_index(j, s, err)
                : nb_fail(err, NB_E_INVALID, "no tensors found in %s (E_NO_WEIGHTS)", s->path);
}

nb_status nb_source_open_gguf(nb_job *j, nb_source *s, const char *path, nb_error *err)
{
    s->path = path;
    s->files = NB_NEW_N(j->arena, nb_src_file, 1);
    if (!s->files) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = nb_source_add_file(j, s, path, err);
    if (st != NB_OK) return st;
    st = nb_gguf_read(&s->gguf_file, s->files[0].fd, s->files[0].size, path, err);
    if (st != NB_OK) return st;
    s->gguf = true;
    nb_str split;
    uint64_t parts;
    if (nb_json_u64(nb_json_get(s->gguf_file.meta, "split.count"), &parts) && parts > 1)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "%s: one of %llu parts of a split GGUF: join the parts first (E_FORMAT_UNSUPPORTED)", path,
                       (unsigned long long)parts);
    if (!nb_json_str(nb_json_get(s->gguf_file.meta, "general.architecture"), &split))
        return nb_fail(err, NB_E_INVALID, "%s: field general.architecture is missing", path);
    s->gguf_arch = split;
    st = take_tensors(j, s, err);
    return st == NB_OK ? nb_gguf_config(j, s, err) : st;
}
