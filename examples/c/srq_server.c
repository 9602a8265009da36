/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server whose endpoint takes its receives from a shared receive queue.
 *
 * The queue has a low watermark. A second thread waits for its event, posts
 * the buffers again that the first one is done with, and arms the watermark
 * anew. The first thread takes messages until it has seen as many as asked
 * for, checks their contents, and disconnects.
 */
#include "common.h"
#include <pthread.h>
#include <stdint.h>

enum { BUFFERS = 64, LOW = 16, BYTES = 256 };

static unsigned char memory[BUFFERS][BYTES];
static DAT_LMR_CONTEXT memory_context;
static DAT_SRQ_HANDLE srq;
static DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;

/* Buffers that may be posted again. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done_with[BUFFERS];
static int done_count;
static unsigned long refills;

static void post(int buffer)
{
    DAT_LMR_TRIPLET segment;
    DAT_DTO_COOKIE cookie;

    memset(&segment, 0, sizeof segment);
    segment.lmr_context = memory_context;
    segment.virtual_address = (DAT_VADDR)(uintptr_t)memory[buffer];
    segment.segment_length = BYTES;
    cookie.as_64 = (DAT_UINT64)buffer;
    must(dat_srq_post_recv(srq, 1, &segment, cookie), "dat_srq_post_recv");
}

/* Posts what can be posted again; how many that were. */
static int refill(void)
{
    int again[BUFFERS], count, at;

    pthread_mutex_lock(&lock);
    count = done_count;
    memcpy(again, done_with, sizeof again);
    done_count = 0;
    pthread_mutex_unlock(&lock);
    for (at = 0; at < count; at++)
        post(again[at]);
    return count;
}

static void *refiller(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN answer;

    (void)unused;
    for (;;) {
        answer = dat_evd_wait(async_evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
        /* The adapter is being closed: nothing more to do. */
        if (DAT_GET_TYPE(answer) == DAT_ABORT || DAT_GET_TYPE(answer) == DAT_INVALID_HANDLE)
            return NULL;
        if (DAT_GET_TYPE(answer) == DAT_INTERRUPTED_CALL)
            continue;
        must(answer, "dat_evd_wait for asynchronous events");
        if (event.event_data.asynch_error_event_data.dat_handle != srq ||
            event.event_data.asynch_error_event_data.reason != DAT_SRQ_LOW_WATERMARK_EVENT) {
            fprintf(stderr, "unexpected asynchronous event 0x%x\n", (unsigned)event.event_number);
            exit(1);
        }
        refills++;
        /* The buffers are taken from the queue before their messages are
         * seen here: there may be nothing to post yet. */
        while (refill() == 0)
            sched_yield();
        must(dat_srq_set_lw(srq, LOW), "dat_srq_set_lw");
    }
}

static void wait_for(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number, DAT_EVENT *event)
{
    DAT_COUNT more;

    must(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, event, &more), "dat_evd_wait");
    if (event->event_number != number) {
        fprintf(stderr, "event 0x%x instead of 0x%x\n", (unsigned)event->event_number,
                (unsigned)number);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv, 0);
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_CONTEXT remote_context;
    DAT_VLEN registered_bytes;
    DAT_VADDR registered_at;
    DAT_REGION_DESCRIPTION region;
    DAT_EVD_HANDLE recv_evd, request_evd, connect_evd, request_for_connection_evd;
    DAT_SRQ_ATTR srq_attr = { BUFFERS, 1, DAT_SRQ_LW_DEFAULT };
    DAT_EP_ATTR ep_attr;
    DAT_EP_HANDLE ep;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    pthread_t thread;
    unsigned long seen;
    int buffer;

    must(dat_ia_open((char *)options.ia, 16, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    region.for_va = memory;
    must(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                        DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG, &lmr,
                        &memory_context, &remote_context, &registered_bytes, &registered_at),
         "dat_lmr_create");
    must(dat_evd_create(ia, BUFFERS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &recv_evd),
         "dat_evd_create for receives");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &request_evd),
         "dat_evd_create for requests");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connect_evd),
         "dat_evd_create for connections");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &request_for_connection_evd),
         "dat_evd_create for connection requests");

    must(dat_srq_create(ia, pz, &srq_attr, &srq), "dat_srq_create");
    for (buffer = 0; buffer < BUFFERS; buffer++)
        post(buffer);
    must(dat_srq_set_lw(srq, LOW), "dat_srq_set_lw");

    memset(&ep_attr, 0, sizeof ep_attr);
    ep_attr.service_type = DAT_SERVICE_TYPE_RC;
    ep_attr.max_message_size = BYTES;
    ep_attr.max_rdma_size = BYTES;
    ep_attr.max_recv_dtos = DAT_HW_DEFAULT;
    ep_attr.max_request_dtos = 8;
    ep_attr.max_recv_iov = 1;
    ep_attr.max_request_iov = 1;
    ep_attr.srq_soft_hw = DAT_HW_DEFAULT;
    must(dat_ep_create_with_srq(ia, pz, recv_evd, request_evd, connect_evd, srq, &ep_attr, &ep),
         "dat_ep_create_with_srq");

    must(dat_psp_create(ia, options.port, request_for_connection_evd, DAT_PSP_CONSUMER_FLAG, &psp),
         "dat_psp_create");
    printf("listening on %llu\n", (unsigned long long)options.port);
    fflush(stdout);
    wait_for(request_for_connection_evd, DAT_CONNECTION_REQUEST_EVENT, &event);
    must(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL),
         "dat_cr_accept");
    wait_for(connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
    if (pthread_create(&thread, NULL, refiller, NULL) != 0) {
        perror("pthread_create");
        return 1;
    }

    for (seen = 0; seen < options.count; seen++) {
        const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        uint64_t number;

        wait_for(recv_evd, DAT_DTO_COMPLETION_EVENT, &event);
        if (dto->status != DAT_DTO_SUCCESS || dto->transfered_length != sizeof number) {
            fprintf(stderr, "message %lu: status %d, %llu bytes\n", seen, (int)dto->status,
                    (unsigned long long)dto->transfered_length);
            return 1;
        }
        buffer = (int)dto->user_cookie.as_64;
        memcpy(&number, memory[buffer], sizeof number);
        if (number != seen) {
            fprintf(stderr, "message %lu carries %llu\n", seen, (unsigned long long)number);
            return 1;
        }
        pthread_mutex_lock(&lock);
        done_with[done_count++] = buffer;
        pthread_mutex_unlock(&lock);
    }

    /* The client disconnects when it has sent everything. */
    wait_for(connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
    printf("%lu messages, refilled %lu times\n", seen, refills);
    must(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), "dat_ia_close");
    pthread_join(thread, NULL);
    return 0;
}
