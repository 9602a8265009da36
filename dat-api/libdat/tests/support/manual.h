/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The surroundings of the manual's examples, which are fragments. */
#include <dat/dat_registry.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum { LOW = 16, RECEIVES = 8, SLOTS = 64 };

struct slot {
    char text[56];
    DAT_UINT64 sequence;
};
struct offer {
    DAT_RMR_CONTEXT context;
    DAT_VADDR address;
};
struct address {
    struct sockaddr *ai_addr;
};

extern DAT_RETURN answer;
extern DAT_IA_HANDLE ia;
extern DAT_PZ_HANDLE pz;
extern DAT_EVD_HANDLE evd, async_evd, recv_evd, request_evd, connect_evd, events, requests;
extern DAT_EP_HANDLE ep;
extern DAT_CNO_HANDLE cno;
extern int set;
extern DAT_SRQ_HANDLE srq;
extern DAT_CR_HANDLE cr;
extern DAT_RMR_HANDLE rmr;
extern DAT_LMR_CONTEXT lmr_context;
extern DAT_LMR_TRIPLET segment, offer_segment;
extern DAT_DTO_COOKIE cookie, offer_cookie;
extern DAT_CONTEXT context;
extern DAT_EP_ATTR attr;
extern DAT_EP_PARAM param;
extern DAT_EVENT event;
extern DAT_COUNT more, at;
extern struct offer *offer, ring;
extern struct slot *slot;
extern const struct address *server;
extern void *buffer, *message, *session, *work;
extern char (*buffers)[4096];
extern DAT_VLEN bytes;
extern DAT_UINT64 number, sent;

void fail(DAT_RETURN why);
void handle(const DAT_EVENT *one);
void post_again(DAT_SRQ_HANDLE to);
void refill(DAT_HANDLE which);
void refused(DAT_EVENT_NUMBER why);
void take_completions(void);
