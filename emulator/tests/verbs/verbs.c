/* Programs of verbs as they are often written: channels that do not block, signal handlers of their
 * own, extended completion queues, the largest messages. The argument names the case. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define REQUIRE(holds) require(holds, #holds, __LINE__)

static void require(int holds, const char *what, int line)
{
    if (!holds) {
        fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
        _exit(1);
    }
}

static const int ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
static struct ibv_context *context;
static struct ibv_pd *pd;

static void open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    REQUIRE(list && list[0]);
    REQUIRE((context = ibv_open_device(list[0])) != NULL);
    ibv_free_device_list(list);
    REQUIRE((pd = ibv_alloc_pd(context)) != NULL);
}

static struct ibv_qp *queue_pair(struct ibv_cq *cq)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
        .cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
                .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE};
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    REQUIRE(qp != NULL);
    return qp;
}

static void to_rts(struct ibv_qp *qp, struct ibv_qp *peer)
{
    struct ibv_port_attr port;
    REQUIRE(!ibv_query_port(context, 1, &port));
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS,
        .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp_num, .max_rd_atomic = 1,
        .max_dest_rd_atomic = 1, .ah_attr = {.dlid = port.lid, .port_num = 1}, .timeout = 18,
        .retry_cnt = 7};
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                          IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                          IBV_QP_MAX_QP_RD_ATOMIC));
}

static void pair(struct ibv_cq *cq, struct ibv_qp *qp[2])
{
    for (int n = 0; n < 2; n++)
        qp[n] = queue_pair(cq);
    to_rts(qp[0], qp[1]);
    to_rts(qp[1], qp[0]);
}

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *from, void *at,
                size_t length, struct ibv_mr *to, void *target, long id)
{
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)length, from->lkey};
    struct ibv_send_wr *bad, request = {
        .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
        .wr.rdma = {(uintptr_t)target, to->rkey}};
    return ibv_post_send(qp, &request, &bad);
}

static struct ibv_wc await(struct ibv_cq *cq)
{
    struct ibv_wc completion;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &completion)) == 0)
        sched_yield();
    REQUIRE(found == 1);
    return completion;
}

static char memory[16384] __attribute__((aligned(4096)));
static struct ibv_mr *region;

static void move_data(struct ibv_cq *cq, struct ibv_qp *qp, long count)
{
    for (long n = 1; n <= count; n++) {
        memcpy(memory, &n, sizeof n);
        REQUIRE(!post(qp, IBV_WR_RDMA_WRITE, region, memory, 8, region, memory + 8192, n));
        struct ibv_wc completion = await(cq);
        REQUIRE(completion.status == IBV_WC_SUCCESS && completion.wr_id == (uint64_t)n);
        REQUIRE(!memcmp(memory, memory + 8192, sizeof n));
        if (n % 50 == 0)
            usleep(1000); /* The NIC falls asleep. */
    }
}

/* Channels that do not block, with edge-triggered epoll, and a queue with an event that is
 * acknowledged late. */
static atomic_int acknowledged;

static void *acknowledge(void *cq)
{
    usleep(50000);
    acknowledged = 1;
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

static void channels(void)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *found, *cq = ibv_create_cq(context, 64, memory, channel, 0);
    struct ibv_async_event event;
    struct ibv_qp *qp[2];
    void *user;
    REQUIRE(channel && cq);
    pair(cq, qp);
    REQUIRE(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    REQUIRE(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
    REQUIRE(ibv_get_cq_event(channel, &found, &user) == -1 && errno == EAGAIN);
    REQUIRE(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
    int set = epoll_create1(0);
    struct epoll_event ready = {.events = EPOLLIN | EPOLLET};
    REQUIRE(!epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &ready));
    for (long n = 0; n < 50; n++) {
        REQUIRE(!ibv_req_notify_cq(cq, 0));
        REQUIRE(!post(qp[0], IBV_WR_RDMA_WRITE, region, memory, 8, region, memory + 64, n));
        REQUIRE(epoll_wait(set, &ready, 1, -1) == 1);
        REQUIRE(!ibv_get_cq_event(channel, &found, &user));
        REQUIRE(found == cq && user == memory);
        REQUIRE(ibv_get_cq_event(channel, &found, &user) == -1 && errno == EAGAIN);
        if (n < 49)
            ibv_ack_cq_events(cq, 1);
        REQUIRE(await(cq).wr_id == (uint64_t)n);
    }
    REQUIRE(ibv_destroy_cq(cq) == EBUSY);
    REQUIRE(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, acknowledge, cq));
    REQUIRE(!ibv_destroy_cq(cq) && acknowledged);
    REQUIRE(!pthread_join(thread, NULL) && !ibv_destroy_comp_channel(channel));
    struct rdma_event_channel *connections = rdma_create_event_channel();
    struct rdma_cm_event *connection;
    REQUIRE(connections && !fcntl(connections->fd, F_SETFL, O_NONBLOCK));
    REQUIRE(rdma_get_cm_event(connections, &connection) == -1 && errno == EAGAIN);
}

/* A profiler's timer, the program's own handlers of SIGSEGV and SIGBUS, and then no signals. */
static volatile sig_atomic_t ticks, faults[2];
static sigjmp_buf after_fault;

static void tick(int signal)
{
    (void)signal;
    ticks++;
}

static void fault(int signal, siginfo_t *information, void *registers)
{
    (void)information, (void)registers;
    faults[signal == SIGBUS]++;
    siglongjmp(after_fault, 1);
}

static void handlers(void)
{
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_qp *qp[2];
    pair(cq, qp);
    struct sigaction profile = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct sigaction own = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    REQUIRE(!sigaction(SIGPROF, &profile, NULL) && !setitimer(ITIMER_PROF, &often, NULL));
    while (ticks < 20)
        move_data(cq, qp[0], 100);
    REQUIRE(!setitimer(ITIMER_PROF, &never, NULL));
    REQUIRE(!sigaction(SIGSEGV, &own, NULL) && !sigaction(SIGBUS, &own, NULL));
    move_data(cq, qp[0], 200);
    REQUIRE(faults[0] == 0 && faults[1] == 0);
    char *volatile nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(after_fault, 1))
        *nowhere = 1;
    REQUIRE(faults[0] == 1);
    int file = memfd_create("file", 0);
    REQUIRE(!ftruncate(file, 8192));
    char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct ibv_mr *of_file = ibv_reg_mr(pd, mapped, 8192, ACCESS);
    REQUIRE(of_file && !ftruncate(file, 4096));
    if (!sigsetjmp(after_fault, 1))
        ((volatile char *)mapped)[5000] = 1;
    REQUIRE(faults[1] == 1);
    sigset_t all;
    sigfillset(&all);
    REQUIRE(!sigprocmask(SIG_BLOCK, &all, NULL));
    move_data(cq, qp[0], 200);
    /* The NIC finds that the memory is gone. */
    REQUIRE(!post(qp[0], IBV_WR_RDMA_WRITE, region, memory, 8, of_file, mapped + 5000, 1));
    REQUIRE(await(cq).status != IBV_WC_SUCCESS && faults[1] == 1);
}

/* Requests and completions by the extended calls: lists, a list that is too long, an aborted
 * request, and a queue pair that is destroyed with its completion in the queue. */
static void build(struct ibv_qp_ex *qp, long id)
{
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, region->rkey, (uintptr_t)memory + 4096);
}

static void extended(void)
{
    const uint64_t kinds[] = {
        IBV_WC_STANDARD_FLAGS, IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    for (int kind = 0; kind < 2; kind++) {
        struct ibv_cq_init_attr_ex init = {.cqe = 7, .wc_flags = kinds[kind]};
        struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
        struct ibv_poll_cq_attr none = {0};
        struct ibv_qp *qp[2];
        uint64_t time = 0;
        REQUIRE(cq != NULL);
        pair(ibv_cq_ex_to_cq(cq), qp);
        struct ibv_qp_ex *sender = ibv_qp_to_qp_ex(qp[0]);
        for (long n = 0; n < 60; n++) {
            int status, count = 1 + n % 3, found = 0;
            struct ibv_data_buf parts[] = {{memory, 10}, {memory + 100, 20}, {memory + 200, n % 20}};
            ibv_wr_start(sender);
            for (int request = 0; request < count; request++) {
                build(sender, n * 10 + request);
                ibv_wr_set_inline_data_list(sender, 3, parts);
            }
            REQUIRE(!ibv_wr_complete(sender));
            while (found < count) {
                if ((status = ibv_start_poll(cq, &none)) == ENOENT)
                    continue;
                for (; status == 0; status = ibv_next_poll(cq), found++) {
                    REQUIRE(cq->status == IBV_WC_SUCCESS);
                    REQUIRE(cq->wr_id == (uint64_t)(n * 10 + found));
                    if (kind == 1) {
                        REQUIRE(ibv_wc_read_completion_ts(cq) >= time);
                        time = ibv_wc_read_completion_ts(cq);
                    }
                }
                REQUIRE(status == ENOENT);
                ibv_end_poll(cq);
            }
            REQUIRE(ibv_start_poll(cq, &none) == ENOENT);
        }
        struct ibv_data_buf many[] = {{memory, 1000}, {memory, 1000}};
        ibv_wr_start(sender);
        build(sender, 1);
        ibv_wr_set_inline_data_list(sender, 2, many);
        REQUIRE(ibv_wr_complete(sender) != 0);
        ibv_wr_start(sender);
        build(sender, 2);
        ibv_wr_set_sge(sender, region->lkey, (uintptr_t)memory, 100);
        ibv_wr_abort(sender);
        ibv_wr_start(sender);
        build(sender, 3);
        ibv_wr_set_sge(sender, region->lkey, (uintptr_t)memory, 100);
        REQUIRE(!ibv_wr_complete(sender));
        while (ibv_start_poll(cq, &none) == ENOENT)
            ;
        REQUIRE(cq->status == IBV_WC_SUCCESS && cq->wr_id == 3);
        ibv_end_poll(cq);
        memory[4096] = 0;
        memory[0] = 1;
        ibv_wr_start(sender);
        build(sender, 4);
        ibv_wr_set_sge(sender, region->lkey, (uintptr_t)memory, 100);
        REQUIRE(!ibv_wr_complete(sender));
        while (((volatile char *)memory)[4096] == 0)
            sched_yield();
        REQUIRE(!ibv_destroy_qp(qp[0]));
        REQUIRE(ibv_start_poll(cq, &none) == ENOENT);
        REQUIRE(!ibv_destroy_qp(qp[1]) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
    }
}

/* Messages of max_msg_sz bytes, and of one more. */
static void largest(void)
{
    const size_t part = 2 << 20, most = 1 << 30;
    struct ibv_port_attr port;
    REQUIRE(!ibv_query_port(context, 1, &port) && port.max_msg_sz == most);
    int file = memfd_create("part", 0);
    REQUIRE(!ftruncate(file, part));
    char *all = mmap(NULL, 2 * most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; at < 2 * most; at += part)
        REQUIRE(mmap(all + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
                MAP_FAILED);
    struct ibv_mr *whole = ibv_reg_mr(pd, all, 2 * most, ACCESS);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    REQUIRE(whole && cq);
    const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
    for (int n = 0; n < 4; n++) {
        struct ibv_qp *qp[2];
        size_t length = most + n / 2;
        pair(cq, qp);
        REQUIRE(!post(qp[0], opcodes[n % 2], whole, all, length, whole, all + part, 7));
        struct ibv_wc completion = await(cq);
        REQUIRE((completion.status == IBV_WC_SUCCESS) == (length == most));
        REQUIRE(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
    }
}

int main(int count, char **arguments)
{
    REQUIRE(count == 2);
    open_device();
    REQUIRE((region = ibv_reg_mr(pd, memory, sizeof memory, ACCESS)) != NULL);
    const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"channels", channels}, {"handlers", handlers}, {"extended", extended}, {"largest", largest}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        if (!strcmp(arguments[1], cases[n].name)) {
            cases[n].run();
            return 0;
        }
    return 2;
}
