/*
 * Sleeps in which the thread may be cancelled (pthreads(7)).
 * Decision: docs/decisions/025-cancellation-between-steps.md
 *
 * This file is compiled with -fexceptions: a cancelled thread unwinds its
 * stack and runs the cleanup handlers that are registered here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define PLACES 3

/* One sleep. The struct CSleep in cancel.rs has the same layout. */
struct dat_sleep {
    const struct timespec *timeout; /* null: no time limit */
    uint64_t mask;                  /* the kernel's: signal n is bit n - 1 */
    struct epoll_event events[PLACES];
    int watch;
    int found;
    int error;
};

static int sleep_for(struct dat_sleep *sleep)
{
    struct pollfd watched = {.fd = sleep->watch, .events = POLLIN};
    sigset_t mask = {0};
    int found;

    /* A sigset_t begins with the kernel's mask. */
    memcpy(&mask, &sleep->mask, sizeof sleep->mask);
    if (sleep->timeout == NULL)
        return epoll_pwait(sleep->watch, sleep->events, PLACES, -1, &mask);
#if __GLIBC_PREREQ(2, 35)
    found = epoll_pwait2(sleep->watch, sleep->events, PLACES, sleep->timeout, &mask);
    /* Linux has this call since 5.11. A container may refuse calls that it
     * does not know with EPERM. */
    if (found >= 0 || (errno != ENOSYS && errno != EPERM))
        return found;
#endif
    found = ppoll(&watched, 1, sleep->timeout, &mask);
    return found > 0 ? epoll_wait(sleep->watch, sleep->events, PLACES, 0) : found;
}

/*
 * Sleeps with the cancellation state that the application had before the DAT
 * call. If the thread is cancelled, gone(wait) is called and this function
 * does not return.
 */
__attribute__((visibility("hidden")))
void libdat_sleep(struct dat_sleep *sleep, int state, void (*gone)(void *), void *wait)
{
    int held;

    pthread_cleanup_push(gone, wait);
    pthread_setcancelstate(state, &held);
    pthread_testcancel();
    sleep->found = sleep_for(sleep);
    sleep->error = errno;
    pthread_setcancelstate(held, &state);
    pthread_cleanup_pop(0);
}

/* As above, without the sleep: tests for cancellation once. */
__attribute__((visibility("hidden")))
void libdat_pause(int state, void (*gone)(void *), void *wait)
{
    int held;

    pthread_cleanup_push(gone, wait);
    pthread_setcancelstate(state, &held);
    pthread_testcancel();
    pthread_setcancelstate(held, &state);
    pthread_cleanup_pop(0);
}
