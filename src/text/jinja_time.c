/* text/jinja_time: strftime_now, in the C locale. */
#include "text/jinja.h"

#include <time.h>

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

/* A number with `width` places, filled with `fill` unless a flag says otherwise ('-': not at all). */
static void put_number(nb_buf *b, long v, int width, char fill, char flag)
{
    if (flag == '_') fill = ' ';
    if (flag == '0') fill = '0';
    if (flag == '-') width = 1;
    char t[24];
    int n = 0;
    bool neg = v < 0;
    unsigned long u = neg ? 0UL - (unsigned long)v : (unsigned long)v;
    do t[n++] = (char)('0' + u % 10);
    while (u /= 10);
    if (neg) nb_buf_add_char(b, '-');
    for (int k = n; k < width; k++) nb_buf_add_char(b, fill);
    while (n > 0) nb_buf_add_char(b, t[--n]);
}

/* ^ makes capitals. */
static void put_text(nb_buf *b, const char *s, size_t n, char flag)
{
    for (size_t i = 0; i < n; i++)
        nb_buf_add_char(b, flag == '^' && s[i] >= 'a' && s[i] <= 'z' ? (char)(s[i] - 32) : s[i]);
}

/* ISO 8601 week: returns its number, *year the year that it belongs to. */
static int iso_week(const struct tm *t, int *year)
{
    int monday = (t->tm_wday + 6) % 7, week = (t->tm_yday - monday + 10) / 7;
    *year = t->tm_year + 1900;
    if (week < 1) {
        --*year;
        int y = *year, leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        return (t->tm_yday + 365 + leap - monday + 10) / 7;
    }
    int leap = (*year % 4 == 0 && *year % 100 != 0) || *year % 400 == 0;
    if (week == 53 && t->tm_yday - monday + 3 >= 365 + leap) {
        ++*year;
        return 1;
    }
    return week;
}

static void put(nb_buf *b, const struct tm *t, char c, char flag);

/* A conversion that stands for several. */
static void put_all(nb_buf *b, const struct tm *t, const char *conv)
{
    for (; *conv; conv++) {
        if (*conv == '%')
            put(b, t, *++conv, 0);
        else
            nb_buf_add_char(b, *conv);
    }
}

/* Week numbers and the composed forms. */
static void put_date(nb_buf *b, const struct tm *t, char c, char flag)
{
    int year, week = iso_week(t, &year);
    switch (c) {
    case 'U': put_number(b, (t->tm_yday + 7 - t->tm_wday) / 7, 2, '0', flag); break;
    case 'W': put_number(b, (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7, 2, '0', flag); break;
    case 'V': put_number(b, week, 2, '0', flag); break;
    case 'G': put_number(b, year, 4, '0', flag); break;
    case 'g': put_number(b, year % 100, 2, '0', flag); break;
    case 'c': put_all(b, t, "%a %b %e %H:%M:%S %Y"); break;
    case 'D':
    case 'x': put_all(b, t, "%m/%d/%y"); break;
    case 'F': put_all(b, t, "%Y-%m-%d"); break;
    case 'R': put_all(b, t, "%H:%M"); break;
    case 'T':
    case 'X': put_all(b, t, "%H:%M:%S"); break;
    case 'r': put_all(b, t, "%I:%M:%S %p"); break;
    case 'n': nb_buf_add_char(b, '\n'); break;
    case 't': nb_buf_add_char(b, '\t'); break;
    case '%': nb_buf_add_char(b, '%'); break;
    default:
        nb_buf_add_char(b, '%');
        if (flag) nb_buf_add_char(b, flag);
        if (c) nb_buf_add_char(b, c);
    }
}

/* One conversion, as glibc has them. */
static void put(nb_buf *b, const struct tm *t, char c, char flag)
{
    int hour12 = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    const char *day = days[t->tm_wday], *month = months[t->tm_mon];
    switch (c) {
    case 'a': put_text(b, day, 3, flag); break;
    case 'A': put_text(b, day, strlen(day), flag); break;
    case 'b':
    case 'h': put_text(b, month, 3, flag); break;
    case 'B': put_text(b, month, strlen(month), flag); break;
    case 'C': put_number(b, (t->tm_year + 1900) / 100, 2, '0', flag); break;
    case 'd': put_number(b, t->tm_mday, 2, '0', flag); break;
    case 'e': put_number(b, t->tm_mday, 2, ' ', flag); break;
    case 'H': put_number(b, t->tm_hour, 2, '0', flag); break;
    case 'k': put_number(b, t->tm_hour, 2, ' ', flag); break;
    case 'I': put_number(b, hour12, 2, '0', flag); break;
    case 'l': put_number(b, hour12, 2, ' ', flag); break;
    case 'j': put_number(b, t->tm_yday + 1, 3, '0', flag); break;
    case 'm': put_number(b, t->tm_mon + 1, 2, '0', flag); break;
    case 'M': put_number(b, t->tm_min, 2, '0', flag); break;
    case 'S': put_number(b, t->tm_sec, 2, '0', flag); break;
    case 'f': nb_buf_add_cstr(b, "000000"); break;
    case 'p': put_text(b, t->tm_hour < 12 ? "AM" : "PM", 2, flag); break;
    case 'P': put_text(b, t->tm_hour < 12 ? "am" : "pm", 2, flag); break;
    case 'u': put_number(b, t->tm_wday ? t->tm_wday : 7, 1, '0', flag); break;
    case 'w': put_number(b, t->tm_wday, 1, '0', flag); break;
    case 'y': put_number(b, t->tm_year % 100, 2, '0', flag); break;
    case 'Y': put_number(b, t->tm_year + 1900, 1, '0', flag); break;
    case 'z':
    case 'Z': break; /* a time without a zone */
    default: put_date(b, t, c, flag);
    }
}

/* The time is the caller's fixed one, else the clock. */
jval nbj_strftime(jctx *j, const jstr *fmt)
{
    struct tm t;
    time_t now = j->has_now ? (time_t)j->now : time(NULL);
    if (!(j->has_now ? gmtime_r(&now, &t) : localtime_r(&now, &t)))
        return nbj_fail(j, "ValueError", "the time is out of range");
    nb_buf b = {.limit = j->lim.output_bytes};
    for (uint32_t i = 0; i < fmt->n; i++) {
        if (fmt->p[i] != '%') {
            nb_buf_add_char(&b, fmt->p[i]);
            continue;
        }
        char flag = 0;
        if (i + 1 < fmt->n && memchr("-_0^#", fmt->p[i + 1], 5)) flag = fmt->p[++i];
        put(&b, &t, i + 1 < fmt->n ? fmt->p[++i] : 0, flag);
    }
    jval v = b.oom ? nbj_oom(j) : nbj_str(j, b.p ? b.p : "", b.n, nbj_trusted(fmt));
    nb_buf_free(&b);
    return v;
}
