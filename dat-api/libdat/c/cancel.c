/*
 * Sleeping so that the thread may be cancelled (pthreads(7)) meanwhile.
 *
 * Compiled with -fexceptions: a cancelled thread unwinds its stack, and calls
 * what is registered here as it leaves these frames.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <time.h>

#define PLACES 2

/* One sleep: cancel.rs has the same structure. */
struct dat_sleep {
    const struct timespec *timeout; /* null: without end */
    const sigset_t *mask;
    struct epoll_event events[PLACES];
    int watch;
    int found;
    int error;
};

static int sleep_for(struct dat_sleep *sleep)
{
    struct pollfd watched = {.fd = sleep->watch, .events = POLLIN};
    int found;

    if (sleep->timeout == NULL)
        return epoll_pwait(sleep->watch, sleep->events, PLACES, -1, sleep->mask);
#if __GLIBC_PREREQ(2, 35)
    found = epoll_pwait2(sleep->watch, sleep->events, PLACES, sleep->timeout, sleep->mask);
    /* Linux has it since 5.11, and a container may forbid what it does not know. */
    if (found >= 0 || (errno != ENOSYS && errno != EPERM))
        return found;
#endif
    found = ppoll(&watched, 1, sleep->timeout, sleep->mask);
    return found > 0 ? epoll_wait(sleep->watch, sleep->events, PLACES, 0) : found;
}

/*
 * Sleeps with the cancellation state that the caller's caller has. If the thread
 * is cancelled, gone(wait) is called and this does not return.
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

/* The same without a sleep. */
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
