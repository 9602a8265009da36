/*
 * The extensions of dat_ib_extensions.h between two endpoints of one adapter. The
 * arguments are the name of the adapter and what it has: "all", "no_atomics", or "lossy" (all,
 * but the peer's refusal of a request may be lost). Prints "well" at the end.
 */
#include <dat2/dat_ib_extensions.h>
#include <dat2/udat.h>
#include <string.h>

#include "../transfer/check.h"

#define FLAGS DAT_COMPLETION_DEFAULT_FLAG
/* What bytes of an event have that the library does not write. */
#define UNTOUCHED 0xa5

static DAT_BOOLEAN has_atomics;
static DAT_IA_HANDLE ia;
static DAT_IA_ATTR attr;
static DAT_PZ_HANDLE pz;
static DAT_EP_HANDLE active, passive;
static DAT_EVD_HANDLE sent, received, connections;
static union {
    DAT_UINT64 numbers[512];
    char bytes[4096];
} memory;
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;

static DAT_EVENT next(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT nmore;

    memset(&event, UNTOUCHED, sizeof event);
    OK(dat_evd_wait(evd, SECONDS(60), 1, &event, &nmore));
    return event;
}

/* What an extended event says beside what the test expects. */
struct result {
    DAT_UINT32 immediate;
    DAT_SEG_LENGTH length;
};

/* The next event is an extended one, of which only the defined bytes are written. */
static struct result extended(DAT_EVD_HANDLE evd, DAT_UINT64 cookie,
                              DAT_IB_DTOS operation, DAT_IB_EXT_TYPE type,
                              DAT_DTO_COMPLETION_STATUS status)
{
    DAT_EVENT event = next(evd);
    DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;
    DAT_IB_EXTENSION_EVENT_DATA extension;
    struct result result;
    const unsigned char *bytes = (const unsigned char *)event.event_extension_data;
    size_t defined = offsetof(DAT_IB_EXTENSION_EVENT_DATA, val);

    memcpy(&extension, event.event_extension_data, sizeof extension);
    HOLDS((int)event.event_number == (int)DAT_IB_DTO_EVENT && event.evd_handle == evd);
    HOLDS(data->user_cookie.as_64 == cookie && (int)data->operation == (int)operation);
    HOLDS(data->ep_handle == (evd == sent ? active : passive) && data->status == status);
    HOLDS(extension.type == type);
    HOLDS(extension.status == (status == DAT_DTO_SUCCESS ? DAT_OP_SUCCESS : DAT_IB_OP_ERR));
    if (type == DAT_IB_RDMA_WRITE_IMMED_DATA)
        defined += sizeof extension.val.immed;
    for (size_t at = defined; at < sizeof event.event_extension_data; at++)
        HOLDS(bytes[at] == UNTOUCHED);
    result.immediate = extension.val.immed.data;
    result.length = data->transfered_length;
    return result;
}

static DAT_LMR_TRIPLET local(unsigned offset, unsigned length)
{
    DAT_LMR_TRIPLET segment = {(DAT_VADDR)(uintptr_t)memory.bytes + offset, length, lmr_context};
    return segment;
}

static DAT_RMR_TRIPLET remote(unsigned offset, unsigned length)
{
    DAT_RMR_TRIPLET segment = {(DAT_VADDR)(uintptr_t)memory.bytes + offset, length, rmr_context};
    return segment;
}

static DAT_LMR_HANDLE registered(DAT_PZ_HANDLE zone, DAT_IA_HANDLE adapter,
                                 DAT_MEM_PRIV_FLAGS privileges, DAT_LMR_CONTEXT *here,
                                 DAT_RMR_CONTEXT *there)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_VLEN length;
    DAT_VADDR address;

    region.for_va = memory.bytes;
    OK(dat_lmr_create(adapter, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, zone, privileges,
                      DAT_VA_TYPE_VA, &lmr, here, there, &length, &address));
    return lmr;
}

/* The value of a provider-specific attribute, or null. */
static const char *named(const DAT_PROVIDER_ATTR *provider, const char *name)
{
    for (int at = 0; at < provider->num_provider_specific_attr; at++) {
        DAT_NAMED_ATTR *attribute = &provider->provider_specific_attr[at];
        if (strcmp(attribute->name, name) == 0)
            return attribute->value;
    }
    return NULL;
}

/* Whether an adapter has an extension. */
static int has(const DAT_PROVIDER_ATTR *provider, const char *name)
{
    const char *value = named(provider, name);

    HOLDS(value == NULL || strcmp(value, "TRUE") == 0);
    return value != NULL;
}

static void open_all(char *name)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;
    DAT_PROVIDER_ATTR provider;
    DAT_MEM_PRIV_FLAGS all = DAT_MEM_PRIV_ALL_FLAG | (int)DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
    DAT_LMR_PARAM param;
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;

    OK(dat_ia_open(name, 8, &errors, &ia));
    OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider));
    HOLDS(attr.extension_supported == DAT_EXTENSION_IB);
    HOLDS(attr.extension_version == DAT_IB_EXTENSION_VERSION);
    HOLDS(has(&provider, "DAT_EXTENSION_INTERFACE") && has(&provider, DAT_IB_ATTR_IMMED_DATA));
    HOLDS(has(&provider, DAT_IB_ATTR_FETCH_AND_ADD) == (int)has_atomics);
    HOLDS(has(&provider, DAT_IB_ATTR_CMP_AND_SWAP) == (int)has_atomics);
    HOLDS(atoi(named(&provider, "DAT_IB_TRANSPORT_MTU")) >= 256);
    HOLDS(!has(&provider, DAT_IB_ATTR_UD) && !has(&provider, DAT_IB_ATTR_COUNTERS));

    OK(dat_pz_create(ia, &pz));
    lmr = registered(pz, ia, all, &lmr_context, &rmr_context);
    OK(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param));
    HOLDS(param.mem_priv == all);
    region.for_va = memory.bytes;
    EXPECT(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                          (DAT_MEM_PRIV_FLAGS)(all | 0x80), DAT_VA_TYPE_VA, &lmr, NULL, NULL, NULL,
                          NULL),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &sent));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &received));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
}

static void connect_both(void)
{
    DAT_EVD_HANDLE requests;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qualifier;
    DAT_EVENT event;

    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
    OK(dat_ep_create(ia, pz, sent, sent, connections, NULL, &active));
    OK(dat_ep_create(ia, pz, received, received, connections, NULL, &passive));
    OK(dat_psp_create_any(ia, &qualifier, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_ep_connect(active, attr.ia_address_ptr, qualifier, SECONDS(60), 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(requests);
    HOLDS(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, passive, 0, NULL));
    for (int side = 0; side < 2; side++)
        HOLDS(next(connections).event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
    OK(dat_psp_free(psp));
    OK(dat_evd_free(requests));
}

static void write_with_immediate_data(void)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET from[2] = {local(0, 64), local(64, 36)};
    DAT_LMR_TRIPLET to = local(2048, 64);
    DAT_RMR_TRIPLET there = remote(1024, 100);
    struct result result;
    DAT_EVENT event;

    for (unsigned lap = 0; lap < 100; lap++) {
        unsigned length = lap % 2 ? 100 : 64;

        memset(memory.bytes, 0, sizeof memory);
        memset(memory.bytes, (int)(1 + lap), 100);
        cookie.as_64 = 200 + lap;
        OK(dat_ep_post_recv(passive, 1, &to, cookie, FLAGS));
        cookie.as_64 = lap;
        OK(dat_ib_post_rdma_write_immed(active, 1 + lap % 2, from, cookie, &there,
                                        0x01020300u + lap, FLAGS));
        result = extended(received, 200 + lap, DAT_IB_DTO_RECV_IMMED,
                          DAT_IB_RDMA_WRITE_IMMED_DATA, DAT_DTO_SUCCESS);
        HOLDS(result.immediate == 0x01020300u + lap);
        HOLDS(result.length == length);
        result = extended(sent, lap, DAT_IB_DTO_RDMA_WRITE_IMMED, DAT_IB_RDMA_WRITE_IMMED,
                          DAT_DTO_SUCCESS);
        HOLDS(result.length == length);
        HOLDS(memcmp(memory.bytes + 1024, memory.bytes, length) == 0);
        HOLDS(memory.bytes[1024 + length] == 0 && memory.bytes[2048] == 0);
    }

    /* Immediate data alone, with and without a remote segment; and no event for it. */
    for (int lap = 0; lap < 2; lap++) {
        cookie.as_64 = 5;
        OK(dat_ep_post_recv(passive, 0, NULL, cookie, FLAGS));
        OK(dat_ib_post_rdma_write_immed(active, 0, NULL, cookie, lap ? &there : NULL, 7,
                                        DAT_COMPLETION_SUPPRESS_FLAG));
        result = extended(received, 5, DAT_IB_DTO_RECV_IMMED, DAT_IB_RDMA_WRITE_IMMED_DATA,
                          DAT_DTO_SUCCESS);
        HOLDS(result.immediate == 7 && result.length == 0);
    }
    EXPECT(dat_evd_dequeue(sent, &event), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);

    EXPECT(dat_ib_post_rdma_write_immed(active, 1, NULL, cookie, &there, 7, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    EXPECT(dat_ib_post_rdma_write_immed(active, 1, from, cookie, NULL, 7, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
    EXPECT(dat_ib_post_rdma_write_immed(active, -1, from, cookie, &there, 7, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    EXPECT(dat_ib_post_rdma_write_immed(active, 1, from, cookie, &there, 7, 0x40),
           DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);
    EXPECT(dat_ib_post_rdma_write_immed(DAT_HANDLE_NULL, 1, from, cookie, &there, 7, FLAGS),
           DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    EXPECT(dat_ib_post_rdma_write_immed(pz, 1, from, cookie, &there, 7, FLAGS),
           DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
}

static void use_atomics(void)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET back = local(512, 8);
    DAT_RMR_TRIPLET there = remote(1024, 8);

    memset(memory.bytes, 0, sizeof memory);
    memory.numbers[128] = 0x1122334455667788;
    cookie.as_64 = 11;
    OK(dat_ib_post_fetch_and_add(active, 0x1000000000000001, &back, cookie, &there, FLAGS));
    HOLDS(extended(sent, 11, DAT_IB_DTO_FETCH_ADD, DAT_IB_FETCH_AND_ADD, DAT_DTO_SUCCESS)
              .length == 8);
    HOLDS(memory.numbers[64] == 0x1122334455667788);
    HOLDS(memory.numbers[128] == 0x2122334455667789 && memory.numbers[65] == 0);

    cookie.as_64 = 12;
    OK(dat_ib_post_cmp_and_swap(active, 5, 6, &back, cookie, &there, FLAGS));
    extended(sent, 12, DAT_IB_DTO_CMP_SWAP, DAT_IB_CMP_AND_SWAP, DAT_DTO_SUCCESS);
    HOLDS(memory.numbers[64] == 0x2122334455667789);
    HOLDS(memory.numbers[128] == 0x2122334455667789);
    cookie.as_64 = 13;
    OK(dat_ib_post_cmp_and_swap(active, 0x2122334455667789, 6, &back, cookie, &there,
                                DAT_COMPLETION_BARRIER_FENCE_FLAG));
    extended(sent, 13, DAT_IB_DTO_CMP_SWAP, DAT_IB_CMP_AND_SWAP, DAT_DTO_SUCCESS);
    HOLDS(memory.numbers[64] == 0x2122334455667789 && memory.numbers[128] == 6);
}

static void refuse_bad_atomics(void)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET back = local(512, 8), other;
    DAT_RMR_TRIPLET there = remote(1024, 8), unaligned = remote(1028, 8);
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;
    DAT_IA_HANDLE second;
    DAT_PZ_HANDLE zone;
    DAT_RMR_CONTEXT ignored;

    cookie.as_64 = 14;
    EXPECT(dat_ib_post_fetch_and_add(active, 1, &back, cookie, &unaligned, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
    EXPECT(dat_ib_post_cmp_and_swap(active, 1, 2, &back, cookie, &unaligned, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
    back.segment_length = 7;
    EXPECT(dat_ib_post_fetch_and_add(active, 1, &back, cookie, &there, FLAGS), DAT_LENGTH_ERROR,
           DAT_NO_SUBTYPE);
    back.segment_length = 8;
    EXPECT(dat_ib_post_fetch_and_add(active, 1, NULL, cookie, &there, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    EXPECT(dat_ib_post_fetch_and_add(active, 1, &back, cookie, NULL, FLAGS), DAT_INVALID_PARAMETER,
           DAT_INVALID_ARG5);
    EXPECT(dat_ib_post_cmp_and_swap(active, 1, 2, NULL, cookie, &there, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    EXPECT(dat_ib_post_cmp_and_swap(active, 1, 2, &back, cookie, NULL, FLAGS),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
    EXPECT(dat_ib_post_cmp_and_swap(connections, 1, 2, &back, cookie, &there, FLAGS),
           DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    EXPECT(dat_ib_post_fetch_and_add(active, 1, &back, cookie, &there,
                                     DAT_COMPLETION_SOLICITED_WAIT_FLAG),
           DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);

    /* Memory of another adapter. */
    other = back;
    OK(dat_ia_open(attr.adapter_name, 8, &errors, &second));
    OK(dat_pz_create(second, &zone));
    registered(zone, second, DAT_MEM_PRIV_ALL_FLAG, &other.lmr_context, &ignored);
    EXPECT(dat_ib_post_fetch_and_add(active, 1, &other, cookie, &there, FLAGS),
           DAT_PROTECTION_VIOLATION, DAT_NO_SUBTYPE);
    EXPECT(dat_ib_post_rdma_write_immed(active, 1, &other, cookie, &there, 1, FLAGS),
           DAT_PROTECTION_VIOLATION, DAT_NO_SUBTYPE);
    OK(dat_ia_close(second, DAT_CLOSE_ABRUPT_FLAG));
}

static void refuse_other_operations(void)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET from = local(0, 8);
    DAT_IB_ADDR_HANDLE peer;
    DAT_UINT64 counters[DCNT_EP_ALL_COUNTERS];
    DAT_EP_ATTR ep_attr;
    DAT_EP_HANDLE ep;

    cookie.as_64 = 15;
    memset(&peer, 0, sizeof peer);
    UNSUPPORTED(dat_ib_post_send_ud(active, 1, &from, &peer, cookie, FLAGS));
    UNSUPPORTED(dat_ib_ud_ah_free(active, &peer));
    UNSUPPORTED(dat_query_counters(active, DCNT_EP_ALL_COUNTERS, counters, 0));
    UNSUPPORTED(dat_ib_start_counter(ia, DCNT_IA_CM));
    UNSUPPORTED(dat_ib_collective_barrier(ia, cookie, FLAGS));
    UNSUPPORTED(dat_extension_op(ia, DAT_IB_COLLECTIVE_CREATE_MEMBER_OP));
    for (int at = 0; at < 3; at++) {
        static const int unknown[] = {30, 0x4711, -1};
        EXPECT(dat_extension_op(active, unknown[at]), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    }
    memset(&ep_attr, 0, sizeof ep_attr);
    ep_attr.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
    HOLDS(dat_ep_create(ia, pz, sent, sent, connections, &ep_attr, &ep) != DAT_SUCCESS);
}

static void query_without_opening(char *name)
{
    DAT_IA_HANDLE queried = DAT_HANDLE_NULL;
    DAT_IA_ATTR found;
    DAT_PROVIDER_ATTR provider;

    OK(dat_ib_open_query(name, &queried, DAT_IA_FIELD_ALL, &found, DAT_PROVIDER_FIELD_ALL,
                         &provider));
    HOLDS(queried != DAT_HANDLE_NULL && queried != ia);
    HOLDS(strcmp(found.adapter_name, name) == 0 && found.max_eps == attr.max_eps);
    HOLDS(has(&provider, DAT_IB_ATTR_IMMED_DATA));
    OK(dat_ib_close_query(queried));
    EXPECT(dat_ib_close_query(queried), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    EXPECT(dat_ib_open_query("nothing", &queried, 0, NULL, 0, NULL), DAT_PROVIDER_NOT_FOUND,
           DAT_NAME_NOT_REGISTERED);
    EXPECT(dat_ib_open_query(name, NULL, 0, NULL, 0, NULL), DAT_INVALID_PARAMETER,
           DAT_INVALID_ARG2);
    EXPECT(dat_ib_open_query(name, &queried, DAT_IA_FIELD_ALL, NULL, 0, NULL),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
}

/* Memory that was registered without the privilege. The connection breaks. */
static void break_by_an_atomic(void)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET back = local(512, 8), window = local(0, 64);
    DAT_RMR_TRIPLET there = remote(1024, 8);
    DAT_LMR_CONTEXT context;
    DAT_RMR_HANDLE rmr;
    DAT_RMR_CONTEXT bound;
    DAT_LMR_HANDLE lmr = registered(pz, ia, DAT_MEM_PRIV_ALL_FLAG, &context, &there.rmr_context);

    OK(dat_rmr_create(pz, &rmr));
    window.lmr_context = context;
    cookie.as_64 = 16;
    EXPECT(dat_rmr_bind(rmr, lmr, &window, (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC,
                        DAT_VA_TYPE_VA, active, cookie, FLAGS, &bound),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    OK(dat_rmr_free(rmr));
    OK(dat_ib_post_fetch_and_add(active, 1, &back, cookie, &there, FLAGS));
    extended(sent, 16, DAT_IB_DTO_FETCH_ADD, DAT_IB_FETCH_AND_ADD, DAT_DTO_ERR_REMOTE_ACCESS);
    HOLDS(next(connections).event_number == DAT_CONNECTION_EVENT_BROKEN);
}

int main(int argc, char **argv)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET back;
    DAT_RMR_TRIPLET there;

    HOLDS(argc == 3);
    has_atomics = strcmp(argv[2], "no_atomics") != 0 ? DAT_TRUE : DAT_FALSE;
    open_all(argv[1]);
    connect_both();
    write_with_immediate_data();
    if (has_atomics) {
        use_atomics();
        refuse_bad_atomics();
    } else {
        back = local(512, 8);
        there = remote(1024, 8);
        cookie.as_64 = 1;
        UNSUPPORTED(dat_ib_post_fetch_and_add(active, 1, &back, cookie, &there, FLAGS));
        UNSUPPORTED(dat_ib_post_cmp_and_swap(active, 1, 2, &back, cookie, &there, FLAGS));
    }
    refuse_other_operations();
    query_without_opening(argv[1]);
    if (strcmp(argv[2], "all") == 0)
        break_by_an_atomic();
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("well\n");
    return 0;
}
