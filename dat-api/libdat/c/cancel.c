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
#include <time.h>

/*
 * Calls ppoll with the cancellation state that the application had before the
 * DAT call. Returns what ppoll returned, or the negative error number. If the
 * thread is cancelled, gone(wait) is called and this function does not return.
 */
__attribute__((visibility("hidden")))
int libdat_sleep(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const uint64_t *kernel_mask, int state, void (*gone)(void *), void *wait)
{
    sigset_t mask = {0};
    int found, held;

    /* A sigset_t begins with the kernel's mask: signal n is bit n - 1. */
    memcpy(&mask, kernel_mask, sizeof *kernel_mask);
    pthread_cleanup_push(gone, wait);
    pthread_setcancelstate(state, &held);
    pthread_testcancel();
    found = ppoll(fds, count, timeout, &mask);
    if (found < 0)
        found = -errno;
    pthread_setcancelstate(held, &state);
    pthread_cleanup_pop(0);
    return found;
}

/* As above, but tests for cancellation once instead of calling ppoll. */
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
