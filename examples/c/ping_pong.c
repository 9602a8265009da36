/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ping-pong: the client sends a message, the server sends it back, and the
 * client measures the round trips.
 *
 * Worth copying:
 * - A receive is posted before the peer can send: before connecting, and before
 *   the message that the peer answers. A ping-pong needs no other flow control.
 * - The memory of a send belongs to the device until the send completes. The
 *   answer proves only that the peer has the message, so the program waits for
 *   both events.
 * - Each buffer has its own cache lines.
 * - Nothing is allocated between the first ping and the last.
 */
#include "common.h"
#include <time.h>

static const char about[] =
    "usage: ping_pong [-d ADAPTER] [-p QUALIFIER] [-s BYTES] [-n COUNT] [HOST]\n"
    "\n"
    "Sends messages back and forth, and measures the round trips. Without HOST it is\n"
    "the server of one client; with HOST it is the client. DAT_WAIT=poll gives the\n"
    "shortest times and keeps two processors busy.\n"
    "\n"
    "  -d ADAPTER    DEVICE, DEVICE-PORT, or an entry of dat.conf (default mlx5_0)\n"
    "  -p QUALIFIER  the qualifier of the server; 1024 to 65535 is a port (default 18515)\n"
    "  -s BYTES      of a message, 8 to 1048576, the same on both sides (default 64)\n"
    "  -n COUNT      round trips (default 1000)\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 good, 1 usage, 2 the environment does not allow it, 3 the run failed.\n";

enum { RECEIVE, SEND };

static DAT_EP_HANDLE ep;
static DAT_EVD_HANDLE transfers;
static struct memory memory; /* the received message, then the message to send */
static size_t size, out;     /* bytes of a message; offset of the message to send */
static int sending;          /* a send has not completed yet */

/* Posts the receive for the next message. */
static void receive(void)
{
    DAT_LMR_TRIPLET place = part(&memory, 0, size);
    DAT_DTO_COOKIE cookie = { .as_64 = RECEIVE };

    must(dat_ep_post_recv(ep, 1, &place, cookie, DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_recv");
}

static void send_message(void)
{
    DAT_LMR_TRIPLET message = part(&memory, out, size);
    DAT_DTO_COOKIE cookie = { .as_64 = SEND };

    must(dat_ep_post_send(ep, 1, &message, cookie, DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_send");
    sending = 1;
}

/* Waits for a message, and until the last send has completed. Returns 0 if the peer
 * has left. */
static int message(void)
{
    DAT_EVENT event;
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    int here = 0;

    while (!here || sending) {
        expect(transfers, DAT_DTO_COMPLETION_EVENT, &event);
        /* The last answer may be flushed as well: the peer may disconnect before
         * this side sees the completion. */
        if (dto->status == DAT_DTO_ERR_FLUSHED)
            return 0;
        if (dto->status != DAT_DTO_SUCCESS)
            FAIL("a transfer failed: %s", status_name(dto->status));
        if (dto->user_cookie.as_64 == SEND) {
            sending = 0;
        } else {
            if (dto->transfered_length != size)
                FAIL("a message of %llu bytes, not %zu: give both sides the same -s",
                     (unsigned long long)dto->transfered_length, size);
            here = 1;
        }
    }
    return 1;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static void ping(unsigned long count)
{
    double *times = malloc(count * sizeof *times);
    unsigned long at;

    if (times == NULL)
        FAIL("no memory for %lu times", count);
    for (at = 0; at < count; at++) {
        uint64_t question = at, answer;
        double begun;

        memcpy(memory.bytes + out, &question, sizeof question);
        begun = now();
        send_message();
        if (!message())
            FAIL("the server left after %lu round trips", at);
        times[at] = now() - begun;
        memcpy(&answer, memory.bytes, sizeof answer);
        if (answer != question)
            FAIL("message %lu came back as %llu", at, (unsigned long long)answer);
        /* The answer has been read, so its buffer can receive the next one. */
        receive();
    }
    qsort(times, count, sizeof *times, compare);
    printf("%lu round trips of %zu bytes: least %.2f, median %.2f, 99%% %.2f microseconds\n", count,
           size, times[0], times[(count - 1) / 2], times[(count - 1) * 99 / 100]);
    free(times);
}

/* Answers until the client leaves. Returns the number of answers. */
static unsigned long pong(void)
{
    unsigned long answered;

    for (answered = 0; message(); answered++) {
        memcpy(memory.bytes + out, memory.bytes, size);
        /* Posted before the answer, because the next ping may arrive after it. */
        receive();
        send_message();
    }
    return answered;
}

int main(int argc, char **argv)
{
    struct options options = { "mlx5_0", 18515, 1000, 64, 1, 0, NULL };
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, connections;
    DAT_EP_ATTR attr = attributes(1, 1);
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    parse(argc, argv, "d:p:n:s:h", about, 1, &options);
    size = options.size;
    out = (size + LINE - 1) / LINE * LINE;
    must(dat_ia_open((char *)options.ia, 8, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    memory = memory_of(ia, pz, 2 * out,
                       DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    /* Separate EVDs: events of different streams have no order. */
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &transfers), "dat_evd_create");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG,
                        &connections),
         "dat_evd_create");
    must(dat_ep_create(ia, pz, transfers, transfers, connections, &attr, &ep), "dat_ep_create");
    receive();

    if (options.host != NULL) {
        connect_to(ep, connections, &options, 0, NULL, &event);
        ping(options.count);
        must(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG), "dat_ep_disconnect");
        expect(connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
    } else {
        unsigned long answered;

        must(dat_psp_create(ia, options.port, connections, DAT_PSP_CONSUMER_FLAG, &psp),
             "dat_psp_create");
        printf("listening on %llu\n", (unsigned long long)options.port);
        fflush(stdout);
        expect(connections, DAT_CONNECTION_REQUEST_EVENT, &event);
        must(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL),
             "dat_cr_accept");
        must(dat_psp_free(psp), "dat_psp_free");
        expect(connections, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
        answered = pong();
        expect(connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
        printf("%lu messages answered\n", answered);
    }

    must(dat_ep_free(ep), "dat_ep_free");
    must(dat_evd_free(connections), "dat_evd_free");
    must(dat_evd_free(transfers), "dat_evd_free");
    memory_free(&memory);
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    return 0;
}
