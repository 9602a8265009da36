/* Connects two queue pairs of the first device, and prints what
 * ibv_query_qp_data_in_order says of one of them in INIT, and of both in RTS. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            perror(#call);                                                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const int OPS[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ };

static void show(const char *state, struct ibv_qp *qp)
{
    printf("%s:", state);
    for (int i = 0; i < 3; i++)
        printf(" %d", ibv_query_qp_data_in_order(qp, OPS[i], 0));
    puts("");
}

static void to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
                                .port_num = 1,
                                .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

static void to_rts(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
    struct ibv_qp_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = *gid;
    attr.ah_attr.grh.hop_limit = 1;
    attr.ah_attr.port_num = 1;
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qps[2];
    union ibv_gid gid;

    CHECK(list && list[0]);
    CHECK(context = ibv_open_device(list[0]));
    CHECK(pd = ibv_alloc_pd(context));
    CHECK(cq = ibv_create_cq(context, 4, NULL, NULL, 0));
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr attr = { .send_cq = cq,
                                         .recv_cq = cq,
                                         .cap = { 1, 1, 1, 1, 0 },
                                         .qp_type = IBV_QPT_RC };

        CHECK(qps[i] = ibv_create_qp(pd, &attr));
        to_init(qps[i]);
    }
    show("INIT", qps[0]);
    for (int i = 0; i < 2; i++)
        to_rts(qps[i], qps[1 - i]->qp_num, &gid);
    show("RTS", qps[0]);
    show("RTS", qps[1]);
    for (int i = 0; i < 2; i++)
        CHECK(ibv_destroy_qp(qps[i]) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    ibv_free_device_list(list);
    return 0;
}
