/* The device of a side, and queue pairs between both sides. */
#ifndef PAIR_H
#define PAIR_H

#include "channel.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <time.h>

/* Bytes that are sent, and as many that arrive; words after them; requests of a queue; milliseconds
 * to wait for what must come, and for what must not. */
enum { SIZE = 16384, WORDS = 64, DEPTH = 32, LONG_WAIT = 20000, PAUSE = 60 };

/* The registrations of the same memory. */
enum key { ALL, READABLE, WRITABLE, KEYS };
static const int RIGHTS[KEYS] = {
    [ALL] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    [READABLE] = IBV_ACCESS_REMOTE_READ,
    [WRITABLE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
};

/* One side, as the other one knows it. */
struct side {
    union ibv_gid gid;
    uint64_t memory;
    uint32_t keys[KEYS], qpn;
};

/* How the queue pairs of a case are made; zeroes are the usual values. */
struct setup {
    enum ibv_qp_type type;
    enum ibv_mtu client_mtu, server_mtu;
    enum ibv_qp_state server_state; /* if not RTS */
    int no_access;                  /* the server's queue pair permits no remote access */
    int timeout, retries;           /* of the client: 17 (0.5 s), 7 */
    int rnr_retries;                /* of the client: 7 (without a limit) */
    int rnr_timer;                  /* of the server: 12 (0.64 ms); 32 stands for the code 0 */
    int shared;                     /* the server receives from a shared receive queue */
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *regions[KEYS];
static unsigned char memory[2 * SIZE + WORDS] __attribute__((aligned(4096)));
static unsigned char *const landing = memory + SIZE; /* what arrives, behind what is sent */
static int gid_index;
static struct side own, peer;
static struct setup setup;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_ah *ah;

static unsigned char pattern(int at)
{
    return (unsigned char)(at % 251 + 1);
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    REQUIRE(list && list[0]);
    REQUIRE((context = ibv_open_device(list[0])) != NULL);
    ibv_free_device_list(list);
    REQUIRE(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
    REQUIRE((pd = ibv_alloc_pd(context)) != NULL);
    for (int key = 0; key < KEYS; key++) {
        REQUIRE((regions[key] = ibv_reg_mr(pd, memory, sizeof memory, RIGHTS[key])) != NULL);
        own.keys[key] = regions[key]->rkey;
    }
    REQUIRE(!ibv_query_gid(context, 1, gid_index, &own.gid));
    own.memory = (uintptr_t)memory;
}

static const uint32_t QKEY = 0x1234;

static struct ibv_ah_attr to_peer(void)
{
    return (struct ibv_ah_attr){.is_global = 1, .port_num = 1,
        .grh = {.dgid = peer.gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}};
}

static uint8_t value(int set, int usual)
{
    return (uint8_t)(set ? set : usual);
}

static void modify(enum ibv_qp_state state)
{
    enum ibv_mtu mtu = is_client ? setup.client_mtu : setup.server_mtu;
    int open = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    int is_ud = setup.type == IBV_QPT_UD, is_rc = setup.type == IBV_QPT_RC, mask = IBV_QP_STATE;
    struct ibv_qp_attr attr = {
        .qp_state = state, .port_num = 1, .qp_access_flags = setup.no_access && !is_client ? 0 : open,
        .path_mtu = mtu ? mtu : IBV_MTU_1024, .dest_qp_num = peer.qpn, .rq_psn = 77, .sq_psn = 77,
        .max_rd_atomic = 8, .max_dest_rd_atomic = 8,
        .ah_attr = to_peer(), .timeout = value(setup.timeout, 17), .retry_cnt = value(setup.retries, 7),
        .rnr_retry = value(setup.rnr_retries, 7), .min_rnr_timer = value(setup.rnr_timer, 12) % 32,
        .qkey = QKEY};
    if (state == IBV_QPS_INIT)
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    if (setup.type == IBV_QPT_UC && state == IBV_QPS_INIT)
        attr.qp_access_flags &= IBV_ACCESS_REMOTE_WRITE;
    if (state == IBV_QPS_RTR && !is_ud)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (state == IBV_QPS_RTR && is_rc)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (state == IBV_QPS_RTS)
        mask |= IBV_QP_SQ_PSN;
    if (state == IBV_QPS_RTS && is_rc)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    REQUIRE(!ibv_modify_qp(qp, &attr, mask));
}

static void begin(void)
{
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    struct ibv_qp_init_attr init = {
        .qp_type = setup.type, .sq_sig_all = 1,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
                .max_inline_data = 32}};
    for (int i = 0; i < SIZE; i++) {
        memory[i] = pattern(i);
        landing[i] = 0;
    }
    REQUIRE((cq = ibv_create_cq(context, 3 * DEPTH, NULL, NULL, 0)) != NULL);
    init.send_cq = init.recv_cq = cq;
    if (setup.shared && !is_client) {
        REQUIRE((srq = ibv_create_srq(pd, &shared)) != NULL);
        init.srq = srq;
    }
    REQUIRE((qp = ibv_create_qp(pd, &init)) != NULL);
    own.qpn = qp->qp_num;
    swap(&own, &peer, sizeof own);
    struct ibv_ah_attr path = to_peer();
    if (setup.type == IBV_QPT_UD)
        REQUIRE((ah = ibv_create_ah(pd, &path)) != NULL);
    modify(IBV_QPS_INIT);
    if (is_client || setup.server_state != IBV_QPS_INIT) {
        modify(IBV_QPS_RTR);
        modify(IBV_QPS_RTS);
    }
    if (!is_client && setup.server_state == IBV_QPS_ERR)
        modify(IBV_QPS_ERR);
}

static void destroy_qp(void)
{
    if (qp)
        REQUIRE(!ibv_destroy_qp(qp));
    qp = NULL;
}

static void end(void)
{
    destroy_qp();
    if (srq)
        REQUIRE(!ibv_destroy_srq(srq));
    if (ah)
        REQUIRE(!ibv_destroy_ah(ah));
    REQUIRE(!ibv_destroy_cq(cq));
    srq = NULL;
    ah = NULL;
}

static const char *status_name(enum ibv_wc_status status)
{
    static const char *const names[] = {
        "success", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "flushed", "MW_BIND_ERR",
        "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR"};
    return status < sizeof names / sizeof *names ? names[status] : ibv_wc_status_str(status);
}

#endif
