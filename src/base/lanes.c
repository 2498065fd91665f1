/* The thread team. Three words carry everything:
 *   epoch    goes up when a job is posted (fn and arg were written before it);
 *   left     worker lanes that have not finished the job; lane 0 waits for 0;
 *   phase    goes up when a barrier opens; `arrived` counts the lanes at it.
 * Each lies on cache lines of its own. Waiting is a short spin, then a futex sleep on the word itself. A waiter that
 * goes to sleep first counts itself in `sleepers`, and whoever changes the word looks there afterwards: both are
 * sequentially consistent, so either the sleeper sees the new word (the kernel compares it again) or the waker sees
 * the sleeper. While nobody sleeps, no system call is made.
 */
#include "base/lanes.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_LANES = 256, SPIN_NS = 20000, LINE = 128 }; /* 128: adjacent lines are fetched in pairs */

typedef struct word {
    alignas(LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} word;

struct nb_lanes {
    word epoch, left, phase;
    alignas(LINE) _Atomic uint32_t arrived;
    alignas(LINE) nb_lane_fn *fn; /* written by lane 0 before epoch goes up; NULL: leave */
    void *arg;
    uint64_t spin_ns;
    int n;
    struct member {
        nb_lanes *team;
        pthread_t thread;
        int lane;
    } member[]; /* n, [0] unused */
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(word *w, uint32_t seen)
{
    /* Wakes without reason are fine: the caller looks again. */
    syscall(SYS_futex, (uint32_t *)&w->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake(word *w)
{
    if (atomic_load(&w->sleepers))
        syscall(SYS_futex, (uint32_t *)&w->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns the word's value once it differs from `seen`. */
static uint32_t wait_change(word *w, uint32_t seen, uint64_t spin_ns)
{
    uint32_t v;
    uint64_t end = 0;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            v = atomic_load_explicit(&w->value, memory_order_acquire);
            if (v != seen) return v;
            pause_cpu();
        }
        if (!spin_ns) break;
        uint64_t now = nb_now_ns();
        if (!end) end = now + spin_ns;
        if (now >= end) break;
    }
    atomic_fetch_add(&w->sleepers, 1);
    while ((v = atomic_load(&w->value)) == seen) futex_wait(w, seen);
    atomic_fetch_sub(&w->sleepers, 1);
    return v;
}

static void *lane_main(void *p)
{
    struct member *me = p;
    nb_lanes *l = me->team;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_change(&l->epoch, seen, l->spin_ns);
        if (!l->fn) return NULL;
        l->fn(l->arg, me->lane, l->n);
        if (atomic_fetch_sub(&l->left.value, 1) == 1) wake(&l->left);
    }
}

/* Processors this process may use. */
static int usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n < MAX_LANES ? (int)n : 1;
}

static void post(nb_lanes *l, nb_lane_fn *fn, void *arg)
{
    l->fn = fn;
    l->arg = arg;
    atomic_store_explicit(&l->left.value, (uint32_t)l->n - 1, memory_order_relaxed);
    atomic_fetch_add(&l->epoch.value, 1);
    wake(&l->epoch);
}

/* Tells the first `started` worker lanes to leave, and frees the team. */
static void stop(nb_lanes *l, int started)
{
    post(l, NULL, NULL);
    for (int i = 1; i <= started; i++) pthread_join(l->member[i].thread, NULL);
    free(l);
}

nb_status nb_lanes_new(nb_lanes **out, int n, nb_error *err)
{
    *out = NULL;
    if (n < 1 || n > MAX_LANES) return nb_fail(err, NB_E_USAGE, "threads: %d is not from 1 to %d", n, MAX_LANES);
    size_t bytes = NB_ALIGN_UP(sizeof(nb_lanes) + (size_t)n * sizeof(struct member), (size_t)LINE);
    nb_lanes *l = aligned_alloc(LINE, bytes);
    if (!l) return nb_fail(err, NB_E_NO_MEMORY, "threads: out of memory");
    memset(l, 0, bytes);
    l->n = n;
    /* With more lanes than processors a spinning lane only keeps another from running. */
    l->spin_ns = n <= usable_cpus() ? SPIN_NS : 0;
    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    /* Faults stay open: the kernel kills a process whose thread faults with the signal blocked, and the program could not say why (a blob that was truncated). */
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    for (size_t i = 0; i < NB_COUNT(faults); i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int started = 0, e = 0;
    for (int i = 1; i < n && !e; i++) {
        l->member[i] = (struct member){.team = l, .lane = i};
        e = pthread_create(&l->member[i].thread, NULL, lane_main, &l->member[i]);
        if (!e) started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e) {
        stop(l, started);
        return nb_fail_errno(err, e, "threads: could start %d of %d", started + 1, n);
    }
    *out = l;
    return NB_OK;
}

void nb_lanes_free(nb_lanes *l)
{
    if (l) stop(l, l->n - 1);
}

int nb_lanes_count(const nb_lanes *l) { return l->n; }

void nb_lanes_run(nb_lanes *l, nb_lane_fn *fn, void *arg)
{
    if (l->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    post(l, fn, arg);
    fn(arg, 0, l->n);
    uint32_t left = atomic_load_explicit(&l->left.value, memory_order_acquire);
    while (left) left = wait_change(&l->left, left, l->spin_ns);
}

void nb_lanes_barrier(nb_lanes *l, int lane)
{
    (void)lane;
    if (l->n == 1) return;
    uint32_t phase = atomic_load_explicit(&l->phase.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&l->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)l->n) {
        /* Last one here. The count is cleared before the phase opens: nobody can arrive at the next barrier earlier. */
        atomic_store_explicit(&l->arrived, 0, memory_order_relaxed);
        atomic_fetch_add(&l->phase.value, 1);
        wake(&l->phase);
    } else {
        wait_change(&l->phase, phase, l->spin_ns);
    }
}
