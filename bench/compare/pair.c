/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

/* Explicit attributes, so that both libraries use the same values and no defaults. */
static const DAT_EP_ATTR attributes = {
    .service_type = DAT_SERVICE_TYPE_RC,
    .max_message_size = SLOT,
    .max_rdma_size = SLOT,
    .qos = DAT_QOS_BEST_EFFORT,
    .recv_completion_flags = DAT_COMPLETION_DEFAULT_FLAG,
    .request_completion_flags = DAT_COMPLETION_DEFAULT_FLAG,
    .max_recv_dtos = RECEIVES,
    .max_request_dtos = WINDOW,
    .max_recv_iov = 1,
    .max_request_iov = 1,
    .max_rdma_read_in = 1,
    .max_rdma_read_out = 1,
    .max_rdma_read_iov = 1,
    .max_rdma_write_iov = 1,
};

static void expect(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number, DAT_EVENT *event, const char *what)
{
    DAT_COUNT more;

    must(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, event, &more));
    if (event->event_number != number)
        fail(STATUS_FAILED, "%s: event 0x%x instead of 0x%x", what,
             (unsigned)event->event_number, (unsigned)number);
}

static void end_open(const struct pair *pair, struct end *end)
{
    if (posix_memalign((void **)&end->memory, SLOT, (size_t)SLOTS * SLOT) != 0)
        fail(STATUS_ENVIRONMENT, "no memory");
    memset(end->memory, 0, (size_t)SLOTS * SLOT);
    must(register_memory(pair->ia, pair->pz, end->memory, (DAT_VLEN)SLOTS * SLOT, &end->lmr,
                         &end->context, &end->remote));
    must(dat_evd_create(pair->ia, RECEIVES, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &end->receives));
    must(dat_evd_create(pair->ia, WINDOW, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &end->requests));
    must(dat_evd_create(pair->ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG,
                        &end->connections));
}

static void end_close(struct end *end)
{
    must(dat_evd_free(end->receives));
    must(dat_evd_free(end->requests));
    must(dat_evd_free(end->connections));
    must(dat_lmr_free(end->lmr));
    free(end->memory);
}

void pair_open(struct pair *pair, const char *adapter, DAT_IA_ADDRESS_PTR address,
               DAT_CONN_QUAL qualifier)
{
    static DAT_IA_ATTR answer;
    DAT_RETURN opened;

    memset(pair, 0, sizeof *pair);
    pair->async = DAT_HANDLE_NULL;
    opened = dat_ia_open((char *)adapter, 8, &pair->async, &pair->ia);
    if (opened != DAT_SUCCESS) {
        const char *type = "", *subtype = "";

        dat_strerror(opened, &type, &subtype);
        fail(STATUS_ENVIRONMENT, "the adapter '%s' cannot be opened: %s %s (0x%x); %s", adapter,
             type, subtype, (unsigned)opened,
             COMPARE_VERSION[0] == '1'
                 ? "DAT_DBG_TYPE=1 DAT_DBG_DEST=1 prints the cause"
                 : "is it in the file that DAT_OVERRIDE names? DAT_DBG_TYPE=0xffff prints more");
    }
    pair->qualifier = qualifier;
    pair->address = address;
    if (address == NULL) {
        must(dat_ia_query(pair->ia, NULL, DAT_IA_FIELD_ALL, &answer, 0, NULL));
        pair->address = answer.ia_address_ptr;
    }
    must(dat_pz_create(pair->ia, &pair->pz));
    end_open(pair, &pair->a);
    end_open(pair, &pair->b);
    must(dat_evd_create(pair->ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &pair->arrivals));
    must(dat_psp_create(pair->ia, qualifier, pair->arrivals, DAT_PSP_CONSUMER_FLAG, &pair->psp));
}

void pair_close(struct pair *pair)
{
    must(dat_psp_free(pair->psp));
    must(dat_evd_free(pair->arrivals));
    end_close(&pair->a);
    end_close(&pair->b);
    must(dat_pz_free(pair->pz));
    must(dat_ia_close(pair->ia, DAT_CLOSE_ABRUPT_FLAG));
}

static void endpoint(const struct pair *pair, struct end *end)
{
    must(dat_ep_create(pair->ia, pair->pz, end->receives, end->requests, end->connections,
                       &attributes, &end->ep));
    end->next = 0;
}

void pair_connect(struct pair *pair)
{
    DAT_EVENT event;

    endpoint(pair, &pair->a);
    endpoint(pair, &pair->b);
    must(dat_ep_connect(pair->a.ep, pair->address, pair->qualifier, DAT_TIMEOUT_INFINITE, 0, NULL,
                        DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    expect(pair->arrivals, DAT_CONNECTION_REQUEST_EVENT, &event, "waiting for the request");
    must(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, pair->b.ep, 0, NULL));
    expect(pair->b.connections, DAT_CONNECTION_EVENT_ESTABLISHED, &event, "accepting");
    expect(pair->a.connections, DAT_CONNECTION_EVENT_ESTABLISHED, &event, "connecting");
}

static void take_flushed(const struct end *end, unsigned receives)
{
    DAT_EVENT event;
    DAT_COUNT more;

    /* OFED's library reports some completions as events of its extensions, so the events are only counted. */
    for (; receives > 0; receives--)
        must(dat_evd_wait(end->receives, DAT_TIMEOUT_INFINITE, 1, &event, &more));
}

void pair_disconnect(struct pair *pair, unsigned receives)
{
    DAT_EVENT event;

    must(dat_ep_disconnect(pair->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect(pair->a.connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event, "disconnecting");
    expect(pair->b.connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event, "being disconnected");
    take_flushed(&pair->a, receives);
    take_flushed(&pair->b, receives);
    must(dat_ep_free(pair->a.ep));
    must(dat_ep_free(pair->b.ep));
}
