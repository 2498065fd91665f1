/* Terminal helpers: safe text, widths, human numbers, progress, tables. */
#include "cli/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

bool nb_term_is_tty(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

bool nb_term_color(int fd)
{
    const char *no = getenv("NO_COLOR");
    return nb_term_is_tty(fd) && !(no && *no);
}

int nb_term_width(int fd)
{
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

/* A cluster of characters that stand on one place (letter and accents, emoji and joiners) is as wide as its widest. */
int nb_display_width(nb_str s)
{
    int total = 0, cluster = 0;
    utf8proc_int32_t before = -1, state = 0;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t cp = nb_utf8_decode(s.p + i, s.n - i, &len);
        if (cp == UINT32_MAX) cp = 0xfffd;
        int w = utf8proc_charwidth((utf8proc_int32_t)cp);
        /* U+FE0F asks for the emoji form of the character before; two of the others are one flag. */
        if (cp == 0xfe0f || (cp >= 0x1f1e6 && cp <= 0x1f1ff)) w = 2;
        if (before >= 0 && utf8proc_grapheme_break_stateful(before, (utf8proc_int32_t)cp, &state)) {
            total += cluster;
            cluster = 0;
        }
        if (w > cluster) cluster = w;
        before = (utf8proc_int32_t)cp;
    }
    return total + cluster;
}

/* ---- text from outside ---- */

/* Bytes of a control string (OSC, DCS, ...) from p on, its end mark included. It ends with BEL, ESC \ or U+009C;
 * without any of them at the next control character, so that a missing end does not swallow the rest of the text. */
static size_t control_string(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == 0x07) return i + 1;
        if (c == 0x1b) return i + 1 < n && p[i + 1] == '\\' ? i + 2 : i;
        if (c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] == 0x9c) return i + 2;
        if (c < 0x20) return i;
    }
    return n;
}

/* Parameters, intermediates and the final byte of a CSI sequence. */
static size_t csi(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] >= 0x20 && p[i] <= 0x3f) i++;
    return i < n && p[i] >= 0x40 && p[i] <= 0x7e ? i + 1 : i;
}

/* Length of the escape sequence whose introducer was read: c is the byte after ESC, or the C1 character less 0x40. */
static size_t sequence(char c, const char *p, size_t n)
{
    if (c == '[') return csi(p, n);
    if (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_') return control_string(p, n);
    size_t i = 0;
    if (c >= 0x20 && c <= 0x2f) { /* intermediates and a final byte, such as ESC ( B */
        while (i < n && p[i] >= 0x20 && p[i] <= 0x2f) i++;
        if (i < n && p[i] >= 0x30 && p[i] <= 0x7e) i++;
    }
    return i;
}

static bool turns_direction(uint32_t cp) { return (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069); }

void nb_term_clean(nb_buf *out, nb_str text, bool newlines)
{
    for (size_t i = 0, len; i < text.n; i += len) {
        const char *p = text.p + i;
        uint32_t cp = nb_utf8_decode(p, text.n - i, &len);
        if (cp == UINT32_MAX) {
            nb_buf_add_cp(out, 0xfffd);
        } else if (cp == '\n') {
            nb_buf_add_char(out, newlines ? '\n' : ' ');
        } else if (cp == 0x1b) {
            char c = i + 1 < text.n ? p[1] : '\0';
            /* Only what can follow ESC goes with it; anything else is text of its own. */
            if (c >= 0x20 && c <= 0x7e) len += 1 + sequence(c, p + 2, text.n - i - 2);
        } else if (cp >= 0x80 && cp <= 0x9f) {
            len += sequence((char)(cp - 0x40), p + len, text.n - i - len);
        } else if (cp == '\t' || (cp >= 0x20 && cp != 0x7f && !turns_direction(cp))) {
            nb_buf_add(out, p, len);
        }
    }
}

/* ---- numbers for people ---- */

/* Three digits at most: one decimal below ten. "1000" of a unit is "1.0" of the next. */
static void scaled(double v, const char *const *unit, int units, const char *gap, char out[24])
{
    int u = 0;
    while (u + 1 < units && v >= (u == 0 ? 1000 : 999.5)) {
        v /= 1000;
        u++;
    }
    int decimals = u > 0 && v < 9.95;
    snprintf(out, 24, "%.*f%s%s", decimals, v, gap, unit[u]);
}

void nb_human_bytes(uint64_t n, char out[24])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    scaled((double)n, unit, (int)NB_COUNT(unit), " ", out);
}

void nb_human_count(uint64_t n, char out[24])
{
    static const char *const unit[] = {"", "K", "M", "B", "T"};
    double v = (double)n;
    size_t u = 0;
    while (u + 1 < NB_COUNT(unit) && v >= (u == 0 ? 1000 : 999.95)) {
        v /= 1000;
        u++;
    }
    snprintf(out, 24, "%.*f%s", u > 0, v, unit[u]);
}

void nb_human_ns(uint64_t ns, char out[24])
{
    double s = (double)ns * 1e-9;
    uint64_t whole = (ns + 500000000) / 1000000000;
    if (ns >= UINT64_MAX - 500000000) whole = UINT64_MAX / 1000000000;
    if (s < 0.0009995)
        snprintf(out, 24, "%.0f us", s * 1e6);
    else if (s < 0.9995)
        snprintf(out, 24, "%.0f ms", s * 1e3);
    else if (s < 59.95)
        snprintf(out, 24, "%.1f s", s);
    else if (whole < 3600)
        snprintf(out, 24, "%llum%02llus", (unsigned long long)whole / 60, (unsigned long long)whole % 60);
    else
        snprintf(out, 24, "%lluh%02llum", (unsigned long long)whole / 3600, (unsigned long long)whole / 60 % 60);
}

/* ---- progress ---- */

#define SECOND 1000000000u
enum { BUCKET_MS = 500, FEWEST_BUCKETS = 3 };

void nb_progress_begin(nb_progress *p, bool quiet)
{
    *p = (nb_progress){.quiet = quiet, .tty = nb_term_is_tty(STDERR_FILENO)};
    p->start_ns = p->stage_ns = nb_now_ns();
}

/* Keeps one sample per half second, the newest 12. */
static void sample(nb_progress *p, uint64_t now)
{
    enum { N = NB_COUNT(p->recent) };
    if (p->n_recent && now - p->recent[p->n_recent - 1].ns < BUCKET_MS * 1000000ull) return;
    if (p->n_recent == N) {
        memmove(&p->recent[0], &p->recent[1], (N - 1) * sizeof p->recent[0]);
        p->n_recent--;
    }
    p->recent[p->n_recent].ns = now;
    p->recent[p->n_recent].bytes = p->done;
    p->n_recent++;
}

/* Bytes a second over the last samples, 0 while there are too few. */
static double speed(const nb_progress *p, uint64_t now)
{
    if (p->n_recent < FEWEST_BUCKETS || now <= p->recent[0].ns || p->done <= p->recent[0].bytes) return 0;
    return (double)(p->done - p->recent[0].bytes) * 1e9 / (double)(now - p->recent[0].ns);
}

static void amount(const nb_progress *p, uint64_t n, char out[24])
{
    if (p->counts)
        nb_human_count(n, out);
    else
        nb_human_bytes(n, out);
}

static void compose(const nb_progress *p, const char *item, uint64_t now, nb_buf *line)
{
    char done[24], total[24], rate[24], left[24];
    nb_term_clean(line, nb_str_of(p->stage), false);
    if (item && *item) {
        nb_buf_add_char(line, ' ');
        nb_term_clean(line, nb_str_of(item), false);
    }
    if (!p->done && !p->total) return;
    amount(p, p->done, done);
    if (p->total) {
        amount(p, p->total, total);
        uint64_t shown = p->done < p->total ? p->done : p->total;
        nb_buf_printf(line, "  %3d%%  %s/%s", (int)(100.0 * (double)shown / (double)p->total), done, total);
    } else {
        nb_buf_printf(line, "  %s", done);
    }
    double v = speed(p, now);
    if (v <= 0) return;
    amount(p, (uint64_t)v, rate);
    nb_buf_printf(line, "  %s/s", rate);
    if (p->total > p->done) {
        double seconds = (double)(p->total - p->done) / v;
        nb_human_ns(seconds < 1e9 ? (uint64_t)(seconds * 1e9) : UINT64_MAX, left);
        nb_buf_printf(line, "  %s left", left);
    }
}

/* Longest prefix of at most `width` columns that ends between characters. */
static size_t fit(nb_str s, int width)
{
    if (nb_display_width(s) <= width) return s.n;
    size_t good = 0;
    for (size_t i = 0, len; i < s.n; i += len) {
        nb_utf8_decode(s.p + i, s.n - i, &len);
        if (nb_display_width((nb_str){s.p, i + len}) > width) break;
        good = i + len;
    }
    return good;
}

static void draw(nb_progress *p, const char *item, uint64_t now)
{
    nb_buf line = {0};
    compose(p, item, now, &line);
    if (nb_buf_cstr(&line)) {
        if (p->tty) {
            /* The last column stays free: some terminals wrap when it is written. */
            size_t n = fit(nb_buf_str(&line), nb_term_width(STDERR_FILENO) - 1);
            fprintf(stderr, "\r%.*s\x1b[K", (int)n, line.p);
            p->drawn_width = nb_display_width((nb_str){line.p, n});
        } else {
            fprintf(stderr, "%s\n", line.p);
        }
        fflush(stderr);
    }
    p->drawn_ns = now;
    nb_buf_free(&line);
}

void nb_progress_update(nb_progress *p, const char *stage, const char *item, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t now = nb_now_ns();
    bool new_stage = strncmp(p->stage, stage, sizeof p->stage - 1) != 0;
    if (new_stage || done_bytes < p->done) {
        snprintf(p->stage, sizeof p->stage, "%s", stage);
        p->stage_ns = now;
        p->n_recent = 0;
    }
    bool finished = total_bytes && done_bytes >= total_bytes && p->done < total_bytes && p->tty;
    p->done = done_bytes;
    p->total = total_bytes;
    sample(p, now);
    if (p->quiet) return;
    uint64_t pause = p->tty ? SECOND / 10 : 2ull * SECOND;
    if (new_stage || finished || now - p->drawn_ns >= pause) draw(p, item, now);
}

void nb_progress_end(nb_progress *p)
{
    if (p->tty && !p->quiet && p->drawn_ns) {
        fputs("\r\x1b[K", stderr);
        fflush(stderr);
    }
    p->drawn_ns = 0;
    p->drawn_width = 0;
}

/* ---- tables ---- */

void nb_table_begin(nb_table *t, int columns, const bool *right)
{
    *t = (nb_table){.columns = columns, .right = right};
}

void nb_table_cell(nb_table *t, const char *text)
{
    size_t from = t->text.n;
    nb_term_clean(&t->text, nb_str_of(text), false);
    for (size_t i = from; i < t->text.n; i++) {
        if (t->text.p[i] == '\t') t->text.p[i] = ' ';
    }
    nb_buf_add_char(&t->text, '\0');
    t->rows++; /* cells for now */
}

static void add_spaces(nb_buf *out, int n)
{
    for (; n > 0; n--) nb_buf_add_char(out, ' ');
}

/* Cells follow each other with a NUL behind each: the next one begins behind it. */
static nb_str cell_at(const nb_table *t, size_t *off)
{
    nb_str s = nb_str_of(t->text.p + *off);
    *off += s.n + 1;
    return s;
}

static void lay_out(const nb_table *t, int *width, nb_buf *out)
{
    size_t off = 0;
    for (int i = 0; i < t->rows; i++) {
        int w = nb_display_width(cell_at(t, &off)), c = i % t->columns;
        if (w > width[c]) width[c] = w;
    }
    off = 0;
    for (int i = 0; i < t->rows; i++) {
        nb_str s = cell_at(t, &off);
        int c = i % t->columns, pad = width[c] - nb_display_width(s);
        bool last = c == t->columns - 1, right = t->right && t->right[c];
        if (right) add_spaces(out, pad);
        nb_buf_add_str(out, s);
        if (!last) add_spaces(out, 2 + (right ? 0 : pad));
        if (last || i == t->rows - 1) nb_buf_add_char(out, '\n');
    }
}

void nb_table_print(nb_table *t)
{
    nb_buf out = {0};
    int *width = t->columns > 0 ? calloc((size_t)t->columns, sizeof *width) : NULL;
    if (width && !t->text.oom) lay_out(t, width, &out);
    if (!out.oom && out.n) fwrite(out.p, 1, out.n, stdout);
    free(width);
    nb_buf_free(&out);
    nb_buf_free(&t->text);
    t->rows = 0;
}
