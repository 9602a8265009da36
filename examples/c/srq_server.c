/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server for many clients, whose endpoints take their receives from one
 * shared receive queue.
 *
 * The queue has a low watermark. A second thread waits for the watermark's event,
 * reposts the buffers that the first thread has released, and sets the watermark
 * again. The first thread takes all other events: requests, connections,
 * messages.
 *
 * Worth copying:
 * - Credits: a client may have WINDOW messages in flight that the server has not
 *   consumed. The server grants further messages as it consumes them. Before a
 *   grant, the queue must have a buffer for every message that all clients may
 *   then send. The watermark is that number, so usually the second thread has
 *   posted the buffers; if it is late, the first thread posts them. Therefore no
 *   message finds the queue empty. On RoCE such a message's sender would wait; on
 *   iWARP the connection would break.
 * - The context of a message's endpoint identifies the client; the message's
 *   cookie identifies the buffer.
 * - An endpoint is kept until its last buffer has come back.
 * - An error of one client ends that client, not the server.
 * - Nothing is allocated while messages arrive.
 */
#include "common.h"
#include <pthread.h>
#include <sched.h>

static const char about[] =
    "usage: srq_server [-d ADAPTER] [-p QUALIFIER] [-c CLIENTS]\n"
    "\n"
    "Receives numbered messages of many srq_client programs with one shared receive\n"
    "queue. It ends after the given number of clients. A client that dies is\n"
    "reported and counts; the others continue to be served.\n"
    "\n"
    "  -d ADAPTER    DEVICE, DEVICE-PORT, or an entry of dat.conf (default mlx5_0)\n"
    "  -p QUALIFIER  the qualifier to listen on; 1024 to 65535 is a port (default 18515)\n"
    "  -c CLIENTS    number of clients to serve, 1 to 512 (default 1)\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 good, 1 usage, 2 the environment does not allow it, 3 the run failed,\n"
    "or a client did.\n";

/* WINDOW: messages that one client may have in flight; the server sends it this number.
 * BYTES: the size of a buffer in bytes. */
enum { WINDOW = 8, BYTES = 256 };
/* Marks the cookie of a grant, as opposed to a message. */
static const uint64_t GRANT = UINT64_C(1) << 63;

struct client {
    DAT_EP_HANDLE ep;     /* null: this slot is free */
    unsigned long number; /* in the order of the requests */
    int up, gone;
    int failed;         /* an error was reported */
    int granting;       /* a grant has not completed yet */
    uint64_t announced; /* number of messages that the client has announced */
    uint64_t consumed;
    uint64_t granted; /* the value of `consumed` in the last grant */
};

/* Prints an error of one client. */
#define REPORT(client, ...)                                                                        \
    (fprintf(stderr, "client %lu: ", (client)->number), fprintf(stderr, __VA_ARGS__),              \
     fputc('\n', stderr))

static DAT_SRQ_HANDLE srq;
static DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
static DAT_COUNT low;
static struct memory buffers, grants; /* grants: a cache line for the grant of each client */

/* Protects the queue and the following variables, which both threads use. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *done_with; /* buffers that may be posted again */
static size_t done_count;
static size_t posted; /* buffers that are posted, or hold a message not read yet */
static unsigned long refills;

/* Posts a buffer. The caller holds the lock, or is the only thread. */
static void post(uint64_t buffer)
{
    DAT_LMR_TRIPLET place = part(&buffers, buffer * BYTES, BYTES);
    DAT_DTO_COOKIE cookie = { .as_64 = buffer };

    must(dat_srq_post_recv(srq, 1, &place, cookie), "dat_srq_post_recv");
    posted++;
}

/* Reposts the released buffers. The caller holds the lock. */
static void refill(void)
{
    refills += done_count > 0;
    while (done_count > 0)
        post(done_with[--done_count]);
}

/* Ensures that a buffer is posted for every message that the clients may send once
 * all grants have arrived. */
static void ensure_posted(void)
{
    pthread_mutex_lock(&lock);
    if (posted < (size_t)low)
        refill();
    pthread_mutex_unlock(&lock);
}

/* Reposts buffers whenever the watermark is reported, until the wait is ended. */
static void *refiller(void *unused)
{
    DAT_EVENT event;
    const DAT_ASYNCH_ERROR_EVENT_DATA *told = &event.event_data.asynch_error_event_data;
    DAT_COUNT more;
    DAT_RETURN answer;

    (void)unused;
    for (;;) {
        answer = dat_evd_wait(async_evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
        if (DAT_GET_TYPE(answer) == DAT_INTERRUPTED_CALL)
            continue;
        /* The EVD was made unwaitable: the server ends. */
        if (DAT_GET_TYPE(answer) == DAT_INVALID_STATE)
            return NULL;
        must(answer, "dat_evd_wait for asynchronous events");
        /* An error of one client; the other thread gets its connection event. */
        if (event.event_number == DAT_ASYNC_ERROR_EP_BROKEN)
            continue;
        if (told->dat_handle != srq || told->reason != DAT_SRQ_LOW_WATERMARK_EVENT)
            FAIL("unexpected asynchronous event %s", event_name(event.event_number));
        /* A buffer leaves the queue before the program reads its message, so there
         * may be nothing to post yet. The watermark, which is set again, then
         * reports once more. */
        sched_yield();
        pthread_mutex_lock(&lock);
        refill();
        must(dat_srq_set_lw(srq, low), "dat_srq_set_lw");
        pthread_mutex_unlock(&lock);
    }
}

/* Reports to the client how many messages were consumed, once that is half a window more
 * than the client knows, or all. One grant at a time: the device owns the grant's
 * memory until the completion, and the client has receives for two. */
static void grant(struct client *client, size_t place)
{
    uint64_t news = client->consumed - client->granted;
    DAT_LMR_TRIPLET message = part(&grants, place * LINE, 8);
    DAT_DTO_COOKIE cookie = { .as_64 = GRANT };
    DAT_RETURN answer;

    if (news < WINDOW / 2 && (news == 0 || client->consumed != client->announced))
        return;
    if (!client->up || client->gone || client->failed || client->granting)
        return;
    ensure_posted();
    memcpy(grants.bytes + place * LINE, &client->consumed, 8);
    answer = dat_ep_post_send(client->ep, 1, &message, cookie, DAT_COMPLETION_DEFAULT_FLAG);
    /* The client is leaving; its connection event will follow. */
    if (DAT_GET_TYPE(answer) == DAT_INVALID_STATE)
        return;
    must(answer, "dat_ep_post_send");
    client->granted = client->consumed;
    client->granting = 1;
}

/* Disconnects a client whose message differs from what was agreed. */
static void disconnect_client(struct client *client, DAT_VLEN bytes, uint64_t text)
{
    if (!client->failed)
        REPORT(client, "message %llu has %llu bytes and carries %llu",
               (unsigned long long)client->consumed, (unsigned long long)bytes,
               (unsigned long long)text);
    client->failed = 1;
    if (!client->gone)
        must(dat_ep_disconnect(client->ep, DAT_CLOSE_ABRUPT_FLAG), "dat_ep_disconnect");
}

/* Handles a message, or the completion of a grant. Returns the number of messages. */
static unsigned long transfer(struct client *client, const DAT_DTO_COMPLETION_EVENT_DATA *dto)
{
    uint64_t buffer = dto->user_cookie.as_64, text;
    int good = 0;

    /* A transfer fails together with the connection, whose own event reports the
     * failure. The last grant usually fails, because the client leaves as soon as
     * the grant has arrived. */
    if (buffer == GRANT) {
        client->granting = 0;
        return 0;
    }
    if (dto->status == DAT_DTO_SUCCESS) {
        memcpy(&text, buffers.bytes + buffer * BYTES, 8);
        good = dto->transfered_length == 8 && text == client->consumed;
        if (!good)
            disconnect_client(client, dto->transfered_length, text);
    }
    client->consumed += good;
    pthread_mutex_lock(&lock);
    done_with[done_count++] = buffer;
    posted--;
    pthread_mutex_unlock(&lock);
    return good;
}

/* Creates an endpoint and accepts a request on it. Rejects the request if there is no
 * slot (`client` is null) or no announcement. Returns whether the slot is now in use. */
static int answer_request(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE events,
                          DAT_CR_HANDLE cr, struct client *client, size_t place,
                          unsigned long number)
{
    DAT_EP_ATTR attr = attributes(DAT_HW_DEFAULT, 8);
    DAT_CONTEXT context = { .as_64 = place };
    DAT_CR_PARAM asked;
    DAT_RETURN answer;
    uint64_t window = WINDOW;

    must(dat_cr_query(cr, DAT_CR_FIELD_ALL, &asked), "dat_cr_query");
    if (client == NULL || asked.private_data_size < 8) {
        must(dat_cr_reject(cr), "dat_cr_reject");
        return 0;
    }
    memset(client, 0, sizeof *client);
    client->number = number;
    memcpy(&client->announced, asked.private_data, 8);
    attr.srq_soft_hw = DAT_HW_DEFAULT;
    must(dat_ep_create_with_srq(ia, pz, events, events, events, srq, &attr, &client->ep),
         "dat_ep_create_with_srq");
    must(dat_set_consumer_context(client->ep, context), "dat_set_consumer_context");
    ensure_posted(); /* the window counts as a grant */
    answer = dat_cr_accept(cr, client->ep, sizeof window, &window);
    if (answer == DAT_SUCCESS)
        return 1;
    /* If the client has left, an event reports it; some providers return an error here. */
    REPORT(client, "cannot be accepted (0x%x)", (unsigned)answer);
    dat_cr_reject(cr);
    must(dat_ep_free(client->ep), "dat_ep_free");
    client->ep = DAT_HANDLE_NULL;
    return 0;
}

int main(int argc, char **argv)
{
    struct options options = { "mlx5_0", 18515, 1000, 8, 1, 0, NULL };
    DAT_SRQ_ATTR srq_attr = { 0, 1, DAT_SRQ_LW_DEFAULT };
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE events;
    DAT_PSP_HANDLE psp;
    struct client *clients;
    size_t count, buffer, present = 0, served = 0;
    unsigned long messages = 0, asked = 0, failed = 0;
    pthread_t thread;

    parse(argc, argv, "d:p:c:h", about, 0, &options);
    low = (DAT_COUNT)options.clients * WINDOW;
    count = 2 * options.clients * WINDOW;
    clients = calloc(options.clients, sizeof *clients);
    done_with = calloc(count, sizeof *done_with);
    if (clients == NULL || done_with == NULL)
        FAIL("no memory for %lu clients", options.clients);

    must(dat_ia_open((char *)options.ia, 16, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    buffers = memory_of(ia, pz, count * BYTES,
                        DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    grants = memory_of(ia, pz, options.clients * LINE, DAT_MEM_PRIV_LOCAL_READ_FLAG);
    must(dat_evd_create(ia, (DAT_COUNT)(4 * options.clients + 16), DAT_HANDLE_NULL,
                        DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &events),
         "dat_evd_create");
    srq_attr.max_recv_dtos = (DAT_COUNT)count;
    must(dat_srq_create(ia, pz, &srq_attr, &srq), "dat_srq_create");
    for (buffer = 0; buffer < count; buffer++)
        post(buffer);
    must(dat_srq_set_lw(srq, low), "dat_srq_set_lw");
    if (pthread_create(&thread, NULL, refiller, NULL) != 0)
        FAIL("no thread");
    must(dat_psp_create(ia, options.port, events, DAT_PSP_CONSUMER_FLAG, &psp), "dat_psp_create");
    printf("listening on %llu\n", (unsigned long long)options.port);
    fflush(stdout);

    while (served < options.clients) {
        DAT_EVENT event;
        DAT_EP_HANDLE ep;
        DAT_CONTEXT context;
        DAT_COUNT held;
        struct client *client;
        size_t place;

        wait_for_event(events, &event);
        if (event.event_number == DAT_CONNECTION_REQUEST_EVENT) {
            place = 0;
            while (place < options.clients && clients[place].ep != DAT_HANDLE_NULL)
                place++;
            client = present + served < options.clients ? &clients[place] : NULL;
            present += answer_request(ia, pz, events,
                                      event.event_data.cr_arrival_event_data.cr_handle, client,
                                      place, asked++);
            continue;
        }
        ep = event.event_number == DAT_DTO_COMPLETION_EVENT
                 ? event.event_data.dto_completion_event_data.ep_handle
                 : event.event_data.connect_event_data.ep_handle;
        must(dat_get_consumer_context(ep, &context), "dat_get_consumer_context");
        client = &clients[context.as_64];
        switch (event.event_number) {
        case DAT_DTO_COMPLETION_EVENT:
            messages += transfer(client, &event.event_data.dto_completion_event_data);
            break;
        case DAT_CONNECTION_EVENT_ESTABLISHED:
            client->up = 1;
            printf("client %lu: announces %llu messages\n", client->number,
                   (unsigned long long)client->announced);
            fflush(stdout);
            break;
        default: /* the connection has ended */
            client->gone = 1;
            if (!client->up)
                REPORT(client, "left before the connection was established");
        }
        grant(client, context.as_64);
        if (!client->gone)
            continue;
        /* Keep the endpoint until all its messages have been taken. */
        must(dat_ep_recv_query(client->ep, &held, NULL), "dat_ep_recv_query");
        if (held != 0 || client->granting)
            continue;
        if (client->up) {
            if (!client->failed && client->consumed != client->announced) {
                REPORT(client, "left after %llu of %llu messages",
                       (unsigned long long)client->consumed,
                       (unsigned long long)client->announced);
                client->failed = 1;
            }
            if (!client->failed)
                printf("client %lu: %llu messages\n", client->number,
                       (unsigned long long)client->consumed);
            failed += client->failed;
            served++;
        }
        must(dat_ep_free(client->ep), "dat_ep_free");
        client->ep = DAT_HANDLE_NULL;
        present--;
    }

    /* Ends the wait of the other thread. */
    must(dat_evd_set_unwaitable(async_evd), "dat_evd_set_unwaitable");
    pthread_join(thread, NULL);
    printf("%lu messages, refilled %lu times\n", messages, refills);
    must(dat_psp_free(psp), "dat_psp_free");
    must(dat_srq_free(srq), "dat_srq_free");
    must(dat_evd_free(events), "dat_evd_free");
    memory_free(&grants);
    memory_free(&buffers);
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    free(done_with);
    free(clients);
    if (failed != 0)
        FAIL("%lu of %lu clients did not send all announced messages", failed, options.clients);
    return 0;
}
