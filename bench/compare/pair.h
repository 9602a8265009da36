/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two endpoints of one process on one adapter, connected to each other. */
#ifndef COMPARE_PAIR_H
#define COMPARE_PAIR_H

#include "check.h"

enum {
    SLOT = 4096,          /* bytes of the largest message */
    WINDOW = 64,          /* most requests outstanding */
    RECEIVES = 64,        /* most receives outstanding */
    SLOTS = WINDOW + RECEIVES,
};

/* One end: its events, its memory, its endpoint. */
struct end {
    DAT_EVD_HANDLE receives, requests, connections;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT context;
    DAT_RMR_CONTEXT remote;
    unsigned char *memory; /* WINDOW slots to send from, then RECEIVES to receive in */
    unsigned next;         /* receive slot that completes next */
};

struct pair {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, arrivals;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_IA_ADDRESS_PTR address; /* the address of B */
    DAT_CONN_QUAL qualifier;
    struct end a, b;
};

/* Opens the adapter and creates all objects but the endpoints. A null address is the
 * adapter's own. */
void pair_open(struct pair *pair, const char *adapter, DAT_IA_ADDRESS_PTR address,
               DAT_CONN_QUAL qualifier);
void pair_close(struct pair *pair);

/* Creates both endpoints and connects A to B. */
void pair_connect(struct pair *pair);
/*
 * Disconnects A, waits for the events of both ends, and frees both endpoints. Before
 * that it takes the flushed completions of all posted receives of each end: OFED's
 * library must not see one after its endpoint was freed.
 */
void pair_disconnect(struct pair *pair, unsigned receives);

static inline unsigned char *send_slot(const struct end *end, unsigned slot)
{
    return end->memory + (size_t)slot * SLOT;
}

static inline unsigned char *receive_slot(const struct end *end, unsigned slot)
{
    return end->memory + (size_t)(WINDOW + slot) * SLOT;
}

#endif
