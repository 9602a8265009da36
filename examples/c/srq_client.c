/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends numbered messages to srq_server, some of them in flight at a time. */
#include "common.h"
#include <netdb.h>
#include <stdint.h>

enum { IN_FLIGHT = 8 };

static uint64_t numbers[IN_FLIGHT];

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

static void completed(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;

    wait_for(evd, DAT_DTO_COMPLETION_EVENT, &event);
    if (event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS) {
        fprintf(stderr, "a send failed: status %d\n",
                (int)event.event_data.dto_completion_event_data.status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv, 1);
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, request_evd, connect_evd;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT context;
    DAT_RMR_CONTEXT remote_context;
    DAT_VLEN registered_bytes;
    DAT_VADDR registered_at;
    DAT_REGION_DESCRIPTION region;
    DAT_EP_ATTR attr;
    DAT_EP_HANDLE ep;
    DAT_EVENT event;
    struct addrinfo *server;
    unsigned long sent;

    if (getaddrinfo(options.host, NULL, NULL, &server) != 0) {
        fprintf(stderr, "no address for %s\n", options.host);
        return 1;
    }
    must(dat_ia_open((char *)options.ia, 8, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    region.for_va = numbers;
    must(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof numbers, pz,
                        DAT_MEM_PRIV_LOCAL_READ_FLAG, &lmr, &context, &remote_context,
                        &registered_bytes, &registered_at),
         "dat_lmr_create");
    must(dat_evd_create(ia, IN_FLIGHT, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &request_evd),
         "dat_evd_create for requests");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connect_evd),
         "dat_evd_create for connections");

    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_message_size = sizeof numbers[0];
    attr.max_request_dtos = IN_FLIGHT;
    attr.max_request_iov = 1;
    attr.max_recv_iov = 1;
    must(dat_ep_create(ia, pz, DAT_HANDLE_NULL, request_evd, connect_evd, &attr, &ep),
         "dat_ep_create");
    must(dat_ep_connect(ep, server->ai_addr, options.port, 5000000, 0, NULL, DAT_QOS_BEST_EFFORT,
                        DAT_CONNECT_DEFAULT_FLAG),
         "dat_ep_connect");
    wait_for(connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
    freeaddrinfo(server);

    for (sent = 0; sent < options.count; sent++) {
        uint64_t *number = &numbers[sent % IN_FLIGHT];
        DAT_LMR_TRIPLET segment;
        DAT_DTO_COOKIE cookie;

        if (sent >= IN_FLIGHT)
            completed(request_evd);
        *number = sent;
        memset(&segment, 0, sizeof segment);
        segment.lmr_context = context;
        segment.virtual_address = (DAT_VADDR)(uintptr_t)number;
        segment.segment_length = sizeof *number;
        cookie.as_64 = sent;
        must(dat_ep_post_send(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG),
             "dat_ep_post_send");
    }
    for (sent = sent < IN_FLIGHT ? sent : IN_FLIGHT; sent > 0; sent--)
        completed(request_evd);

    must(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG), "dat_ep_disconnect");
    wait_for(connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
    printf("%lu messages sent\n", options.count);

    must(dat_ep_free(ep), "dat_ep_free");
    must(dat_evd_free(connect_evd), "dat_evd_free");
    must(dat_evd_free(request_evd), "dat_evd_free");
    must(dat_lmr_free(lmr), "dat_lmr_free");
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    return 0;
}
