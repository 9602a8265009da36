/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends numbered messages to srq_server, with as many in flight as the server allows.
 *
 * Worth copying:
 * - The completion of a send says that the message is in a buffer of the server,
 *   not that the server has used it. Therefore the server reports how many
 *   messages it has consumed, and the client stays within the window. No send
 *   waits for a receive that is not posted.
 * - Each message in flight has its own memory, which is reused only after its
 *   send has completed.
 */
#include "common.h"

static const char about[] =
    "usage: srq_client [-d ADAPTER] [-p QUALIFIER] [-n MESSAGES] [HOST]\n"
    "\n"
    "Sends numbered messages to srq_server at HOST (default 127.0.0.1).\n"
    "\n"
    "  -d ADAPTER    DEVICE, DEVICE-PORT, or an entry of dat.conf (default mlx5_0)\n"
    "  -p QUALIFIER  the qualifier of the server (default 18515)\n"
    "  -n MESSAGES   number of messages (default 1000)\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 good, 1 usage, 2 the environment does not allow it, 3 the run failed.\n";

/* GRANTS: receives for the server's grants; one may be in flight while another is not
 * read yet. MOST: limit of messages in flight; the server may set a lower one. */
enum { GRANTS = 2, MOST = 64 };
/* Marks the cookie of a grant, as opposed to a message. */
static const uint64_t GRANT = UINT64_C(1) << 63;

static DAT_EP_HANDLE ep;
static DAT_EVD_HANDLE transfers;
static struct memory memory; /* a cache line for each grant, then for each message in flight */
static uint64_t window, sent;
static uint64_t done;     /* completed sends */
static uint64_t consumed; /* messages that the server has consumed */

/* Posts a receive for a grant. */
static void receive(uint64_t grant)
{
    DAT_LMR_TRIPLET place = part(&memory, grant * LINE, 8);
    DAT_DTO_COOKIE cookie = { .as_64 = GRANT | grant };

    must(dat_ep_post_recv(ep, 1, &place, cookie, DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_recv");
}

static void send_next(void)
{
    size_t at = (GRANTS + sent % MOST) * LINE;
    DAT_LMR_TRIPLET message = part(&memory, at, 8);
    DAT_DTO_COOKIE cookie = { .as_64 = sent };

    memcpy(memory.bytes + at, &sent, 8);
    must(dat_ep_post_send(ep, 1, &message, cookie, DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_send");
    sent++;
}

/* Takes one event: a send has completed, or a grant has arrived. */
static void take(void)
{
    DAT_EVENT event;
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;

    expect(transfers, DAT_DTO_COMPLETION_EVENT, &event);
    if (dto->status == DAT_DTO_ERR_FLUSHED)
        FAIL("the server left after %llu of %llu messages", (unsigned long long)consumed,
             (unsigned long long)sent);
    if (dto->status != DAT_DTO_SUCCESS)
        FAIL("a transfer failed: %s", status_name(dto->status));
    if (dto->user_cookie.as_64 & GRANT) {
        uint64_t grant = dto->user_cookie.as_64 ^ GRANT;

        memcpy(&consumed, memory.bytes + grant * LINE, 8);
        receive(grant); /* before further sends, which lead to the next grant */
    } else {
        done++;
    }
}

int main(int argc, char **argv)
{
    struct options options = { "mlx5_0", 18515, 1000, 8, 1, 0, "127.0.0.1" };
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, connections;
    DAT_EP_ATTR attr = attributes(GRANTS, MOST);
    DAT_CONNECTION_EVENT_DATA *told;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EVENT event;
    uint64_t grant, count;

    parse(argc, argv, "d:p:n:h", about, 1, &options);
    count = options.count;
    must(dat_ia_open((char *)options.ia, 8, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    memory = memory_of(ia, pz, (GRANTS + MOST) * LINE,
                       DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    must(dat_evd_create(ia, GRANTS + MOST, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &transfers),
         "dat_evd_create");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections),
         "dat_evd_create");
    must(dat_ep_create(ia, pz, transfers, transfers, connections, &attr, &ep), "dat_ep_create");
    for (grant = 0; grant < GRANTS; grant++)
        receive(grant);

    /* The private data has the number of messages; the server's has the window. */
    connect_to(ep, connections, &options, sizeof count, &count, &event);
    told = &event.event_data.connect_event_data;
    if (told->private_data_size < 8)
        FAIL("the server is not srq_server: its private data has no window");
    memcpy(&window, told->private_data, 8);
    if (window < 1 || window > MOST)
        window = window < 1 ? 1 : MOST;

    /* Send all messages, and wait until the server has consumed them. */
    while (done < count || consumed < count) {
        if (sent < count && sent - consumed < window && sent - done < MOST)
            send_next();
        else
            take();
    }

    must(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG), "dat_ep_disconnect");
    expect(connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event);
    printf("%lu messages sent\n", options.count);

    must(dat_ep_free(ep), "dat_ep_free");
    must(dat_evd_free(connections), "dat_evd_free");
    must(dat_evd_free(transfers), "dat_evd_free");
    memory_free(&memory);
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    return 0;
}
