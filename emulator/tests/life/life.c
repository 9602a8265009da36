/* The device across the life of a process: children of all kinds open it themselves and move data,
 * and their parents go on. The argument names the case. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define REQUIRE(holds) require(holds, #holds, __LINE__)

static void require(int holds, const char *what, int line)
{
    if (!holds) {
        fprintf(stderr, "process %d, line %d: %s: %s\n", getpid(), line, what, strerror(errno));
        _exit(1);
    }
}

struct device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
    char memory[8192];
};

static struct ibv_context *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    REQUIRE(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    REQUIRE(context != NULL);
    ibv_free_device_list(list);
    return context;
}

/* Connects two queue pairs of one process to each other. */
static struct device *start(void)
{
    struct device *device = calloc(1, sizeof *device);
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_port_attr port;
    device->context = open_device();
    REQUIRE((device->pd = ibv_alloc_pd(device->context)) != NULL);
    device->mr = ibv_reg_mr(device->pd, device->memory, sizeof device->memory, access);
    REQUIRE(device->mr && (device->cq = ibv_create_cq(device->context, 16, NULL, NULL, 0)));
    REQUIRE(!ibv_query_port(device->context, 1, &port));
    struct ibv_qp_init_attr init = {
        .send_cq = device->cq, .recv_cq = device->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    for (int n = 0; n < 2; n++)
        REQUIRE((device->qp[n] = ibv_create_qp(device->pd, &init)) != NULL);
    for (int n = 0; n < 2; n++) {
        struct ibv_qp_attr attr = {
            .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access,
            .path_mtu = IBV_MTU_1024, .dest_qp_num = device->qp[1 - n]->qp_num,
            .ah_attr = {.dlid = port.lid, .port_num = 1}, .timeout = 18, .retry_cnt = 7};
        REQUIRE(!ibv_modify_qp(device->qp[n], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                                         IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        attr.qp_state = IBV_QPS_RTR;
        REQUIRE(!ibv_modify_qp(device->qp[n], &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                   IBV_QP_MIN_RNR_TIMER));
        attr.qp_state = IBV_QPS_RTS;
        REQUIRE(!ibv_modify_qp(device->qp[n], &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    }
    return device;
}

static int post(struct device *device)
{
    struct ibv_sge sge = {(uintptr_t)device->memory, 8, device->mr->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {(uintptr_t)device->memory + 4096, device->mr->rkey}};
    return ibv_post_send(device->qp[0], &request, &bad);
}

static void move_data(struct device *device)
{
    for (long n = 1; n <= 20; n++) {
        struct ibv_wc completion;
        int found;
        memcpy(device->memory, &n, sizeof n);
        REQUIRE(!post(device));
        while ((found = ibv_poll_cq(device->cq, 1, &completion)) == 0)
            sched_yield();
        REQUIRE(found == 1 && completion.status == IBV_WC_SUCCESS);
        REQUIRE(!memcmp(device->memory, device->memory + 4096, sizeof n));
    }
}

static void stop(struct device *device)
{
    REQUIRE(!ibv_destroy_qp(device->qp[0]) && !ibv_destroy_qp(device->qp[1]));
    REQUIRE(!ibv_destroy_cq(device->cq) && !ibv_dereg_mr(device->mr));
    REQUIRE(!ibv_dealloc_pd(device->pd) && !ibv_close_device(device->context));
    free(device);
}

static void use_own_device(void)
{
    struct device *device = start();
    move_data(device);
    stop(device);
}

/* Waits for a child, which must succeed. */
static void reap(pid_t child)
{
    int status = -1;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0)
        fprintf(stderr, "child: status %#x\n", status);
    REQUIRE(status == 0);
}

static void in_child(void (*work)(void))
{
    pid_t child = fork();
    if (child == 0) {
        alarm(100);
        work();
        _exit(0);
    }
    reap(child);
}

static struct device *parents;

/* Files of a fabric, whose locks must end with the parent. */
static int fabric_files(void)
{
    int count = 0;
    DIR *files = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(files)) != NULL;) {
        char path[4096] = "";
        count += readlinkat(dirfd(files), entry->d_name, path, sizeof path - 1) > 0 &&
                 strstr(path, "/mlx5emu-") != NULL;
    }
    closedir(files);
    return count;
}

static void child_of_user(void)
{
    REQUIRE(fabric_files() == 0);
    errno = 0;
    REQUIRE(ibv_alloc_pd(parents->context) == NULL && errno == EIO);
    for (int n = 0; n < 3; n++)
        post(parents);
    use_own_device();
    in_child(use_own_device);
    REQUIRE(!ibv_close_device(parents->context));
    use_own_device();
}

static void after_use(void)
{
    parents = start();
    move_data(parents);
    REQUIRE(fabric_files() > 0);
    for (int n = 0; n < 3; n++) {
        in_child(child_of_user);
        move_data(parents);
    }
    stop(parents);
    in_child(use_own_device);
    use_own_device();
}

static atomic_int is_over;

static void *keep_moving(void *device)
{
    while (!is_over)
        move_data(device);
    return NULL;
}

/* Without libibverbs, which holds a lock of its own while it opens a device. */
static void *keep_opening(void *unused)
{
    while (!is_over) {
        int file = open("/dev/infiniband/uverbs0", O_RDWR);
        REQUIRE(file >= 0 && !close(file));
    }
    return unused;
}

static void while_busy(void)
{
    pthread_t threads[2];
    parents = start();
    REQUIRE(!pthread_create(&threads[0], NULL, keep_moving, parents));
    REQUIRE(!pthread_create(&threads[1], NULL, keep_opening, NULL));
    for (int n = 0; n < 25; n++)
        in_child(use_own_device);
    is_over = 1;
    REQUIRE(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
    move_data(parents);
}

/* Runs in the memory of its parent, as a child of vfork. */
static int sharing(void *unused)
{
    (void)unused;
    int refused = open("/dev/infiniband/uverbs0", O_RDWR) == -1 && errno == ENODEV;
    _exit(!(refused && close(parents->context->cmd_fd) == 0));
}

static void other_calls(char *own_path)
{
    static char stack[1 << 16];
    char *const arguments[] = {own_path, "use", NULL};
    pid_t child;
    parents = start();
    move_data(parents);
    reap(clone(sharing, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
    move_data(parents);
    REQUIRE(!posix_spawn(&child, own_path, NULL, NULL, arguments, environ));
    reap(child);
    /* As fork, but without libc, which runs no fork handlers. */
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        alarm(100);
        use_own_device();
        in_child(use_own_device);
        _exit(0);
    }
    reap(child);
    stop(parents);
}

static void use_rdma_cm(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct ibv_context **devices = rdma_get_devices(NULL);
    REQUIRE(channel && devices && devices[0]);
    struct ibv_pd *pd = ibv_alloc_pd(devices[0]);
    REQUIRE(pd && !ibv_dealloc_pd(pd));
    REQUIRE(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    REQUIRE(!rdma_bind_addr(id, (struct sockaddr *)&any) && !rdma_listen(id, 1));
    rdma_free_devices(devices);
}

static void with_rdma_cm(void)
{
    use_rdma_cm();
    in_child(use_rdma_cm);
    use_rdma_cm();
}

/* Closes all descriptors except those that the program knows, as daemons do. */
static void close_others(void)
{
    parents = start();
    int own[2] = {parents->context->cmd_fd, parents->context->async_fd};
    int low = own[0] < own[1] ? own[0] : own[1], high = own[0] < own[1] ? own[1] : own[0];
    int unknown = open("/dev/null", O_RDONLY);
    REQUIRE(low > 2 && unknown >= 0 && unknown < 64);
    for (int fd = 3; fd < 65536; fd++)
        if (fd != low && fd != high)
            close(fd);
    REQUIRE(fcntl(unknown, F_GETFD) == -1);
    move_data(parents);
    unknown = dup(0);
    closefrom(high + 1);
    REQUIRE(low + 1 == high || !close_range(low + 1, high - 1, 0));
    REQUIRE(low == 3 || !close_range(3, low - 1, 0));
    REQUIRE(fcntl(unknown, F_GETFD) == -1);
    move_data(parents);
    REQUIRE(!close_range(3, ~0U, 0));
    REQUIRE(ibv_alloc_pd(parents->context) == NULL && errno == EBADF);
    use_own_device();
}

static ucontext_t caller;

static void post_and_rest(void)
{
    for (int n = 0; n < 5; n++) {
        /* The NIC goes to sleep, and the next doorbell has to wake it. */
        usleep(5000);
        move_data(parents);
    }
}

/* Posts from a small stack, below which no memory is mapped. */
static void on_stack(size_t size)
{
    ucontext_t coroutine;
    char *stack = mmap(NULL, 4096 + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED && !mprotect(stack + 4096, size, PROT_READ | PROT_WRITE));
    parents = start();
    REQUIRE(!getcontext(&coroutine));
    coroutine.uc_stack.ss_sp = stack + 4096;
    coroutine.uc_stack.ss_size = size;
    coroutine.uc_link = &caller;
    makecontext(&coroutine, post_and_rest, 0);
    REQUIRE(!swapcontext(&caller, &coroutine));
}

/* A child whose parent has died. Its result comes through a pipe. */
static void orphan(void)
{
    int parent_lives[2], result[2];
    char byte = 0;
    REQUIRE(!pipe(parent_lives) && !pipe(result));
    pid_t parent = fork();
    if (parent == 0) {
        parents = start();
        move_data(parents);
        if (fork() == 0) {
            alarm(100);
            setsid();
            close(parent_lives[1]);
            REQUIRE(read(parent_lives[0], &byte, 1) == 0);
            use_own_device();
            REQUIRE(write(result[1], "y", 1) == 1);
            _exit(0);
        }
        raise(SIGKILL);
    }
    close(parent_lives[1]);
    close(result[1]);
    waitpid(parent, NULL, 0);
    REQUIRE(read(result[0], &byte, 1) == 1 && byte == 'y');
}

/* A daemon opens the device when a line comes on its standard input. */
static void become_daemon(void)
{
    char line[8];
    if (fork() != 0)
        _exit(3);
    setsid();
    if (fork() != 0)
        _exit(0);
    REQUIRE(fgets(line, sizeof line, stdin) != NULL);
    REQUIRE(!access("/sys/class/infiniband/mlx5_0/ports/1/state", R_OK));
    use_own_device();
    puts("moved data");
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    alarm(110);
    if (!strcmp(name, "use"))
        use_own_device();
    else if (!strcmp(name, "after-use"))
        after_use();
    else if (!strcmp(name, "while-busy"))
        while_busy();
    else if (!strcmp(name, "other-calls"))
        other_calls(arguments[0]);
    else if (!strcmp(name, "rdma-cm"))
        with_rdma_cm();
    else if (!strcmp(name, "close-others"))
        close_others();
    else if (!strcmp(name, "on-stack") && count == 3)
        on_stack(strtoul(arguments[2], NULL, 10));
    else if (!strcmp(name, "daemon"))
        become_daemon();
    else if (!strcmp(name, "orphan"))
        orphan();
    else
        REQUIRE(!"a known case");
    return 0;
}
