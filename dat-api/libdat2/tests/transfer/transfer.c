/*
 * Transfers between two endpoints of one adapter through uDAPL 2.0, and what differs
 * from 1.2. The argument is the name of the adapter. Prints "well" at the end.
 */
#include <dat2/dat_registry.h>
#include <dat2/udat.h>
#include <dat2/udat_redirection.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "check.h"

/* No header of uDAPL declares it; other libraries of 2.0 export it. */
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE ia_handle, DAT_IA_HANDLE *provider_handle);

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE transfers, connections, requests;
static DAT_EP_HANDLE active, passive;
static DAT_IA_ATTR attr;
static char memory[4096];
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;

/* Waits for one event, of which only the defined bytes may be written. */
static DAT_EVENT next(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT nmore;

    memset(&event, 0xa5, sizeof event);
    OK(dat_evd_wait(evd, SECONDS(60), 1, &event, &nmore));
    HOLDS(event.evd_handle == evd);
    for (int word = 0; word < 8; word++)
        HOLDS(event.event_extension_data[word] == UINT64_C(0xa5a5a5a5a5a5a5a5));
    return event;
}

static void transferred(DAT_EP_HANDLE ep, DAT_UINT64 cookie, DAT_DTOS operation, unsigned length)
{
    DAT_EVENT event = next(transfers);
    DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;

    HOLDS(event.event_number == DAT_DTO_COMPLETION_EVENT);
    HOLDS(data->ep_handle == ep && data->user_cookie.as_64 == cookie);
    HOLDS(data->status == DAT_DTO_SUCCESS && data->transfered_length == length);
    HOLDS(data->operation == operation && data->rmr_context == 0);
}

static DAT_LMR_TRIPLET local(unsigned offset, unsigned length)
{
    DAT_LMR_TRIPLET segment = {(DAT_VADDR)(uintptr_t)memory + offset, length, lmr_context};
    return segment;
}

static DAT_RMR_TRIPLET remote(unsigned offset, unsigned length)
{
    DAT_RMR_TRIPLET segment = {(DAT_VADDR)(uintptr_t)memory + offset, length, rmr_context};
    return segment;
}

static void open_all(char *name)
{
    DAT_PROVIDER_ATTR provider;
    DAT_REGION_DESCRIPTION region;
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL, same;
    DAT_IA_HANDLE known;
    DAT_VLEN length;
    DAT_VADDR address;
    DAT_LMR_PARAM param;

    EXPECT(dat_ia_openv(name, 8, &errors, &ia, 1, 2, DAT_FALSE), DAT_PROVIDER_NOT_FOUND,
           DAT_NAME_NOT_REGISTERED);
    OK(dat_ia_open(name, 8, &errors, &ia));
    OK(dat_ia_query(ia, &same, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider));
    HOLDS(same == errors && strcmp(attr.adapter_name, name) == 0);
    HOLDS(attr.max_message_size > 1 << 20 && attr.max_lmr_block_size > 1 << 20);
    HOLDS(attr.zb_supported == DAT_FALSE && attr.extension_supported == DAT_EXTENSION_IB);
    HOLDS(provider.dapl_version_major == 2 && provider.dapl_version_minor == 0);
    HOLDS(provider.pz_support == DAT_PZ_UNIQUE && provider.ha_supported == DAT_FALSE);
    HOLDS(provider.rmr_scope_supported == DAT_RMR_SCOPE_PZ);
    HOLDS(DAT_HANDLE_TO_PROVIDER(ia)->handle_extendedop_func != NULL);
    OK(dats_get_ia_handle(ia, &known));
    HOLDS(known == ia);

    OK(dat_pz_create(ia, &pz));
    region.for_va = memory;
    UNSUPPORTED(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                               DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB, &lmr, &lmr_context,
                               &rmr_context, &length, &address));
    EXPECT(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                          DAT_MEM_PRIV_ALL_FLAG, (DAT_VA_TYPE)7, &lmr, NULL, NULL, NULL, NULL),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &lmr, &lmr_context, &rmr_context, &length, &address));
    HOLDS(length == sizeof memory && address == (DAT_VADDR)(uintptr_t)memory);
    OK(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param));
    HOLDS(param.va_type == DAT_VA_TYPE_VA && param.lmr_context == lmr_context);
    EXPECT(dat_lmr_query(lmr, (DAT_LMR_PARAM_MASK)0x800, &param), DAT_INVALID_PARAMETER,
           DAT_INVALID_ARG2);
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG,
                      &transfers));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
}

/* Requests a connection of `active`, and returns the request. */
static DAT_CR_HANDLE request(DAT_CONN_QUAL qualifier)
{
    DAT_EVENT event;

    OK(dat_ep_connect(active, attr.ia_address_ptr, qualifier, SECONDS(60), 5, "hello",
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(requests);
    HOLDS(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
    HOLDS(event.event_data.cr_arrival_event_data.conn_qual == qualifier);
    HOLDS(event.event_data.cr_arrival_event_data.truncate_flag == DAT_FALSE);
    return event.event_data.cr_arrival_event_data.cr_handle;
}

static void connect_both(void)
{
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qualifier;
    DAT_CR_HANDLE cr;
    DAT_CR_PARAM cr_param;
    DAT_EP_PARAM param;
    DAT_EVENT event;

    OK(dat_ep_create(ia, pz, transfers, transfers, DAT_HANDLE_NULL, NULL, &active));
    OK(dat_ep_create(ia, pz, transfers, transfers, connections, NULL, &passive));
    memset(&param, 0, sizeof param);
    param.connect_evd_handle = connections;
    OK(dat_ep_modify(active, DAT_EP_FIELD_CONNECT_EVD_HANDLE, &param));
    EXPECT(dat_ep_modify(active, DAT_EP_FIELD_COMM, &param), DAT_INVALID_PARAMETER,
           DAT_INVALID_ARG2);
    OK(dat_ep_query(active, DAT_EP_FIELD_ALL, &param));
    HOLDS(param.connect_evd_handle == connections && param.ep_state == DAT_EP_STATE_UNCONNECTED);
    HOLDS(param.pz_handle == pz && param.ep_attr.max_recv_dtos > 0 && param.comm.domain == 0);

    OK(dat_psp_create_any(ia, &qualifier, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    /* Rejections with and without private data. */
    cr = request(qualifier);
    EXPECT(dat_cr_reject(cr, -1, "no"), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    EXPECT(dat_cr_reject(cr, 4096, memory), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    EXPECT(dat_cr_reject(cr, 2, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    OK(dat_cr_reject(cr, 13, "come tomorrow"));
    event = next(connections);
    HOLDS(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED);
    HOLDS(event.event_data.connect_event_data.ep_handle == active);
    HOLDS(event.event_data.connect_event_data.private_data_size == 13);
    HOLDS(memcmp(event.event_data.connect_event_data.private_data, "come tomorrow", 13) == 0);
    OK(dat_ep_reset(active));
    OK(dat_cr_reject(request(qualifier), 0, NULL));
    event = next(connections);
    HOLDS(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED);
    HOLDS(event.event_data.connect_event_data.private_data_size == 0);
    OK(dat_ep_reset(active));

    cr = request(qualifier);
    OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &cr_param));
    HOLDS(cr_param.private_data_size >= 5 && memcmp(cr_param.private_data, "hello", 5) == 0);
    OK(dat_cr_accept(cr, passive, 0, NULL));
    for (int side = 0; side < 2; side++)
        HOLDS(next(connections).event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
    OK(dat_psp_free(psp));
}

static void transfer_all(void)
{
    DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET to = local(1024, 100), from = local(0, 64);
    DAT_RMR_TRIPLET peer = remote(2048, 64);
    DAT_EVENT event;

    memset(memory, 0, sizeof memory);
    strcpy(memory, "sixty-four bytes or less");
    cookie.as_64 = 1;
    OK(dat_ep_post_recv(passive, 1, &to, cookie, flags));
    cookie.as_64 = 2;
    OK(dat_ep_post_send(active, 1, &from, cookie, flags));
    /* Both ends report to one EVD, in either order. */
    event = next(transfers);
    if (event.event_data.dto_completion_event_data.operation == DAT_DTO_SEND)
        transferred(passive, 1, DAT_DTO_RECEIVE, 64);
    else
        transferred(active, 2, DAT_DTO_SEND, 64);
    HOLDS(strcmp(memory + 1024, memory) == 0);

    cookie.as_64 = 3;
    OK(dat_ep_post_rdma_write(active, 1, &from, cookie, &peer, flags));
    transferred(active, 3, DAT_DTO_RDMA_WRITE, 64);
    HOLDS(strcmp(memory + 2048, memory) == 0);

    to = local(3072, 64);
    cookie.as_64 = 4;
    OK(dat_ep_post_rdma_read(active, 1, &to, cookie, &peer, flags));
    transferred(active, 4, DAT_DTO_RDMA_READ, 64);
    HOLDS(strcmp(memory + 3072, memory) == 0);

    EXPECT(dat_evd_dequeue(transfers, &event), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
    to.lmr_context ^= 0x55aa00;
    EXPECT(dat_ep_post_send(active, 1, &to, cookie, flags), DAT_PRIVILEGES_VIOLATION,
           DAT_NO_SUBTYPE);
    EXPECT(dat_ep_post_send(active, -1, &from, cookie, flags), DAT_INVALID_PARAMETER,
           DAT_INVALID_ARG2);
    EXPECT(dat_ep_post_send(NULL, 1, &to, cookie, flags), DAT_INVALID_HANDLE,
           DAT_INVALID_HANDLE_EP);
    EXPECT(dat_ep_post_rdma_read(active, 1, &from, cookie, NULL, flags), DAT_INVALID_PARAMETER,
           DAT_INVALID_ARG5);
}

static void bind_a_window(void)
{
    DAT_RMR_HANDLE rmr;
    DAT_RMR_PARAM param;
    DAT_RMR_CONTEXT window;
    DAT_LMR_TRIPLET part = local(0, 128), other = local(0, 128);
    DAT_RMR_COOKIE cookie;
    DAT_EVENT event;
    DAT_MEM_PRIV_FLAGS privileges = DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;

    cookie.as_64 = 9;
    OK(dat_rmr_create(pz, &rmr));
    other.lmr_context ^= 0x100;
    EXPECT(dat_rmr_bind(rmr, lmr, &other, privileges, DAT_VA_TYPE_VA, passive, cookie, flags,
                        &window),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    EXPECT(dat_rmr_bind(rmr, pz, &part, privileges, DAT_VA_TYPE_VA, passive, cookie, flags,
                        &window),
           DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
    EXPECT(dat_rmr_bind(rmr, lmr, &part, privileges, DAT_VA_TYPE_VA, passive, cookie, flags, NULL),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG9);
    part.virtual_address += sizeof memory;
    EXPECT(dat_rmr_bind(rmr, lmr, &part, privileges, DAT_VA_TYPE_VA, passive, cookie, flags,
                        &window),
           DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    part = local(0, 128);
    UNSUPPORTED(dat_rmr_bind(rmr, lmr, &part, privileges, DAT_VA_TYPE_ZB, passive, cookie, flags,
                             &window));
    OK(dat_rmr_bind(rmr, lmr, &part, privileges, DAT_VA_TYPE_VA, passive, cookie, flags, &window));
    event = next(transfers);
    HOLDS(event.event_number == DAT_RMR_BIND_COMPLETION_EVENT);
    HOLDS(event.event_data.rmr_completion_event_data.user_cookie.as_64 == 9);
    OK(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
    HOLDS(param.rmr_scope == DAT_RMR_SCOPE_PZ && param.va_type == DAT_VA_TYPE_VA);
    HOLDS(param.rmr_context == window && param.lmr_triplet.segment_length == 128);
    OK(dat_rmr_free(rmr));
}

/* The time of day in nanoseconds. */
static DAT_UINT64 now(void)
{
    struct timespec time;

    HOLDS(clock_gettime(CLOCK_REALTIME, &time) == 0);
    return (DAT_UINT64)time.tv_sec * 1000000000 + (DAT_UINT64)time.tv_nsec;
}

/*
 * Events with the time at which the device wrote their completions. The last transfers:
 * the EVD keeps time stamps from here on.
 */
static void with_times(void)
{
    /* What the emulated device's conversion is away from the time of day, at most. */
    const DAT_UINT64 away = 100000;
    const char *path = getenv("DAT_PATH");
    DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    DAT_LMR_TRIPLET from = local(0, 64);
    DAT_RMR_TRIPLET peer = remote(2048, 64);
    DAT_DTO_COOKIE cookie;
    DAT_UINT64 begin, end, stamp, last = 0;
    DAT_EVENT event;
    DAT_COUNT more;

    if (path && strcmp(path, "verbs") == 0) {
        UNSUPPORTED(dat_evd_dequeue_timestamped(transfers, &event, &stamp));
        UNSUPPORTED(dat_evd_wait_timestamped(transfers, SECONDS(1), 1, &event, &more, &stamp));
        return;
    }
    EXPECT(dat_evd_dequeue_timestamped(transfers, &event, &stamp), DAT_QUEUE_EMPTY,
           DAT_NO_SUBTYPE);
    for (int round = 0; round < 20; round++) {
        begin = now();
        cookie.as_64 = 100 + (DAT_UINT64)round;
        OK(dat_ep_post_rdma_write(active, 1, &from, cookie, &peer, flags));
        if (round % 2) {
            OK(dat_evd_wait_timestamped(transfers, SECONDS(60), 1, &event, &more, &stamp));
        } else {
            while (DAT_GET_TYPE(dat_evd_dequeue_timestamped(transfers, &event, &stamp)) !=
                   DAT_SUCCESS)
                HOLDS(now() < begin + 60 * (DAT_UINT64)1000000000);
        }
        end = now();
        HOLDS(event.event_data.dto_completion_event_data.user_cookie.as_64 == cookie.as_64);
        HOLDS(begin <= stamp + away && stamp <= end + away);
        HOLDS(last <= stamp);
        last = stamp;
    }
}

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data;
    (void)evd;
}

/* The attributes of an endpoint that was created without any. */
static DAT_EP_ATTR default_attributes(void)
{
    DAT_EP_PARAM param;

    OK(dat_ep_query(active, DAT_EP_FIELD_ALL, &param));
    param.ep_attr.srq_soft_hw = 0;
    return param.ep_attr;
}

static void with_a_descriptor(void)
{
    DAT_FD fd;
    DAT_CNO_HANDLE cno;
    DAT_CNO_PARAM param;
    DAT_EVD_HANDLE software, triggered;
    DAT_EVENT event, posted;
    struct pollfd polled;

    OK(dat_cno_fd_create(ia, &fd, &cno));
    OK(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
    HOLDS(param.proxy_type == DAT_PROXY_TYPE_FD && param.proxy.fd == fd);
    OK(dat_evd_create(ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &software));
    OK(dat_cno_fd_arm(cno));
    polled.fd = fd;
    polled.events = POLLIN;
    HOLDS(poll(&polled, 1, 0) == 0);
    EXPECT(dat_cno_trigger(cno, &triggered), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
    memset(&posted, 0, sizeof posted);
    posted.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(software, &posted));
    HOLDS(poll(&polled, 1, 10000) == 1);
    OK(dat_cno_trigger(cno, &triggered));
    HOLDS(triggered == software && poll(&polled, 1, 0) == 0);
    OK(dat_evd_dequeue(software, &event));
    EXPECT(dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
    OK(dat_evd_free(software));
    OK(dat_cno_free(cno));
}

static void other_objects(void)
{
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_ATTR srq_attr = {16, 1, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_PARAM srq_param;
    DAT_EP_ATTR ep_attr;
    DAT_EP_HANDLE ep;
    DAT_CNO_HANDLE cno;
    DAT_CNO_PARAM cno_param;
    DAT_OS_WAIT_PROXY_AGENT proxy = {&ia, agent};
    DAT_FD fd;
    DAT_EVD_HANDLE software;
    DAT_RMR_HANDLE rmr;
    DAT_CSP_HANDLE csp;
    DAT_COMM comm = {0, 0, 0};
    DAT_CONTEXT cookie;
    DAT_HA_RELATIONSHIP related;
    const char *major, *minor;

    OK(dat_srq_create(ia, pz, &srq_attr, &srq));
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &srq_param));
    HOLDS(srq_param.srq_state == DAT_SRQ_STATE_OPERATIONAL);
    /* An SRQ in use stays operational; one that was freed is not one that was shut down. */
    ep_attr = default_attributes();
    OK(dat_ep_create_with_srq(ia, pz, transfers, transfers, connections, srq, &ep_attr, &ep));
    EXPECT(dat_srq_free(srq), DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_SRQ_STATE, &srq_param));
    HOLDS(srq_param.srq_state == DAT_SRQ_STATE_OPERATIONAL);
    OK(dat_ep_free(ep));
    OK(dat_srq_free(srq));
    EXPECT(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &srq_param), DAT_INVALID_HANDLE,
           DAT_INVALID_HANDLE_SRQ);
    EXPECT(dat_ep_create_with_srq(ia, pz, transfers, transfers, connections, srq, &ep_attr, &ep),
           DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ);
    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &cno_param));
    HOLDS(cno_param.ia_handle == ia && cno_param.proxy_type == DAT_PROXY_TYPE_NONE);
    OK(dat_cno_modify_agent(cno, proxy));
    OK(dat_cno_query(cno, DAT_CNO_FIELD_PROXY, &cno_param));
    HOLDS(cno_param.proxy_type == DAT_PROXY_TYPE_AGENT);
    HOLDS(cno_param.proxy.agent.proxy_agent_func == agent);
    EXPECT(dat_cno_trigger(cno, &software), DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    OK(dat_cno_free(cno));
    with_a_descriptor();

    cookie.as_64 = 0;
    UNSUPPORTED(dat_rmr_create_for_ep(pz, &rmr));
    UNSUPPORTED(dat_csp_create(ia, &comm, attr.ia_address_ptr, requests, &csp));
    EXPECT(dat_csp_free(pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CSP);
    EXPECT(dat_csp_query(pz, DAT_CSP_FIELD_ALL, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CSP);
    UNSUPPORTED(dat_ep_common_connect(active, attr.ia_address_ptr, SECONDS(1), 0, NULL));
    UNSUPPORTED(dat_ep_post_send_with_invalidate(active, 0, NULL, cookie,
                                                 DAT_COMPLETION_DEFAULT_FLAG, DAT_TRUE, 1));
    UNSUPPORTED(dat_ep_post_rdma_read_to_rmr(active, NULL, cookie, NULL,
                                             DAT_COMPLETION_DEFAULT_FLAG));
    UNSUPPORTED(dat_registry_providers_related("a", "b", &related));
    EXPECT(dat_extension_op(active, 0x4711), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    EXPECT(dat_cno_fd_create(pz, &fd, &cno), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);

    OK(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1, &major, &minor));
    HOLDS(strcmp(major, "DAT_INVALID_PARAMETER") == 0 && strcmp(minor, "DAT_INVALID_ARG1") == 0);
    OK(dat_strerror(DAT_PORT_IN_USE, &major, &minor));
    HOLDS(strcmp(major, "DAT_PORT_IN_USE") == 0 && strcmp(minor, "") == 0);
}

int main(int argc, char **argv)
{
    DAT_EVENT event;

    HOLDS(argc == 2);
    open_all(argv[1]);
    connect_both();
    transfer_all();
    bind_a_window();
    with_times();
    other_objects();
    OK(dat_ep_disconnect(active, DAT_CLOSE_GRACEFUL_FLAG));
    for (int side = 0; side < 2; side++)
        HOLDS(next(connections).event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
    EXPECT(dat_evd_dequeue(connections, &event), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    EXPECT(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    printf("well\n");
    return 0;
}
