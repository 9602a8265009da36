/* Threads that are cancelled while they wait. */
#include "cancel.h"

struct waiter {
    DAT_EVD_HANDLE evd;
    DAT_TIMEOUT timeout;
    DAT_COUNT threshold;
    int state;
    atomic_int taken;
    atomic_int cleaned;
};

/* Runs as the thread unwinds, when the library has restored its signal mask. */
static void clean(void *argument)
{
    struct waiter *waiter = argument;
    sigset_t mask;

    HOLDS(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    for (int signal = 1; signal < SIGSYS; signal++)
        HOLDS(!sigismember(&mask, signal));
    waiter->cleaned = 1;
}

/* Takes events until it is cancelled. */
static void *take(void *argument)
{
    struct waiter *waiter = argument;
    DAT_EVENT event;
    DAT_COUNT more;
    int before;

    pthread_cleanup_push(clean, waiter);
    pthread_setcancelstate(waiter->state, &before);
    while (dat_evd_wait(waiter->evd, waiter->timeout, waiter->threshold, &event, &more) ==
           DAT_SUCCESS) {
        waiter->taken++;
        if (waiter->state == PTHREAD_CANCEL_DISABLE)
            break;
    }
    /* The cancellation state is as before the call. */
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    HOLDS(before == waiter->state);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

static int take_all(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_RETURN answer;
    int taken = 0;

    while ((answer = dat_evd_dequeue(evd, &event)) == DAT_SUCCESS)
        taken++;
    HOLDS(IS_EMPTY(answer));
    return taken;
}

/* A cancelled wait releases the EVD, with its events. */
static void once(struct waiter waiter)
{
    pthread_t thread;
    DAT_EVENT event;
    DAT_COUNT more;

    start(&thread, take, &waiter);
    until_waited(waiter.evd);
    if (waiter.threshold > 1)
        post(waiter.evd);
    HOLDS(pthread_cancel(thread) == 0);
    cancelled(thread);
    HOLDS(waiter.cleaned && waiter.taken == 0);
    HOLDS(take_all(waiter.evd) == waiter.threshold - 1);
    /* The next wait works as usual. */
    EXPECT(dat_evd_wait(waiter.evd, 1000, 1, &event, &more),
           DAT_CLASS_ERROR | DAT_TIMEOUT_EXPIRED);
}

/* At whatever point the cancellation comes, each event is either taken once or
 * still queued. */
static void in_a_race(DAT_EVD_HANDLE evd)
{
    for (unsigned round = 0; round < 200; round++) {
        struct waiter waiter = {evd, DAT_TIMEOUT_INFINITE, 1, PTHREAD_CANCEL_ENABLE, 0, 0};
        pthread_t thread;
        int posted = (int)(round % 5);

        start(&thread, take, &waiter);
        dawdle(round);
        for (int at = 0; at < posted; at++)
            post(evd);
        dawdle(round / 5);
        HOLDS(pthread_cancel(thread) == 0);
        cancelled(thread);
        HOLDS(waiter.cleaned);
        HOLDS(waiter.taken + take_all(evd) == posted);
    }
}

/* A thread that has disabled cancellation itself gets its event. */
static void held(DAT_EVD_HANDLE evd)
{
    struct waiter waiter = {evd, DAT_TIMEOUT_INFINITE, 1, PTHREAD_CANCEL_DISABLE, 0, 0};
    pthread_t thread;

    start(&thread, take, &waiter);
    until_waited(evd);
    HOLDS(pthread_cancel(thread) == 0);
    usleep(20000);
    post(evd);
    cancelled(thread);
    HOLDS(waiter.taken == 1 && waiter.cleaned);
}

/* The same for completions: the device's event for a wait that was cancelled. */
static void of_transfers(void)
{
    struct pair *pair = connected();
    DAT_DTO_COOKIE cookie = {.as_64 = 7};

    for (unsigned round = 0; round < 50; round++) {
        struct waiter waiter = {pair->received, round % 2 ? DAT_TIMEOUT_INFINITE : LONG, 1,
                                PTHREAD_CANCEL_ENABLE, 0, 0};
        pthread_t thread;
        DAT_EVENT event;
        DAT_COUNT more;

        OK(dat_ep_post_recv(pair->passive, 1, &pair->segment, cookie,
                            DAT_COMPLETION_DEFAULT_FLAG));
        start(&thread, take, &waiter);
        until_waited(pair->received);
        dawdle(round);
        if (round % 3 == 0) {
            HOLDS(pthread_cancel(thread) == 0);
            cancelled(thread);
        }
        OK(dat_ep_post_send(pair->active, 1, &pair->segment, cookie,
                            DAT_COMPLETION_DEFAULT_FLAG));
        if (round % 3 != 0) {
            dawdle(round / 3);
            HOLDS(pthread_cancel(thread) == 0);
            cancelled(thread);
        }
        if (waiter.taken == 0) {
            OK(dat_evd_wait(pair->received, LONG, 1, &event, &more));
            HOLDS(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
        }
        HOLDS(take_all(pair->received) == 0);
        OK(dat_evd_wait(pair->sent, LONG, 1, &event, &more));
    }
    disconnect(pair);
}

void wait_evd(void)
{
    DAT_EVD_HANDLE evd = software_evd(DAT_HANDLE_NULL);

    once((struct waiter){evd, DAT_TIMEOUT_INFINITE, 1, PTHREAD_CANCEL_ENABLE, 0, 0});
    once((struct waiter){evd, LONG, 1, PTHREAD_CANCEL_ENABLE, 0, 0});
    once((struct waiter){evd, DAT_TIMEOUT_INFINITE, 2, PTHREAD_CANCEL_ENABLE, 0, 0});
    in_a_race(evd);
    held(evd);
    OK(dat_evd_free(evd));
    of_transfers();
}

struct cno_waiter {
    DAT_CNO_HANDLE cno;
    atomic_int told;
};

static void *be_told(void *argument)
{
    struct cno_waiter *waiter = argument;
    DAT_EVD_HANDLE evd;

    for (;;)
        if (dat_cno_wait(waiter->cno, DAT_TIMEOUT_INFINITE, &evd) == DAT_SUCCESS)
            waiter->told++;
    return NULL;
}

/* A trigger that reached no waiter is left for the next one. */
void wait_cno(void)
{
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd, hint;

    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    evd = software_evd(cno);
    for (unsigned round = 0; round < 200; round++) {
        struct cno_waiter first = {cno, 0}, second = {cno, 0};
        pthread_t threads[2];
        int is_posted = round % 4 != 0;

        start(&threads[0], be_told, &first);
        start(&threads[1], be_told, &second);
        dawdle(round);
        if (is_posted && round % 2 == 0)
            post(evd);
        HOLDS(pthread_cancel(threads[0]) == 0);
        cancelled(threads[0]);
        if (is_posted && round % 2 != 0)
            post(evd);
        /* The remaining waiter is woken, unless the other was. */
        while (is_posted && first.told + second.told == 0)
            sched_yield();
        HOLDS(pthread_cancel(threads[1]) == 0);
        cancelled(threads[1]);
        HOLDS(first.told + second.told == is_posted);
        HOLDS(take_all(evd) == is_posted);
    }
    post(evd);
    OK(dat_cno_wait(cno, LONG, &hint));
    HOLDS(hint == evd && take_all(evd) == 1);
    OK(dat_evd_free(evd));
    /* No thread counts as waiting any more. */
    OK(dat_cno_free(cno));
}
