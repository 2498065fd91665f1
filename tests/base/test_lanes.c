/* base/lanes: every lane runs once per call, barriers order what lanes write, sleeping lanes wake. */
#include "base/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MAX = 256 };

static void count_self(void *arg, int lane, int lanes)
{
    _Atomic int *hits = arg;
    (void)lanes;
    atomic_fetch_add(&hits[lane], 1);
}

static void every_lane_runs_once_per_call(void **state)
{
    (void)state;
    static const int team[] = {1, 2, 3, 4, 7, 16, 64};
    for (size_t t = 0; t < NB_COUNT(team); t++) {
        nb_lanes *l;
        nb_error e;
        static _Atomic int hits[MAX];
        memset(hits, 0, sizeof hits);
        assert_int_equal(nb_lanes_new(&l, team[t], &e), NB_OK);
        assert_int_equal(nb_lanes_count(l), team[t]);
        int calls = team[t] > 8 ? 50 : 1000;
        for (int i = 0; i < calls; i++) nb_lanes_run(l, count_self, hits);
        for (int i = 0; i < MAX; i++) assert_int_equal(hits[i], i < team[t] ? calls : 0);
        nb_lanes_free(l);
    }
    nb_lanes_free(NULL);
}

static void wrong_counts_are_refused(void **state)
{
    (void)state;
    static const int bad[] = {0, -1, 257, 1 << 30};
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_lanes *l = NULL;
        nb_error e;
        assert_int_equal(nb_lanes_new(&l, bad[i], &e), NB_E_USAGE);
        assert_null(l);
    }
}

typedef struct relay {
    nb_lanes *team;
    int rounds, value[MAX], wrong;
} relay;

/* In each round a lane writes its own cell, and after the barrier reads its neighbour's: plain memory, so that a
 * missing order shows as a race under TSan and as a wrong sum elsewhere. */
static void pass_on(void *arg, int lane, int lanes)
{
    relay *r = arg;
    int wrong = 0;
    for (int i = 0; i < r->rounds; i++) {
        r->value[lane] = i * 1000 + lane;
        nb_lanes_barrier(r->team, lane);
        int next = (lane + 1) % lanes;
        if (r->value[next] != i * 1000 + next) wrong++;
        nb_lanes_barrier(r->team, lane);
    }
    if (wrong) r->wrong = 1;
}

static void barriers_order_memory(void **state)
{
    (void)state;
    static const int team[] = {1, 2, 3, 5, 9, 33};
    unsigned total = 0;
    for (size_t t = 0; t < NB_COUNT(team); t++) {
        static relay r;
        nb_error e;
        r = (relay){.rounds = team[t] > 4 ? 100 : 3000};
        assert_int_equal(nb_lanes_new(&r.team, team[t], &e), NB_OK);
        for (int i = 0; i < 3; i++) nb_lanes_run(r.team, pass_on, &r);
        assert_int_equal(r.wrong, 0);
        total += 3u * 2u * (unsigned)r.rounds;
        nb_lanes_free(r.team);
    }
    print_message("lanes: %u barriers\n", total);
}

static void nap(long us) { nanosleep(&(struct timespec){0, us * 1000}, NULL); }

/* Lanes that come late, and calls that come late: everybody is asleep by then. */
static void come_late(void *arg, int lane, int lanes)
{
    relay *r = arg;
    for (int late = 0; late < lanes; late++) {
        if (lane == late) nap(500);
        r->value[lane]++;
        nb_lanes_barrier(r->team, lane);
    }
    if (lane == lanes - 1) nap(500); /* lane 0 sleeps until it is done */
}

static void sleepers_wake(void **state)
{
    (void)state;
    static relay r;
    nb_error e;
    r = (relay){0};
    assert_int_equal(nb_lanes_new(&r.team, 3, &e), NB_OK);
    for (int i = 0; i < 30; i++) {
        nap(300);
        nb_lanes_run(r.team, come_late, &r);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(r.value[i], 90);
    nb_lanes_free(r.team);
}

static void teams_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        nb_lanes *l;
        nb_error e;
        static _Atomic int hits[MAX];
        memset(hits, 0, sizeof hits);
        assert_int_equal(nb_lanes_new(&l, 1 + i % 5, &e), NB_OK);
        if (i % 2) nb_lanes_run(l, count_self, hits); /* every other team is freed unused */
        nb_lanes_free(l);
    }
}

static void nothing(void *arg, int lane, int lanes)
{
    (void)arg;
    (void)lane;
    (void)lanes;
}

static void only_barriers(void *arg, int lane, int lanes)
{
    (void)lanes;
    for (int i = 0; i < 2000; i++) nb_lanes_barrier(arg, lane);
}

static void say_what_a_call_costs(void **state)
{
    (void)state;
    nb_lanes *l;
    nb_error e;
    assert_int_equal(nb_lanes_new(&l, 2, &e), NB_OK);
    uint64_t t0 = nb_now_ns();
    for (int i = 0; i < 2000; i++) nb_lanes_run(l, nothing, NULL);
    uint64_t t1 = nb_now_ns();
    nb_lanes_run(l, only_barriers, l);
    uint64_t t2 = nb_now_ns();
    print_message("lanes: 2 lanes, %.2f us a call, %.2f us a barrier\n", (double)(t1 - t0) / 2e6,
                  (double)(t2 - t1) / 2e6);
    nb_lanes_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_lane_runs_once_per_call),
        cmocka_unit_test(wrong_counts_are_refused),
        cmocka_unit_test(barriers_order_memory),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(teams_come_and_go),
        cmocka_unit_test(say_what_a_call_costs),
    };
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
