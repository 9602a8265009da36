/*
 * Sends COUNT rounds of requests of SIZE bytes, and checks that each arrived once, in order, with its
 * bytes: a send with immediate, a write, and unless KINDS is 2 (instead of 4) a read of what was
 * written and a fetch-and-add.
 *
 * usage: rounds PORT GID-INDEX COUNT SIZE KINDS [SERVER]
 */
#define _GNU_SOURCE
#include "pair.h"

enum { WINDOW = 4, SLOT = SIZE / WINDOW };

static int kinds;
static uint64_t *const words = (uint64_t *)(memory + 2 * SIZE); /* the counter, and its values of a round */

static void fill(unsigned char *at, int round, int size)
{
    for (int i = 0; i < size; i++)
        at[i] = pattern(i + 17 * round);
}

static int is_filled(const unsigned char *at, int round, int size)
{
    int i = 0;
    while (i < size && at[i] == pattern(i + 17 * round))
        i++;
    return i == size;
}

static struct ibv_wc next_completion(void)
{
    struct ibv_wc wc;
    long until = now() + LONG_WAIT;
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)) && now() < until)
        usleep(200);
    REQUIRE(found == 1);
    if (wc.status != IBV_WC_SUCCESS)
        printf("%s\n", status_name(wc.status));
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    return wc;
}

static void post_round(int round, int size)
{
    int slot = round % WINDOW;
    unsigned char *from = memory + slot * SLOT, *back = landing + slot * SLOT;
    struct ibv_send_wr *bad, requests[4];
    struct ibv_sge sges[4] = {{(uintptr_t)from, (uint32_t)size, regions[ALL]->lkey},
                              {(uintptr_t)from, (uint32_t)size, regions[ALL]->lkey},
                              {(uintptr_t)back, (uint32_t)size, regions[ALL]->lkey},
                              {(uintptr_t)(words + 1 + slot), 8, regions[ALL]->lkey}};
    static const enum ibv_wr_opcode OPCODES[4] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                  IBV_WR_ATOMIC_FETCH_AND_ADD};
    fill(from, round, size);
    memset(back, 0, (size_t)size);
    for (int i = 0; i < kinds; i++) {
        requests[i] = (struct ibv_send_wr){.wr_id = (uint64_t)(kinds * round + i), .sg_list = &sges[i], .num_sge = 1,
            .opcode = OPCODES[i], .imm_data = htonl((uint32_t)round), .next = i + 1 < kinds ? &requests[i + 1] : NULL};
        if (i == 1 || i == 2) {
            requests[i].wr.rdma.remote_addr = peer.memory + SIZE + (uint64_t)(slot * SLOT);
            requests[i].wr.rdma.rkey = peer.keys[ALL];
        }
    }
    if (kinds == 4) {
        requests[3].wr.atomic.remote_addr = peer.memory + 2 * SIZE;
        requests[3].wr.atomic.rkey = peer.keys[ALL];
        requests[3].wr.atomic.compare_add = 1;
    }
    REQUIRE(!ibv_post_send(qp, requests, &bad));
}

static void send_rounds(int count, int size)
{
    for (int round = 0; round < count + WINDOW; round++) {
        int done = round - WINDOW, slot = round % WINDOW;
        for (int i = 0; i < kinds && done >= 0; i++)
            REQUIRE(next_completion().wr_id == (uint64_t)(kinds * done + i));
        if (done >= 0 && kinds == 4) {
            REQUIRE(words[1 + slot] == (uint64_t)done);
            REQUIRE(is_filled(landing + slot * SLOT, done, size));
        }
        if (round < count)
            post_round(round, size);
    }
}

static void receive_slot(int slot)
{
    struct ibv_sge sge = {(uintptr_t)(memory + slot * SLOT), SLOT, regions[ALL]->lkey};
    struct ibv_recv_wr *bad, request = {.sg_list = &sge, .num_sge = 1};
    REQUIRE(!ibv_post_recv(qp, &request, &bad));
}

static void receive_rounds(int count, int size)
{
    for (int round = 0; round < count; round++) {
        int slot = round % WINDOW;
        struct ibv_wc wc = next_completion();
        REQUIRE(wc.byte_len == (uint32_t)size && ntohl(wc.imm_data) == (uint32_t)round);
        REQUIRE(is_filled(memory + slot * SLOT, round, size));
        memset(memory + slot * SLOT, 0, SLOT);
        receive_slot(slot);
    }
}

static void traffic(int count, int size)
{
    struct ibv_wc wc;
    setup = (struct setup){.type = IBV_QPT_RC, .timeout = 14};
    REQUIRE(size <= SLOT);
    begin();
    for (int slot = 0; slot < WINDOW && !is_client; slot++)
        receive_slot(slot);
    both_are_here();
    if (is_client)
        send_rounds(count, size);
    else
        receive_rounds(count, size);
    both_are_here();
    usleep(PAUSE * 1000);
    REQUIRE(ibv_poll_cq(cq, 1, &wc) == 0);
    REQUIRE(is_client || words[0] == (kinds == 4 ? (uint64_t)count : 0));
    for (int slot = 0; slot < WINDOW && !is_client; slot++)
        REQUIRE(is_filled(landing + (count - 1 - slot) % WINDOW * SLOT, count - 1 - slot, size));
    printf("%d rounds of %d bytes: each arrived once, in order\n", count, size);
    end();
}

int main(int count, char **arguments)
{
    REQUIRE(count >= 6);
    gid_index = atoi(arguments[2]);
    kinds = atoi(arguments[5]);
    connect_sides(count > 6 ? arguments[6] : NULL, arguments[1]);
    open_device();
    traffic(atoi(arguments[3]), atoi(arguments[4]));
    return 0;
}
