/* Objects in use, multicast groups, what is refused, and failures as completions and events. */
static void in_use(void)
{
    struct ibv_pd *domain = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *send = ibv_create_cq(context, 8, NULL, channel, 0), *receive = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_srq *shared = ibv_create_srq(domain, &(struct ibv_srq_init_attr){.attr = {8, 1, 0}});
    struct ibv_qp_init_attr init = {.send_cq = send, .recv_cq = receive, .srq = shared, .qp_type = IBV_QPT_RC, .cap = {1, 0, 1, 0, 0}};
    struct ibv_qp *qp = ibv_create_qp(domain, &init);
    REQUIRE(domain && channel && send && receive && shared && qp);
    CALL(ibv_destroy_cq(send), "destroy_cq of a qp"), CALL(ibv_destroy_cq(receive), "destroy_cq of a qp's receives");
    CALL(ibv_destroy_srq(shared), "destroy_srq of a qp"), CALL(ibv_dealloc_pd(domain), "dealloc_pd of a qp"), CALL(ibv_destroy_comp_channel(channel), "destroy_comp_channel of a cq");
    CALL(ibv_destroy_qp(qp), "destroy_qp"), CALL(ibv_dealloc_pd(domain), "dealloc_pd of an srq"), CALL(ibv_destroy_srq(shared), "destroy_srq"), CALL(ibv_dealloc_pd(domain), "dealloc_pd");
    CALL(ibv_destroy_cq(send), "destroy_cq"), CALL(ibv_destroy_cq(receive), "destroy_cq"), CALL(ibv_destroy_comp_channel(channel), "destroy_comp_channel");
}

static void multicast(void)
{
    static const int types[] = {IBV_QPT_RC, IBV_QPT_UD};
    union ibv_gid group = {.raw = {0xff, 0x12, 0x40, 0x1b, [15] = 1}};
    for (int at = 0; at < 2; at++) {
        struct ibv_qp_init_attr init = usual(types[at]);
        struct ibv_qp *qp = ibv_create_qp(pd, &init);
        const char *name = type_name(types[at]);
        CALL(ibv_detach_mcast(qp, &group, 0xc001), "detach_mcast %s before", name);
        CALL(ibv_attach_mcast(qp, &group, 0xc001), "attach_mcast %s in RESET", name);
        reach(qp, IBV_QPS_RTS, qp->qp_num);
        CALL(ibv_attach_mcast(qp, &group, 0xc001), "attach_mcast %s", name), CALL(ibv_attach_mcast(qp, &group, 0xc001), "attach_mcast %s again", name);
        CALL(ibv_attach_mcast(qp, &gid, 0xc001), "attach_mcast %s no group", name), CALL(ibv_attach_mcast(qp, &group, 1), "attach_mcast %s unicast lid", name);
        int result = ibv_destroy_qp(qp);
        printf("destroy_qp %s attached: %s\n", name, error_name(result));
        if (result) CALL(ibv_detach_mcast(qp, &group, 0xc001), "detach_mcast %s", name), CALL(ibv_detach_mcast(qp, &group, 0xc001), "detach_mcast %s again", name), CALL(ibv_destroy_qp(qp), "destroy_qp");
    }
}

static void refused(void)
{
    struct ibv_qp_init_attr init = usual(IBV_QPT_UD);
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_flow_attr flow = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .port = 1};
    void *made = MAKE(ibv_create_flow(qp, &flow), "create_flow"); DONE;
    flow.type = IBV_FLOW_ATTR_SNIFFER, made = MAKE(ibv_create_flow(qp, &flow), "create_flow sniffer"); DONE;
    struct ibv_wq_init_attr wq = {.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq};
    made = MAKE(ibv_create_wq(context, &wq), "create_wq"); DONE;
    struct ibv_rwq_ind_table_init_attr table = {.log_ind_tbl_size = 0, .ind_tbl = (struct ibv_wq *[]){NULL}};
    struct mlx5dv_devx_obj *object;
    struct mlx5dv_devx_uar *uar;
    char in[16] = {1}, out[16];
    (void)table, (void)made;
    made = MAKE(ibv_create_counters(context, &(struct ibv_counters_init_attr){0}), "create_counters"); DONE;
    made = MAKE(ibv_create_flow_action_esp(context, &(struct ibv_flow_action_esp_attr){0}), "create_flow_action_esp"); DONE;
    object = MAKE(mlx5dv_devx_obj_create(context, in, sizeof in, out, sizeof out), "devx_obj_create"); DONE;
    (void)object, CALL(mlx5dv_devx_general_cmd(context, in, sizeof in, out, sizeof out), "devx_general_cmd");
    made = MAKE(mlx5dv_devx_umem_reg(context, memory, 4096, 1), "devx_umem_reg"); DONE;
    uint32_t eqn = 0;
    CALL(mlx5dv_devx_query_eqn(context, 0, &eqn), "devx_query_eqn");
    for (int type = 0; type < 4; type++) {
        uar = MAKE(mlx5dv_devx_alloc_uar(context, type), "devx_alloc_uar type %d", type); DONE;
        if (uar) mlx5dv_devx_free_uar(uar);
    }
    struct mlx5dv_var *var = MAKE(mlx5dv_alloc_var(context, 0), "alloc_var"); DONE; (void)var;
    struct mlx5dv_pp *pp = MAKE(mlx5dv_pp_alloc(context, 16, in, 0), "pp_alloc"); DONE; (void)pp;
    struct ibv_context *import = MAKE(ibv_import_device(context->cmd_fd), "import_device of a file in use"); DONE; (void)import;
    CALL(ibv_modify_qp_rate_limit(qp, &(struct ibv_qp_rate_limit_attr){.rate_limit = 1}), "modify_qp_rate_limit"), ibv_destroy_qp(qp);
}

struct failing {
    const char *name;
    enum ibv_wr_opcode opcode;
    uint32_t length, lkey_wrong, rkey_wrong, receives;
    int64_t local, remote;
    int access, inline_data;
};

/* Prints the completions that come, the first within `first` milliseconds. */
static void drain(const char *whose, struct ibv_cq *from, long first)
{
    struct ibv_wc wc = {0};
    long until = now() + first;
    printf(" %s:", whose);
    while (now() < until)
        if (ibv_poll_cq(from, 1, &wc) == 1) {
            ALSO("(%s vendor 0x%x", ibv_wc_status_str(wc.status), wc.vendor_err);
            if (!wc.status)
                ALSO("opcode %d len %u flags 0x%x", wc.opcode, wc.byte_len, wc.wc_flags);
            printf(")"), until = now() + pause_ms;
        }
}

static void failures(void)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 8192, 15), *narrow = ibv_reg_mr(pd, memory, 8192, 0), *foreign = ibv_reg_mr(foreign_pd, memory, 8192, 15);
    uint32_t dead = mr->rkey ^ 1; /* the variant of the key */
    struct failing cases[] = {
        {"nothing wrong", IBV_WR_RDMA_WRITE, 64, 0, 0, 1, 0, 0, 7, 0}, {"write, wrong rkey", IBV_WR_RDMA_WRITE, 64, 0, dead, 1, 0, 0, 7, 0},
        {"write, key of another pd", IBV_WR_RDMA_WRITE, 64, 0, foreign->rkey, 1, 0, 0, 7, 0}, {"write, key without rights", IBV_WR_RDMA_WRITE, 64, 0, narrow->rkey, 1, 0, 0, 7, 0},
        {"write, behind the region", IBV_WR_RDMA_WRITE, 64, 0, 0, 1, 0, 8191, 7, 0}, {"write, before the region", IBV_WR_RDMA_WRITE, 64, 0, 0, 1, 0, -1, 7, 0},
        {"write, rights of the qp", IBV_WR_RDMA_WRITE, 64, 0, 0, 1, 0, 0, 0, 0}, {"read, rights of the qp", IBV_WR_RDMA_READ, 64, 0, 0, 1, 0, 0, 0, 0},
        {"read, wrong rkey", IBV_WR_RDMA_READ, 64, 0, dead, 1, 0, 0, 7, 0}, {"read, lkey read-only", IBV_WR_RDMA_READ, 64, narrow->lkey, 0, 1, 0, 0, 7, 0},
        {"write, wrong lkey", IBV_WR_RDMA_WRITE, 64, dead, 0, 1, 0, 0, 7, 0}, {"write, behind the local region", IBV_WR_RDMA_WRITE, 64, 0, 0, 1, 8191, 0, 7, 0},
        {"write, lkey of another pd", IBV_WR_RDMA_WRITE, 64, foreign->lkey, 0, 1, 0, 0, 7, 0}, {"write, inline with a wrong lkey", IBV_WR_RDMA_WRITE, 8, dead, 0, 1, 0, 0, 7, 1},
        {"send", IBV_WR_SEND, 64, 0, 0, 1, 0, 0, 7, 0}, {"send, too long", IBV_WR_SEND, 65, 0, 0, 1, 0, 0, 7, 0}, {"send, wrong lkey", IBV_WR_SEND, 64, dead, 0, 1, 0, 0, 7, 0},
        {"send without a receive", IBV_WR_SEND, 64, 0, 0, 0, 0, 0, 7, 0}, {"send to a wrong receive", IBV_WR_SEND, 64, 0, 0, 2, 0, 0, 7, 0},
        {"send to a read-only receive", IBV_WR_SEND, 64, 0, 0, 3, 0, 0, 7, 0}, {"write with imm without a receive", IBV_WR_RDMA_WRITE_WITH_IMM, 64, 0, 0, 0, 0, 0, 7, 0},
        {"send, invalidate a wrong key", IBV_WR_SEND_WITH_INV, 8, 0, dead, 1, 0, 0, 7, 0}, {"send, invalidate a region", IBV_WR_SEND_WITH_INV, 8, 0, 0, 1, 0, 0, 7, 0},
        {"atomic without rights", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0, 1, 0, 0, 7, 0}, {"atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0, 1, 0, 0, 15, 0},
        {"atomic, misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0, 1, 0, 4, 15, 0}, {"atomic, wrong rkey", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, dead, 1, 0, 0, 15, 0},
        {"local invalidation of a wrong key", IBV_WR_LOCAL_INV, 0, 0, dead, 1, 0, 0, 7, 0},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        struct failing it = cases[at];
        struct ibv_cq *cqs[2];
        struct ibv_qp *qps[2];
        for (int side = 0; side < 2; side++) {
            REQUIRE(cqs[side] = ibv_create_cq(context, 16, NULL, NULL, 0));
            struct ibv_qp_init_attr init = {.send_cq = cqs[side], .recv_cq = cqs[side], .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {4, 4, 1, 1, 64}};
            REQUIRE(qps[side] = ibv_create_qp(pd, &init));
        }
        for (int side = 0; side < 2; side++) {
            struct ibv_qp_attr attr = attributes(IBV_QPS_INIT, 0);
            attr.qp_access_flags = it.access;
            REQUIRE(!ibv_modify_qp(qps[side], &attr, needed(IBV_QPT_RC, IBV_QPS_INIT)));
            struct ibv_sge sge = {(uintptr_t)memory + 4096, 64, it.receives == 2 ? dead : it.receives == 3 ? narrow->lkey : mr->lkey};
            struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
            for (uint32_t n = 0; n < 2 && it.receives; n++)
                REQUIRE(!ibv_post_recv(qps[side], &wr, &bad));
            REQUIRE(!move(qps[side], IBV_QPS_RTR, qps[!side]->qp_num) && !move(qps[side], IBV_QPS_RTS, qps[!side]->qp_num));
        }
        struct ibv_sge sge = {(uintptr_t)memory + it.local, it.length, it.lkey_wrong ? it.lkey_wrong : mr->lkey};
        struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = it.length != 0, .opcode = it.opcode, .send_flags = it.inline_data ? IBV_SEND_INLINE : 0};
        uint32_t rkey = it.rkey_wrong ? it.rkey_wrong : mr->rkey;
        uint64_t remote = (uintptr_t)memory + it.remote;
        if (it.opcode == IBV_WR_SEND_WITH_INV || it.opcode == IBV_WR_LOCAL_INV)
            wr.invalidate_rkey = rkey;
        else if (it.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || it.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
            wr.wr.atomic.rkey = rkey, wr.wr.atomic.remote_addr = remote;
        else
            wr.wr.rdma.rkey = rkey, wr.wr.rdma.remote_addr = remote;
        int result = ibv_post_send(qps[0], &wr, &bad);
        printf("%s: post %s;", it.name, error_name(result));
        drain("requester", cqs[0], 10000), drain("responder", cqs[1], pause_ms);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        for (int side = 0; side < 2; side++)
            REQUIRE(!ibv_query_qp(qps[side], &attr, ALL_ATTRIBUTES, &init)), ALSO("%s", STATES[attr.qp_state]);
        DONE, events(it.name);
        for (int side = 0; side < 2; side++)
            CALL(ibv_destroy_qp(qps[side]), "destroy_qp"), CALL(ibv_destroy_cq(cqs[side]), "destroy_cq");
    }
}
