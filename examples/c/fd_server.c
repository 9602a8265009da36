/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server that serves RDMA and sockets in one loop of epoll: it sends the messages
 * of ping_pong clients back, and writes to each TCP connection to its status port
 * what it has done.
 *
 * Worth copying:
 * - A CNO with a file descriptor collects the events of all EVDs.
 * - The order: arm the descriptor, take the events of all EVDs until they are empty,
 *   poll. An event that comes after the arm makes the descriptor readable, and one
 *   that came before it is taken. Taking events costs no system call.
 * - The loop is edge-triggered: each descriptor is served until it has nothing more.
 */
#define _GNU_SOURCE
#include "common.h"
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char about[] =
    "usage: fd_server [-d ADAPTER] [-p QUALIFIER] [-s BYTES] [-c CLIENTS]\n"
    "\n"
    "Answers the messages of ping_pong clients, one after another, and at the same time\n"
    "the connections to a status port by TCP. It ends after the given number of clients.\n"
    "\n"
    "  -d ADAPTER    DEVICE, DEVICE-PORT, or an entry of dat.conf (default mlx5_0)\n"
    "  -p QUALIFIER  the qualifier to listen on; 1024 to 65535 is a port (default 18515)\n"
    "  -s BYTES      size of a message, 8 to 1048576 (default 64)\n"
    "  -c CLIENTS    number of clients to serve, 1 to 512 (default 1)\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 good, 1 usage, 2 the environment does not allow it, 3 the run failed.\n";

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE transfers, connections;
static DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
static struct memory buffer; /* the received message, then the answer */
static size_t size, out;     /* bytes of a message; offset of the answer */
static int sending, owed;    /* an answer has not completed; the next one is due */
static unsigned long clients, messages, questions;

enum { RECEIVE, SEND };

static void post_receive(void)
{
    DAT_LMR_TRIPLET place = part(&buffer, 0, size);
    DAT_DTO_COOKIE cookie = { .as_64 = RECEIVE };

    must(dat_ep_post_recv(ep, 1, &place, cookie, DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_recv");
}

/* Sends the received message back, once the memory of the last answer is free. */
static void answer_message(void)
{
    DAT_LMR_TRIPLET answer = part(&buffer, out, size);
    DAT_DTO_COOKIE cookie = { .as_64 = SEND };

    if (!owed || sending)
        return;
    memcpy(buffer.bytes + out, buffer.bytes, size);
    /* Posted before the answer, because the next message may arrive after it. */
    post_receive();
    must(dat_ep_post_send(ep, 1, &answer, cookie, DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_send");
    owed = 0;
    sending = 1;
}

/* Accepts a client, unless another one is being served. */
static void answer_request(DAT_CR_HANDLE cr)
{
    DAT_EP_ATTR attr = attributes(1, 1);

    if (ep != DAT_HANDLE_NULL) {
        must(dat_cr_reject(cr), "dat_cr_reject");
        return;
    }
    must(dat_ep_create(ia, pz, transfers, transfers, connections, &attr, &ep), "dat_ep_create");
    sending = owed = 0;
    post_receive();
    must(dat_cr_accept(cr, ep, 0, NULL), "dat_cr_accept");
}

/* Takes all events of both EVDs. */
static void serve_rdma(void)
{
    DAT_EVENT event;

    while (dat_evd_dequeue(transfers, &event) == DAT_SUCCESS) {
        const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;

        /* Requests fail together with the connection, whose own event follows. */
        if (dto->status != DAT_DTO_SUCCESS)
            continue;
        if (dto->user_cookie.as_64 == SEND) {
            sending = 0;
        } else {
            messages++;
            owed = 1;
        }
        answer_message();
    }
    while (dat_evd_dequeue(connections, &event) == DAT_SUCCESS) {
        switch (event.event_number) {
        case DAT_CONNECTION_REQUEST_EVENT:
            answer_request(event.event_data.cr_arrival_event_data.cr_handle);
            break;
        case DAT_CONNECTION_EVENT_ESTABLISHED:
            break;
        default: /* the connection has ended */
            must(dat_ep_free(ep), "dat_ep_free");
            ep = DAT_HANDLE_NULL;
            clients++;
        }
    }
}

/* Writes to all connections to the status port. */
static void serve_sockets(int listener)
{
    int one;

    while ((one = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        questions++;
        /* Whoever has asked may be gone: SIGPIPE is ignored. */
        dprintf(one, "%lu clients, %lu messages\n", clients, messages);
        close(one);
    }
    if (errno != EAGAIN && errno != ECONNABORTED)
        FAIL("accept: %s", strerror(errno));
}

/* Listens on an unused port of this host. */
static int listen_on_any(unsigned *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 16) != 0 || getsockname(listener, (struct sockaddr *)&at, &length) != 0)
        FAIL("no status port: %s", strerror(errno));
    *port = ntohs(at.sin_port);
    return listener;
}

/* Adds a descriptor to the set. */
static void watch(int set, int fd)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        FAIL("epoll_ctl: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    struct options options = { "mlx5_0", 18515, 1000, 64, 1, 0, NULL };
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_CNO_HANDLE cno;
    DAT_PSP_HANDLE psp;
    DAT_FD fd;
    unsigned port;
    int set = epoll_create1(EPOLL_CLOEXEC), listener, count, at;

    parse(argc, argv, "d:p:s:c:h", about, 0, &options);
    signal(SIGPIPE, SIG_IGN);
    size = options.size;
    out = (size + LINE - 1) / LINE * LINE;
    must(dat_ia_open((char *)options.ia, 8, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    buffer = memory_of(ia, pz, 2 * out,
                       DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    must(dat_cno_fd_create(ia, &fd, &cno), "dat_cno_fd_create");
    must(dat_evd_create(ia, 8, cno, DAT_EVD_DTO_FLAG, &transfers), "dat_evd_create");
    must(dat_evd_create(ia, 8, cno, DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &connections),
         "dat_evd_create");
    must(dat_psp_create(ia, options.port, connections, DAT_PSP_CONSUMER_FLAG, &psp),
         "dat_psp_create");
    listener = listen_on_any(&port);
    watch(set, listener);
    watch(set, fd);
    printf("listening on %llu, status on %u\n", (unsigned long long)options.port, port);
    fflush(stdout);

    while (clients < options.clients) {
        struct epoll_event ready[2];

        count = epoll_wait(set, ready, 2, -1);
        if (count < 0 && errno != EINTR)
            FAIL("epoll_wait: %s", strerror(errno));
        for (at = 0; at < count; at++) {
            if (ready[at].data.fd == listener) {
                serve_sockets(listener);
                continue;
            }
            must(dat_cno_fd_arm(cno), "dat_cno_fd_arm");
            serve_rdma();
        }
    }

    printf("%lu messages answered, %lu times asked\n", messages, questions);
    close(set); /* before the descriptor of the CNO is closed */
    close(listener);
    must(dat_psp_free(psp), "dat_psp_free");
    must(dat_evd_free(transfers), "dat_evd_free");
    must(dat_evd_free(connections), "dat_evd_free");
    must(dat_cno_free(cno), "dat_cno_free");
    memory_free(&buffer);
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    return 0;
}
