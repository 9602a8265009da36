/*
 * Connects two hosts by rdma_cm: accepted, rejected, to a port without a listener, and disconnected by
 * either side; private data and the events of both sides are checked.
 *
 * usage: cm PORT ADDRESS [SERVER]      PORT of TCP and of rdma_cm; ADDRESS of the server's device
 */
#include "channel.h"
#include <poll.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *events;
static struct rdma_cm_id *id; /* of this side: the connection, while there is one */
static unsigned char pattern[196];

/* Takes the next event, which must be this one, with this status and the first bytes of the pattern. */
static void next(enum rdma_cm_event_type type, int status, int length)
{
    struct pollfd ready = {.fd = events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    REQUIRE(poll(&ready, 1, 20000) == 1 && !rdma_get_cm_event(events, &event));
    if (event->event != type || event->status != status)
        printf("%s, status %d\n", rdma_event_str(event->event), event->status);
    REQUIRE(event->event == type && event->status == status);
    REQUIRE(event->param.conn.private_data_len >= length);
    REQUIRE(!length || !memcmp(event->param.conn.private_data, pattern, (size_t)length));
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
        id = event->id;
    REQUIRE(!rdma_ack_cm_event(event));
}

static void make_qp(void)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    REQUIRE(!rdma_create_qp(id, NULL, &init));
}

static struct rdma_conn_param data(int length)
{
    return (struct rdma_conn_param){.private_data = pattern, .private_data_len = (uint8_t)length,
                                    .retry_count = 7, .rnr_retry_count = 7};
}

static void request(struct sockaddr *to, int length)
{
    struct rdma_conn_param conn = data(length);
    REQUIRE(!rdma_create_id(events, &id, NULL, RDMA_PS_TCP));
    REQUIRE(!rdma_resolve_addr(id, NULL, to, 5000));
    next(RDMA_CM_EVENT_ADDR_RESOLVED, 0, 0);
    REQUIRE(!rdma_resolve_route(id, 5000));
    next(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, 0);
    make_qp();
    REQUIRE(!rdma_connect(id, &conn));
}

static void end(void)
{
    if (id->qp)
        rdma_destroy_qp(id);
    REQUIRE(!rdma_destroy_id(id));
    both_are_here();
}

static void connection(struct sockaddr *to, int client_ends)
{
    struct rdma_conn_param conn = data(196);
    if (is_client) {
        request(to, 56);
        next(RDMA_CM_EVENT_ESTABLISHED, 0, 196);
    } else {
        next(RDMA_CM_EVENT_CONNECT_REQUEST, 0, 56);
        make_qp();
        REQUIRE(!rdma_accept(id, &conn));
        next(RDMA_CM_EVENT_ESTABLISHED, 0, 0);
    }
    both_are_here();
    if (is_client == client_ends)
        REQUIRE(!rdma_disconnect(id));
    next(RDMA_CM_EVENT_DISCONNECTED, 0, 0);
    if (is_client != client_ends)
        rdma_disconnect(id);
    end();
    printf("accepted with 196 bytes, disconnected by the %s\n", client_ends ? "client" : "server");
}

static void rejection(struct sockaddr *to)
{
    if (is_client) {
        request(to, 56);
        next(RDMA_CM_EVENT_REJECTED, 28, 148);
    } else {
        next(RDMA_CM_EVENT_CONNECT_REQUEST, 0, 56);
        REQUIRE(!rdma_reject(id, pattern, 148));
    }
    end();
    printf("rejected with 148 bytes\n");
}

int main(int count, char **arguments)
{
    struct rdma_cm_id *listener = NULL;
    struct addrinfo *to;
    REQUIRE(count >= 3);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (unsigned char)(i + 1);
    REQUIRE(!getaddrinfo(arguments[2], arguments[1], NULL, &to));
    connect_sides(count > 3 ? arguments[3] : NULL, arguments[1]);
    REQUIRE((events = rdma_create_event_channel()) != NULL);
    if (!is_client) {
        REQUIRE(!rdma_create_id(events, &listener, NULL, RDMA_PS_TCP));
        REQUIRE(!rdma_bind_addr(listener, to->ai_addr) && !rdma_listen(listener, 1));
    }
    both_are_here();
    rejection(to->ai_addr);
    connection(to->ai_addr, 1);
    connection(to->ai_addr, 0);
    if (listener)
        REQUIRE(!rdma_destroy_id(listener));
    both_are_here();
    if (is_client) {
        request(to->ai_addr, 56);
        next(RDMA_CM_EVENT_REJECTED, 8, 0);
        rdma_destroy_qp(id);
        REQUIRE(!rdma_destroy_id(id));
        printf("no listener: invalid service ID\n");
    }
    both_are_here();
    return 0;
}
