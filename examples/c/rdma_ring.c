/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A ring in the consumer's memory, which the producer writes by RDMA.
 *
 * There are two ways for the consumer to notice a message:
 * - It polls for the receive of an empty send that the producer posts behind each
 *   write. What was written before a send is in memory when the send is received.
 *   DAT guarantees this, and nothing earlier.
 * - With --last-byte force it polls its memory. This is the fastest way from memory to
 *   memory: it needs neither receives nor events. A slot is one cache line, and its
 *   last word is the number of the message. If the device writes the bytes of one
 *   message in ascending order, the rest of the slot is new when that word is. The
 *   consumer reads the word with an acquire load, so later reads are not older.
 *
 * uDAPL cannot ask the device whether it promises that order, so this program does not
 * rely on it unless it is told to. (libibverbs asks with ibv_query_qp_data_in_order, and
 * the same program in Rust with Endpoint::data_in_order.) The consumer tells the producer
 * in a first message which way it takes.
 *
 * Worth copying:
 * - Credits are the total number of slots that the consumer has emptied. They return in
 *   the same way: by a write to the producer's memory, or by a message with the total.
 *   As it is a total, one at a time is enough.
 * - The producer requests one completion every SIGNALLED writes. That completion
 *   covers all earlier writes, so their memory may be reused.
 * - Words that different sides write have their own cache lines.
 * - Between the first and the last message nothing is allocated, and no thread
 *   sleeps.
 */
#include "common.h"
#include <stddef.h>
#include <sched.h>
#include <time.h>

static const char about[] =
    "usage: rdma_ring [-d ADAPTER] [-p QUALIFIER] [-n MESSAGES] [-l WHEN] [HOST]\n"
    "\n"
    "Writes messages into a ring in the peer's memory. Without HOST it is the consumer\n"
    "of one producer; with HOST it is the producer. Each keeps one processor busy.\n"
    "\n"
    "  -d ADAPTER    DEVICE, DEVICE-PORT, or an entry of dat.conf (default mlx5_0)\n"
    "  -p QUALIFIER  the qualifier of the consumer; 1024 to 65535 is a port (default 18515)\n"
    "  -n MESSAGES   number of messages (default 10000)\n"
    "  -l, --last-byte WHEN\n"
    "                (consumer) force: poll the last word of a slot in memory; never:\n"
    "                poll for a message behind each write, which is also the default\n"
    "                (auto), since uDAPL cannot ask the device for the order of bytes\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 good, 1 usage, 2 the environment does not allow it, 3 the run failed.\n";

enum {
    SLOTS = 64,
    SIGNALLED = SLOTS / 4,  /* writes per completion, and slots per credit write */
    WORDS = LINE / 8 - 1,   /* words of text in a slot, before the number */
    /* Messages from the consumer that the producer has not taken: as many credits as there
     * can be for a full ring, and the first message. */
    MESSAGES = SLOTS / SIGNALLED + 1,
    /* The first message of the consumer: how it notices writes. */
    POLLS_MEMORY = 1,
    POLLS_MESSAGES = 2,
    POLLS_PER_YIELD = 1000, /* empty polls before the thread yields the processor */
};

struct slot {
    uint64_t text[WORDS];
    uint64_t number; /* from 1, because an empty ring is all zeroes */
};

/* The registered memory of a side. The producer fills its slots before it writes them
 * to the consumer, whose slots are the ring. */
struct side {
    struct slot slots[SLOTS];
    uint64_t emptied; /* the total of emptied slots, which the consumer writes */
    unsigned char rest_of_line[LINE - 8];
    struct slot messages[MESSAGES]; /* of the consumer; the number is in the first word */
};

/* Describes memory of one side to the other, in private data. */
struct offer {
    uint64_t address, length, context;
};

struct request {
    struct offer credits;
    uint64_t count;
};

static DAT_EP_HANDLE ep;
static DAT_EVD_HANDLE transfers, arrivals, connections;
static struct memory memory;
static struct side *side;
static int by_message;     /* whether messages announce what was written */
static unsigned long idle; /* empty polls */

static struct offer offer_of(void *address, size_t bytes)
{
    struct offer offer = { (uintptr_t)address, bytes, memory.remote };

    return offer;
}

/* Posts an RDMA write to the peer's memory `to`, `at` bytes from its beginning. */
static void write_over(void *from, size_t bytes, const struct offer *to, size_t at,
                       uint64_t number, DAT_COMPLETION_FLAGS flags)
{
    DAT_LMR_TRIPLET local = part(&memory, (size_t)((unsigned char *)from - memory.bytes), bytes);
    DAT_RMR_TRIPLET remote;
    DAT_DTO_COOKIE cookie = { .as_64 = number };

    memset(&remote, 0, sizeof remote);
    remote.rmr_context = (DAT_RMR_CONTEXT)to->context;
    remote.target_address = to->address + at;
    remote.segment_length = bytes;
    must(dat_ep_post_rdma_write(ep, 1, &local, cookie, &remote, flags), "dat_ep_post_rdma_write");
}

/* Polls an EVD for a completion, and stores its cookie. Returns 0 if there is none. */
static int completed(DAT_EVD_HANDLE evd, uint64_t *number)
{
    DAT_EVENT event;
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    DAT_RETURN answer = dat_evd_dequeue(evd, &event);

    if (DAT_GET_TYPE(answer) == DAT_QUEUE_EMPTY)
        return 0;
    must(answer, "dat_evd_dequeue");
    if (dto->status != DAT_DTO_SUCCESS)
        FAIL("a transfer failed: %s", status_name(dto->status));
    *number = dto->user_cookie.as_64;
    return 1;
}

/* Sends `bytes` bytes to the peer. */
static void send_over(void *from, size_t bytes, uint64_t number, DAT_COMPLETION_FLAGS flags)
{
    DAT_LMR_TRIPLET local;
    DAT_DTO_COOKIE cookie = { .as_64 = number };

    if (bytes > 0)
        local = part(&memory, (size_t)((unsigned char *)from - memory.bytes), bytes);
    must(dat_ep_post_send(ep, bytes > 0, bytes > 0 ? &local : NULL, cookie, flags),
         "dat_ep_post_send");
}

/* Posts a receive for message `line` of the consumer, or (-1) for an empty one. */
static void post_receive(int line)
{
    DAT_LMR_TRIPLET local;
    DAT_DTO_COOKIE cookie = { .as_64 = (DAT_UINT64)line };

    if (line >= 0)
        local = part(&memory, offsetof(struct side, messages) + (size_t)line * LINE, 8);
    must(dat_ep_post_recv(ep, line >= 0, line >= 0 ? &local : NULL, cookie,
                          DAT_COMPLETION_DEFAULT_FLAG),
         "dat_ep_post_recv");
}

/* Takes a message of the consumer, which is a number. Returns 0 if there is none. */
static int message(uint64_t *number)
{
    uint64_t line;

    if (!completed(arrivals, &line))
        return 0;
    *number = side->messages[line].text[0];
    post_receive((int)line);
    return 1;
}

/* Counts an empty poll. Once in POLLS_PER_YIELD polls, yields the processor, in case the peer
 * needs it, and ends the program if the connection has ended. */
static void idle_poll(void)
{
    DAT_EVENT event;

    if (++idle % POLLS_PER_YIELD != 0)
        return;
    sched_yield();
    if (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
        FAIL("the peer has left: %s", event_name(event.event_number));
}

/* Consumer: chooses how it notices writes, and tells the producer. */
static void choose(int force)
{
    int slot;

    by_message = !force;
    puts(by_message ? "polling for a message behind each write" : "polling memory");
    for (slot = 0; by_message && slot < SLOTS; slot++)
        post_receive(-1);
    side->emptied = by_message ? POLLS_MESSAGES : POLLS_MEMORY;
    send_over(&side->emptied, sizeof side->emptied, 0, DAT_COMPLETION_DEFAULT_FLAG);
}

/* Producer: waits for the consumer's first message. */
static void be_told(void)
{
    uint64_t method;

    while (!message(&method))
        idle_poll();
    if (method != POLLS_MEMORY && method != POLLS_MESSAGES)
        FAIL("the peer is not rdma_ring");
    by_message = method == POLLS_MESSAGES;
}

/* Producer: updates the total of emptied slots. */
static void update(uint64_t *emptied)
{
    if (by_message)
        message(emptied);
    else
        *emptied = __atomic_load_n(&side->emptied, __ATOMIC_ACQUIRE);
}

/* Consumer: returns whether message `number` is in its slot. */
static int has_arrived(const struct slot *slot, uint64_t number)
{
    uint64_t none;

    if (!by_message)
        return __atomic_load_n(&slot->number, __ATOMIC_ACQUIRE) == number + 1;
    if (!completed(arrivals, &none))
        return 0;
    post_receive(-1);
    /* Not a condition, but a check of this program. */
    if (__atomic_load_n(&slot->number, __ATOMIC_ACQUIRE) != number + 1)
        FAIL("message %llu was announced before it was there", (unsigned long long)number);
    return 1;
}

/* Returns the words of message `number`. */
static uint64_t text(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

static void produce(const struct offer *ring, uint64_t count)
{
    /* Completed writes, and slots that the consumer has emptied. */
    uint64_t done = 0, emptied = 0, sent, number;
    struct timespec begun, ended;
    int word;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (sent = 0;; sent++) {
        struct slot *slot = &side->slots[sent % SLOTS];
        DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_SUPPRESS_FLAG;

        /* The local slot belongs to the device until its last write completes; the
         * remote slot belongs to the consumer until the consumer has emptied it. At
         * the end, wait for all credits too: they still need the connection. */
        while (sent == count ? done < count || emptied < count
                             : sent - done >= SLOTS || sent - emptied >= SLOTS) {
            if (completed(transfers, &number)) {
                done = number + 1;
            } else {
                update(&emptied);
                idle_poll();
            }
        }
        if (sent == count)
            break;
        for (word = 0; word < WORDS; word++)
            slot->text[word] = text(sent);
        slot->number = sent + 1;
        if ((sent + 1) % SIGNALLED == 0 || sent + 1 == count)
            flags = DAT_COMPLETION_DEFAULT_FLAG;
        write_over(slot, sizeof *slot, ring, sent % SLOTS * sizeof *slot, sent,
                   by_message ? DAT_COMPLETION_SUPPRESS_FLAG : flags);
        if (by_message)
            send_over(NULL, 0, sent, flags);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%llu messages written, %.0f nanoseconds each\n", (unsigned long long)count,
           ((ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec)) / count);
}

static void consume(const struct offer *credits, uint64_t count)
{
    /* `announced`: slots that the producer knows to be empty, once the last credit
     * has arrived. `announcing`: a credit, or the first message, has not completed yet. */
    uint64_t announced = 0, taken, number;
    int announcing = 1, word;

    /* The producer disconnects when the last total has arrived. Do not wait for the
     * completion of that write: the disconnect may be reported first. */
    for (taken = 0; announced < count;) {
        const struct slot *slot = &side->slots[taken % SLOTS];

        if (taken < count && has_arrived(slot, taken)) {
            for (word = 0; word < WORDS; word++)
                if (slot->text[word] != text(taken))
                    FAIL("message %llu, word %d: %llx", (unsigned long long)taken, word,
                         (unsigned long long)slot->text[word]);
            taken++;
        } else {
            idle_poll();
        }
        if (announcing && completed(transfers, &number))
            announcing = 0;
        if (!announcing && (taken - announced >= SIGNALLED || (taken == count && announced < count))) {
            announced = side->emptied = taken;
            announcing = 1;
            if (by_message)
                send_over(&side->emptied, sizeof side->emptied, announced,
                          DAT_COMPLETION_DEFAULT_FLAG);
            else
                write_over(&side->emptied, sizeof side->emptied, credits, 0, announced,
                           DAT_COMPLETION_DEFAULT_FLAG);
        }
    }
    printf("%llu messages read\n", (unsigned long long)count);
}

int main(int argc, char **argv)
{
    struct options options = { "mlx5_0", 18515, 10000, 8, 1, 0, NULL };
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    /* A write and a send for each slot, and a receive. */
    DAT_EP_ATTR attr = attributes(SLOTS, 2 * SLOTS);
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    int line;

    parse(argc, argv, "d:p:n:l:h", about, 1, &options);
    must(dat_ia_open((char *)options.ia, 8, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    memory = memory_of(ia, pz, sizeof *side,
                       DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG |
                           DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    side = (struct side *)(void *)memory.bytes;
    must(dat_evd_create(ia, SLOTS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &transfers),
         "dat_evd_create");
    must(dat_evd_create(ia, SLOTS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &arrivals),
         "dat_evd_create");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG,
                        &connections),
         "dat_evd_create");
    must(dat_ep_create(ia, pz, arrivals, transfers, connections, &attr, &ep),
         "dat_ep_create");

    if (options.host != NULL) {
        /* The memory for credits, and the number of messages to come. */
        struct request request = { offer_of(&side->emptied, sizeof side->emptied), options.count };
        const DAT_CONNECTION_EVENT_DATA *established = &event.event_data.connect_event_data;
        struct offer ring;

        for (line = 0; line < MESSAGES; line++)
            post_receive(line);
        connect_to(ep, connections, &options, sizeof request, &request, &event);
        if (established->private_data_size < (DAT_COUNT)sizeof ring)
            FAIL("the peer has no ring: is it rdma_ring?");
        memcpy(&ring, established->private_data, sizeof ring);
        if (ring.length != sizeof side->slots)
            FAIL("the peer has a ring of another size");
        be_told();
        produce(&ring, options.count);
        must(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG), "dat_ep_disconnect");
    } else {
        struct offer ring = offer_of(side->slots, sizeof side->slots);
        struct request request;
        DAT_CR_HANDLE cr;
        DAT_CR_PARAM asked;

        must(dat_psp_create(ia, options.port, connections, DAT_PSP_CONSUMER_FLAG, &psp),
             "dat_psp_create");
        printf("listening on %llu\n", (unsigned long long)options.port);
        fflush(stdout);
        expect(connections, DAT_CONNECTION_REQUEST_EVENT, &event);
        cr = event.event_data.cr_arrival_event_data.cr_handle;
        must(dat_cr_query(cr, DAT_CR_FIELD_ALL, &asked), "dat_cr_query");
        if (asked.private_data_size < (DAT_COUNT)sizeof request)
            FAIL("the peer is not rdma_ring");
        memcpy(&request, asked.private_data, sizeof request);
        must(dat_cr_accept(cr, ep, sizeof ring, &ring), "dat_cr_accept");
        must(dat_psp_free(psp), "dat_psp_free");
        expect(connections, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
        choose(options.force);
        consume(&request.credits, request.count);
    }
    expect(connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event);

    must(dat_ep_free(ep), "dat_ep_free");
    must(dat_evd_free(connections), "dat_evd_free");
    must(dat_evd_free(arrivals), "dat_evd_free");
    must(dat_evd_free(transfers), "dat_evd_free");
    memory_free(&memory);
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    return 0;
}
