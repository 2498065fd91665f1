/* Errors as values: a status and one clean line of text, kept by the caller. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>

size_t nb_text_clean(char *dst, size_t cap, const char *src, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        size_t len;
        uint32_t cp = nb_utf8_decode(src + i, n - i, &len);
        bool bad = cp == UINT32_MAX || cp < 0x20 || (cp >= 0x7f && cp <= 0x9f);
        size_t need = bad ? 1 : len;
        if (out + need >= cap) break;
        if (bad)
            dst[out] = '?';
        else
            memcpy(dst + out, src + i, len);
        out += need;
        i += len;
    }
    dst[out] = '\0';
    return out;
}

/* A cut in the middle of a character must not leave a '?' behind: drop an unfinished tail first. */
static size_t drop_cut_tail(const char *p, size_t n)
{
    size_t back = 0;
    while (back < 3 && back < n && ((unsigned char)p[n - 1 - back] & 0xc0) == 0x80) back++;
    if (back == n) return n;
    unsigned char lead = (unsigned char)p[n - 1 - back];
    size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return want > back + 1 ? n - back - 1 : n;
}

/* Formats into tmp and returns the bytes that are there; a text that does not fit is cut between characters. */
static size_t format(char *tmp, size_t cap, const char *fmt, va_list ap)
{
    int n = vsnprintf(tmp, cap, fmt, ap);
    if (n < 0) return 0;
    return (size_t)n < cap ? (size_t)n : drop_cut_tail(tmp, cap - 1);
}

static nb_status set_text(nb_error *err, nb_status status, const char *text, size_t n)
{
    if (err) {
        err->status = status;
        nb_text_clean(err->text, sizeof err->text, text, n);
    }
    return status;
}

nb_status nb_fail(nb_error *err, nb_status status, const char *fmt, ...)
{
    char tmp[sizeof(((nb_error *)0)->text) + 64];
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(tmp, sizeof tmp, fmt, ap);
    va_end(ap);
    return set_text(err, status, tmp, n);
}

static nb_status status_of_errno(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return NB_E_NO_SPACE;
    case ENOENT: return NB_E_NOT_FOUND;
    case ENOMEM: return NB_E_NO_MEMORY;
    default: return NB_E_IO;
    }
}

nb_status nb_fail_errno(nb_error *err, int errnum, const char *fmt, ...)
{
    char tmp[sizeof(((nb_error *)0)->text) + 64], reason_buf[64];
    const char *reason = strerror_r(errnum, reason_buf, sizeof reason_buf);
    size_t reason_len = strlen(reason);
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(tmp, sizeof tmp, fmt, ap);
    va_end(ap);
    /* The reason is what the reader needs most: a long text before it is cut, not the reason. */
    size_t room = sizeof(err->text) - 1;
    if (reason_len + 2 > room) reason_len = room - 2;
    if (n > room - reason_len - 2) n = drop_cut_tail(tmp, room - reason_len - 2);
    memcpy(tmp + n, ": ", 2);
    memcpy(tmp + n + 2, reason, reason_len);
    return set_text(err, status_of_errno(errnum), tmp, n + 2 + reason_len);
}

void nb_error_prefix(nb_error *err, const char *fmt, ...)
{
    if (!err) return;
    char tmp[2 * sizeof err->text + 64];
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(tmp, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t old = strlen(err->text);
    memcpy(tmp + n, ": ", 2);
    memcpy(tmp + n + 2, err->text, old);
    set_text(err, err->status, tmp, n + 2 + old);
}

const char *nb_status_name(nb_status status)
{
    switch (status) {
    case NB_OK: return "ok";
    case NB_E_FAILED: return "failed";
    case NB_E_USAGE: return "usage";
    case NB_E_NOT_FOUND: return "not found";
    case NB_E_UNREACHABLE: return "unreachable";
    case NB_E_NO_SPACE: return "no space";
    case NB_E_INVALID: return "invalid";
    case NB_E_AUTH: return "not authorised";
    case NB_E_TRUNCATED: return "truncated";
    case NB_E_IO: return "input/output";
    case NB_E_NUMERIC: return "numeric";
    case NB_E_CANCELLED: return "cancelled";
    case NB_E_UNSUPPORTED: return "unsupported";
    case NB_E_NO_MEMORY: return "out of memory";
    case NB_E_CONTEXT: return "context full";
    }
    return "unknown";
}
