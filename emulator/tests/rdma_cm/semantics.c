/*
 * Prints the results of librdmacm's calls and the events that follow, a line each, in
 * some thirty situations, without addresses, ports, queue pair numbers or times: what
 * it prints on the emulated NIC must be what it prints on a Linux kernel.
 *
 * semantics.expected is the output on Linux 6.1 with Soft-RoCE:
 *     cc semantics.c -o semantics -lrdmacm -libverbs
 *     perf-scripts/vm run -- ./semantics 10.99.0.1 >semantics.expected
 * The self-test of perf-scripts/vm compares the two again.
 *
 * usage: semantics ADDRESS     an address of this host that has an RDMA device
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 15000, DATA = 256 };

/* One side: ids of one event channel, and the event that was taken last. */
struct side {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;      /* of the event */
    struct rdma_cm_id *request; /* the new id, of a connect request */
    struct rdma_conn_param conn;
    struct rdma_ud_param ud;
    unsigned char data[DATA];
    int length;
};

static struct side server, client;
static struct sockaddr_storage host;
static unsigned char pattern[DATA];
static const char *situation;

static void fail(const char *what) {
    printf("%s: %s: %s\n", situation ? situation : "start", what, strerror(errno));
    exit(1);
}

static const char *outcome(int result) {
    static const struct { int number; const char *name; } names[] = {
        {EINVAL, "EINVAL"}, {EADDRINUSE, "EADDRINUSE"}, {EADDRNOTAVAIL, "EADDRNOTAVAIL"},
        {ENODEV, "ENODEV"}, {ENOSYS, "ENOSYS"}, {EAGAIN, "EAGAIN"}, {ENOENT, "ENOENT"},
        {EPERM, "EPERM"}, {EISCONN, "EISCONN"}, {ENOTCONN, "ENOTCONN"}, {EBADF, "EBADF"},
        {EAFNOSUPPORT, "EAFNOSUPPORT"}, {EOPNOTSUPP, "EOPNOTSUPP"}, {ENOMEM, "ENOMEM"},
        {EPROTONOSUPPORT, "EPROTONOSUPPORT"}, {ETIMEDOUT, "ETIMEDOUT"}, {EACCES, "EACCES"},
        {ENETUNREACH, "ENETUNREACH"}, {EHOSTUNREACH, "EHOSTUNREACH"}, {EBUSY, "EBUSY"},
    };
    static char other[16];
    int error = errno;
    if (result == 0) return "ok";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == error) return names[i].name;
    snprintf(other, sizeof other, "errno %d", error);
    return other;
}

static void says(const char *what, int result) {
    printf("%s: %s: %s\n", situation, what, outcome(result));
}

static void situation_is(const char *name) {
    situation = name;
}

/* The next event of a side. The line tells its name, status and private data. */
static enum rdma_cm_event_type next(struct side *side, const char *who) {
    struct pollfd ready = {.fd = side->channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    int found = poll(&ready, 1, WAIT_MS);
    if (found < 0) fail("poll");
    if (found == 0) {
        printf("%s: %s: no event\n", situation, who);
        exit(1);
    }
    if (rdma_get_cm_event(side->channel, &event)) fail("rdma_get_cm_event");
    enum rdma_cm_event_type type = event->event;
    side->id = event->id;
    side->request = type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
    const void *data;
    if (event->id->ps == RDMA_PS_UDP) {
        side->ud = event->param.ud;
        data = event->param.ud.private_data;
        side->length = event->param.ud.private_data_len;
    } else {
        side->conn = event->param.conn;
        data = event->param.conn.private_data;
        side->length = event->param.conn.private_data_len;
    }
    if (!data) side->length = 0;
    memcpy(side->data, data ? data : "", data ? side->length : 0);
    printf("%s: %s: %s, status %d", situation, who, rdma_event_str(type) + 14, event->status);
    if (side->length) {
        int same = 0;
        while (same < side->length && side->data[same] == pattern[same]) same++;
        printf(", %d bytes, %d as sent", side->length, same);
    }
    printf("\n");
    if (rdma_ack_cm_event(event)) fail("rdma_ack_cm_event");
    return type;
}

/* Whether a side has no event within a tenth of a second. */
static void silent(struct side *side, const char *who) {
    struct pollfd ready = {.fd = side->channel->fd, .events = POLLIN};
    if (poll(&ready, 1, 100) != 0) next(side, who);
    else printf("%s: %s: no event\n", situation, who);
}

/* Takes events of both sides until `wanted` of them were seen at one side. */
static void quietly(struct side *side, enum rdma_cm_event_type wanted) {
    struct rdma_cm_event *event;
    do {
        struct pollfd ready = {.fd = side->channel->fd, .events = POLLIN};
        if (poll(&ready, 1, WAIT_MS) != 1) {
            printf("%s: waited for %s\n", situation, rdma_event_str(wanted));
            exit(1);
        }
        if (rdma_get_cm_event(side->channel, &event)) fail("rdma_get_cm_event");
        enum rdma_cm_event_type type = event->event;
        side->id = event->id;
        side->request = type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
        rdma_ack_cm_event(event);
        if (type == wanted) return;
        if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
            printf("%s: %s where %s is due\n", situation, rdma_event_str(type), rdma_event_str(wanted));
            exit(1);
        }
    } while (1);
}

static struct sockaddr *address(uint16_t port) {
    static struct sockaddr_storage it;
    it = host;
    ((struct sockaddr_in *)&it)->sin_port = htons(port); /* the same place in sockaddr_in6 */
    return (struct sockaddr *)&it;
}

static struct sockaddr *any(uint16_t port) {
    static struct sockaddr_storage it;
    memset(&it, 0, sizeof it);
    it.ss_family = host.ss_family;
    ((struct sockaddr_in *)&it)->sin_port = htons(port);
    return (struct sockaddr *)&it;
}

static struct rdma_cm_id *new_id(struct side *side, enum rdma_port_space space) {
    struct rdma_cm_id *id;
    if (rdma_create_id(side->channel, &id, NULL, space)) fail("rdma_create_id");
    return id;
}

static struct rdma_cm_id *listener(enum rdma_port_space space, int backlog) {
    struct rdma_cm_id *id = new_id(&server, space);
    if (rdma_bind_addr(id, address(0))) fail("rdma_bind_addr");
    if (rdma_listen(id, backlog)) fail("rdma_listen");
    return id;
}

static void qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attributes = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
    if (!pd || !cq) fail("ibv_alloc_pd, ibv_create_cq");
    attributes.send_cq = attributes.recv_cq = cq;
    if (rdma_create_qp(id, pd, &attributes)) fail("rdma_create_qp");
}

static void end(struct rdma_cm_id *id) {
    if (id->qp) {
        struct ibv_cq *cq = id->qp->send_cq;
        struct ibv_pd *pd = id->qp->pd;
        rdma_destroy_qp(id);
        ibv_destroy_cq(cq);
        ibv_dealloc_pd(pd);
    }
    if (rdma_destroy_id(id)) fail("rdma_destroy_id");
}

/* An id with a resolved route to that port of this host, and a queue pair. */
static struct rdma_cm_id *resolved(enum rdma_port_space space, uint16_t port) {
    struct rdma_cm_id *id = new_id(&client, space);
    if (rdma_resolve_addr(id, NULL, address(port), 2000)) fail("rdma_resolve_addr");
    quietly(&client, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(id, 2000)) fail("rdma_resolve_route");
    quietly(&client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    qp(id);
    return id;
}

static struct rdma_conn_param parameters(int length) {
    return (struct rdma_conn_param){
        .private_data = pattern,
        .private_data_len = (uint8_t)length,
        .responder_resources = 3,
        .initiator_depth = 2,
        .retry_count = 5,
        .rnr_retry_count = 6,
        .flow_control = 1,
    };
}

static void show_conn(const char *who, const struct rdma_conn_param *conn) {
    printf("%s: %s: responder_resources %d, initiator_depth %d, retry_count %d, rnr_retry_count %d, "
           "flow_control %d, srq %d, qp_num %s\n",
           situation, who, conn->responder_resources, conn->initiator_depth, conn->retry_count,
           conn->rnr_retry_count, conn->flow_control, conn->srq, conn->qp_num ? "there" : "0");
}

static void show_qp(const char *who, struct rdma_cm_id *id) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int mask = IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_RETRY_CNT |
               IBV_QP_RNR_RETRY | IBV_QP_ACCESS_FLAGS;
    if (ibv_query_qp(id->qp, &attr, mask, &init)) fail("ibv_query_qp");
    printf("%s: %s: state %d, max_rd_atomic %d, max_dest_rd_atomic %d, retry_cnt %d, rnr_retry %d\n", situation,
           who, attr.qp_state, attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.retry_cnt, attr.rnr_retry);
}

/* A connection: both ids are connected. */
static void connected(struct rdma_cm_id *listening, struct rdma_cm_id **passive, struct rdma_cm_id **active) {
    struct rdma_conn_param conn = parameters(0);
    *active = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    if (rdma_connect(*active, &conn)) fail("rdma_connect");
    quietly(&server, RDMA_CM_EVENT_CONNECT_REQUEST);
    *passive = server.request;
    qp(*passive);
    if (rdma_accept(*passive, &conn)) fail("rdma_accept");
    quietly(&client, RDMA_CM_EVENT_ESTABLISHED);
    quietly(&server, RDMA_CM_EVENT_ESTABLISHED);
}

/* --- the situations ----------------------------------------------------------- */

static void binding(void) {
    struct rdma_cm_id *one = new_id(&server, RDMA_PS_TCP), *two = new_id(&server, RDMA_PS_TCP);
    struct rdma_cm_id *third = new_id(&server, RDMA_PS_TCP), *other = new_id(&server, RDMA_PS_UDP);
    struct rdma_cm_id *fresh = new_id(&server, RDMA_PS_TCP);
    struct sockaddr_storage foreign = host;
    situation_is("bind");
    says("to an address of this host", rdma_bind_addr(one, address(0)));
    printf("bind: a port %s chosen\n", rdma_get_src_port(one) ? "is" : "is not");
    printf("bind: the device %s known\n", one->verbs ? "is" : "is not");
    says("a second time", rdma_bind_addr(one, address(0)));
    uint16_t port = ntohs(rdma_get_src_port(one));
    says("to a port that is taken", rdma_bind_addr(two, address(port)));
    says("to it with any address", rdma_bind_addr(two, any(port)));
    says("to it in another port space", rdma_bind_addr(other, address(port)));
    says("to any address", rdma_bind_addr(third, any(0)));
    printf("bind: to any address: the device %s known\n", third->verbs ? "is" : "is not");
    if (foreign.ss_family == AF_INET)
        inet_pton(AF_INET, "198.51.100.7", &((struct sockaddr_in *)&foreign)->sin_addr);
    else
        inet_pton(AF_INET6, "2001:db8::7", &((struct sockaddr_in6 *)&foreign)->sin6_addr);
    says("to an address of no interface", rdma_bind_addr(fresh, (struct sockaddr *)&foreign));
    end(one);
    says("to a port that is free again", rdma_bind_addr(two, address(port)));
    end(two), end(third), end(other), end(fresh);
}

static void reuse(void) {
    struct rdma_cm_id *one = new_id(&server, RDMA_PS_TCP), *two = new_id(&server, RDMA_PS_TCP);
    int on = 1;
    situation_is("reuseaddr");
    says("set on one", rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    says("set on two", rdma_set_option(two, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    says("bind one", rdma_bind_addr(one, address(0)));
    says("bind two", rdma_bind_addr(two, address(ntohs(rdma_get_src_port(one)))));
    says("listen one", rdma_listen(one, 1));
    says("listen two", rdma_listen(two, 1));
    end(one), end(two);
}

static void options(void) {
    struct rdma_cm_id *id = new_id(&client, RDMA_PS_TCP);
    uint8_t byte = 8, timeout = 16;
    int on = 1;
    situation_is("options");
    says("TOS", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
    says("TOS of four bytes", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, 4));
    says("AFONLY", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on));
    says("ACK_TIMEOUT", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
    timeout = 32;
    says("ACK_TIMEOUT 32", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
    says("an unknown option", rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof on));
    says("an unknown level", rdma_set_option(id, 9, 0, &on, sizeof on));
    says("IB path without a path", rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, pattern, 0));
    if (rdma_bind_addr(id, address(0))) fail("rdma_bind_addr");
    says("REUSEADDR after bind", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    says("AFONLY after bind", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on));
    says("TOS after bind", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
    end(id);
}

static void wrong_order(void) {
    struct rdma_conn_param conn = parameters(0);
    struct rdma_cm_id *id = new_id(&client, RDMA_PS_TCP), *fresh = new_id(&server, RDMA_PS_TCP);
    situation_is("order");
    says("reject first", rdma_reject(id, NULL, 0));
    says("disconnect first", rdma_disconnect(id));
    says("notify first", rdma_notify(id, IBV_EVENT_COMM_EST));
    says("listen without bind", rdma_listen(fresh, 1));
    printf("order: listen without bind: a port %s chosen\n", rdma_get_src_port(fresh) ? "is" : "is not");
    says("listen again", rdma_listen(fresh, 1));
    says("bind after listen", rdma_bind_addr(fresh, address(0)));
    says("resolve_addr of a listener", rdma_resolve_addr(fresh, NULL, address(9), 1000));
    says("resolve_addr", rdma_resolve_addr(id, NULL, address(9), 1000));
    next(&client, "client");
    says("resolve_addr again", rdma_resolve_addr(id, NULL, address(9), 1000));
    says("connect without a route", rdma_connect(id, &conn));
    says("listen after resolve_addr", rdma_listen(id, 1));
    says("resolve_route", rdma_resolve_route(id, 1000));
    next(&client, "client");
    says("resolve_route again", rdma_resolve_route(id, 1000));
    says("disconnect before connect", rdma_disconnect(id));
    end(id), end(fresh);
}

static void nonblocking(void) {
    struct rdma_cm_event *event;
    int flags = fcntl(client.channel->fd, F_GETFL);
    situation_is("nonblocking");
    fcntl(client.channel->fd, F_SETFL, flags | O_NONBLOCK);
    says("no event", rdma_get_cm_event(client.channel, &event));
    fcntl(client.channel->fd, F_SETFL, flags);
}

static void nobody_listens(void) {
    struct rdma_cm_id *gone = listener(RDMA_PS_TCP, 1);
    uint16_t port = ntohs(rdma_get_src_port(gone));
    struct rdma_conn_param conn = parameters(10);
    situation_is("nobody listens");
    end(gone);
    struct rdma_cm_id *id = resolved(RDMA_PS_TCP, port);
    says("connect", rdma_connect(id, &conn));
    next(&client, "client");
    show_qp("client", id);
    says("connect again", rdma_connect(id, &conn));
    end(id);
}

static void a_connection(void) {
    struct rdma_cm_id *listening = listener(RDMA_PS_TCP, 4);
    struct rdma_cm_id *id = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    struct rdma_conn_param conn = parameters(57);
    situation_is("connection");
    says("connect with 57 bytes", rdma_connect(id, &conn));
    conn = parameters(56);
    says("connect with 56 bytes", rdma_connect(id, &conn));
    says("connect again", rdma_connect(id, &conn));
    next(&server, "server");
    struct rdma_cm_id *passive = server.request;
    show_conn("server", &server.conn);
    printf("connection: the listener's id %s the event's\n", server.id == listening ? "is" : "is not");
    printf("connection: ports %s\n", rdma_get_dst_port(id) == rdma_get_src_port(passive) &&
           rdma_get_src_port(id) == rdma_get_dst_port(passive) ? "match" : "do not match");
    says("listen of the new id", rdma_listen(passive, 1));
    qp(passive);
    conn = parameters(196);
    conn.responder_resources = 1, conn.initiator_depth = 1;
    says("accept with 196 bytes", rdma_accept(passive, &conn));
    next(&client, "client");
    show_conn("client", &client.conn);
    next(&server, "server");
    show_conn("server", &server.conn);
    show_qp("client", id);
    show_qp("server", passive);
    says("accept again", rdma_accept(passive, &conn));
    says("reject when connected", rdma_reject(passive, NULL, 0));
    says("notify when connected", rdma_notify(passive, IBV_EVENT_COMM_EST));
    says("disconnect of the client", rdma_disconnect(id));
    next(&server, "server");
    show_qp("server", passive);
    says("disconnect of the server", rdma_disconnect(passive));
    next(&client, "client");
    show_qp("client", id);
    says("disconnect again", rdma_disconnect(id));
    end(id), end(passive), end(listening);
}

static void rejections(void) {
    struct rdma_cm_id *listening = listener(RDMA_PS_TCP, 4);
    uint16_t port = ntohs(rdma_get_src_port(listening));
    struct rdma_conn_param conn = parameters(0);
    struct rdma_cm_id *id = resolved(RDMA_PS_TCP, port), *passive;
    situation_is("reject");
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    says("with 149 bytes", rdma_reject(server.request, pattern, 149));
    says("with 148 bytes", rdma_reject(server.request, pattern, 148));
    next(&client, "client");
    says("a second time", rdma_reject(server.request, pattern, 1));
    says("accept after it", rdma_accept(server.request, &conn));
    end(server.request), end(id);

    situation_is("reject without data");
    id = resolved(RDMA_PS_TCP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    says("reject", rdma_reject(server.request, NULL, 0));
    next(&client, "client");
    end(server.request), end(id);

    situation_is("the server destroys the request");
    id = resolved(RDMA_PS_TCP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    end(server.request);
    next(&client, "client");
    end(id);

    situation_is("the server disconnects the request");
    id = resolved(RDMA_PS_TCP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    passive = server.request;
    says("disconnect", rdma_disconnect(passive));
    silent(&client, "client");
    end(passive);
    next(&client, "client");
    end(id);

    situation_is("an acceptance that fails");
    id = resolved(RDMA_PS_TCP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    passive = server.request;
    qp(passive);
    struct rdma_conn_param too_long = parameters(197);
    says("accept with 197 bytes", rdma_accept(passive, &too_long));
    next(&client, "client");
    says("accept after it", rdma_accept(passive, &conn));
    end(passive), end(id);

    situation_is("the client destroys its id");
    id = resolved(RDMA_PS_TCP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    passive = server.request;
    end(id);
    silent(&server, "server");
    end(passive);

    situation_is("the listener goes with requests");
    id = resolved(RDMA_PS_TCP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    struct pollfd ready = {.fd = server.channel->fd, .events = POLLIN};
    if (poll(&ready, 1, WAIT_MS) != 1) fail("poll");
    end(listening);
    next(&client, "client");
    end(id);
    silent(&server, "server");
}

static void backlog(void) {
    struct rdma_cm_id *listening = listener(RDMA_PS_TCP, 2), *ids[4];
    struct rdma_conn_param conn = parameters(0);
    situation_is("backlog of two");
    for (int i = 0; i < 4; i++) ids[i] = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    for (int i = 0; i < 4; i++)
        if (rdma_connect(ids[i], &conn)) fail("rdma_connect");
    /* Those beyond the backlog come when the clients repeat their requests. */
    silent(&client, "client");
    for (int i = 0; i < 4; i++) {
        next(&server, "server");
        end(server.request);
        next(&client, "client");
    }
    for (int i = 0; i < 4; i++) end(ids[i]);
    end(listening);
}

static void accepted_then_destroyed(void) {
    struct rdma_cm_id *listening = listener(RDMA_PS_TCP, 4), *passive, *active;
    situation_is("a connected id is destroyed");
    connected(listening, &passive, &active);
    end(active);
    next(&server, "server");
    end(passive);

    situation_is("both disconnect");
    connected(listening, &passive, &active);
    says("server", rdma_disconnect(passive));
    says("client", rdma_disconnect(active) && errno == EINVAL ? 0 : 0);
    next(&client, "client");
    next(&server, "server");
    end(active), end(passive), end(listening);
}

static void external_qp(void) {
    struct rdma_cm_id *listening = listener(RDMA_PS_TCP, 4);
    struct rdma_cm_id *id = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    struct rdma_conn_param conn = parameters(4);
    struct ibv_qp *own = id->qp;
    struct ibv_qp_attr attr;
    int mask;
    situation_is("a queue pair of the program");
    id->qp = NULL;
    conn.qp_num = own->qp_num;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_INIT;
    says("attributes for INIT", rdma_init_qp_attr(id, &attr, &mask));
    printf("%s: mask %#x, access %#x, port %d\n", situation, mask, attr.qp_access_flags, attr.port_num);
    attr.qp_state = IBV_QPS_RTR;
    says("for RTR, too early", rdma_init_qp_attr(id, &attr, &mask));
    says("connect", rdma_connect(id, &conn));
    next(&server, "server");
    struct rdma_cm_id *passive = server.request;
    qp(passive);
    conn = parameters(7);
    says("accept", rdma_accept(passive, &conn));
    next(&client, "client");
    show_conn("client", &client.conn);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    says("attributes for RTR", rdma_init_qp_attr(id, &attr, &mask));
    printf("%s: mask %#x, max_dest_rd_atomic %d, min_rnr_timer %d, destination %s, is_global %d\n", situation, mask,
           attr.max_dest_rd_atomic, attr.min_rnr_timer,
           attr.dest_qp_num == passive->qp->qp_num ? "right" : "wrong", attr.ah_attr.is_global);
    attr.qp_state = IBV_QPS_RTS;
    says("attributes for RTS", rdma_init_qp_attr(id, &attr, &mask));
    printf("%s: mask %#x, max_rd_atomic %d, retry_cnt %d, rnr_retry %d\n", situation, mask, attr.max_rd_atomic,
           attr.retry_cnt, attr.rnr_retry);
    silent(&server, "server");
    says("establish", rdma_establish(id));
    next(&server, "server");
    says("disconnect", rdma_disconnect(id));
    next(&server, "server");
    rdma_disconnect(passive);
    next(&client, "client");
    id->qp = own;
    end(id), end(passive), end(listening);
}

static void migration(void) {
    struct side third = {.channel = rdma_create_event_channel()};
    struct rdma_cm_id *listening = listener(RDMA_PS_TCP, 4), *passive, *active;
    situation_is("migration");
    if (!third.channel) fail("rdma_create_event_channel");
    connected(listening, &passive, &active);
    says("migrate", rdma_migrate_id(passive, third.channel));
    says("disconnect", rdma_disconnect(active));
    next(&third, "third");
    silent(&server, "server");
    rdma_disconnect(passive);
    next(&client, "client");
    end(active), end(passive);

    situation_is("migration of a listener");
    says("migrate", rdma_migrate_id(listening, third.channel));
    struct rdma_conn_param conn = parameters(0);
    active = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    if (rdma_connect(active, &conn)) fail("rdma_connect");
    next(&third, "third");
    says("reject", rdma_reject(third.request, NULL, 0));
    next(&client, "client");
    end(third.request), end(active), end(listening);
    rdma_destroy_event_channel(third.channel);
}

static void datagrams(void) {
    struct rdma_cm_id *listening = listener(RDMA_PS_UDP, 4);
    uint16_t port = ntohs(rdma_get_src_port(listening));
    struct rdma_conn_param conn = parameters(181);
    struct rdma_cm_id *id = resolved(RDMA_PS_UDP, port);
    situation_is("datagram service");
    says("connect with 181 bytes", rdma_connect(id, &conn));
    conn.private_data_len = 180;
    says("connect with 180 bytes", rdma_connect(id, &conn));
    next(&server, "server");
    struct rdma_cm_id *passive = server.request;
    qp(passive);
    conn = parameters(136);
    conn.qp_num = passive->qp->qp_num;
    says("accept with 136 bytes", rdma_accept(passive, &conn));
    next(&client, "client");
    printf("%s: client: qkey %#x, qp_num %s\n", situation, client.ud.qkey,
           client.ud.qp_num == passive->qp->qp_num ? "right" : "wrong");
    show_qp("client", id);
    says("disconnect", rdma_disconnect(id));
    end(id), end(passive);

    situation_is("datagram service, an acceptance that fails");
    id = resolved(RDMA_PS_UDP, port);
    conn = parameters(0);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    passive = server.request;
    qp(passive);
    conn = parameters(137);
    conn.qp_num = passive->qp->qp_num;
    says("accept with 137 bytes", rdma_accept(passive, &conn));
    next(&client, "client");
    end(id), end(passive);

    situation_is("datagram service, rejected");
    id = resolved(RDMA_PS_UDP, port);
    conn = parameters(3);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&server, "server");
    says("reject", rdma_reject(server.request, pattern, 5));
    next(&client, "client");
    end(server.request), end(id), end(listening);

    situation_is("datagram service, nobody listens");
    id = resolved(RDMA_PS_UDP, port);
    if (rdma_connect(id, &conn)) fail("rdma_connect");
    next(&client, "client");
    end(id);
}

static void spaces(void) {
    static const struct { const char *name; enum rdma_port_space space; } all[] = {
        {"TCP", RDMA_PS_TCP}, {"UDP", RDMA_PS_UDP}, {"IB", RDMA_PS_IB}, {"IPOIB", RDMA_PS_IPOIB}, {"0x999", 0x999},
    };
    situation_is("port space");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct rdma_cm_id *id;
        int result = rdma_create_id(client.channel, &id, NULL, all[i].space);
        says(all[i].name, result);
        if (result == 0) end(id);
    }
}

int main(int argc, char **argv) {
    struct addrinfo hint = {.ai_flags = AI_NUMERICHOST}, *found;
    if (argc != 2 || getaddrinfo(argv[1], NULL, &hint, &found)) {
        fprintf(stderr, "usage: semantics ADDRESS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    memcpy(&host, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    for (int i = 0; i < DATA; i++) pattern[i] = (unsigned char)(i * 11 + 3);
    server.channel = rdma_create_event_channel();
    client.channel = rdma_create_event_channel();
    if (!server.channel || !client.channel) fail("rdma_create_event_channel");
    spaces();
    binding();
    reuse();
    options();
    wrong_order();
    nonblocking();
    nobody_listens();
    a_connection();
    rejections();
    backlog();
    accepted_then_destroyed();
    external_qp();
    migration();
    datagrams();
    situation_is("end");
    silent(&server, "server");
    silent(&client, "client");
    return 0;
}
