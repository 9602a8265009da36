/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "tests.h"
#include "transfer.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void post_all_receives(struct end *end)
{
    unsigned slot;

    for (slot = 0; slot < RECEIVES; slot++)
        post_receive(end, (end->next + slot) % RECEIVES);
}

/* A message contains its number, so that the check below detects an old message. */
static void number(unsigned char *slot, unsigned long value) { memcpy(slot, &value, sizeof value); }

static void check_number(const unsigned char *slot, unsigned long value)
{
    if (memcmp(slot, &value, sizeof value) != 0)
        fail(STATUS_FAILED, "message %lu arrived with other contents", value);
}

/* --- ping-pong ----------------------------------------------------------- */

/* Checks a received message, and posts its receive again. */
static void received_number(struct end *end, unsigned slot, unsigned long value)
{
    check_number(receive_slot(end, slot), value);
    post_receive(end, slot);
}

static void send_number(struct end *end, unsigned long value, DAT_UINT32 bytes)
{
    /* The last send has completed, because its answer has arrived. */
    if (value > 0)
        take_request(end);
    number(send_slot(end, 0), value);
    post_send(end, 0, bytes);
}

/* Both ends are in one thread. `count` is a number of messages, so the time of one is half a round trip. */
static uint64_t pingpong_polling(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    unsigned long at;
    uint64_t start = now(), took;

    for (at = 0; at < count / 2; at++) {
        send_number(&pair->a, at, bytes);
        received_number(&pair->b, take_receive(&pair->b, bytes), at);
        send_number(&pair->b, at, bytes);
        received_number(&pair->a, take_receive(&pair->a, bytes), at);
    }
    took = now() - start;
    take_request(&pair->a);
    take_request(&pair->b);
    return took;
}

struct echo {
    struct end *end;
    DAT_UINT32 bytes;
    unsigned long count;
};

static void *echo(void *argument)
{
    const struct echo *echo = argument;
    unsigned long at;

    for (at = 0; at < echo->count; at++) {
        received_number(echo->end, wait_receive(echo->end, echo->bytes), at);
        send_number(echo->end, at, echo->bytes);
    }
    take_request(echo->end);
    return NULL;
}

/* A thread for each end, both in dat_evd_wait. */
static uint64_t pingpong_waiting(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    struct echo echoing = { &pair->b, bytes, count / 2 + 1 };
    unsigned long at;
    uint64_t start = 0, took;
    pthread_t thread;

    if (pthread_create(&thread, NULL, echo, &echoing) != 0)
        fail(STATUS_ENVIRONMENT, "no thread");
    for (at = 0; at < echoing.count; at++) {
        /* The first round trip includes the start of the thread. */
        if (at == 1)
            start = now();
        send_number(&pair->a, at, bytes);
        received_number(&pair->a, wait_receive(&pair->a, bytes), at);
    }
    took = now() - start;
    take_request(&pair->a);
    pthread_join(thread, NULL);
    return took;
}

/* --- RDMA write ---------------------------------------------------------- */

static uint64_t writes(struct pair *pair, DAT_UINT32 bytes, unsigned long count, unsigned window)
{
    unsigned long posted;
    unsigned slot, taken;
    uint64_t start, took;

    for (slot = 0; slot < window; slot++) {
        memset(send_slot(&pair->a, slot), (int)(count + slot), bytes);
        memset(receive_slot(&pair->b, slot), 0xee, bytes);
    }
    start = now();
    for (posted = 0; posted < count; posted++) {
        if (posted >= window && take_request(&pair->a) != posted % window)
            fail(STATUS_FAILED, "writes complete out of order");
        post_write(&pair->a, &pair->b, (unsigned)(posted % window), bytes);
    }
    for (taken = 0; taken < window; taken++)
        take_request(&pair->a);
    took = now() - start;
    for (slot = 0; slot < window; slot++)
        if (memcmp(send_slot(&pair->a, slot), receive_slot(&pair->b, slot), bytes) != 0)
            fail(STATUS_FAILED, "a write completed, and the target has other bytes");
    return took;
}

static uint64_t write_one(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    return writes(pair, bytes, count, 1);
}

static uint64_t write_window(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    return writes(pair, bytes, count, WINDOW);
}

/* --- single calls -------------------------------------------------------- */

enum call { POST_RECEIVE, POST_SEND, TAKE_RECEIVE, TAKE_REQUEST };

/* Fills the queues with each kind of call in turn; measures one kind. */
static uint64_t calls(struct pair *pair, DAT_UINT32 bytes, unsigned long count, enum call told)
{
    uint64_t times[TAKE_REQUEST + 1] = { 0 }, start, end;
    unsigned long done;
    unsigned slot, batch;

    /* First use up the receives that every test starts with. */
    for (done = 0; done < RECEIVES; done++) {
        post_send(&pair->a, 0, bytes);
        take_request(&pair->a);
        take_receive(&pair->b, bytes);
    }
    for (done = 0; done < count; done += batch) {
        batch = count - done < RECEIVES ? (unsigned)(count - done) : RECEIVES;
        start = now();
        for (slot = 0; slot < batch; slot++)
            post_receive(&pair->b, (pair->b.next + slot) % RECEIVES);
        end = now();
        times[POST_RECEIVE] += end - start;
        start = now();
        for (slot = 0; slot < batch; slot++)
            post_send(&pair->a, slot, bytes);
        end = now();
        times[POST_SEND] += end - start;
        /* Lets the kernel finish deferred work, so that only dequeuing is measured below. */
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
        start = now();
        for (slot = 0; slot < batch; slot++)
            take_receive(&pair->b, bytes);
        end = now();
        times[TAKE_RECEIVE] += end - start;
        start = now();
        for (slot = 0; slot < batch; slot++)
            take_request(&pair->a);
        end = now();
        times[TAKE_REQUEST] += end - start;
    }
    post_all_receives(&pair->b);
    return times[told];
}

static uint64_t call_post_receive(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    return calls(pair, bytes, count, POST_RECEIVE);
}

static uint64_t call_post_send(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    return calls(pair, bytes, count, POST_SEND);
}

static uint64_t call_take_receive(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    return calls(pair, bytes, count, TAKE_RECEIVE);
}

static uint64_t call_take_request(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    return calls(pair, bytes, count, TAKE_REQUEST);
}

static uint64_t call_take_nothing(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    DAT_EVENT event;
    unsigned long at;
    uint64_t start = now();

    (void)bytes;
    for (at = 0; at < count; at++)
        if (DAT_GET_TYPE(dat_evd_dequeue(pair->a.receives, &event)) != DAT_QUEUE_EMPTY)
            fail(STATUS_FAILED, "dat_evd_dequeue returned an event of an endpoint without messages");
    return now() - start;
}

/* --- connections --------------------------------------------------------- */

static uint64_t connections(struct pair *pair, DAT_UINT32 bytes, unsigned long count)
{
    unsigned long at;
    uint64_t start = now();

    (void)bytes;
    for (at = 0; at < count; at++) {
        pair_connect(pair);
        pair_disconnect(pair, 0);
    }
    return now() - start;
}

const struct test tests[] = {
    { "pingpong-poll-64", "ping-pong of 64 B, events taken by polling: per message",
      pingpong_polling, 64, 0 },
    { "pingpong-poll-4096", "ping-pong of 4 KiB, events taken by polling: per message",
      pingpong_polling, 4096, 0 },
    { "pingpong-wait-64", "ping-pong of 64 B, a waiting thread at each end: per message",
      pingpong_waiting, 64, 0 },
    { "pingpong-wait-4096", "ping-pong of 4 KiB, a waiting thread at each end: per message",
      pingpong_waiting, 4096, 0 },
    { "write-4", "RDMA write of 4 B and polling for its completion, one at a time", write_one, 4, 0 },
    { "write-4096", "RDMA write of 4 KiB and polling for its completion, one at a time", write_one, 4096,
      0 },
    { "write-4096-x64", "RDMA write of 4 KiB, 64 outstanding: per write", write_window, 4096, 0 },
    { "connect", "two endpoints created, connected, disconnected and freed", connections, 0, 1 },
    { "call-post-recv", "dat_ep_post_recv alone", call_post_receive, 64, 0 },
    { "call-post-send", "dat_ep_post_send of 64 B alone, its system call included",
      call_post_send, 64, 0 },
    { "call-dequeue-recv", "dat_evd_dequeue of a completed receive", call_take_receive, 64,
      0 },
    { "call-dequeue-send", "dat_evd_dequeue of a completed send", call_take_request, 64, 0 },
    { "call-dequeue-empty", "dat_evd_dequeue of an empty EVD", call_take_nothing, 0, 0 },
};
const unsigned tests_count = sizeof tests / sizeof tests[0];
