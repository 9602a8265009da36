/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A ring in the consumer's memory. The producer writes the ring by RDMA, and the
 * consumer polls it. This is the fastest way from memory to memory: it needs
 * neither receives nor events.
 *
 * Why the consumer may poll memory: a slot is one cache line, and its last word
 * is the number of the message. On a reliable connection, writes arrive in
 * posting order. The devices that this library drives place the bytes of one
 * write in ascending order. So when the last word is new, the rest of the slot is
 * new too. The consumer reads that word with an acquire load, so later reads are
 * not older. DAT itself guarantees nothing before a completion; where that is not
 * enough, send a message after the write.
 *
 * Worth copying:
 * - Credits return in the same way: the consumer writes the total number of slots
 *   that it has emptied to the producer's memory. The number is a total, so one
 *   such write at a time is enough.
 * - The producer requests one completion every SIGNALLED writes. That completion
 *   covers all earlier writes, so their memory may be reused.
 * - Words that different sides write have their own cache lines.
 * - Between the first and the last message nothing is allocated, and no thread
 *   sleeps.
 */
#include "common.h"
#include <sched.h>
#include <time.h>

static const char about[] =
    "usage: rdma_ring [-d ADAPTER] [-p QUALIFIER] [-n MESSAGES] [HOST]\n"
    "\n"
    "Writes messages into a ring in the peer's memory, which the peer polls. Without\n"
    "HOST it is the consumer of one producer; with HOST it is the producer. Each\n"
    "keeps one processor busy.\n"
    "\n"
    "  -d ADAPTER    DEVICE, DEVICE-PORT, or an entry of dat.conf (default mlx5_0)\n"
    "  -p QUALIFIER  the qualifier of the consumer; 1024 to 65535 is a port (default 18515)\n"
    "  -n MESSAGES   number of messages (default 10000)\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 good, 1 usage, 2 the environment does not allow it, 3 the run failed.\n";

enum {
    SLOTS = 64,
    SIGNALLED = SLOTS / 4,  /* writes per completion, and slots per credit write */
    WORDS = LINE / 8 - 1,   /* words of text in a slot, before the number */
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
static DAT_EVD_HANDLE transfers, connections;
static struct memory memory;
static struct side *side;
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

/* Polls for the completion of a write, and stores its cookie. Returns 0 if there is none. */
static int completion(uint64_t *number)
{
    DAT_EVENT event;
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    DAT_RETURN answer = dat_evd_dequeue(transfers, &event);

    if (DAT_GET_TYPE(answer) == DAT_QUEUE_EMPTY)
        return 0;
    must(answer, "dat_evd_dequeue");
    if (dto->status != DAT_DTO_SUCCESS)
        FAIL("a write failed: status %d", (int)dto->status);
    *number = dto->user_cookie.as_64;
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
        FAIL("the peer has left: event 0x%x", (unsigned)event.event_number);
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
            if (completion(&number)) {
                done = number + 1;
            } else {
                emptied = __atomic_load_n(&side->emptied, __ATOMIC_ACQUIRE);
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
        write_over(slot, sizeof *slot, ring, sent % SLOTS * sizeof *slot, sent, flags);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%llu messages written, %.0f nanoseconds each\n", (unsigned long long)count,
           ((ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec)) / count);
}

static void consume(const struct offer *credits, uint64_t count)
{
    /* `announced`: slots that the producer knows to be empty, once the last credit write
     * has arrived. `announcing`: a credit write has not completed yet. */
    uint64_t announced = 0, taken, number;
    int announcing = 0, word;

    /* The producer disconnects when the last total has arrived. Do not wait for the
     * completion of that write: the disconnect may be reported first. */
    for (taken = 0; announced < count;) {
        const struct slot *slot = &side->slots[taken % SLOTS];

        if (taken < count && __atomic_load_n(&slot->number, __ATOMIC_ACQUIRE) == taken + 1) {
            for (word = 0; word < WORDS; word++)
                if (slot->text[word] != text(taken))
                    FAIL("message %llu, word %d: %llx", (unsigned long long)taken, word,
                         (unsigned long long)slot->text[word]);
            taken++;
        } else {
            idle_poll();
        }
        if (announcing && completion(&number))
            announcing = 0;
        if (!announcing && (taken - announced >= SIGNALLED || (taken == count && announced < count))) {
            announced = side->emptied = taken;
            announcing = 1;
            write_over(&side->emptied, sizeof side->emptied, credits, 0, announced,
                       DAT_COMPLETION_DEFAULT_FLAG);
        }
    }
    printf("%llu messages read\n", (unsigned long long)count);
}

int main(int argc, char **argv)
{
    struct options options = { "mlx5_0", 18515, 10000, 8, 1, NULL };
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_EP_ATTR attr = attributes(0, SLOTS + 1);
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    parse(argc, argv, "d:p:n:h", about, 1, &options);
    must(dat_ia_open((char *)options.ia, 8, &async_evd, &ia), "dat_ia_open");
    must(dat_pz_create(ia, &pz), "dat_pz_create");
    memory = memory_of(ia, pz, sizeof *side,
                       DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG |
                           DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    side = (struct side *)(void *)memory.bytes;
    must(dat_evd_create(ia, SLOTS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &transfers),
         "dat_evd_create");
    must(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG,
                        &connections),
         "dat_evd_create");
    must(dat_ep_create(ia, pz, DAT_HANDLE_NULL, transfers, connections, &attr, &ep),
         "dat_ep_create");

    if (options.host != NULL) {
        /* The memory for credits, and the number of messages to come. */
        struct request request = { offer_of(&side->emptied, sizeof side->emptied), options.count };
        const DAT_CONNECTION_EVENT_DATA *established = &event.event_data.connect_event_data;
        struct offer ring;

        connect_to(ep, connections, &options, sizeof request, &request, &event);
        if (established->private_data_size < (DAT_COUNT)sizeof ring)
            FAIL("the peer has no ring: is it rdma_ring?");
        memcpy(&ring, established->private_data, sizeof ring);
        if (ring.length != sizeof side->slots)
            FAIL("the peer has a ring of another size");
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
        consume(&request.credits, request.count);
    }
    expect(connections, DAT_CONNECTION_EVENT_DISCONNECTED, &event);

    must(dat_ep_free(ep), "dat_ep_free");
    must(dat_evd_free(connections), "dat_evd_free");
    must(dat_evd_free(transfers), "dat_evd_free");
    memory_free(&memory);
    must(dat_pz_free(pz), "dat_pz_free");
    must(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), "dat_ia_close");
    return 0;
}
