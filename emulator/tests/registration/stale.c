/* Registers memory with the content 'O', removes it by the call that is named, maps new memory
 * with the content 'N' at its addresses, and prints what an RDMA read with the old key finds.
 * With "legal", deregisters the memory after its removal, and reads the new one with a new key. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            perror(#call);                                                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { PAGE = 4096, SIZE = 1 << 20, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ };

static char *map(void *at, int flags)
{
    char *memory =
        mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
                                .port_num = 1,
                                .qp_access_flags = IBV_ACCESS_REMOTE_READ };

    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
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

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "munmap";
    int is_block = strcmp(how, "free") == 0;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qps[2];
    struct ibv_mr *old, *own;
    union ibv_gid gid;
    char *block = NULL, *memory;
    static char byte;

    CHECK(list && list[0]);
    CHECK(context = ibv_open_device(list[0]));
    CHECK(pd = ibv_alloc_pd(context));
    CHECK(cq = ibv_create_cq(context, 4, NULL, NULL, 0));
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr attr = {
            .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC
        };

        CHECK(qps[i] = ibv_create_qp(pd, &attr));
    }
    for (int i = 0; i < 2; i++)
        connect_to(qps[i], qps[1 - i]->qp_num, &gid);

    if (is_block) {
        CHECK(block = malloc(SIZE + PAGE));
        memory = block + PAGE - (uintptr_t)block % PAGE;
    } else {
        memory = map(NULL, 0);
    }
    memset(memory, 'O', SIZE);
    CHECK(old = ibv_reg_mr(pd, memory, SIZE, ACCESS));
    CHECK(own = ibv_reg_mr(pd, &byte, 1, ACCESS));
    if (is_block)
        free(block);
    else if (strcmp(how, "mmap") != 0)
        CHECK(munmap(memory, SIZE) == 0);
    CHECK(map(memory, strcmp(how, "mmap") == 0 ? MAP_FIXED : MAP_FIXED_NOREPLACE) == memory);
    memset(memory, 'N', SIZE);
    if (strcmp(how, "legal") == 0) {
        CHECK(ibv_dereg_mr(old) == 0);
        CHECK(old = ibv_reg_mr(pd, memory, SIZE, ACCESS));
    }

    struct ibv_sge sge = { (uintptr_t)&byte, 1, own->lkey };
    struct ibv_send_wr *bad, read = { .sg_list = &sge,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_RDMA_READ,
                                      .send_flags = IBV_SEND_SIGNALED,
                                      .wr.rdma = { (uintptr_t)memory + SIZE / 2, old->rkey } };
    struct ibv_wc wc;

    CHECK(ibv_post_send(qps[0], &read, &bad) == 0);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    printf("key %#x: %s, read %c\n", old->rkey, ibv_wc_status_str(wc.status), byte);
    return 0;
}
