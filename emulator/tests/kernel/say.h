/* Prints calls and their results, one call to a line, without numbers that are arbitrary. */
#ifndef SAY_H
#define SAY_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REQUIRE(holds) require(!!(holds), #holds, __LINE__)
static void require(int holds, const char *what, int line)
{
    if (!holds) {
        printf("\nline %d: %s: %s\n", line, what, strerror(errno));
        _exit(1);
    }
}

static const char *error_name(int result)
{
    int error = result < 0 ? errno : result;
    if (!error)
        return "ok";
    const char *name = strerrorname_np(error);
    return name ? name : "unknown error";
}

/* A call that returns 0, an error number, or -1 and errno. Evaluates to whether it succeeded. */
#define CALL(call, ...) said((errno = 0, call), __VA_ARGS__)
/* A call that makes an object. Evaluates to the object; `DONE` ends the line. */
#define MAKE(call, ...) ({ errno = 0; __auto_type made_ = call; int error_ = errno; printf(__VA_ARGS__); \
    errno = error_; printf(": %s", made_ ? "ok" : error_name(errno ? errno : 1)); made_; })
#define DONE printf("\n")
#define ALSO(...) printf(" " __VA_ARGS__)

static int __attribute__((format(printf, 2, 3))) said(int result, const char *format, ...)
{
    const char *name = error_name(result);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(": %s\n", name);
    return !result;
}

#define FIELD(of, name) printf(" " #name "=%llu", (unsigned long long)(of).name)
#define FLAGS(of, name) printf(" " #name "=0x%llx", (unsigned long long)(of).name)

static struct ibv_context *context;
static struct ibv_device_attr device;
static struct ibv_port_attr port;
static struct ibv_pd *pd, *foreign_pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static union ibv_gid gid;
static int pause_ms = 60; /* that nothing comes, before what came is all */
static unsigned char memory[1 << 16] __attribute__((aligned(1 << 16)));

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Prints the asynchronous events that come, until none comes for a while. */
static void events(const char *after)
{
    struct pollfd descriptor = {context->async_fd, POLLIN, 0};
    struct ibv_async_event event;
    printf("events after %s:", after);
    while (poll(&descriptor, 1, pause_ms) == 1 && !ibv_get_async_event(context, &event)) {
        printf(" [%s]", ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
    DONE;
}
#endif
