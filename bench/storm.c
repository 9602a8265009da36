/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Connections per second: every endpoint of one process connects to another one
 * of the same adapter, all at once. For perf-scripts/storm. */
#include "../examples/c/common.h"
#include <pthread.h>
#include <time.h>

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_IA_ATTR adapter;
static unsigned long each; /* connections of one thread */
static pthread_barrier_t begun, ended;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Connects its endpoints: one half requests, the other half accepts. */
static void *run(void *unused)
{
    DAT_EVD_HANDLE events, transfers;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qualifier;
    DAT_EP_ATTR attr = attributes(2, 2);
    DAT_EP_HANDLE *eps = calloc(2 * each, sizeof *eps);
    unsigned long at, accepted = 0, up = 0;

    (void)unused;
    must(dat_evd_create(ia, (DAT_COUNT)(8 * each + 8), DAT_HANDLE_NULL,
                        DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &events),
         "dat_evd_create");
    must(dat_evd_create(ia, (DAT_COUNT)(8 * each + 8), DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG,
                        &transfers),
         "dat_evd_create");
    for (at = 0; at < 2 * each; at++)
        must(dat_ep_create(ia, pz, transfers, transfers, events, &attr, &eps[at]),
             "dat_ep_create");
    must(dat_psp_create_any(ia, &qualifier, events, DAT_PSP_CONSUMER_FLAG, &psp),
         "dat_psp_create_any");
    pthread_barrier_wait(&begun);
    for (at = 0; at < each; at++)
        must(dat_ep_connect(eps[at], adapter.ia_address_ptr, qualifier, 60000000, 0, NULL,
                            DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG),
             "dat_ep_connect");
    while (up < 2 * each) {
        DAT_EVENT event;

        wait_for_event(events, &event);
        if (event.event_number == DAT_CONNECTION_REQUEST_EVENT)
            must(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle,
                               eps[each + accepted++], 0, NULL),
                 "dat_cr_accept");
        else if (event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED)
            up++;
        else
            FAIL("event 0x%x after %lu", (unsigned)event.event_number, up);
    }
    pthread_barrier_wait(&ended);
    return NULL;
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_PROVIDER_ATTR provider;
    unsigned long threads;
    double begin;
    pthread_t thread;

    if (argc != 4) {
        fprintf(stderr, "usage: storm ADAPTER CONNECTIONS THREADS\n");
        return USAGE;
    }
    threads = (unsigned long)number(argv[3], 1, 64);
    each = (unsigned long)number(argv[2], 1, 20000) / threads;
    must(dat_ia_openv(argv[1], 64, &async_evd, &ia, 1, 2, DAT_TRUE), "dat_ia_openv");
    must(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &adapter, DAT_PROVIDER_FIELD_ALL, &provider),
         "dat_ia_query");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    pthread_barrier_init(&begun, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&ended, NULL, (unsigned)threads + 1);
    for (unsigned long at = 0; at < threads; at++)
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            FAIL("no thread");
    pthread_barrier_wait(&begun);
    begin = now();
    pthread_barrier_wait(&ended);
    printf("%.0f\n", (double)(each * threads) / (now() - begin));
    must(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), "dat_ia_close");
    return 0;
}
