/*
 * All calls of uDAPL in random order with random arguments, from several
 * threads. Handles are live, stale, null, garbage or of another kind; flags,
 * masks, counts and addresses may be invalid. DAT's rules for applications are
 * kept: pointers are null or lead to memory, registered memory stays mapped,
 * and on other threads' objects only calls are made that DAT defines as
 * thread-safe.
 *
 * Failures are: a crash, a call that does not return, a return code that DAT
 * does not define, DAT_INTERNAL_ERROR, DAT_NOT_IMPLEMENTED, a bad handle that
 * is accepted, and descriptors or threads that are left when all adapters are
 * closed. A long run closes them now and then, and its memory must not grow.
 *
 * random DEVICE SECONDS THREADS SEED [-v]
 */
#define _GNU_SOURCE
#include "calls.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Limit for a call, in seconds. Valgrind runs one thread at a time. */
#define TIMEOUT_S 60
/* How long a long run goes on before it closes all adapters. */
#define ROUND_S 20

DAT_HANDLE dead[KINDS][BOARD], shown[KINDS][BOARD];
uint32_t deaths;
DAT_IA_HANDLE adapters[2];
struct sockaddr_storage here;
char *device;
unsigned char memory[THREADS][BYTES] __attribute__((aligned(4096)));
uint32_t contexts[2][BOARD];
uint64_t agents;
static struct thread threads[THREADS];
static int verbose, stop;

struct call {
    const char *name;
    DAT_RETURN (*make)(struct thread *, enum sort *);
    unsigned weight;
};
#define ENTRY(name, weight) { #name, try_##name, weight },
static const struct call calls[] = { EACH_CALL(ENTRY) };
#undef ENTRY
_Static_assert(CALLS == EXPORTED + 2, "every call, and two combinations");

/* --- what must hold --------------------------------------------------------- */

static const char *wrong_answer(DAT_RETURN answer, enum sort sort)
{
    const char *type, *subtype;
    if (answer == DAT_SUCCESS)
        return sort == WRONG || sort == DEAD || sort == NONE || sort == GARBAGE
                   ? "accepts an invalid handle" : NULL;
    if ((answer & DAT_CLASS_ERROR) == 0 && answer != DAT_QUEUE_EMPTY)
        return "returns neither success nor an error";
    if (dat_strerror(answer, &type, &subtype) != DAT_SUCCESS)
        return "returns a code that DAT does not define";
    switch (DAT_GET_TYPE(answer)) {
    case DAT_INTERNAL_ERROR: return "returns DAT_INTERNAL_ERROR";
    case DAT_NOT_IMPLEMENTED: return "returns DAT_NOT_IMPLEMENTED";
    }
    if ((sort == WRONG || sort == DEAD || sort == NONE || sort == GARBAGE) &&
        DAT_GET_TYPE(answer) != DAT_INVALID_HANDLE && DAT_GET_TYPE(answer) != DAT_INVALID_PARAMETER)
        return "does not report the bad handle";
    return NULL;
}

static const struct call *some_call(struct thread *t)
{
    static unsigned all;
    unsigned at, sum = 0;
    for (at = 0; all == 0 && at < CALLS; at++)
        sum += calls[at].weight;
    if (all == 0)
        all = sum;
    sum = below(t, all);
    for (at = 0; sum >= calls[at].weight; at++)
        sum -= calls[at].weight;
    return &calls[at];
}

/* The last error of each call, for the report. */
static DAT_RETURN refusals[100];

static void *run(void *argument)
{
    struct thread *t = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE) && t->failed == NULL) {
        const struct call *call = some_call(t);
        enum sort sort = OWN;
        DAT_RETURN answer;
        const char *wrong;
        t->doing = call->name;
        answer = call->make(t, &sort);
        t->calls[call - calls]++;
        t->good[call - calls] += answer == DAT_SUCCESS;
        if (answer != DAT_SUCCESS && sort == OWN)
            __atomic_store_n(&refusals[call - calls], answer, __ATOMIC_RELAXED);
        wrong = wrong_answer(answer, sort);
        if (wrong != NULL) {
            printf("dat_%s %s: %#x, the handle is of sort %d\n", call->name, wrong,
                   (unsigned)answer, (int)sort);
            t->failed = wrong;
        }
        t->turns++;
    }
    t->doing = "nothing more";
    /* A thread closes its own adapters. */
    if (t->mine != NULL && dat_ia_close(t->mine, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS)
        t->failed = "its adapter does not close";
    return NULL;
}

static unsigned entries(const char *folder)
{
    unsigned found = 0;
    DIR *directory = opendir(folder);
    while (directory != NULL && readdir(directory) != NULL)
        found++;
    if (directory != NULL)
        closedir(directory);
    return found;
}

static void open_adapters(void)
{
    DAT_IA_ATTR attr;
    for (int at = 0; at < 2; at++) {
        DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
        DAT_RETURN answer = dat_ia_openv(device, 64, &evd, &adapters[at], DAT_VERSION_MAJOR,
                                         DAT_VERSION_MINOR,
                                         at == 0 ? DAT_FALSE : DAT_TRUE);
        if (answer != DAT_SUCCESS) {
            printf("%s does not open: %#x\n", device, (unsigned)answer);
            exit(2);
        }
    }
    dat_ia_query(adapters[0], NULL, DAT_IA_ALL, &attr, 0, NULL);
    memcpy(&here, attr.ia_address_ptr,
           attr.ia_address_ptr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in));
}

static void close_adapters(void)
{
    for (int at = 0; at < 2; at++)
        if (dat_ia_close(adapters[at], DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS) {
            printf("adapter %d does not close\n", at);
            exit(1);
        }
}

/* Resident memory, in KiB, without what was freed. */
static unsigned long resident(void)
{
    char line[200];
    unsigned long found = 0;
    FILE *status;
    malloc_trim(0);
    status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmRSS: %lu", &found) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return found;
}

/* Waits until descriptors and threads are as before; some end asynchronously. */
static int returns_to(unsigned descriptors, unsigned threads_then)
{
    for (int wait = 0; wait < 100; wait++) {
        if (entries("/proc/self/fd") <= descriptors && entries("/proc/self/task") <= threads_then)
            return 1;
        usleep(50000);
    }
    printf("left: descriptors %u of %u, threads %u of %u\n", entries("/proc/self/fd"),
           descriptors, entries("/proc/self/task"), threads_then);
    return 0;
}

/* Prints the system call in which each thread sleeps, for debugging. */
static void print_threads(void)
{
    struct dirent *entry;
    DIR *directory = opendir("/proc/self/task");
    for (unsigned n = 0; n < THREADS; n++)
        if (threads[n].doing != NULL)
            printf("thread %u: dat_%s\n", n, threads[n].doing);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        static const char *const files[] = { "comm", "syscall" };
        if (entry->d_name[0] == '.')
            continue;
        for (int file = 0; file < 2; file++) {
            char path[300], text[200] = "";
            FILE *opened;
            snprintf(path, sizeof path, "/proc/self/task/%s/%s", entry->d_name, files[file]);
            opened = fopen(path, "r");
            if (opened == NULL)
                continue;
            if (fgets(text, sizeof text, opened) != NULL)
                printf("task %s: %s", entry->d_name, text);
            fclose(opened);
        }
    }
}

/* Lets the threads make calls for this long. Returns whether one of them failed. */
static int make_calls(unsigned used, unsigned long seconds)
{
    pthread_t ids[THREADS];
    uint64_t before[THREADS] = { 0 }, idle_seconds[THREADS] = { 0 };
    int bad = 0;
    __atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
    for (unsigned n = 0; n < used; n++)
        pthread_create(&ids[n], NULL, run, &threads[n]);
    for (unsigned long second = 0; second < seconds && !bad; second++) {
        sleep(1);
        for (unsigned n = 0; n < used; n++) {
            idle_seconds[n] = threads[n].turns == before[n] ? idle_seconds[n] + 1 : 0;
            before[n] = threads[n].turns;
            bad |= threads[n].failed != NULL;
        }
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned n = 0; n < used; n++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += TIMEOUT_S - (long)(idle_seconds[n] < TIMEOUT_S ? idle_seconds[n] : TIMEOUT_S);
        if (pthread_timedjoin_np(ids[n], NULL, &until) != 0) {
            printf("thread %u hangs in dat_%s\n", n, threads[n].doing);
            print_threads();
            abort();
        }
        if (threads[n].failed != NULL) {
            printf("thread %u: %s\n", n, threads[n].failed);
            bad = 1;
        }
        /* The next round begins without objects. */
        memset(threads[n].pools, 0, sizeof threads[n].pools);
        memset(threads[n].zone, 0, sizeof threads[n].zone);
        threads[n].mine = NULL;
    }
    memset(shown, 0, sizeof shown);
    return bad;
}

int main(int argc, char **argv)
{
    unsigned long seconds, used, seed, descriptors, tasks, rounds, memory_then = 0, memory_now = 0, never = 0;
    uint64_t all = 0, good = 0;
    int bad = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Large pieces return to the kernel at once. Else resident memory depends on which thread
     * freed last. */
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    if (argc < 5) {
        fprintf(stderr, "usage: random DEVICE SECONDS THREADS SEED [-v]\n");
        return 2;
    }
    device = argv[1];
    seconds = strtoul(argv[2], NULL, 0);
    used = strtoul(argv[3], NULL, 0);
    seed = strtoul(argv[4], NULL, 0);
    verbose = argc > 5;
    used = used > THREADS ? THREADS : used == 0 ? 1 : used;
    rounds = seconds > ROUND_S ? seconds / ROUND_S : 1;
    printf("seed %lu, %lu threads, %lu s\n", seed, used, seconds);
    for (unsigned n = 0; n < used; n++) {
        threads[n].number = n;
        threads[n].state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + n * UINT64_C(77777777777);
        threads[n].state |= 1;
    }
    /* What remains after the first use is not a leak. */
    open_adapters();
    close_adapters();
    descriptors = entries("/proc/self/fd");
    tasks = entries("/proc/self/task");
    for (unsigned long round = 0; round < rounds && !bad; round++) {
        open_adapters();
        bad = make_calls((unsigned)used, seconds / rounds);
        close_adapters();
        bad |= !returns_to((unsigned)descriptors, (unsigned)tasks);
        memory_now = resident();
        /* By then everything has been used. */
        if (round <= rounds / 4)
            memory_then = memory_now;
        if (verbose)
            printf("round %lu: %lu KiB\n", round, memory_now);
    }
    if (memory_now > memory_then + memory_then / 4) {
        printf("memory grows from %lu to %lu KiB\n", memory_then, memory_now);
        bad = 1;
    }
    for (unsigned call = 0; call < CALLS; call++) {
        uint64_t made = 0, done = 0;
        for (unsigned n = 0; n < used; n++) {
            made += threads[n].calls[call];
            done += threads[n].good[call];
        }
        all += made;
        good += done;
        never += done == 0;
        if (verbose)
            printf("%-28s %9lu calls, %9lu succeeded\n", calls[call].name, (unsigned long)made,
                   (unsigned long)done);
        else if (done == 0)
            printf("never succeeded: dat_%s, last code %#x\n", calls[call].name, (unsigned)refusals[call]);
    }
    printf("%lu calls, %lu succeeded; never succeeded: %lu; agents called: %lu\n", (unsigned long)all,
           (unsigned long)good, never, (unsigned long)agents);
    printf("%u descriptors, %u threads and %lu KiB in the end, %lu KiB after a quarter\n",
           entries("/proc/self/fd"), entries("/proc/self/task"), memory_now, memory_then);
    printf(bad ? "FAILED\n" : "passed\n");
    return bad;
}
