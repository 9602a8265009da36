/*
 * Runs requests between two hosts, right and wrong ones, and prints what both sides get: the client
 * prints a line for each case, with the completions, the bytes that arrived as they were sent, the
 * states of both queue pairs and the asynchronous events of both.
 *
 * usage: cases PORT GID-INDEX [SERVER]
 *
 * cases.expected has the lines that are expected of each pair of devices.
 */
#define _GNU_SOURCE
#include "pair.h"
#include <stdarg.h>

static int is_atomic; /* the case: its values are bytes */
static char line[1024];

static void add(const char *format, ...)
{
    size_t used = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - used, format, arguments);
    va_end(arguments);
}

static void post_receive(int length, uint32_t key)
{
    struct ibv_sge sge = {(uintptr_t)landing, (uint32_t)length, key};
    struct ibv_recv_wr *bad, request = {.sg_list = &sge, .num_sge = length ? 1 : 0};
    REQUIRE(!(srq ? ibv_post_srq_recv(srq, &request, &bad) : ibv_post_recv(qp, &request, &bad)));
}

/* The request that the client's functions fill in. */
struct request {
    enum ibv_wr_opcode opcode;
    int length;
    uint32_t key;       /* of the peer */
    uint32_t local_key; /* 0: that of ALL */
    int64_t offset;     /* in the peer's memory that is meant */
    uint32_t qkey;
    uint64_t compare, operand;
    int is_inline;
};

/* Posts a request; returns 0 if libibverbs refuses it. */
static int post(struct request it)
{
    int fetches = it.opcode == IBV_WR_RDMA_READ || it.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
                  it.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    int is_read = it.opcode == IBV_WR_RDMA_READ;
    struct ibv_sge sge = {(uintptr_t)(fetches ? landing : memory), (uint32_t)it.length,
                          it.local_key ? it.local_key : regions[ALL]->lkey};
    uint64_t remote = peer.memory + (is_read ? 0 : SIZE) + (uint64_t)it.offset;
    struct ibv_send_wr *bad, request = {.sg_list = &sge, .num_sge = it.length ? 1 : 0, .opcode = it.opcode,
        .imm_data = htonl(0xabcd0001), .send_flags = it.is_inline ? IBV_SEND_INLINE : 0};
    if (it.opcode == IBV_WR_SEND_WITH_INV) {
        request.invalidate_rkey = it.key;
    } else if (setup.type == IBV_QPT_UD) {
        request.wr.ud.ah = ah;
        request.wr.ud.remote_qpn = peer.qpn;
        request.wr.ud.remote_qkey = it.qkey;
    } else if (fetches && !is_read) {
        request.wr.atomic.remote_addr = remote;
        request.wr.atomic.rkey = it.key;
        request.wr.atomic.compare_add = it.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? it.compare : it.operand;
        request.wr.atomic.swap = it.operand;
    } else {
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = it.key;
    }
    return !ibv_post_send(qp, &request, &bad);
}

/* The IP header before a datagram: its fields, apart from those that differ between packets. */
static void add_header(void)
{
    const unsigned char *ip = landing + 20;
    add(" [IPv%d, %d bytes, TTL %d, protocol %d, from the %s to the %s]", ip[0] >> 4, ip[2] << 8 | ip[3], ip[8], ip[9],
        memcmp(ip + 12, peer.gid.raw + 12, 4) ? "wrong" : "peer", memcmp(ip + 16, own.gid.raw + 12, 4) ? "wrong" : "receiver");
}

/* Adds completions: `wanted` of them, or those within `patience` milliseconds. */
static void add_completions(int wanted, long patience)
{
    struct ibv_wc wc;
    long until = now() + patience;
    while (wanted > 0 && now() < until) {
        int found = ibv_poll_cq(cq, 1, &wc);
        REQUIRE(found >= 0);
        if (!found) {
            usleep(1000);
            continue;
        }
        wanted--;
        add(" %s", status_name(wc.status));
        if (wc.status != IBV_WC_SUCCESS || is_client)
            continue;
        add(" %s%u", wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? "write " : "", wc.byte_len);
        if (wc.wc_flags & IBV_WC_WITH_IMM)
            add(" imm %x", ntohl(wc.imm_data));
        if (wc.wc_flags & IBV_WC_WITH_INV)
            add(" inv");
        if (wc.wc_flags & IBV_WC_GRH && setup.type == IBV_QPT_UD)
            add_header();
    }
}

/* Adds what this side has at the end of a case. */
static void add_state(void)
{
    int skip = setup.type == IBV_QPT_UD && !is_client ? 40 : 0;
    static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    struct ibv_async_event event;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    int bytes = 0;
    while (bytes + skip < SIZE && landing[bytes + skip] == pattern(bytes))
        bytes++;
    if (is_atomic)
        add(" (%d)", landing[0]);
    else if (bytes)
        add(" (%d bytes arrived)", bytes);
    if (qp) {
        REQUIRE(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
        add(" %s", states[attr.qp_state]);
    } else {
        add(" destroyed");
    }
    while (!ibv_get_async_event(context, &event)) {
        add(" <%s>", ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
}

struct test {
    const char *name;
    struct setup setup;
    struct request requests[3]; /* until a length of -1; -1 is a length of 0 */
    int receive, late;          /* bytes of a receive, -1 for none; after so many milliseconds */
    int wrong_receive;          /* it is in memory that may only be read */
    int arrivals;               /* of an unreliable queue pair */
    int at_least;               /* milliseconds until the completion */
    int destroyed;              /* the server destroys its queue pair first */
};

static uint32_t key_of(uint32_t key)
{
    return key < KEYS ? peer.keys[key] : key;
}

static void run(const struct test *test)
{
    int posted = 0;
    long started;
    setup = test->setup;
    is_atomic = test->requests[0].length == 8;
    line[0] = 0;
    begin();
    if (!is_client && test->receive >= 0 && !test->late)
        post_receive(test->receive, test->wrong_receive ? regions[READABLE]->lkey : regions[ALL]->lkey);
    if (!is_client && test->destroyed)
        destroy_qp();
    both_are_here();
    started = now();
    if (is_client) {
        add("%s: client", test->name);
        for (int i = 0; i < 3 && test->requests[i].length; i++) {
            struct request request = test->requests[i];
            request.length = request.length < 0 ? 0 : request.length;
            request.key = key_of(request.key);
            if (post(request))
                posted++;
            else
                add(" refused");
        }
        add_completions(posted, LONG_WAIT);
        if (test->at_least)
            add(now() - started >= test->at_least ? " not before %d ms" : " before %d ms", test->at_least);
        add_state();
        both_are_here();
        char theirs[sizeof line];
        hear(theirs, sizeof theirs);
        printf("%s; server%s\n", line, theirs);
        fflush(stdout);
    } else {
        if (test->late) {
            usleep((useconds_t)test->late * 1000);
            post_receive(test->receive, regions[ALL]->lkey);
        }
        both_are_here();
        add_completions(test->arrivals, LONG_WAIT);
        add_completions(DEPTH, PAUSE);
        add_state();
        tell(line, sizeof line);
    }
    end();
}

#define RC .type = IBV_QPT_RC
#define UC .type = IBV_QPT_UC
#define UD .type = IBV_QPT_UD
#define SEND .opcode = IBV_WR_SEND
#define WRITE .opcode = IBV_WR_RDMA_WRITE
#define WRITE_IMM .opcode = IBV_WR_RDMA_WRITE_WITH_IMM
#define READ .opcode = IBV_WR_RDMA_READ
#define ADD .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8
#define SWAP .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8
#define NONE .receive = -1
enum { BAD_KEY = 0x00dead00 };

static const struct test TESTS[] = {
    {"send of 0 bytes", {RC}, {{SEND, -1}}, .receive = 64},
    {"send of 3000 bytes", {RC}, {{SEND, 3000}}, .receive = 3000},
    {"inline send", {RC}, {{SEND, 32, .is_inline = 1}}, .receive = 64},
    {"send with immediate", {RC}, {{.opcode = IBV_WR_SEND_WITH_IMM, .length = 100}}, .receive = 100},
    {"write with immediate", {RC}, {{WRITE_IMM, 3000}}, .receive = 64},
    {"write with immediate, 0 bytes", {RC}, {{WRITE_IMM, -1}}, .receive = 0},
    {"write of 0 bytes, bad key", {RC}, {{WRITE, -1, BAD_KEY}}, NONE},
    {"read of 0 bytes, bad key", {RC}, {{READ, -1, BAD_KEY}}, NONE},
    {"read of 3000 bytes", {RC}, {{READ, 3000}}, NONE},
    {"fetch and add", {RC}, {{ADD, .operand = 5}, {ADD, .operand = 6}}, NONE},
    {"compare and swap", {RC}, {{SWAP, .operand = 7}, {SWAP, .compare = 7, .operand = 8}, {SWAP, .compare = 1}}, NONE},
    {"shared receive queue", {RC, .shared = 1}, {{SEND, 100}}, .receive = 100},

    {"send, received late", {RC}, {{SEND, 3000}}, .receive = 3000, .late = 50},
    {"write with immediate, received late", {RC}, {{WRITE_IMM, 3000}}, .receive = 0, .late = 50},
    {"shared receive queue, received late", {RC, .shared = 1}, {{SEND, 100}}, .receive = 100, .late = 50},
    {"send, never received", {RC, .rnr_retries = 2}, {{SEND, 100}, {SEND, 100}}, NONE},
    {"write with immediate, never received", {RC, .rnr_retries = 2}, {{WRITE_IMM, 100}}, NONE},
    {"RNR timer 0", {RC, .rnr_retries = 1, .rnr_timer = 32}, {{SEND, 100}}, NONE, .at_least = 655},
    {"RNR timer 25, three times", {RC, .rnr_retries = 3, .rnr_timer = 25}, {{SEND, 100}}, NONE, .at_least = 184},

    {"write, bad key", {RC}, {{WRITE, 100, BAD_KEY}, {WRITE, 100}}, .receive = 64},
    {"write, out of bounds", {RC}, {{WRITE, 100, .offset = SIZE + WORDS - 99}}, NONE},
    {"write, last packet out of bounds", {RC}, {{WRITE, 3000, .offset = SIZE + WORDS - 2999}}, NONE},
    {"write, address before the memory", {RC}, {{WRITE, 100, .offset = -2 * SIZE}}, NONE},
    {"write, memory not writable", {RC}, {{WRITE, 100, READABLE}}, NONE},
    {"write, queue pair without access", {RC, .no_access = 1}, {{WRITE, 100}}, NONE},
    {"read, bad key", {RC}, {{READ, 100, BAD_KEY}, {WRITE, 100}}, .receive = 64},
    {"read, out of bounds", {RC}, {{READ, 3000, .offset = 2 * SIZE + WORDS - 2999}}, NONE},
    {"read, memory not readable", {RC}, {{READ, 100, WRITABLE}}, NONE},
    {"read, queue pair without access", {RC, .no_access = 1}, {{READ, 100}}, NONE},
    {"atomic, bad key", {RC}, {{ADD, BAD_KEY}}, NONE},
    {"atomic, misaligned", {RC}, {{ADD, .offset = 4}}, NONE},
    {"atomic, out of bounds", {RC}, {{ADD, .offset = SIZE + WORDS}}, NONE},
    {"atomic, memory without access", {RC}, {{ADD, WRITABLE}}, NONE},
    {"atomic, queue pair without access", {RC, .no_access = 1}, {{ADD}}, NONE},
    {"send, longer than the receive", {RC}, {{SEND, 100}, {SEND, 100}}, .receive = 99},
    {"send, third packet longer than the receive", {RC}, {{SEND, 3000}}, .receive = 2999},
    {"send, receive in memory that is not writable", {RC}, {{SEND, 100}}, .receive = 100, .wrong_receive = 1},
    {"send with invalidate, bad key", {RC}, {{.opcode = IBV_WR_SEND_WITH_INV, .length = 100, .key = BAD_KEY}}, .receive = 100},
    {"send from memory without a key", {RC}, {{SEND, 100, .local_key = BAD_KEY}, {SEND, 100}}, .receive = 100},
    {"read into memory without a key", {RC}, {{READ, 100, .local_key = BAD_KEY}}, NONE},
    {"send, smaller MTU at the server", {RC, .server_mtu = IBV_MTU_256}, {{SEND, 1000}}, .receive = 1000},
    {"send, smaller MTU at the client", {RC, .client_mtu = IBV_MTU_256}, {{SEND, 1000}}, .receive = 1000},
    {"read, smaller MTU at the client", {RC, .client_mtu = IBV_MTU_256}, {{READ, 1000}}, NONE},
    {"send to a queue pair in INIT", {RC, .server_state = IBV_QPS_INIT, .timeout = 14, .retries = 1}, {{SEND, 100}}, .receive = 100, .at_least = 134},
    {"send to a queue pair in ERR", {RC, .server_state = IBV_QPS_ERR, .timeout = 14, .retries = 1}, {{SEND, 100}}, NONE},
    {"send to no queue pair", {RC, .timeout = 14, .retries = 1}, {{SEND, 100}, {SEND, 100}}, NONE, .destroyed = 1},

    {"UC send with immediate", {UC}, {{.opcode = IBV_WR_SEND_WITH_IMM, .length = 3000}}, .receive = 3000, .arrivals = 1},
    {"UC write with immediate", {UC}, {{WRITE_IMM, 3000}}, .receive = 64, .arrivals = 1},
    {"UC send, not received", {UC}, {{SEND, 100}}, NONE},
    {"UC send, longer than the receive", {UC}, {{SEND, 100}}, .receive = 99},
    {"UC write, bad key", {UC}, {{WRITE, 100, BAD_KEY}}, NONE},
    {"UC write, queue pair without access", {UC, .no_access = 1}, {{WRITE, 100}}, NONE},

    {"UD send with immediate", {UD}, {{.opcode = IBV_WR_SEND_WITH_IMM, .length = 101, .qkey = QKEY}}, .receive = 200, .arrivals = 1},
    {"UD send of 0 bytes", {UD}, {{SEND, -1, .qkey = QKEY}}, .receive = 200, .arrivals = 1},
    {"UD send, wrong Q_Key", {UD}, {{SEND, 100, .qkey = QKEY + 1}}, .receive = 200},
    {"UD send, not received", {UD}, {{SEND, 100, .qkey = QKEY}}, NONE},
    {"UD send, longer than the receive", {UD}, {{SEND, 100, .qkey = QKEY}}, .receive = 139},
};

int main(int count, char **arguments)
{
    REQUIRE(count >= 3);
    gid_index = atoi(arguments[2]);
    connect_sides(count > 3 ? arguments[3] : NULL, arguments[1]);
    open_device();
    for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++)
        run(&TESTS[i]);
    return 0;
}
