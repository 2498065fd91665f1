/* Completes a text with the public API alone: open a model, evaluate a prompt, sample token by token, print.
 *
 *   cc complete.c -lnibble -o complete && ./complete smollm2 "The capital of France is"
 */
#include <nibble.h>
#include <stdio.h>
#include <string.h>

static int fail(const nb_error *err)
{
    fprintf(stderr, "complete: %s\n", err->text);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: complete MODEL TEXT\n");
        return 2;
    }
    nb_error err = {0};
    nb_model *model = NULL;
    nb_session *session = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    nb_sampling sampling;
    int code = 0;

    if (nb_model_open(&model, argv[1], NULL, &err) != NB_OK) return fail(&err);
    nb_sampling_default(&sampling, model);
    sampling.temperature = 0; /* the most likely token */
    if (nb_session_new(&session, model, NULL, &err) != NB_OK) goto failed;
    if (nb_tokenize(model, argv[2], strlen(argv[2]), NB_TOKENIZE_SPECIALS, &ids, &n, &err) != NB_OK) goto failed;

    nb_eval_item item = {.size = sizeof item, .session = session, .ids = ids, .n = (int32_t)n, .logits = 1};
    if (nb_eval(&item, 1, &err) != NB_OK) goto failed;
    for (int i = 0; i < 16; i++) {
        int32_t id;
        char *text;
        size_t bytes;
        if (nb_sample(session, -1, &sampling, &id, &err) != NB_OK) goto failed;
        if (nb_detokenize(model, &id, 1, true, &text, &bytes, &err) != NB_OK) goto failed;
        fwrite(text, 1, bytes, stdout);
        nb_free(text);
        item.ids = &id;
        item.n = 1;
        if (nb_eval(&item, 1, &err) != NB_OK) goto failed;
    }
    putchar('\n');
    goto done;
failed:
    code = fail(&err);
done:
    nb_free(ids);
    nb_session_free(session);
    nb_model_close(model);
    return code;
}
