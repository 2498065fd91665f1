/* cli/term: what a person sees. Progress, sizes, tables, and text from outside made safe for a terminal. */
#ifndef NB_CLI_TERM_H
#define NB_CLI_TERM_H

#include "base/base.h"

bool nb_term_is_tty(int fd);    /* false for TERM=dumb */
bool nb_term_color(int fd);     /* a terminal, and NO_COLOR is not set */
int nb_term_width(int fd);      /* columns; 80 where unknown */
int nb_display_width(nb_str s); /* columns of UTF-8 text */

/* Appends text without control and escape sequences (C0, DEL, C1, ESC sequences whole, bidirectional overrides); tabs
 * stay, newlines too if asked, else they become spaces. Bad UTF-8 becomes U+FFFD. */
void nb_term_clean(nb_buf *out, nb_str text, bool newlines);

/* "1.1 GB", "98 MB", "512 B": powers of 1000. "1.2 s", "350 ms", "2m03s". NUL-terminated. */
void nb_human_bytes(uint64_t n, char out[24]);
void nb_human_ns(uint64_t ns, char out[24]);
void nb_human_count(uint64_t n, char out[24]); /* "134.5M", "1.1B" */

/* Progress on stderr: on a terminal one line redrawn at most 10 times a second (stage, item, bytes, speed, time left);
 * elsewhere plain lines, at most one every two seconds and one per stage. */
typedef struct nb_progress {
    bool tty, quiet;
    char stage[32];
    uint64_t start_ns, stage_ns, drawn_ns;
    uint64_t done, total; /* bytes */
    int drawn_width;
    struct {
        uint64_t ns, bytes;
    } recent[12]; /* for the speed of the last seconds */
    int n_recent;
    bool counts; /* done and total are things, not bytes; set after nb_progress_begin */
} nb_progress;
void nb_progress_begin(nb_progress *p, bool quiet);
void nb_progress_update(nb_progress *p, const char *stage, const char *item, uint64_t done_bytes, uint64_t total_bytes);
void nb_progress_end(nb_progress *p); /* clears the line; prints nothing */

/* A table of text on stdout, columns aligned by display width. right[c]: align right. */
typedef struct nb_table {
    nb_buf text;       /* cells, NUL-separated */
    int columns, rows; /* rows: cells so far */
    const bool *right;
} nb_table;
void nb_table_begin(nb_table *t, int columns, const bool *right);
void nb_table_cell(nb_table *t, const char *text); /* fills rows from left to right; cleaned */
void nb_table_print(nb_table *t);                  /* two spaces between columns; frees */

#endif
