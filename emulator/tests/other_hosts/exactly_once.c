/* Sends, RDMA writes, RDMA reads and atomics between two hosts, every byte and number compared:
 * a request that is lost, or executed twice, is found. Connects by rdma_cm.
 * Arguments: server or client, ADDRESS, ROUNDS, and the exponent of the ack timeout or 0. */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 6000, RECEIVES = 16 };

static struct {
    uint64_t counter;
    uint8_t written[LONGEST];
    uint8_t received[RECEIVES][LONGEST];
} shared;

static struct {
    uint64_t before;
    uint8_t sent[LONGEST];
    uint8_t read[LONGEST];
} own;

struct place {
    uint64_t address;
    uint32_t key;
} __attribute__((packed));

static void require(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

/* Lengths of one packet and of several. */
static uint32_t length(uint32_t round)
{
    return 8 + round * 997 % (LONGEST - 8);
}

static void fill(uint8_t *bytes, uint32_t round)
{
    for (uint32_t at = 0; at < length(round); at++)
        bytes[at] = (uint8_t)(round * 31 + at * 7 + (at >> 8));
}

static struct ibv_wc next(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int count;

    while (!(count = ibv_poll_cq(cq, 1, &wc)))
        ;
    require(count == 1, "ibv_poll_cq");
    if (wc.status) {
        fprintf(stderr, "completion %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}

static void serve(struct rdma_cm_id *listener, uint32_t rounds)
{
    static uint8_t expected[LONGEST];
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    require(!rdma_listen(listener, 1), "rdma_listen");
    require(!rdma_get_request(listener, &id), "rdma_get_request");
    struct ibv_mr *mr = ibv_reg_mr(id->pd, &shared, sizeof shared,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    require(mr != NULL, "ibv_reg_mr");
    for (uintptr_t at = 0; at < RECEIVES; at++)
        require(!rdma_post_recv(id, (void *)at, shared.received[at], LONGEST, mr), "receive");
    struct place place = {(uintptr_t)&shared, mr->rkey};
    struct rdma_conn_param parameters = {
        .private_data = &place, .private_data_len = sizeof place,
        .responder_resources = 4, .initiator_depth = 4, .rnr_retry_count = 7,
    };
    require(!rdma_accept(id, &parameters), "rdma_accept");
    for (uint32_t round = 0; round < rounds; round++) {
        struct ibv_wc wc = next(id->recv_cq);
        fill(expected, round);
        if (wc.byte_len != length(round) || memcmp(shared.received[wc.wr_id], expected, wc.byte_len)) {
            fprintf(stderr, "message %u: wrong data, or not the next one\n", round);
            exit(1);
        }
        require(!rdma_post_recv(id, (void *)(uintptr_t)wc.wr_id, shared.received[wc.wr_id], LONGEST, mr),
                "receive");
    }
    /* Acknowledgements may be lost: the device is needed until the client has them all. */
    require(!rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
    if (event->event != RDMA_CM_EVENT_DISCONNECTED || shared.counter != rounds) {
        fprintf(stderr, "%s, counter %llu\n", rdma_event_str(event->event),
                (unsigned long long)shared.counter);
        exit(1);
    }
    printf("%u rounds, each once\n", rounds);
}

static void connect_to(struct rdma_cm_id *id, uint32_t rounds)
{
    static uint8_t expected[LONGEST];
    struct rdma_conn_param parameters = {
        .responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7,
    };
    struct place peer;

    struct ibv_mr *mr = ibv_reg_mr(id->pd, &own, sizeof own, IBV_ACCESS_LOCAL_WRITE);
    require(mr != NULL, "ibv_reg_mr");
    require(!rdma_connect(id, &parameters), "rdma_connect");
    memcpy(&peer, id->event->param.conn.private_data, sizeof peer);
    uint64_t written = peer.address + ((uintptr_t)shared.written - (uintptr_t)&shared);
    for (uint32_t round = 0; round < rounds; round++) {
        struct ibv_sge sge = {(uintptr_t)&own.before, sizeof own.before, mr->lkey};
        struct ibv_send_wr *bad;
        struct ibv_send_wr add = {
            .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED, .wr_id = 3,
            .sg_list = &sge, .num_sge = 1,
            .wr.atomic = {.remote_addr = peer.address, .compare_add = 1, .rkey = peer.key},
        };
        uint32_t len = length(round);

        if (round == 10)
            require(puts("begun") >= 0 && !fflush(stdout), "puts");
        fill(own.sent, round);
        memset(own.read, 0, len);
        require(!rdma_post_write(id, (void *)1, own.sent, len, mr, IBV_SEND_SIGNALED, written, peer.key),
                "write");
        require(!rdma_post_read(id, (void *)2, own.read, len, mr, IBV_SEND_SIGNALED, written, peer.key),
                "read");
        require(!ibv_post_send(id->qp, &add, &bad), "fetch and add");
        require(!rdma_post_send(id, (void *)4, own.sent, len, mr, IBV_SEND_SIGNALED), "send");
        for (uint64_t request = 1; request <= 4; request++)
            require(next(id->send_cq).wr_id == request, "order");
        fill(expected, round);
        if (memcmp(own.read, expected, len) || own.before != round) {
            fprintf(stderr, "round %u: wrong data, or counter %llu\n", round, (unsigned long long)own.before);
            exit(1);
        }
    }
    require(!rdma_disconnect(id), "rdma_disconnect");
    printf("%u rounds, each once\n", rounds);
}

int main(int argc, char **argv)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attributes = {
        .cap = {.max_send_wr = 8, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC, .sq_sig_all = 0,
    };
    struct rdma_cm_id *id;

    if (argc != 5)
        return 2;
    int is_server = !strcmp(argv[1], "server");
    uint32_t rounds = (uint32_t)atoi(argv[3]);
    if (is_server)
        hints.ai_flags = RAI_PASSIVE;
    require(!rdma_getaddrinfo(argv[2], "7471", &hints, &found), "rdma_getaddrinfo");
    require(!rdma_create_ep(&id, found, NULL, &attributes), "rdma_create_ep");
    uint8_t timeout = (uint8_t)atoi(argv[4]);
    if (timeout)
        require(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout),
                "rdma_set_option");
    (is_server ? serve : connect_to)(id, rounds);
    return 0;
}
