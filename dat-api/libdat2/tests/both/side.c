/* See side.h. DAT_VERSION is 1 or 2. */
#if DAT_VERSION == 1
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "side.h"

#define SECONDS(n) ((n) * 1000000u)
#define BYTES 4096
/* Where in the memory: messages to the peer, messages of the peer, what the peer writes,
 * what is read back from the peer. */
#define OUTGOING 0
#define INCOMING 512
#define TARGET 1024
#define BACK 2048
#define LENGTH 1000
/* Receives of each side: for two messages, and for the immediate data of version 2. */
#define RECEIVES (DAT_VERSION == 1 ? 3 : 2)

#define HOLDS(condition) \
    do { \
        if (!(condition)) { \
            printf("uDAPL %d: %s:%d: not so: %s\n", DAT_VERSION, __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)
#define OK(call) \
    do { \
        DAT_RETURN code_ = (call); \
        if (code_ != DAT_SUCCESS) { \
            const char *major_ = "", *minor_ = ""; \
            dat_strerror(code_, &major_, &minor_); \
            printf("uDAPL %d: %s:%d: %s: %#x %s %s\n", DAT_VERSION, __FILE__, __LINE__, #call, code_, \
                   major_, minor_); \
            exit(1); \
        } \
    } while (0)
#define REFUSED(call, subtype) \
    do { \
        DAT_RETURN code_ = (call); \
        if (DAT_GET_TYPE(code_) != DAT_INVALID_HANDLE || DAT_GET_SUBTYPE(code_) != (subtype)) { \
            printf("uDAPL %d: %s:%d: %s: %#x\n", DAT_VERSION, __FILE__, __LINE__, #call, code_); \
            exit(1); \
        } \
    } while (0)

/* A message: where the peer may write, or 0. */
struct message {
    DAT_UINT64 address;
    DAT_UINT32 context;
    DAT_UINT32 number;
};

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EP_HANDLE ep;
static DAT_EVD_HANDLE sent, received, connections, requests;
static DAT_PSP_HANDLE psp;
static DAT_IA_ATTR attr;
static unsigned char memory[BYTES] __attribute__((aligned(4096)));
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;
static struct message peer;

static DAT_EVENT next(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT nmore;

    memset(&event, 0, sizeof event);
    OK(dat_evd_wait(evd, SECONDS(60), 1, &event, &nmore));
    HOLDS(event.evd_handle == evd);
    return event;
}

static void completed(DAT_EVD_HANDLE evd, DAT_UINT64 cookie, unsigned length)
{
    DAT_EVENT event = next(evd);
    DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;

    HOLDS(event.event_number == DAT_DTO_COMPLETION_EVENT);
    HOLDS(data->ep_handle == ep && data->user_cookie.as_64 == cookie);
    HOLDS(data->status == DAT_DTO_SUCCESS && data->transfered_length == length);
}

static DAT_LMR_TRIPLET local(unsigned offset, unsigned length)
{
    DAT_LMR_TRIPLET segment;

    memset(&segment, 0, sizeof segment);
    segment.lmr_context = lmr_context;
    segment.virtual_address = (DAT_VADDR)(uintptr_t)(memory + offset);
    segment.segment_length = length;
    return segment;
}

static DAT_RMR_TRIPLET remote(unsigned offset, unsigned length)
{
    DAT_RMR_TRIPLET segment;

    memset(&segment, 0, sizeof segment);
    segment.rmr_context = peer.context;
#if DAT_VERSION == 1
    segment.target_address = peer.address + offset;
#else
    segment.virtual_address = peer.address + offset;
#endif
    segment.segment_length = length;
    return segment;
}

/* Posts receives, one for each message that the peer sends. */
static void post_receives(void)
{
    for (unsigned at = 0; at < RECEIVES; at++) {
        DAT_LMR_TRIPLET into = local(INCOMING + at * sizeof(struct message), sizeof(struct message));
        DAT_DTO_COOKIE cookie;

        cookie.as_64 = at;
        OK(dat_ep_post_recv(ep, 1, &into, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
}

static void open_adapter(const char *name)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_VLEN length;
    DAT_VADDR address;

    OK(dat_ia_open((char *)name, 8, &errors, &ia));
    OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_NONE, NULL));
    OK(dat_pz_create(ia, &pz));
    region.for_va = memory;
    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, BYTES, pz, DAT_MEM_PRIV_ALL_FLAG,
#if DAT_VERSION == 2
                      DAT_VA_TYPE_VA,
#endif
                      &lmr, &lmr_context, &rmr_context, &length, &address));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &sent));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &received));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
    OK(dat_ep_create(ia, pz, received, sent, connections, NULL, &ep));
    post_receives();
}

static uint64_t listen_to(void)
{
    DAT_CONN_QUAL qualifier;

    OK(dat_psp_create_any(ia, &qualifier, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    return qualifier;
}

static void connect_to(uint64_t qualifier)
{
    char *data = DAT_VERSION == 1 ? "from 1.2" : "from 2.0";

    OK(dat_ep_connect(ep, attr.ia_address_ptr, qualifier, SECONDS(60), 8, data,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
}

static void accept_one(const char *expected)
{
    DAT_EVENT event = next(requests);
    DAT_CR_ARRIVAL_EVENT_DATA *data = &event.event_data.cr_arrival_event_data;
    DAT_CR_PARAM param;

    HOLDS(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_query(data->cr_handle, DAT_CR_FIELD_ALL, &param));
    HOLDS(param.private_data_size >= 8 && memcmp(param.private_data, expected, 8) == 0);
    OK(dat_cr_accept(data->cr_handle, ep, 0, NULL));
    OK(dat_psp_free(psp));
}

static void establish(void)
{
    HOLDS(next(connections).event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void send_message(struct message message)
{
    DAT_LMR_TRIPLET from = local(OUTGOING, sizeof message);
    DAT_DTO_COOKIE cookie;

    memcpy(memory + OUTGOING, &message, sizeof message);
    cookie.as_64 = 100 + message.number;
    OK(dat_ep_post_send(ep, 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    completed(sent, 100 + message.number, sizeof message);
}

static struct message receive_message(unsigned number)
{
    struct message message;

    completed(received, number, sizeof message);
    memcpy(&message, memory + INCOMING + number * sizeof message, sizeof message);
    HOLDS(message.number == number);
    return message;
}

static void announce(void)
{
    struct message message = {(DAT_UINT64)(uintptr_t)memory, rmr_context, 0};

    send_message(message);
}

static void learn(void)
{
    peer = receive_message(0);
}

static void write_pattern(int pattern)
{
    DAT_LMR_TRIPLET from = local(BACK, LENGTH);
    DAT_RMR_TRIPLET to = remote(TARGET, LENGTH);
    struct message done = {0, 0, 1};
    DAT_DTO_COOKIE cookie;

    memset(memory + BACK, pattern, LENGTH);
    cookie.as_64 = 200;
    OK(dat_ep_post_rdma_write(ep, 1, &from, cookie, &to, DAT_COMPLETION_DEFAULT_FLAG));
    completed(sent, 200, LENGTH);
    send_message(done);
}

static void check_pattern(int pattern)
{
    DAT_LMR_TRIPLET into = local(BACK, LENGTH);
    DAT_RMR_TRIPLET from = remote(BACK, LENGTH);
    DAT_DTO_COOKIE cookie;

    receive_message(1);
    for (unsigned at = 0; at < LENGTH; at++)
        HOLDS(memory[TARGET + at] == pattern);
    HOLDS(memory[TARGET + LENGTH] == 0 && memory[TARGET - 1] == 0);
    /* The peer still has what it wrote. */
    memset(memory + BACK, 0, LENGTH);
    cookie.as_64 = 300;
    OK(dat_ep_post_rdma_read(ep, 1, &into, cookie, &from, DAT_COMPLETION_DEFAULT_FLAG));
    completed(sent, 300, LENGTH);
    for (unsigned at = 0; at < LENGTH; at++)
        HOLDS(memory[BACK + at] == pattern);
}

#if DAT_VERSION == 2
/* The peer expects no immediate data: its version has none. */
static void write_immediate(int pattern)
{
    DAT_LMR_TRIPLET from = local(BACK, LENGTH);
    DAT_RMR_TRIPLET to = remote(TARGET, LENGTH);
    DAT_DTO_COOKIE cookie;
    DAT_EVENT event;

    memset(memory + BACK, pattern, LENGTH);
    cookie.as_64 = 400;
    OK(dat_ib_post_rdma_write_immed(ep, 1, &from, cookie, &to, 0x01020304,
                                    DAT_COMPLETION_DEFAULT_FLAG));
    event = next(sent);
    HOLDS((int)event.event_number == DAT_IB_DTO_EVENT);
    HOLDS(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
}
#else
static void take_immediate(int pattern)
{
    unsigned char *into = memory + INCOMING + 2 * sizeof(struct message);

    completed(received, 2, 0);
    for (unsigned at = 0; at < LENGTH; at++)
        HOLDS(memory[TARGET + at] == pattern);
    for (unsigned at = 0; at < sizeof(struct message); at++)
        HOLDS(into[at] == 0);
}
#endif

static void refuse(const struct side *other)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET from = local(OUTGOING, 8);
    DAT_EP_PARAM param;
    DAT_PZ_HANDLE zone;
    DAT_EP_HANDLE none;
    DAT_EVENT event;

    cookie.as_64 = 0;
    REFUSED(dat_ep_post_send(other->endpoint(), 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG),
            DAT_INVALID_HANDLE_EP);
    REFUSED(dat_ep_post_recv(other->endpoint(), 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG),
            DAT_INVALID_HANDLE_EP);
    REFUSED(dat_ep_query(other->endpoint(), DAT_EP_FIELD_ALL, &param), DAT_INVALID_HANDLE_EP);
    REFUSED(dat_ep_free(other->endpoint()), DAT_INVALID_HANDLE_EP);
    REFUSED(dat_evd_dequeue(other->dispatcher(), &event), DAT_INVALID_HANDLE_EVD_REQUEST);
    REFUSED(dat_pz_create(other->adapter(), &zone), DAT_INVALID_HANDLE_IA);
    /* An object of this library beside one of the other. */
    REFUSED(dat_ep_create(ia, pz, other->dispatcher(), sent, connections, NULL, &none),
            DAT_INVALID_HANDLE_EVD_RECV);
    REFUSED(dat_ia_close(other->adapter(), DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE_IA);
}

static void close_adapter(int first)
{
    if (first)
        OK(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    HOLDS(next(connections).event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
}

static void *endpoint(void)
{
    return ep;
}

static void *dispatcher(void)
{
    return sent;
}

static void *adapter(void)
{
    return ia;
}

static void *library(void)
{
    return (void *)(uintptr_t)dat_ia_openv;
}

__attribute__((visibility("default"))) const struct side side;
const struct side side = {
    .open = open_adapter,
    .listen = listen_to,
    .connect = connect_to,
    .accept = accept_one,
    .establish = establish,
    .announce = announce,
    .learn = learn,
    .write = write_pattern,
    .check = check_pattern,
#if DAT_VERSION == 2
    .write_immediate = write_immediate,
#else
    .take_immediate = take_immediate,
#endif
    .refuse = refuse,
    .close = close_adapter,
    .endpoint = endpoint,
    .dispatcher = dispatcher,
    .adapter = adapter,
    .library = library,
};
