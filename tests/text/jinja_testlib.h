/* Shared by the template tests: test data, rendering to one string. */
#ifndef NB_TESTS_JINJA_TESTLIB_H
#define NB_TESTS_JINJA_TESTLIB_H

#include "base/file.h"
#include "text/chat.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The tokens of the recorded outputs. */
static const nb_chat_token test_tokens[] = {
    {{"bos_token", 9}, {"<s>", 3}}, {{"eos_token", 9}, {"</s>", 4}}, {{"pad_token", 9}, {"<pad>", 5}}};

/* 2026-01-02 03:04:05, the moment of the recorded outputs. */
static const int64_t test_now = 1767323045;

static inline const char *test_data(void)
{
    const char *d = getenv("NIBBLE_TEST_DATA");
    return d && *d ? d : "../shared";
}

/* Parses a JSON file of any size; false where it is not there. */
static inline bool load_json(nb_json_doc *doc, const char *path)
{
    nb_buf text = {0};
    nb_error err = {0};
    nb_json_limits lim = {.depth = 200, .flags = NB_JSON_COPY};
    if (!nb_path_exists(path)) return false;
    assert_int_equal(nb_file_read(&text, path, UINT64_MAX, &err), NB_OK);
    if (nb_json_parse(doc, text.p, text.n, path, &lim, &err) != NB_OK) fail_msg("%s", err.text);
    nb_buf_free(&text);
    return true;
}

static inline void join_spans(nb_buf *out, const nb_prompt *p)
{
    out->n = 0;
    for (size_t i = 0; i < p->n; i++) nb_buf_add_str(out, p->spans[i].text);
}

/* Does the failure `got` stand for the recorded one? Words count only where the template chose them: TemplateError. */
static inline bool same_error(const char *got, nb_str want)
{
    static const char mark[] = "TemplateError: ";
    if (!nb_str_starts(want, mark)) return true;
    const char *at = strstr(got, mark);
    if (!at) return false;
    for (size_t i = 0; i < want.n && at[i];
         i++) { /* an error is one line: control characters are shown as '?', the end may be cut */
        if (at[i] != want.p[i] && !((unsigned char)want.p[i] < 0x20 && at[i] == '?')) return false;
    }
    return strlen(at) >= want.n || strlen(got) > 480;
}

#endif
