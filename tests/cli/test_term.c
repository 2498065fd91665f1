/* cli/term: cleaning, widths, numbers, progress on a terminal and in a file, tables. */
#include "cli/term.h"

#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void text_from_outside_is_cleaned(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } row[] = {
        {"plain text", "plain text"},
        {"a\nb\tc", "a b\tc"},
        {"\x1b[31mred\x1b[0m", "red"},
        {"\x1b[38;5;1mx\x1b[?25l\x1b[2J\x1b[1;1Hy", "xy"},
        {"\x1b]0;title\x07rest", "rest"},
        {"\x1b]52;c;ZXZpbA==\x1b\\rest", "rest"},
        {"\xc2\x9d"
         "0;title\xc2\x9crest",
         "rest"},
        {"\xc2\x9b"
         "31mred",
         "red"},
        {"\x1bPq#0;2;0;0;0\x1b\\after", "after"},
        {"\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\z", "z"},
        {"\x1b(B\x1b)0x\x1b%Gy", "xy"},
        {"\x1b"
         "c\x1b"
         "7\x1b=z",
         "z"},
        {"\x1b]0;no end\nnext line", " next line"},
        {"\x1b[12", ""},
        {"\x1b", ""},
        {"\x1b\x1b[1mx", "x"},
        {"\x1b\xc3\xa9", "\xc3\xa9"},
        {"over\rwrite\b\b\x7f\a", "overwrite"},
        {"\xe2\x80\xae"
         "evil\xe2\x80\xac \xe2\x81\xa6x\xe2\x81\xa9",
         "evil x"},
        {"bad \xff\xc3", "bad \xef\xbf\xbd\xef\xbf\xbd"},
        {"caf\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_buf b = {0};
        nb_term_clean(&b, nb_str_of(row[i].in), false);
        if (strcmp(nb_buf_cstr(&b), row[i].out) != 0) fail_msg("case %zu: '%s'", i, nb_buf_cstr(&b));
        nb_buf_free(&b);
    }
    nb_buf b = {0};
    nb_term_clean(&b, nb_str_of("a\r\nb\n"), true);
    assert_string_equal(nb_buf_cstr(&b), "a\nb\n");
    nb_buf_free(&b);
    print_message("term: %zu texts cleaned\n", NB_COUNT(row));
}

/* Whatever goes in, no byte that a terminal obeys comes out. */
static void random_bytes_come_out_harmless(void **state)
{
    (void)state;
    static const char pick[] = "\x1b\x1b\x9b\xc2\x9d\x07[];0m\\\r\n\tPX^_ (Ba\xe2\x80\xae\x01\x7f\xff";
    uint64_t seed = 3;
    for (int i = 0; i < 20000; i++) {
        char in[24];
        for (size_t k = 0; k < sizeof in; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            in[k] = pick[(seed >> 33) % (sizeof pick - 1)];
        }
        nb_buf b = {0};
        nb_term_clean(&b, (nb_str){in, sizeof in}, true);
        for (size_t k = 0, len; k < b.n; k += len) {
            uint32_t cp = nb_utf8_decode(b.p + k, b.n - k, &len);
            assert_true(cp != UINT32_MAX && (cp >= 0x20 || cp == '\n' || cp == '\t') && !(cp >= 0x7f && cp <= 0x9f) &&
                        cp != 0x202e);
        }
        nb_buf_free(&b);
    }
}

static void widths_are_those_of_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int width;
    } row[] = {
        {"", 0},
        {"abc", 3},
        {"caf\xc3\xa9", 4},
        {"cafe\xcc\x81", 4},
        {"\xe4\xbd\xa0\xe5\xa5\xbd", 4},
        {"\xf0\x9f\x98\x80", 2},
        {"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb", 2}, /* woman, joiner, computer */
        {"\xe2\x9d\xa4\xef\xb8\x8f", 2},                     /* heart in its emoji form */
        {"\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", 2},             /* a flag */
        {"\xed\x95\x9c\xea\xb8\x80", 4},
        {"a\xe2\x80\x8b"
         "b",
         2},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        int w = nb_display_width(nb_str_of(row[i].text));
        if (w != row[i].width) fail_msg("'%s': %d, expected %d", row[i].text, w, row[i].width);
    }
}

static void numbers_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        const char *bytes, *count, *time;
    } row[] = {
        {0, "0 B", "0", "0 us"},
        {512, "512 B", "512", "1 us"},
        {999, "999 B", "999", "1 us"},
        {1000, "1.0 kB", "1.0K", "1 us"},
        {9949, "9.9 kB", "9.9K", "10 us"},
        {9960, "10 kB", "10.0K", "10 us"},
        {98362432, "98 MB", "98.4M", "98 ms"},
        {134515008, "135 MB", "134.5M", "135 ms"},
        {999600000, "1.0 GB", "999.6M", "1.0 s"},
        {999960000, "1.0 GB", "1.0B", "1.0 s"},
        {1100048384, "1.1 GB", "1.1B", "1.1 s"},
        {59940000000, "60 GB", "59.9B", "59.9 s"},
        {123000000000, "123 GB", "123.0B", "2m03s"},
        {3599600000000, "3.6 TB", "3.6T", "1h00m"},
        {7384000000000, "7.4 TB", "7.4T", "2h03m"},
        {UINT64_MAX, "18 EB", "18446744.1T", "5124095h34m"},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        char out[24];
        nb_human_bytes(row[i].n, out);
        assert_string_equal(out, row[i].bytes);
        nb_human_count(row[i].n, out);
        assert_string_equal(out, row[i].count);
        nb_human_ns(row[i].n, out);
        assert_string_equal(out, row[i].time);
    }
}

/* Runs fn in a child whose stdout and stderr go to us; through a terminal of 40 columns where tty is set. */
static void capture(void (*fn)(void), bool tty, char *out, size_t cap)
{
    int pipe_fd[2], fd;
    pid_t pid;
    fflush(NULL);
    if (tty) {
        struct winsize size = {.ws_row = 24, .ws_col = 40};
        pid = forkpty(&fd, NULL, NULL, &size);
    } else {
        assert_int_equal(pipe(pipe_fd), 0);
        pid = fork();
        fd = pipe_fd[0];
    }
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        if (!tty) {
            dup2(pipe_fd[1], 1);
            dup2(pipe_fd[1], 2);
        }
        fn();
        fflush(NULL);
        _exit(0);
    }
    if (!tty) close(pipe_fd[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < cap && (got = read(fd, out + n, cap - 1 - n)) > 0;) n += (size_t)got;
    out[n] = '\0';
    close(fd);
    int rc;
    waitpid(pid, &rc, 0);
    assert_int_equal(rc, 0);
}

static void import_something(void)
{
    nb_progress p;
    nb_progress_begin(&p, false);
    for (int i = 0; i <= 1000; i++)
        nb_progress_update(&p, "copying", "model.layers.0.mlp.down_proj.weight\x1b[31m", (uint64_t)i * 1000000,
                           1000000000);
    nb_progress_update(&p, "publishing", "", 0, 0);
    nb_progress_end(&p);
}

static void import_quietly(void)
{
    nb_progress p;
    nb_progress_begin(&p, true);
    nb_progress_update(&p, "copying", "x", 1, 2);
    nb_progress_end(&p);
}

static void progress_elsewhere_is_plain_lines(void **state)
{
    (void)state;
    char out[4000];
    capture(import_something, false, out, sizeof out);
    assert_string_equal(out, "copying model.layers.0.mlp.down_proj.weight    0%  0 B/1.0 GB\npublishing\n");
    capture(import_quietly, false, out, sizeof out);
    assert_string_equal(out, "");
}

static void progress_on_a_terminal_is_one_line(void **state)
{
    (void)state;
    char out[8000];
    capture(import_something, true, out, sizeof out);
    assert_null(strchr(out, '\n'));
    assert_null(strstr(out, "[31m"));
    size_t n = strlen(out);
    assert_true(n > 4 && strcmp(out + n - 4, "\r\x1b[K") == 0); /* cleared at the end */
    int lines = 0;
    for (char *line = strtok(out, "\r"); line; line = strtok(NULL, "\r")) {
        char *end = strstr(line, "\x1b[K");
        assert_non_null(end);
        assert_true(end - line <= 39);
        lines++;
    }
    assert_true(lines >= 3 && lines < 20); /* a thousand updates in a moment are not drawn each */
    capture(import_quietly, true, out, sizeof out);
    assert_string_equal(out, "");
}

/* Speed and time left, by samples set by hand: 1000 bytes in the last 4 seconds. */
static void import_slowly(void)
{
    nb_progress p;
    nb_progress_begin(&p, false);
    nb_progress_update(&p, "copying", "", 0, 9000);
    uint64_t now = nb_now_ns();
    for (int i = 0; i < 4; i++) {
        p.recent[i].ns = now - (uint64_t)(4 - i) * 1000000000;
        p.recent[i].bytes = (uint64_t)i * 250000;
    }
    p.n_recent = 4;
    p.drawn_ns = 1;
    p.counts = true;
    nb_progress_update(&p, "copying", "", 1000000, 9000000);
}

static void progress_tells_speed_and_time_left(void **state)
{
    (void)state;
    char out[1000];
    capture(import_slowly, false, out, sizeof out);
    assert_non_null(strstr(out, "11%  1.0M/9.0M  250.0K/s  32.0 s left\n"));
}

static void print_table(void)
{
    static const bool right[] = {false, true, false};
    nb_table t;
    nb_table_begin(&t, 3, right);
    static const char *const cell[] = {"NAME",
                                       "SIZE",
                                       "NOTE",
                                       "\xe4\xbd\xa0\xe5\xa5\xbd",
                                       "1.1 GB",
                                       "two\nlines",
                                       "caf\xc3\xa9:latest",
                                       "98 MB",
                                       "\x1b[1mbold\x1b[0m",
                                       "cut",
                                       "5 B"};
    for (size_t i = 0; i < NB_COUNT(cell); i++) nb_table_cell(&t, cell[i]);
    nb_table_print(&t);
    nb_table_begin(&t, 2, NULL);
    nb_table_print(&t);
}

static void tables_are_aligned_by_width(void **state)
{
    (void)state;
    char out[1000];
    capture(print_table, false, out, sizeof out);
    assert_string_equal(out, "NAME           SIZE  NOTE\n"
                             "\xe4\xbd\xa0\xe5\xa5\xbd         1.1 GB  two lines\n"
                             "caf\xc3\xa9:latest   98 MB  bold\n"
                             "cut             5 B  \n");
}

static void a_pipe_is_no_terminal(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    assert_false(nb_term_is_tty(fd[1]));
    assert_false(nb_term_color(fd[1]));
    assert_int_equal(nb_term_width(fd[1]), 80);
    close(fd[0]);
    close(fd[1]);
    int master, slave;
    struct winsize size = {.ws_row = 24, .ws_col = 123};
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    assert_true(nb_term_is_tty(slave) && nb_term_color(slave));
    assert_int_equal(nb_term_width(slave), 123);
    setenv("NO_COLOR", "1", 1);
    assert_true(nb_term_is_tty(slave) && !nb_term_color(slave));
    setenv("TERM", "dumb", 1);
    assert_false(nb_term_is_tty(slave));
    close(master);
    close(slave);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_from_outside_is_cleaned),
        cmocka_unit_test(random_bytes_come_out_harmless),
        cmocka_unit_test(widths_are_those_of_a_terminal),
        cmocka_unit_test(numbers_for_people),
        cmocka_unit_test(progress_elsewhere_is_plain_lines),
        cmocka_unit_test(progress_on_a_terminal_is_one_line),
        cmocka_unit_test(progress_tells_speed_and_time_left),
        cmocka_unit_test(tables_are_aligned_by_width),
        cmocka_unit_test(a_pipe_is_no_terminal),
    };
    return cmocka_run_group_tests_name("terminal", tests, NULL, NULL);
}
