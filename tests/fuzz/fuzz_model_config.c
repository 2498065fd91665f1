/* Fuzzes configs: whatever config.json says, the tensor list is well formed, every policy answers, and names survive
 * being made canonical. */
#include "model/arch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t formats[] = {NB_BF16, NB_NVFP4, NB_MXFP4, NB_MXFP8, NB_INT4, NB_INT8, NB_INT3};

static void ask(const nb_config *c, const nb_tensor_spec *s, nb_arena *a)
{
    nb_str again = nb_arch_canonical(c, s->name, a);
    if (again.p && !nb_str_eq(again, s->name)) abort(); /* canonical names are fixed points */
    for (size_t i = 0; i < NB_COUNT(formats); i++) {
        nb_qtype q;
        const char *why = NULL;
        int64_t bank[3] = {s->experts, s->proj[2].n, s->proj[2].k};
        bool is_bank = s->role == NB_ROLE_BANK;
        if (!nb_policy(c, s->name, s->role, is_bank ? 3 : s->rank, is_bank ? bank : s->dim,
                       nb_qtype_default((nb_format)formats[i]), &q, &why) &&
            !why)
            abort();
    }
}

static void check(const nb_config *c, nb_arena *a)
{
    nb_tensor_spec *specs;
    size_t n;
    nb_error err;
    if (nb_arch_tensors(c, a, &specs, &n, &err) != NB_OK) return;
    for (size_t i = 0; i < n; i++) {
        const nb_tensor_spec *s = &specs[i];
        if (!s->name.p || s->rank > 3) abort();
        for (int d = 0; d < s->rank; d++)
            if (s->dim[d] == 0 || s->dim[d] < -1) abort();
        if (i < 64 || i + 64 > n) ask(c, s, a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nb_json_doc doc;
    nb_json_limits lim = {.max_bytes = 1 << 20};
    nb_error err = {0};
    nb_config c;
    if (nb_json_parse(&doc, (const char *)data, size, "fuzz", &lim, &err) != NB_OK) return 0;
    nb_arena *a = nb_arena_new(256u << 20);
    nb_status s = a ? nb_config_read(&c, doc.root, doc.root, a, &err) : NB_E_NO_MEMORY;
    if (s == NB_OK)
        check(&c, a);
    else if (err.text[0] == 0 && a)
        abort();
    nb_arena_free(a);
    nb_json_free(&doc);
    return 0;
}
