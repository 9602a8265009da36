/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Single requests and their completions. Inline, so that only the library is
 * measured. Every completion is checked: status, cookie, length of receives.
 */
#ifndef COMPARE_TRANSFER_H
#define COMPARE_TRANSFER_H

#include "pair.h"

static inline void post_receive(const struct end *end, unsigned slot)
{
    DAT_LMR_TRIPLET segment = local_segment(end->context, receive_slot(end, slot), SLOT);
    DAT_DTO_COOKIE cookie = { .as_64 = slot };

    must(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static inline void post_send(const struct end *end, unsigned slot, DAT_UINT32 bytes)
{
    DAT_LMR_TRIPLET segment = local_segment(end->context, send_slot(end, slot), bytes);
    DAT_DTO_COOKIE cookie = { .as_64 = slot };

    must(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Writes a slot of `end` into the slot of the same number of `to`. */
static inline void post_write(const struct end *end, const struct end *to, unsigned slot,
                              DAT_UINT32 bytes)
{
    DAT_LMR_TRIPLET from = local_segment(end->context, send_slot(end, slot), bytes);
    DAT_RMR_TRIPLET into = remote_segment(to->remote, receive_slot(to, slot), bytes);
    DAT_DTO_COOKIE cookie = { .as_64 = slot };

    must(dat_ep_post_rdma_write(end->ep, 1, &from, cookie, &into, DAT_COMPLETION_DEFAULT_FLAG));
}

static inline const DAT_DTO_COMPLETION_EVENT_DATA *completion(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *data = &event->event_data.dto_completion_event_data;

    if (event->event_number != DAT_DTO_COMPLETION_EVENT)
        fail(STATUS_FAILED, "event 0x%x instead of a completion", (unsigned)event->event_number);
    if (data->status != DAT_DTO_SUCCESS)
        fail(STATUS_FAILED, "a request failed: status %d", (int)data->status);
    return data;
}

/* Polls until there is an event. */
static inline void dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
    DAT_RETURN code;

    while ((code = dat_evd_dequeue(evd, event)) != DAT_SUCCESS)
        if (DAT_GET_TYPE(code) != DAT_QUEUE_EMPTY)
            call_failed(code, "dat_evd_dequeue");
}

/* Takes the completion of a request; returns its slot. */
static inline unsigned take_request(const struct end *end)
{
    DAT_EVENT event;

    dequeue(end->requests, &event);
    return (unsigned)completion(&event)->user_cookie.as_64;
}

static inline unsigned received(struct end *end, const DAT_EVENT *event, DAT_UINT32 bytes)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *data = completion(event);
    unsigned slot = end->next;

    if (data->user_cookie.as_64 != slot || data->transfered_length != bytes)
        fail(STATUS_FAILED, "received %lu bytes in slot %lu instead of %lu in slot %u",
             (unsigned long)data->transfered_length, (unsigned long)data->user_cookie.as_64,
             (unsigned long)bytes, slot);
    end->next = (slot + 1) % RECEIVES;
    return slot;
}

/* Takes the next message by polling; returns its slot. */
static inline unsigned take_receive(struct end *end, DAT_UINT32 bytes)
{
    DAT_EVENT event;

    dequeue(end->receives, &event);
    return received(end, &event, bytes);
}

/* Takes the next message by waiting; returns its slot. */
static inline unsigned wait_receive(struct end *end, DAT_UINT32 bytes)
{
    DAT_EVENT event;
    DAT_COUNT more;

    must(dat_evd_wait(end->receives, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    return received(end, &event, bytes);
}

#endif
