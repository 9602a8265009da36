/* The device, protection domains, memory, completion queues, shared receive queues, address handles. */
static void query_device(void)
{
    struct ibv_device_attr_ex ex = {0};
    CALL(ibv_query_device(context, &device), "query_device");
    struct ibv_device_attr d = device;
    printf("device:");
    FLAGS(d, max_mr_size), FLAGS(d, page_size_cap), FLAGS(d, vendor_id), FIELD(d, vendor_part_id), FIELD(d, hw_ver);
    FIELD(d, max_qp), FIELD(d, max_qp_wr), FLAGS(d, device_cap_flags), FIELD(d, max_sge), FIELD(d, max_sge_rd);
    FIELD(d, max_cq), FIELD(d, max_cqe), FIELD(d, max_mr), FIELD(d, max_pd), FIELD(d, max_qp_rd_atom);
    FIELD(d, max_ee_rd_atom), FIELD(d, max_res_rd_atom), FIELD(d, max_qp_init_rd_atom), FIELD(d, atomic_cap), DONE;
    printf("device:");
    FIELD(d, max_ee), FIELD(d, max_rdd), FIELD(d, max_mw), FIELD(d, max_raw_ipv6_qp), FIELD(d, max_raw_ethy_qp);
    FIELD(d, max_mcast_grp), FIELD(d, max_mcast_qp_attach), FIELD(d, max_total_mcast_qp_attach), FIELD(d, max_ah);
    FIELD(d, max_fmr), FIELD(d, max_srq), FIELD(d, max_srq_wr), FIELD(d, max_srq_sge), FIELD(d, max_pkeys);
    FIELD(d, local_ca_ack_delay), FIELD(d, phys_port_cnt), DONE;
    CALL(ibv_query_device_ex(context, NULL, &ex), "query_device_ex");
    printf("device_ex:");
    FLAGS(ex, odp_caps.general_caps), FLAGS(ex, odp_caps.per_transport_caps.rc_odp_caps);
    FLAGS(ex, completion_timestamp_mask), FIELD(ex, hca_core_clock), FLAGS(ex, device_cap_flags_ex);
    FIELD(ex, tso_caps.max_tso), FIELD(ex, rss_caps.max_rwq_indirection_tables), FLAGS(ex, rss_caps.rx_hash_function);
    FIELD(ex, max_wq_type_rq), FLAGS(ex, packet_pacing_caps.supported_qpts), FLAGS(ex, raw_packet_caps);
    FIELD(ex, tm_caps.max_num_tags), FIELD(ex, cq_mod_caps.max_cq_count), FIELD(ex, cq_mod_caps.max_cq_period);
    FIELD(ex, max_dm_size), FIELD(ex, xrc_odp_caps), FIELD(ex, phys_port_cnt_ex), FLAGS(ex, pci_atomic_caps.fetch_add), DONE;
    struct mlx5dv_context dv = {.comp_mask = (1 << 13) - 1};
    CALL(mlx5dv_query_device(context, &dv), "mlx5dv_query_device");
    printf("mlx5dv:");
    FIELD(dv, version), FLAGS(dv, flags), FLAGS(dv, comp_mask), FIELD(dv, cqe_comp_caps.max_num);
    FLAGS(dv, cqe_comp_caps.supported_format), FIELD(dv, sw_parsing_caps.sw_parsing_offloads);
    FIELD(dv, striding_rq_caps.supported_qpts), FLAGS(dv, tunnel_offloads_caps), FIELD(dv, max_dynamic_bfregs);
    FIELD(dv, max_clock_info_update_nsec), FLAGS(dv, flow_action_flags), FLAGS(dv, dc_odp_caps), FIELD(dv, num_lag_ports), DONE;
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    CALL(ibv_query_rt_values_ex(context, &values), "query_rt_values_ex"), printf("clock is running: %d\n", values.raw_clock.tv_nsec > 0);
    struct mlx5dv_clock_info clock;
    CALL(mlx5dv_get_clock_info(context, &clock), "mlx5dv_get_clock_info");
}

static void query_port(void)
{
    for (int number = 0; number < 3; number++)
        CALL(ibv_query_port(context, number, &port), "query_port %d", number);
    REQUIRE(!ibv_query_port(context, 1, &port));
    printf("port:");
    FIELD(port, state), FIELD(port, max_mtu), FIELD(port, active_mtu), FIELD(port, gid_tbl_len), FLAGS(port, port_cap_flags);
    FLAGS(port, max_msg_sz), FIELD(port, bad_pkey_cntr), FIELD(port, qkey_viol_cntr), FIELD(port, pkey_tbl_len);
    FIELD(port, lmc), FIELD(port, max_vl_num), FIELD(port, sm_sl), FIELD(port, subnet_timeout), FIELD(port, init_type_reply);
    FIELD(port, active_width), FIELD(port, active_speed), FIELD(port, phys_state), FIELD(port, link_layer), FIELD(port, flags);
    FLAGS(port, port_cap_flags2), DONE;
    printf("lid %s, sm_lid %s\n", port.lid ? "set" : "0", port.sm_lid ? "set" : "0");
    int last = port.gid_tbl_len - 1;
    for (int index = -1; index <= last + 1; index += index == 1 && last > 2 ? last - 1 : 1) {
        union ibv_gid it = {.raw = {0}};
        CALL(ibv_query_gid(context, 1, index, &it), "query_gid %d", index);
        printf("gid %d: prefix %llx, %s\n", index, (unsigned long long)be64toh(it.global.subnet_prefix), it.global.interface_id ? "set" : "0");
        struct ibv_gid_entry entry = {0};
        if (CALL(ibv_query_gid_ex(context, 1, index, &entry, 0), "query_gid_ex %d", index))
            printf("gid_ex: index %u port %u type %u ndev %s\n", entry.gid_index, entry.port_num, entry.gid_type, entry.ndev_ifindex ? "set" : "0");
    }
    struct ibv_gid_entry entries[16];
    printf("query_gid_table: %d\n", (int)ibv_query_gid_table(context, entries, 16, 0));
    CALL(ibv_query_gid_ex(context, 1, 0, entries, 1), "query_gid_ex with flags"), CALL(ibv_query_gid_ex(context, 2, 0, entries, 0), "query_gid_ex port 2");
    CALL(ibv_query_gid(context, 2, 0, &gid), "query_gid port 2"), REQUIRE(!ibv_query_gid(context, 1, 0, &gid));
    int keys[] = {-1, 0, 1, port.pkey_tbl_len - 1, port.pkey_tbl_len};
    for (int at = 0; at < 5; at++) {
        __be16 key = 0;
        if (CALL(ibv_query_pkey(context, 1, keys[at], &key), "query_pkey %s", ((const char *[]){"-1", "0", "1", "last", "last+1"})[at]))
            printf("pkey %x\n", ntohs(key));
    }
}

static void domains(void)
{
    struct ibv_pd *it = MAKE(ibv_alloc_pd(context), "alloc_pd"); DONE;
    struct ibv_mr *mr = ibv_reg_mr(it, memory, 1, 0);
    CALL(ibv_dealloc_pd(it), "dealloc_pd with mr"), CALL(ibv_dereg_mr(mr), "dereg_mr");
    struct ibv_td *td = MAKE(ibv_alloc_td(context, &(struct ibv_td_init_attr){0}), "alloc_td"); DONE;
    struct ibv_parent_domain_init_attr init = {.pd = it, .td = td};
    struct ibv_pd *parent = MAKE(ibv_alloc_parent_domain(context, &init), "alloc_parent_domain"); DONE;
    CALL(ibv_dealloc_pd(it), "dealloc_pd of a parent");
    if (td) CALL(ibv_dealloc_td(td), "dealloc_td in use");
    if (parent) CALL(ibv_dealloc_pd(parent), "dealloc parent domain");
    if (td) CALL(ibv_dealloc_td(td), "dealloc_td");
    CALL(ibv_dealloc_pd(it), "dealloc_pd");
    int descriptor = open("/", O_RDONLY);
    struct ibv_xrcd_init_attr xrc = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *domain = MAKE(ibv_open_xrcd(context, &xrc), "open_xrcd"); DONE;
    if (domain) CALL(ibv_close_xrcd(domain), "close_xrcd");
    xrc.oflags = 0, domain = MAKE(ibv_open_xrcd(context, &xrc), "open_xrcd without a file or O_CREAT"); DONE;
    xrc.fd = descriptor, xrc.oflags = O_CREAT, domain = MAKE(ibv_open_xrcd(context, &xrc), "open_xrcd of a directory"); DONE;
    if (domain) CALL(ibv_close_xrcd(domain), "close_xrcd");
    close(descriptor);
}

static void regions(void)
{
    unsigned char *read_only = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *hole = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole + 4096, 4096);
    printf("reg_mr refuses access:");
    for (int access = 0; access < 128; access++) {
        struct ibv_mr *it = ibv_reg_mr(pd, memory, 4096, access);
        if (it) REQUIRE(!ibv_dereg_mr(it));
        else ALSO("0x%x %s", access, error_name(-1));
    }
    DONE;
    struct { const char *name; void *at; size_t length; uint64_t iova; int access; } cases[] = {
        {"length 0", memory, 0, 0, 1}, {"length 1", memory, 1, 0, 1}, {"a page and a byte", memory + 4095, 2, 0, 1},
        {"up to the end of addresses", (void *)-4096l, 4096, 0, 0}, {"over the end of addresses", (void *)-4096l, 8192, 0, 0},
        {"of all lengths", memory, -1ul, 0, 0}, {"of 2^40", memory, 1ul << 40, 0, 0}, {"of 2^47", memory, 1ul << 47, 0, 0}, {"null", NULL, 4096, 0, 0},
        {"null, length 0", NULL, 0, 0, 0}, {"kernel addresses", (void *)0xffff800000000000ul, 4096, 0, 0},
        {"read-only memory, to read", read_only, 8192, 0, 0}, {"read-only memory, to write", read_only, 8192, 0, 1},
        {"read-only memory, to read remotely", read_only, 8192, 0, 4}, {"read-only memory, to bind", read_only, 8192, 0, 16},
        {"PROT_NONE memory", none, 8192, 0, 0}, {"memory with a hole", hole, 12288, 0, 1}, {"memory before a hole", hole, 4096, 0, 1},
        {"access 1<<8", memory, 4096, 0, 1 << 8}, {"access 1<<19", memory, 4096, 0, 1 << 19}, {"relaxed ordering", memory, 4096, 0, 1 << 20},
        {"optional access 1<<29", memory, 4096, 0, 1 << 29}, {"access 1<<30", memory, 4096, 0, 1 << 30},
        {"iova 64 KiB", memory, 4096, 65536, 1}, {"iova at another place in the page", memory, 4096, 65537, 1},
        {"iova zero-based", memory, 4096, 0, 33}, {"iova over the end", memory, 8192, -4096ul, 1},
        {"on demand, all memory", NULL, SIZE_MAX, 0, 64 | 1}, {"huge pages", memory, 4096, 0, 128 | 1},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        int with_iova = !strncmp(cases[at].name, "iova", 4);
        struct ibv_mr *it = MAKE(with_iova ? ibv_reg_mr_iova(pd, cases[at].at, cases[at].length, cases[at].iova, cases[at].access)
            : ibv_reg_mr(pd, cases[at].at, cases[at].length, cases[at].access), "reg_mr %s", cases[at].name);
        if (it) ALSO("length %zu, keys %s", it->length, it->lkey == it->rkey ? "alike" : "differ"), REQUIRE(!ibv_dereg_mr(it));
        DONE;
    }
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096, 7);
    for (int flags = 0; flags < 16; flags++) {
        CALL(ibv_rereg_mr(mr, flags, pd, memory, 8192, 3), "rereg_mr flags 0x%x", flags);
        ibv_dereg_mr(mr), mr = ibv_reg_mr(pd, memory, 4096, 7);
    }
    CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, foreign_pd, NULL, 0, 0), "rereg_mr to another pd");
    CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 0, 0), "rereg_mr length 0");
    CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, hole, 12288, 0), "rereg_mr to a hole");
    CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 2), "rereg_mr remote without local write");
    CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 8), "rereg_mr access 1<<8");
    CALL(ibv_dereg_mr(mr), "dereg_mr after all");
    mr = ibv_reg_mr(pd, read_only, 4096, 0);
    CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1), "rereg_mr of read-only memory, to write"), ibv_dereg_mr(mr);
    for (int type = 0; type < 4; type++) {
        struct ibv_mw *mw = MAKE(ibv_alloc_mw(pd, type), "alloc_mw type %d", type); DONE;
        if (mw) REQUIRE(!ibv_dealloc_mw(mw));
    }
    mr = MAKE(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 1), "reg_dmabuf_mr of no dmabuf"); DONE;
    mr = MAKE(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 1), "reg_dmabuf_mr of no file"); DONE;
    struct ibv_dm *dm = MAKE(ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){.length = 64}), "alloc_dm"); DONE; (void)dm;
    mr = MAKE(ibv_alloc_null_mr(pd), "alloc_null_mr"); DONE;
    if (mr) CALL(ibv_dereg_mr(mr), "dereg null mr");
    struct ibv_sge sge = {(uintptr_t)memory, 4096, 0};
    CALL(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), "advise_mr");
    errno = 0;
    struct mlx5dv_mkey_init_attr keys = {.pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4};
    struct mlx5dv_mkey *key = MAKE(mlx5dv_create_mkey(&keys), "mlx5dv_create_mkey"); DONE;
    if (key) CALL(mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
}

static void add_cq(struct ibv_cq *it)
{
    struct mlx5dv_cq dv = {.comp_mask = 0};
    struct mlx5dv_obj object = {.cq = {it, &dv}};
    if (it && !mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ))
        ALSO("cqe=%d", it->cqe), FIELD(dv, cqe_cnt), FIELD(dv, cqe_size);
}

static void completion_queues(void)
{
    long sizes[] = {-1, 0, 1, 2, 3, 4, 255, 256, device.max_cqe - 1, device.max_cqe, device.max_cqe + 1l, INT32_MAX};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        struct ibv_cq *it = MAKE(ibv_create_cq(context, sizes[at], NULL, NULL, 0), "create_cq %ld", sizes[at]);
        add_cq(it), DONE;
        if (it) REQUIRE(!ibv_destroy_cq(it));
    }
    int vectors[] = {-1, 0, context->num_comp_vectors - 1, context->num_comp_vectors};
    for (int at = 0; at < 4; at++) {
        struct ibv_cq *it = MAKE(ibv_create_cq(context, 8, NULL, NULL, vectors[at]), "create_cq vector %s", ((const char *[]){"-1", "0", "last", "last+1"})[at]);
        DONE;
        if (it) REQUIRE(!ibv_destroy_cq(it));
    }
    for (int at = 0; at < 40; at++) {
        struct ibv_cq_init_attr_ex init = {.cqe = 8, .wc_flags = at < 15 ? 1ull << at : 0};
        if (at >= 15 && at < 19)
            init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, init.flags = 1 << (at - 15);
        else if (at >= 19 && at < 23)
            init.comp_mask = 1 << (at - 19);
        else if (at >= 23)
            break;
        struct ibv_cq_ex *it = MAKE(ibv_create_cq_ex(context, &init), "create_cq_ex wc_flags 0x%llx comp_mask 0x%x flags 0x%x",
            (unsigned long long)init.wc_flags, init.comp_mask, init.flags);
        DONE;
        if (it) REQUIRE(!ibv_destroy_cq(ibv_cq_ex_to_cq(it)));
    }
    int cqe_sizes[] = {0, 32, 64, 128, 256};
    for (int at = 0; at < 5; at++) {
        struct ibv_cq_init_attr_ex init = {.cqe = 8};
        struct mlx5dv_cq_init_attr dv = {.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = cqe_sizes[at]};
        struct ibv_cq_ex *it = MAKE(mlx5dv_create_cq(context, &init, &dv), "mlx5dv_create_cq cqe_size %d", cqe_sizes[at]);
        add_cq(it ? ibv_cq_ex_to_cq(it) : NULL), DONE;
        if (it) REQUIRE(!ibv_destroy_cq(ibv_cq_ex_to_cq(it)));
    }
    for (int at = 0; at < 3; at++) {
        struct ibv_cq_init_attr_ex init = {.cqe = 8};
        struct mlx5dv_cq_init_attr dv = {.comp_mask = 1, .cqe_comp_res_format = 1 << at};
        if (at == 2) dv.comp_mask = 2, dv.flags = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD, dv.cqe_size = 128, dv.comp_mask |= 4;
        struct ibv_cq_ex *it = MAKE(mlx5dv_create_cq(context, &init, &dv), "mlx5dv_create_cq %s", ((const char *[]){"compressed, hash", "compressed, checksum", "padded"})[at]);
        DONE;
        if (it) REQUIRE(!ibv_destroy_cq(ibv_cq_ex_to_cq(it)));
    }
    struct ibv_comp_channel *channel = MAKE(ibv_create_comp_channel(context), "create_comp_channel"); DONE;
    struct ibv_cq *it = ibv_create_cq(context, 16, NULL, channel, 0);
    CALL(ibv_destroy_comp_channel(channel), "destroy_comp_channel in use");
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++)
        if (CALL(ibv_resize_cq(it, sizes[at]), "resize_cq %ld", sizes[at]))
            printf("resized:"), add_cq(it), DONE;
    CALL(ibv_resize_cq(it, 16), "resize_cq 16");
    struct { int mask, count, period; } moderation[] = {{1, 0, 0}, {1, 1, 0}, {1, 65535, 4095}, {1, 1, 4096}, {0, 1, 1}, {2, 1, 1}};
    for (int at = 0; at < 6; at++) {
        struct ibv_modify_cq_attr attr = {moderation[at].mask, {moderation[at].count, moderation[at].period}};
        CALL(ibv_modify_cq(it, &attr), "modify_cq mask %d count %d period %d", attr.attr_mask, moderation[at].count, moderation[at].period);
    }
    CALL(ibv_req_notify_cq(it, 0), "req_notify_cq"), CALL(ibv_destroy_cq(it), "destroy_cq armed"), CALL(ibv_destroy_comp_channel(channel), "destroy_comp_channel");
}

static void add_srq(struct ibv_srq *it)
{
    struct mlx5dv_srq dv = {.comp_mask = 0};
    struct mlx5dv_obj object = {.srq = {it, &dv}};
    struct ibv_srq_attr attr = {0};
    if (it && !mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ) && !ibv_query_srq(it, &attr))
        FIELD(attr, max_wr), FIELD(attr, max_sge), FIELD(attr, srq_limit), FIELD(dv, stride), FIELD(dv, head), FIELD(dv, tail);
}

static void shared_queues(void)
{
    struct { int64_t wr, sge; int limit; } sizes[] = {{0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {15, 1, 0}, {16, 1, 0}, {16, 1, 17}, {16, 2, 8}, {16, 3, 0}, {16, 4, 0},
        {device.max_srq_wr, 1, 0}, {device.max_srq_wr + 1, 1, 0}, {16, device.max_srq_sge, 0}, {16, device.max_srq_sge + 1, 0}, {UINT32_MAX, 1, 0}, {1, UINT32_MAX, 0}};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        struct ibv_srq_init_attr init = {.attr = {sizes[at].wr, sizes[at].sge, sizes[at].limit}};
        struct ibv_srq *it = MAKE(ibv_create_srq(pd, &init), "create_srq wr %u sge %u limit %d", (unsigned)sizes[at].wr, (unsigned)sizes[at].sge, sizes[at].limit);
        if (it) ALSO("asked: wr %u sge %u;", init.attr.max_wr, init.attr.max_sge);
        add_srq(it), DONE;
        if (it) REQUIRE(!ibv_destroy_srq(it));
    }
    struct ibv_srq_init_attr init = {.attr = {16, 1, 0}};
    struct ibv_srq *it = ibv_create_srq(pd, &init);
    struct { int mask; unsigned wr, limit; } changes[] = {{0, 0, 0}, {1, 32, 0}, {2, 0, 0}, {2, 0, 1}, {2, 0, 15}, {2, 0, 16}, {2, 0, 17}, {2, 0, 65536}, {2, 0, 65537}, {3, 32, 4}, {4, 0, 0}};
    for (size_t at = 0; at < sizeof changes / sizeof *changes; at++) {
        CALL(ibv_modify_srq(it, &(struct ibv_srq_attr){changes[at].wr, 0, changes[at].limit}, changes[at].mask), "modify_srq mask %d wr %u limit %u", changes[at].mask, changes[at].wr, changes[at].limit);
        printf("srq:"), add_srq(it), DONE;
    }
    events("srq limits above what is posted"), CALL(ibv_destroy_srq(it), "destroy_srq");
    for (int type = 0; type < 4; type++) {
        struct ibv_xrcd_init_attr xrc = {.comp_mask = 3, .fd = -1, .oflags = O_CREAT};
        struct ibv_xrcd *domain = ibv_open_xrcd(context, &xrc);
        if (type == 1 && !domain)
            continue;
        struct ibv_srq_init_attr_ex ex = {.attr = {16, 1, 0}, .comp_mask = 3 | (type == 1 ? IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ : 0), .srq_type = type, .pd = pd, .xrcd = domain, .cq = cq};
        it = MAKE(ibv_create_srq_ex(context, &ex), "create_srq_ex type %d", type); add_srq(type == 1 ? NULL : it), DONE;
        if (it && type == 1) {
            uint32_t number;
            CALL(ibv_get_srq_num(it, &number), "get_srq_num"), CALL(ibv_close_xrcd(domain), "close_xrcd in use");
        }
        if (it) CALL(ibv_destroy_srq(it), "destroy_srq type %d", type);
        if (domain) ibv_close_xrcd(domain);
    }
}

static void addresses(void)
{
    struct { const char *name; struct ibv_ah_attr attr; } cases[] = {
        {"lid", {.dlid = port.lid, .port_num = 1}}, {"lid 0", {.dlid = 0, .port_num = 1}}, {"port 0", {.dlid = port.lid, .port_num = 0}},
        {"port 2", {.dlid = port.lid, .port_num = 2}}, {"multicast lid", {.dlid = 0xc001, .port_num = 1}}, {"sl 15", {.dlid = port.lid, .sl = 15, .port_num = 1}},
        {"sl 16", {.dlid = port.lid, .sl = 16, .port_num = 1}}, {"path bits", {.dlid = port.lid, .src_path_bits = 0x7f, .port_num = 1}},
        {"path bits 128", {.dlid = port.lid, .src_path_bits = 0x80, .port_num = 1}}, {"rate", {.dlid = port.lid, .static_rate = IBV_RATE_10_GBPS, .port_num = 1}},
        {"rate 255", {.dlid = port.lid, .static_rate = 255, .port_num = 1}}, {"grh", {.dlid = port.lid, .is_global = 1, .port_num = 1, .grh.dgid = gid, .grh.hop_limit = 64}},
        {"gid index 1", {.dlid = port.lid, .is_global = 1, .port_num = 1, .grh.dgid = gid, .grh.sgid_index = 1}},
        {"gid index 255", {.dlid = port.lid, .is_global = 1, .port_num = 1, .grh.dgid = gid, .grh.sgid_index = 255}},
        {"gid null", {.dlid = port.lid, .is_global = 1, .port_num = 1}}, {"global 2", {.dlid = port.lid, .is_global = 2, .port_num = 1, .grh.dgid = gid}},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        struct ibv_ah *it = MAKE(ibv_create_ah(pd, &cases[at].attr), "create_ah %s", cases[at].name); DONE;
        if (it) CALL(ibv_destroy_ah(it), "destroy_ah");
    }
}
