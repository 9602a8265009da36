/* Queue pairs: creation, states, attributes. */
static const char *const STATES[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static const char *const MASK[] = {"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU", "TIMEOUT",
    "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN"};
enum { BITS = 21, ALL_ATTRIBUTES = (1 << 21) - 1 };
static const char *type_name(int type)
{
    switch (type) {
    case IBV_QPT_RC: return "RC";
    case IBV_QPT_UC: return "UC";
    case IBV_QPT_UD: return "UD";
    case IBV_QPT_RAW_PACKET: return "RAW_PACKET";
    case IBV_QPT_XRC_SEND: return "XRC_SEND";
    case IBV_QPT_XRC_RECV: return "XRC_RECV";
    case IBV_QPT_DRIVER: return "DRIVER";
    }
    static char number[16];
    snprintf(number, sizeof number, "%d", type);
    return number;
}

static struct ibv_qp_init_attr usual(int type)
{
    return (struct ibv_qp_init_attr){.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {8, 8, 1, 1, 0}};
}

/* The attributes that each transition needs, and their values. */
static int needed(int type, int to)
{
    if (to == IBV_QPS_INIT)
        return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    if (to == IBV_QPS_RTR && type != IBV_QPT_UD)
        return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            (type == IBV_QPT_UC ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (to == IBV_QPS_RTS)
        return IBV_QP_STATE | IBV_QP_SQ_PSN | (type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
    return IBV_QP_STATE;
}

static struct ibv_qp_attr attributes(int to, uint32_t number)
{
    return (struct ibv_qp_attr){.qp_state = to, .cur_qp_state = to, .port_num = 1, .qkey = 0x1111, .qp_access_flags = 7, .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 3, .rnr_retry = 3, .rq_psn = 5, .sq_psn = 5, .max_rd_atomic = 1, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .dest_qp_num = number,
        .ah_attr = {.dlid = port.lid, .port_num = 1}, .alt_ah_attr = {.dlid = port.lid, .port_num = 1}, .alt_port_num = 1, .alt_timeout = 14, .path_mig_state = IBV_MIG_ARMED, .cap = {8, 8, 1, 1, 0}};
}

static int move(struct ibv_qp *qp, int to, uint32_t peer)
{
    struct ibv_qp_attr attr = attributes(to, peer);
    return ibv_modify_qp(qp, &attr, needed(qp->qp_type, to));
}

/* Moves from RESET to a state, by all states before it. Returns whether it is there. */
static int reach(struct ibv_qp *qp, int state, uint32_t peer)
{
    REQUIRE(!move(qp, IBV_QPS_RESET, peer));
    for (int next = IBV_QPS_INIT; next < state; next++)
        if ((state != IBV_QPS_ERR || next == IBV_QPS_INIT) && move(qp, next, peer))
            return 0;
    return !state || !move(qp, state, peer);
}

static void add_qp(struct ibv_qp *it)
{
    struct mlx5dv_qp dv = {.comp_mask = 0};
    struct mlx5dv_obj object = {.qp = {it, &dv}};
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int result = ibv_query_qp(it, &attr, IBV_QP_CAP, &init);
    if (result)
        ALSO("query %s", error_name(result));
    else
        ALSO("query: wr %u,%u sge %u,%u inline %u sig_all %d;", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data, init.sq_sig_all);
    if (!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP))
        FIELD(dv, sq.wqe_cnt), FIELD(dv, sq.stride), FIELD(dv, rq.wqe_cnt), FIELD(dv, rq.stride);
}

static void creation(void)
{
    static const int types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER, 0, 1, 5, 200};
    for (int at = 0; at < 11; at++) {
        struct ibv_qp_init_attr init = usual(types[at]);
        struct ibv_qp *it = MAKE(ibv_create_qp(pd, &init), "create_qp %s", type_name(types[at]));
        if (it) add_qp(it), ibv_destroy_qp(it);
        DONE;
    }
    unsigned wr = device.max_qp_wr, sge = device.max_sge;
    struct ibv_qp_cap caps[] = {{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {1, 1, 1, 1, 0}, {3, 3, 2, 2, 1}, {5, 5, 3, 3, 64}, {8, 8, 4, 4, 128}, {8, 8, 1, 1, 220},
        {8, 8, 1, 1, 512}, {8, 8, 1, 1, 884}, {8, 8, 1, 1, 885}, {8, 8, 1, 1, 1 << 20}, {8, 8, sge, sge, 0}, {8, 8, sge + 1, 1, 0}, {8, 8, 1, sge + 1, 0}, {wr, 8, 1, 1, 0}, {wr / 2, 8, 1, 1, 0}, {wr / 4, 8, 1, 1, 0},
        {wr + 1, 8, 1, 1, 0}, {8, wr, 1, 1, 0}, {8, wr + 1, 1, 1, 0}, {8, 8, 30, 1, 0}, {8, 8, 31, 1, 0}, {8, 8, 1, 31, 0}, {8, 8, 1, 32, 0}, {8, 8, 1, 33, 0}, {-1u, 8, 1, 1, 0}, {8, -1u, 1, 1, 0}};
    for (size_t at = 0; at < 3 * (sizeof caps / sizeof *caps); at++) {
        struct ibv_qp_init_attr init = usual(types[at % 3]);
        init.cap = caps[at / 3];
        struct ibv_qp *it = MAKE(ibv_create_qp(pd, &init), "create_qp %s wr %u,%u sge %u,%u inline %u", type_name(types[at % 3]), init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
            init.cap.max_recv_sge, init.cap.max_inline_data);
        if (it) ALSO("got: wr %u,%u sge %u,%u inline %u;", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data), add_qp(it), ibv_destroy_qp(it);
        DONE;
    }
    for (int at = 0; at < 3; at++) {
        struct ibv_qp_init_attr init = usual(types[at]);
        init.srq = srq, init.sq_sig_all = 1;
        struct ibv_qp *it = MAKE(ibv_create_qp(pd, &init), "create_qp %s with srq", type_name(types[at]));
        if (it) add_qp(it), ibv_destroy_qp(it);
        DONE;
        it = MAKE(ibv_create_qp(foreign_pd, &init), "create_qp %s with srq of another pd", type_name(types[at])); DONE;
        if (it) ibv_destroy_qp(it);
    }
    for (int at = 0; at < 34; at++) {
        struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = at < 32 ? IBV_QPT_RC : IBV_QPT_UD, .pd = pd, .cap = {8, 8, 1, 1, 0}, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
            .create_flags = at < 32 ? 1u << at : at == 32 ? 2 : 1 << 10};
        struct ibv_qp *it = MAKE(ibv_create_qp_ex(context, &init), "create_qp_ex %s create_flags 0x%x", type_name(init.qp_type), init.create_flags); DONE;
        if (it) ibv_destroy_qp(it);
    }
    for (int at = 0; at < 16; at++) {
        struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = at < 14 ? IBV_QPT_RC : IBV_QPT_UD, .pd = pd, .cap = {8, 8, 1, 1, 0}, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            .send_ops_flags = at < 14 ? 1 << at : at == 14 ? IBV_QP_EX_WITH_SEND : IBV_QP_EX_WITH_RDMA_WRITE};
        struct ibv_qp *it = MAKE(ibv_create_qp_ex(context, &init), "create_qp_ex %s send_ops 0x%llx", type_name(init.qp_type), (unsigned long long)init.send_ops_flags); DONE;
        if (it) ibv_destroy_qp(it);
    }
    for (int at = 0; at < 11; at++) {
        struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .cap = {8, 8, 1, 1, 0}, .comp_mask = IBV_QP_INIT_ATTR_PD};
        struct mlx5dv_qp_init_attr dv = {.comp_mask = 1, .create_flags = 1 << at};
        struct ibv_qp *it = MAKE(mlx5dv_create_qp(context, &init, &dv), "mlx5dv_create_qp create_flags 0x%x", dv.create_flags); DONE;
        if (it) ibv_destroy_qp(it);
    }
    for (int at = 0; at < 2; at++) {
        struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_DRIVER, .pd = pd, .srq = at ? srq : NULL, .cap = {8, 0, 1, 0, 0}, .comp_mask = IBV_QP_INIT_ATTR_PD};
        struct mlx5dv_qp_init_attr dv = {.comp_mask = 2, .dc_init_attr = {at ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI, {1}}};
        struct ibv_qp *it = MAKE(mlx5dv_create_qp(context, &init, &dv), "mlx5dv_create_qp %s", at ? "DCT" : "DCI"); DONE;
        if (it) ibv_destroy_qp(it);
    }
    struct ibv_xrcd_init_attr xrc = {.comp_mask = 3, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *domain = ibv_open_xrcd(context, &xrc);
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = domain, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
    struct ibv_qp *it = domain ? MAKE(ibv_create_qp_ex(context, &init), "create_qp_ex XRC_RECV") : NULL; DONE;
    if (it) CALL(ibv_destroy_qp(it), "destroy_qp XRC_RECV");
    if (domain) ibv_close_xrcd(domain);
}

/* Every transition: whether it is allowed, with each attribute less and with each one more. */
static void transitions(int type)
{
    struct ibv_qp_init_attr init = usual(type);
    struct ibv_qp *it = ibv_create_qp(pd, &init);
    REQUIRE(it);
    for (int from = 0; from < 7; from++)
        for (int to = 0; to < 9; to++) {
            int base = to < 7 ? needed(type, to) : 1;
            struct ibv_qp_attr attr = attributes(to, it->qp_num);
            attr.cur_qp_state = from;
            if (!reach(it, from, it->qp_num))
                break;
            int result = ibv_modify_qp(it, &attr, base);
            printf("modify %s %s to %s mask 0x%x: %s", type_name(type), STATES[from], to < 7 ? STATES[to] : "a wrong state", base, error_name(result));
            if (result && base != 1) {
                reach(it, from, it->qp_num);
                result = ibv_modify_qp(it, &attr, base = 1);
                printf("; mask 0x1: %s", error_name(result));
            }
            for (int bit = 1; bit < BITS && !result; bit++) {
                reach(it, from, it->qp_num);
                errno = 0;
                int other = ibv_modify_qp(it, &attr, base ^ 1 << bit);
                if ((base >> bit & 1) || !other)
                    printf("; %s %s %s", base >> bit & 1 ? "without" : "with", MASK[bit], error_name(other));
                else if (other != EINVAL)
                    printf("; with %s %s", MASK[bit], error_name(other));
            }
            DONE;
        }
    for (int from = 0; from < 7; from++)
        for (int bit = 1; bit < BITS; bit++) {
            struct ibv_qp_attr attr = attributes(from, it->qp_num);
            if (!reach(it, from, it->qp_num))
                break;
            int result = ibv_modify_qp(it, &attr, 1 << bit);
            if (result != EINVAL)
                printf("modify %s in %s %s alone: %s\n", type_name(type), STATES[from], MASK[bit], error_name(result));
        }
    reach(it, IBV_QPS_INIT, it->qp_num);
    struct ibv_qp_attr attr = attributes(IBV_QPS_INIT, it->qp_num);
    for (int claimed = 0; claimed < 9; claimed++) {
        attr.cur_qp_state = claimed;
        CALL(ibv_modify_qp(it, &attr, needed(type, IBV_QPS_INIT) | IBV_QP_CUR_STATE), "modify %s in INIT, current state %d", type_name(type), claimed);
        reach(it, IBV_QPS_INIT, it->qp_num);
    }
    CALL(ibv_destroy_qp(it), "destroy_qp %s", type_name(type));
}

static void add_state(struct ibv_qp *it)
{
    struct ibv_qp_attr a = {0};
    struct ibv_qp_init_attr init;
    REQUIRE(!ibv_query_qp(it, &a, ALL_ATTRIBUTES, &init));
    FIELD(a, qp_state), FIELD(a, cur_qp_state), FIELD(a, path_mtu), FIELD(a, path_mig_state), FLAGS(a, qkey), FIELD(a, rq_psn), FIELD(a, sq_psn);
    ALSO("dest=%s", a.dest_qp_num == it->qp_num ? "own" : a.dest_qp_num ? "other" : "0"), FLAGS(a, qp_access_flags), FIELD(a, pkey_index), FIELD(a, alt_pkey_index);
    FIELD(a, en_sqd_async_notify), FIELD(a, sq_draining), FIELD(a, max_rd_atomic), FIELD(a, max_dest_rd_atomic), FIELD(a, min_rnr_timer), FIELD(a, port_num);
    FIELD(a, timeout), FIELD(a, retry_cnt), FIELD(a, rnr_retry), FIELD(a, alt_port_num), FIELD(a, alt_timeout), FIELD(a, rate_limit);
    ALSO("dlid=%s", a.ah_attr.dlid == port.lid ? "own" : a.ah_attr.dlid ? "other" : "0"), FIELD(a, ah_attr.sl), FIELD(a, ah_attr.is_global), FIELD(a, ah_attr.port_num), FIELD(a, ah_attr.static_rate);
    FIELD(a, ah_attr.src_path_bits), FIELD(a, ah_attr.grh.hop_limit), FIELD(a, ah_attr.grh.sgid_index), FIELD(a, ah_attr.grh.traffic_class), FLAGS(a, ah_attr.grh.flow_label);
}

/* A new queue pair for each state: mlx5_ib keeps some attributes over RESET. */
static void queries(int type)
{
    struct ibv_qp_init_attr init = usual(type);
    struct ibv_qp *it = ibv_create_qp(pd, &init);
    printf("query %s new:", type_name(type)), add_state(it), DONE;
    for (int state = 0; state < 7; state++) {
        ibv_destroy_qp(it), it = ibv_create_qp(pd, &init);
        if (reach(it, state, it->qp_num))
            printf("query %s %s (state field %d):", type_name(type), STATES[state], it->state), add_state(it), DONE;
    }
    ibv_destroy_qp(it), it = ibv_create_qp(pd, &init);
    reach(it, IBV_QPS_RTS, it->qp_num), move(it, IBV_QPS_RESET, it->qp_num), printf("query %s RTS to RESET:", type_name(type)), add_state(it), DONE;
    if (type != IBV_QPT_UD) {
        reach(it, IBV_QPS_INIT, it->qp_num);
        struct ibv_qp_attr attr = attributes(IBV_QPS_RTR, it->qp_num);
        attr.ah_attr = (struct ibv_ah_attr){.dlid = port.lid, .port_num = 1, .is_global = 1, .sl = 3, .src_path_bits = 1, .static_rate = IBV_RATE_10_GBPS,
            .grh = {.dgid = gid, .hop_limit = 9, .traffic_class = 5, .flow_label = 0x12345}};
        CALL(ibv_modify_qp(it, &attr, needed(type, IBV_QPS_RTR)), "modify %s to RTR with a GRH", type_name(type)), printf("query:"), add_state(it), DONE;
    }
    ibv_destroy_qp(it);
}

/* One attribute out of its range, in a transition that is right otherwise. */
#define VALUE(to, field, value) ({ \
    struct ibv_qp_attr attr = attributes(IBV_QPS_##to, it->qp_num); \
    reach(it, IBV_QPS_##to - 1, it->qp_num); \
    attr.field = (value); \
    int result = ibv_modify_qp(it, &attr, needed(it->qp_type, IBV_QPS_##to)); \
    printf("modify %s to " #to " " #field " " #value ": %s", type_name(it->qp_type), error_name(result)); \
    if (!result && !ibv_query_qp(it, &attr, ALL_ATTRIBUTES, &init)) printf(", then %llu", (unsigned long long)attr.field); \
    DONE; })

static void values(void)
{
    static const int types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    for (int at = 0; at < 3; at++) {
        struct ibv_qp_init_attr init = usual(types[at]);
        struct ibv_qp *it = ibv_create_qp(pd, &init);
        VALUE(INIT, port_num, 0), VALUE(INIT, port_num, 2), VALUE(INIT, pkey_index, port.pkey_tbl_len - 1), VALUE(INIT, pkey_index, port.pkey_tbl_len), VALUE(INIT, pkey_index, 65535);
        if (types[at] == IBV_QPT_UD) {
            VALUE(INIT, qkey, 0xffffffff), VALUE(INIT, qkey, 0x80000001), VALUE(RTS, sq_psn, 0xffffff), VALUE(RTS, sq_psn, 0x1000000);
            ibv_destroy_qp(it);
            continue;
        }
        VALUE(INIT, qp_access_flags, 0), VALUE(INIT, qp_access_flags, 15), VALUE(INIT, qp_access_flags, 16), VALUE(INIT, qp_access_flags, 1 << 8), VALUE(INIT, qp_access_flags, 1 << 20);
        VALUE(RTR, path_mtu, 0), VALUE(RTR, path_mtu, 5), VALUE(RTR, path_mtu, 6), VALUE(RTR, path_mtu, 7), VALUE(RTR, path_mtu, 255);
        VALUE(RTR, rq_psn, 0xffffff), VALUE(RTR, rq_psn, 0x1000000), VALUE(RTR, dest_qp_num, 0), VALUE(RTR, dest_qp_num, 0xffffff), VALUE(RTR, dest_qp_num, 0x1000000);
        VALUE(RTR, ah_attr.port_num, 0), VALUE(RTR, ah_attr.port_num, 2), VALUE(RTR, ah_attr.dlid, 0), VALUE(RTR, ah_attr.dlid, 0xc001), VALUE(RTR, ah_attr.sl, 15), VALUE(RTR, ah_attr.sl, 16);
        VALUE(RTR, ah_attr.static_rate, 1), VALUE(RTR, ah_attr.static_rate, 255), VALUE(RTR, ah_attr.is_global, 1), VALUE(RTR, ah_attr.is_global, 2), VALUE(RTR, ah_attr.src_path_bits, 255);
        VALUE(RTS, sq_psn, 0xffffff), VALUE(RTS, sq_psn, 0x1000000);
        if (types[at] == IBV_QPT_RC) {
            VALUE(RTR, max_dest_rd_atomic, 0), VALUE(RTR, max_dest_rd_atomic, 3), VALUE(RTR, max_dest_rd_atomic, 16), VALUE(RTR, max_dest_rd_atomic, 17), VALUE(RTR, max_dest_rd_atomic, 255);
            VALUE(RTR, min_rnr_timer, 0), VALUE(RTR, min_rnr_timer, 31), VALUE(RTR, min_rnr_timer, 32), VALUE(RTR, min_rnr_timer, 255);
            VALUE(RTS, timeout, 0), VALUE(RTS, timeout, 31), VALUE(RTS, timeout, 32), VALUE(RTS, timeout, 255), VALUE(RTS, retry_cnt, 0), VALUE(RTS, retry_cnt, 7), VALUE(RTS, retry_cnt, 8);
            VALUE(RTS, rnr_retry, 7), VALUE(RTS, rnr_retry, 8), VALUE(RTS, max_rd_atomic, 0), VALUE(RTS, max_rd_atomic, 3), VALUE(RTS, max_rd_atomic, 16), VALUE(RTS, max_rd_atomic, 17), VALUE(RTS, max_rd_atomic, 255);
        }
        ibv_destroy_qp(it);
    }
}
