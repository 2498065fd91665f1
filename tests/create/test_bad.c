/* Bad inputs, cancellation, full disks, kills: one clear line each, the right status, nothing left behind. Then what
 * must hold of a whole import (specs/create.md 9.9). */
#include "create/fixture.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

static const char llama[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,"
                            "\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                            "\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":320,\"rms_norm_eps\":1e-5,\"rope_"
                            "theta\":10000.0,\"max_position_embeddings\":512,\"tie_word_embeddings\":true}";

/* A whole small llama. */
static void llama_source(fx *x)
{
    static char names[2][9][100];
    static const struct {
        const char *name, *dims;
    } parts[9] = {
        {"input_layernorm.weight", "64"},     {"post_attention_layernorm.weight", "64"},
        {"self_attn.q_proj.weight", "64,64"}, {"self_attn.k_proj.weight", "32,64"},
        {"self_attn.v_proj.weight", "32,64"}, {"self_attn.o_proj.weight", "64,64"},
        {"mlp.gate_proj.weight", "128,64"},   {"mlp.up_proj.weight", "128,64"},
        {"mlp.down_proj.weight", "64,128"},
    };
    fx_text(x, "config.json", llama);
    fx_random(x, "model.embed_tokens.weight", "320,64", 1);
    fx_random(x, "model.norm.weight", "64", 2);
    for (int l = 0; l < 2; l++)
        for (uint32_t i = 0; i < 9; i++) {
            snprintf(names[l][i], 100, "model.layers.%d.%s", l, parts[i].name);
            fx_random(x, names[l][i], parts[i].dims, 10 + (uint32_t)l * 9 + i);
        }
}

static nb_create_options llama_options(fx *x, const char *type)
{
    nb_create_options o = fx_options(x);
    o.force = false;
    o.layout = NB_LAYOUT_ROWS16;
    fx_ok(x, nb_create_parse_request(&o, type, &x->err));
    return o;
}

/* ---- containers ---- */

static void raw_file(fx *x, const char *header, size_t data)
{
    nb_buf b = {0};
    char n[8];
    nb_store_u64(n, strlen(header));
    nb_buf_add(&b, n, 8);
    nb_buf_add_cstr(&b, header);
    for (size_t i = 0; i < data; i++) nb_buf_add_char(&b, 0);
    fx_file(x, "model.safetensors", b.p, b.n);
    nb_buf_free(&b);
}

static void bad_containers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *code;
    } rows[] = {
        {"{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[4,4],\"data_offsets\":[0,32]}}", 20, "E_ST_RANGE"},
        {"{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[4,4],\"data_offsets\":[0,32]},\"b.weight\":{\"dtype\":\"BF16\","
         "\"shape\":[4,4],\"data_offsets\":[16,48]}}",
         48, "E_ST_OVERLAP"},
        {"{\"a.weight\":{\"dtype\":\"X9\",\"shape\":[4,4],\"data_offsets\":[0,32]}}", 32, "E_ST_DTYPE"},
        {"{\"a.weight\":{\"dtype\":\"I32\",\"shape\":[4,4],\"data_offsets\":[0,64]}}", 64, "E_DTYPE_UNSUPPORTED"},
        {"{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[4,4],\"data_offsets\":[0,30]}}", 30, "E_ST_SIZE"},
        {"{}", 0, "E_NO_WEIGHTS"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        raw_file(x, rows[i].header, rows[i].data);
        fx_fails(x, fx_create(x, "none"), NB_E_INVALID, rows[i].code);
        fx_nothing_left(x);
        fx_free(x);
    }
    fx *x = fx_new(); /* a header that says it is huge */
    uint8_t huge[64];
    memset(huge, 0xff, sizeof huge);
    fx_plain_config(x, "");
    fx_file(x, "model.safetensors", huge, sizeof huge);
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_ST_HEADER_SIZE");
    fx_free(x);
}

static void bad_folders(void **state)
{
    (void)state;
    fx *x = fx_new();
    nb_create_options o = fx_options(x);
    o.source = "/nowhere/at/all";
    fx_fails(x, fx_run(x, &o), NB_E_NOT_FOUND, "/nowhere/at/all");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_NOT_MODEL_DIR");
    fx_text(x, "pytorch_model.bin", "x");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, ".bin");
    fx_text(x, "config.json", "{");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "config.json");
    fx_plain_config(x, "");
    fx_text(x, "tokenizer_config.json", "{");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "tokenizer_config.json");
    fx_text(x, "tokenizer_config.json", "{}");
    fx_add(x, "a.weight", NB_DT_BF16, "4,4", NULL);
    fx_save(x, "model-00001-of-00002.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_INCOMPLETE"); /* a missing shard */
    fx_nothing_left(x);
    fx_free(x);
}

static void bad_models(void **state)
{
    (void)state;
    fx *x = fx_new();
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "none");
    fx_text(x, "config.json", "{\"architectures\":[\"NoSuchForCausalLM\"],\"model_type\":\"nosuch\"}");
    fx_fails(x, fx_run(x, &o), NB_E_UNSUPPORTED, "NoSuchForCausalLM");
    fx_text(x, "config.json", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64}");
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "config.json");
    fx_text(x, "config.json", llama);
    static const char *const names[] = {"a/../../b", "..", "x/y/z/w", "", "a:b:c", "-a"};
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        o.name = names[i];
        fx_fails(x, fx_run(x, &o), NB_E_USAGE, "");
    }
    o.name = "t";
    fx_clear(x); /* a tensor is missing; a tensor has another shape */
    llama_source(x);
    x->n--;
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "model.layers.1.mlp.down_proj.weight");
    nb_buf_free(&x->data[x->n]);
    fx_random(x, "model.layers.1.mlp.down_proj.weight", "64,64", 5);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_ST_SHAPE");
    fx_nothing_left(x);
    fx_free(x);
}

static void nan_in_a_weight(void **state)
{
    (void)state;
    static const char *const types[] = {"nvfp4", "mxfp8", "mxfp4", "int8:g32", "int4:g32"};
    fx *x = fx_new();
    llama_source(x);
    nb_store_u16(x->data[x->n - 1].p + 2 * (5 * 128 + 7), 0x7fc0);
    fx_save(x, "model.safetensors");
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        nb_create_options o = llama_options(x, types[i]);
        fx_fails(x, fx_run(x, &o), NB_E_INVALID, "[5,7]");
        assert_non_null(strstr(x->err.text, "model.layers.1.mlp.down_proj.weight"));
        fx_nothing_left(x);
    }
    fx_free(x);
}

static void refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *config, *name;
    } rows[] = {
        {"l.weight.absmax", "", "bitsandbytes"},
        {"l.SCB", "", "bitsandbytes INT8"},
        {"l.trellis", "", "EXL3"},
        {"l.W_q", "", "HQQ"},
        {"l.codebooks", "", "AQLM"},
        {"l.qbiases", "", "metal"},
        {"l.other", "\"quantization_config\":{\"quant_method\":\"torchao\"}", "torchao"},
        {"l.other", "\"quantization_config\":{\"quant_method\":\"BitNet\"}", "BitNet"},
        {"l.other",
         "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp6-pack-quantized\"}",
         "MXFP6"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        fx_plain_config(x, rows[i].config);
        fx_add(x, rows[i].tensor, NB_DT_U8, "4,4", NULL);
        fx_save(x, "model.safetensors");
        fx_fails(x, fx_create(x, "none"), NB_E_UNSUPPORTED, rows[i].name);
        assert_non_null(strstr(x->err.text, rows[i].tensor));
        fx_nothing_left(x);
        fx_free(x);
    }
}

/* ---- the world outside ---- */

static void full_disk(void **state)
{
    (void)state;
    fx *x = fx_new();
    struct rlimit old, small;
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "none");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 20000; /* the embedding does not fit, the norms do */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    nb_status st = fx_run(x, &o);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    fx_fails(x, st, NB_E_NO_SPACE, "");
    fx_nothing_left(x);
    fx_free(x);
}

/* One import after the other on a file system that has room for one and two thirds, where the kernel lets us mount one
 * (77: it does not). Returns the number of the step that went wrong. */
static int on_small_tmpfs(fx *x, uint32_t seed)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    nb_create_options o = llama_options(x, "none");
    char size[40];
    uint64_t whole, have = 0;
    o.threads = 1;
    o.dry_run = true;
    if (fx_run(x, &o) != NB_OK) return 1;
    whole = x->report.bytes;
    snprintf(size, sizeof size, "size=%llu", (unsigned long long)(whole * 5 / 3));
    if ((mkdir(x->root, 0755) != 0 && errno != EEXIST) || mount("tmpfs", x->root, "tmpfs", 0, size) != 0) return 77;
    o.dry_run = false;
    if (fx_run(x, &o) != NB_OK) return 1;
    if (nb_store_free_bytes(x->store, &have, &x->err) != NB_OK || have >= whole || have < whole / 4) return 2;
    o.name = "again"; /* every blob is there: it needs hardly any room */
    if (fx_run(x, &o) != NB_OK || x->report.new_bytes > 10000) return 3;
    fx_clear(x); /* other weights of the same names and shapes: refused before anything is written */
    llama_source(x);
    for (size_t i = 0; i < x->n; i++)
        for (size_t k = 0; k < x->data[i].n / 2; k++) {
            seed = seed * 1664525u + 1013904223u;
            nb_store_u16(x->data[i].p + 2 * k, nb_bf16_encode((float)(seed >> 8) * 0x1p-24f));
        }
    fx_save(x, "model.safetensors");
    size_t blobs = fx_files_in(x, "blobs");
    o.name = "other";
    if (fx_run(x, &o) != NB_E_NO_SPACE || !strstr(x->err.text, "E_NO_SPACE")) return 4;
    return fx_files_in(x, "blobs") == blobs ? 0 : 5;
}

static void room_for_what_is_missing(void **state)
{
    (void)state;
    fx *x = fx_new();
    int status = 0;
    llama_source(x);
    fx_save(x, "model.safetensors");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(on_small_tmpfs(x, 99));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        print_message("skipped: no tmpfs may be mounted here\n");
    else
        assert_int_equal(status, 0);
    fx_free(x);
}

static void unreadable_store(void **state)
{
    (void)state;
    fx *x = fx_new();
    char root[500];
    llama_source(x);
    fx_save(x, "model.safetensors");
    snprintf(root, sizeof root, "%s/config.json/store", x->src); /* below a file */
    nb_store_close(x->store);
    fx_ok(x, nb_store_open(&x->store, root, &x->err));
    nb_create_options o = llama_options(x, "none");
    nb_status st = fx_run(x, &o);
    assert_true(st == NB_E_IO || st == NB_E_NOT_FOUND || st == NB_E_INVALID);
    assert_non_null(strstr(x->err.text, "config.json"));
    fx_free(x);
}

typedef struct hook {
    nb_create_phase phase;
    volatile int cancel;
    const char *truncate; /* file to cut */
    int countdown;        /* calls until a kill; 0: never */
    int calls;
    bool die; /* in that phase */
} hook;

static void on_progress(void *user, nb_create_phase p, const char *item, uint64_t done, uint64_t total, uint32_t n,
                        uint32_t n_total)
{
    hook *h = user;
    (void)item;
    (void)n;
    (void)n_total;
    assert_true(done <= total || total == 0);
    h->calls++;
    if (h->countdown && h->calls == h->countdown) raise(SIGKILL);
    if (p != h->phase) return;
    if (h->die) raise(SIGKILL);
    if (h->truncate)
        assert_int_equal(truncate(h->truncate, 5000), 0);
    else if (!h->countdown)
        h->cancel = 1;
}

static void cancel_in_each_phase(void **state)
{
    (void)state;
    for (int p = NB_CREATE_READING; p <= NB_CREATE_PUBLISHING; p++) {
        fx *x = fx_new();
        hook h = {.phase = (nb_create_phase)p};
        llama_source(x);
        fx_save(x, "model.safetensors");
        nb_create_options o = llama_options(x, "nvfp4");
        o.progress = on_progress;
        o.user = &h;
        o.cancel = &h.cancel;
        nb_status st = fx_run(x, &o);
        if (p == NB_CREATE_PUBLISHING)
            fx_ok(x, st); /* too late: it is published */
        else {
            fx_fails(x, st, NB_E_CANCELLED, "cancelled");
            fx_nothing_left(x);
        }
        fx_free(x);
    }
    fx *x = fx_new(); /* before the start */
    hook h = {.cancel = 1};
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "none");
    o.cancel = &h.cancel;
    fx_fails(x, fx_run(x, &o), NB_E_CANCELLED, "cancelled");
    fx_nothing_left(x);
    fx_free(x);
}

static void source_changes(void **state)
{
    (void)state;
    fx *x = fx_new();
    char file[400];
    snprintf(file, sizeof file, "%s/model.safetensors", x->src);
    hook h = {.phase = NB_CREATE_CONFIGS, .truncate = file};
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "none");
    o.progress = on_progress;
    o.user = &h;
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_SOURCE_CHANGED");
    fx_nothing_left(x);
    fx_save(x, "model.safetensors");
    h.phase = NB_CREATE_PLANNING;
    fx_fails(x, fx_run(x, &o), NB_E_IO, "model.safetensors");
    fx_nothing_left(x);
    fx_free(x);
}

/* ---- whole imports ---- */

static void x1_layers(void **state)
{
    (void)state;
    static const char quant[] = "{\"quantization\":{\"kv_cache_quant_algo\":\"FP8\"}}";
    fx *x = fx_new();
    fx_plain_config(x, "");
    fx_text(x, "hf_quant_config.json", quant);
    fx_random(x, "a.weight", "4,4", 1);
    fx_random(x, "b.weight", "4,4", 2);
    fx_save(x, "model.safetensors");
    fx_text(x, "README.md", "no");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "hf_quant_config.json.none");
    assert_int_equal(b.m.n_layers, 4);
    const nb_layer *l = nb_manifest_find(&b.m, "hf_quant_config.json");
    nb_buf path = {0}, text = {0};
    assert_non_null(l);
    nb_blob_path(x->store, l->hex, &path);
    fx_ok(x, nb_file_read(&text, nb_buf_cstr(&path), 1000, &x->err));
    assert_int_equal(text.n, sizeof quant - 1);
    assert_memory_equal(text.p, quant, text.n);
    nb_buf_free(&path);
    nb_buf_free(&text);
    fx_close(&b);
    fx_free(x);
}

static void x7_threads(void **state)
{
    (void)state;
    char first[65] = "";
    static const int threads[] = {1, 2, 3, 16};
    for (size_t i = 0; i < NB_COUNT(threads); i++) {
        fx *x = fx_new();
        llama_source(x);
        fx_save(x, "model.safetensors");
        nb_create_options o = llama_options(x, "nvfp4");
        o.threads = threads[i];
        fx_ok(x, fx_run(x, &o));
        if (i) assert_string_equal(x->report.digest, first);
        memcpy(first, x->report.digest, sizeof first);
        fx_free(x);
    }
}

static void dry_run(void **state)
{
    (void)state;
    fx *x = fx_new();
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "nvfp4");
    o.dry_run = true;
    fx_ok(x, fx_run(x, &o));
    uint64_t planned = x->report.bytes;
    assert_true(planned > 0 && x->report.n_quantized == 15);
    fx_nothing_left(x);
    o.dry_run = false;
    fx_ok(x, fx_run(x, &o));
    assert_true(x->report.bytes == planned);
    nb_buf b = {0};
    nb_json_doc d;
    nb_create_report_json(&x->report, &b);
    fx_ok(x, nb_json_parse(&d, b.p, b.n, "report", NULL, &x->err));
    int64_t n = 0;
    assert_true(nb_json_i64(nb_json_get(d.root, "tensors_quantized"), &n) && n == 15);
    nb_json_free(&d);
    b.n = 0;
    nb_create_report_text(&x->report, true, &b);
    assert_false(b.oom);
    nb_buf_free(&b);
    fx_free(x);
}

/* --keep and --type: over the policy, recorded; a bad type is a usage error. */
static void overrides(void **state)
{
    (void)state;
    fx *x = fx_new();
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "nvfp4");
    o.keep = "model.layers.0.*,model.embed_tokens.weight";
    o.types = "*.down_proj.weight=int4:g32,*.o_proj.weight=mxfp4";
    fx_ok(x, fx_run(x, &o));
    for (size_t i = 0; i < x->report.n_tensors; i++) {
        const nb_create_tensor *t = &x->report.tensors[i];
        bool first = nb_str_starts(t->name, "model.layers.0.") || nb_str_starts(t->name, "model.embed");
        const char *want = first || t->rank == 1 ? "bf16" : NULL;
        if (!want && nb_str_ends(t->name, ".down_proj.weight")) want = "int4:g32";
        if (!want && nb_str_ends(t->name, ".o_proj.weight")) want = "mxfp4";
        if (want) assert_string_equal(t->type, want);
    }
    o.types = "*=fp9";
    fx_fails(x, fx_run(x, &o), NB_E_USAGE, "fp9");
    o.types = "nothing";
    fx_fails(x, fx_run(x, &o), NB_E_USAGE, "PATTERN=TYPE");
    fx_free(x);
}

/* SIGKILL at many moments: the next run completes, finished blobs keep their inode, the manifest is that of an
 * undisturbed import, nothing stray is left. */
static void x6_kill(void **state)
{
    (void)state;
    char want[65];
    uint32_t resumed = 0;
    fx *clean = fx_new();
    llama_source(clean);
    fx_save(clean, "model.safetensors");
    nb_create_options o = llama_options(clean, "int8:g32");
    o.threads = 1;
    fx_ok(clean, fx_run(clean, &o));
    memcpy(want, clean->report.digest, sizeof want);
    size_t blobs = fx_files_in(clean, "blobs");
    for (int at = 1; at <= 50; at++) {
        nb_store_close(clean->store);
        nftw(clean->root, fx_rm, 16, FTW_DEPTH | FTW_PHYS);
        fx_ok(clean, nb_store_open(&clean->store, clean->root, &clean->err));
        pid_t pid = fork();
        if (pid == 0) {
            hook h = {.phase = NB_CREATE_DONE};
            h.countdown = 1000000;
            o.progress = on_progress;
            o.user = &h;
            struct itimerval t = {.it_value = {0, 700 * at}};
            setitimer(ITIMER_REAL, &t, NULL);
            signal(SIGALRM, SIG_DFL); /* dies without any clean-up */
            nb_create_report r;
            nb_create(clean->store, &o, &r, NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        o.progress = NULL;
        nb_create_options again = o;
        fx_ok(clean, fx_run(clean, &again));
        resumed += clean->report.n_resumed;
        assert_string_equal(clean->report.digest, want);
        assert_int_equal(fx_files_in(clean, "tmp"), 0);
        assert_int_equal(fx_files_in(clean, "blobs"), blobs);
        nb_name name;
        fx_ok(clean, nb_name_parse(&name, "t", &clean->err));
        fx_ok(clean, nb_create_verify(clean->store, &name, true, NULL, NULL, &clean->err));
    }
    /* killed, then cancelled: what the first run left goes too */
    nb_store_close(clean->store);
    nftw(clean->root, fx_rm, 16, FTW_DEPTH | FTW_PHYS);
    fx_ok(clean, nb_store_open(&clean->store, clean->root, &clean->err));
    pid_t last = fork();
    if (last == 0) {
        hook k = {.phase = NB_CREATE_CONFIGS, .die = true};
        nb_create_report r;
        o.progress = on_progress;
        o.user = &k;
        nb_create(clean->store, &o, &r, NULL);
        _exit(0);
    }
    int end;
    assert_int_equal(waitpid(last, &end, 0), last);
    assert_true(WIFSIGNALED(end));
    hook h = {.phase = NB_CREATE_CONFIGS};
    o.progress = on_progress;
    o.user = &h;
    o.cancel = &h.cancel;
    fx_fails(clean, fx_run(clean, &o), NB_E_CANCELLED, "cancelled");
    fx_nothing_left(clean);
    print_message("50 kills, %u blobs taken over\n", resumed);
    fx_free(clean);
}

/* A killed import goes on from a copy of its source where files are known by what they hold. */
static void strict_resume(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++)
        for (int changed = 0; changed < 2; changed++) {
            fx *x = fx_new();
            char file[400];
            int status;
            llama_source(x);
            fx_save(x, "model.safetensors");
            nb_create_options o = llama_options(x, "none");
            o.strict = strict;
            pid_t pid = fork();
            if (pid == 0) {
                hook k = {.phase = NB_CREATE_CONFIGS, .die = true};
                o.progress = on_progress;
                o.user = &k;
                fx_run(x, &o);
                _exit(0);
            }
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFSIGNALED(status));
            snprintf(file, sizeof file, "%s/model.safetensors", x->src);
            assert_int_equal(unlink(file), 0);
            if (changed) x->data[0].p[0] ^= 1;
            fx_save(x, "model.safetensors");
            fx_ok(x, fx_run(x, &o));
            bool all = strict && !changed;
            assert_int_equal(x->report.n_resumed, all ? x->n : 0);
            nb_name name;
            nb_manifest m;
            nb_buf text = {0};
            char sha[65];
            nb_str said = {0};
            fx_ok(x, nb_name_parse(&name, "t", &x->err));
            fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
            fx_ok(x, nb_manifest_read(x->store, &name, &m, &x->err));
            fx_ok(x, nb_file_read(&text, file, 1 << 24, &x->err));
            nb_sha256_hex(text.p, text.n, sha);
            nb_json_doc d = fx_json(x, m.config.hex, &text);
            const nb_json *from = nb_json_at(nb_json_path(d.root, "x_import.sources"), 0);
            assert_int_equal(nb_json_str(nb_json_get(from, "sha256"), &said), strict);
            if (strict) assert_true(nb_str_is(said, sha));
            nb_json_free(&d);
            nb_buf_free(&text);
            nb_manifest_free(&m);
            fx_free(x);
        }
}

/* Other bytes at the same place, of the same size, with the old times set back: nothing is taken over. */
static void rewritten_in_place(void **state)
{
    (void)state;
    fx *x = fx_new();
    char file[400];
    int status;
    struct stat before;
    llama_source(x);
    fx_save(x, "model.safetensors");
    nb_create_options o = llama_options(x, "none");
    pid_t pid = fork();
    if (pid == 0) {
        hook k = {.phase = NB_CREATE_CONFIGS, .die = true};
        o.progress = on_progress;
        o.user = &k;
        fx_run(x, &o);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    snprintf(file, sizeof file, "%s/model.safetensors", x->src);
    assert_int_equal(stat(file, &before), 0);
    int fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    uint8_t byte = 0;
    assert_int_equal(pread(fd, &byte, 1, before.st_size - 2), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, before.st_size - 2), 1);
    struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    fx_ok(x, fx_run(x, &o));
    assert_int_equal(x->report.n_resumed, 0);
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewritten_in_place),
        cmocka_unit_test(bad_containers),
        cmocka_unit_test(bad_folders),
        cmocka_unit_test(bad_models),
        cmocka_unit_test(nan_in_a_weight),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(room_for_what_is_missing),
        cmocka_unit_test(unreadable_store),
        cmocka_unit_test(cancel_in_each_phase),
        cmocka_unit_test(source_changes),
        cmocka_unit_test(x1_layers),
        cmocka_unit_test(strict_resume),
        cmocka_unit_test(x7_threads),
        cmocka_unit_test(dry_run),
        cmocka_unit_test(overrides),
        cmocka_unit_test(x6_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
