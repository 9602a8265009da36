/* Objects: creating, changing and freeing them, and events without a peer. */
#include "memory.h"

static void open_and_close(void)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;
    DAT_IA_HANDLE other;
    REFUSABLE(dat_ia_open("mlx5_0", 8, &errors, &other));
    OK(dat_ia_close(other, DAT_CLOSE_GRACEFUL_FLAG));
}

static void closing(DAT_CLOSE_FLAGS flags)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL, evd;
    DAT_IA_HANDLE other;
    DAT_PZ_HANDLE zone;
    DAT_CNO_HANDLE cno;
    DAT_EP_HANDLE ep;
    DAT_PSP_HANDLE point;
    DAT_CONN_QUAL its;
    OK(dat_ia_open("mlx5_0", 8, &errors, &other));
    if (flags == DAT_CLOSE_ABRUPT_FLAG) {
        OK(dat_pz_create(other, &zone));
        OK(dat_cno_create(other, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
        OK(dat_evd_create(other, 8, cno,
                          DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &evd));
        OK(dat_ep_create(other, zone, evd, evd, evd, NULL, &ep));
        OK(dat_psp_create_any(other, &its, evd, DAT_PSP_CONSUMER_FLAG, &point));
    }
    ENDING(dat_ia_close(other, flags));
}

static void close_gracefully(void) { closing(DAT_CLOSE_GRACEFUL_FLAG); }
static void close_abruptly(void) { closing(DAT_CLOSE_ABRUPT_FLAG); }

static void zone(void)
{
    DAT_PZ_HANDLE made;
    DAT_PZ_PARAM param;
    REFUSABLE(dat_pz_create(ia, &made));
    OK(dat_pz_query(made, DAT_PZ_FIELD_ALL, &param));
    OK(dat_pz_free(made));
}

static void zone_free(void)
{
    DAT_PZ_HANDLE made;
    OK(dat_pz_create(ia, &made));
    ENDING(dat_pz_free(made));
}

static DAT_RETURN registers(DAT_LMR_HANDLE *made)
{
    DAT_REGION_DESCRIPTION region = {.for_va = memory};
    DAT_LMR_CONTEXT context;
    return dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                          DAT_MEM_PRIV_ALL_FLAG, VIRTUAL made, &context, NULL, NULL, NULL);
}

static void region(void)
{
    DAT_LMR_HANDLE made;
    REFUSABLE(registers(&made));
    OK(dat_lmr_free(made));
}

static void region_free(void)
{
    DAT_LMR_HANDLE made;
    OK(registers(&made));
    ENDING(dat_lmr_free(made));
}

static void window(void)
{
    DAT_RMR_HANDLE made;
    REFUSABLE(dat_rmr_create(pz, &made));
    OK(dat_rmr_free(made));
}

static void window_free(void)
{
    DAT_RMR_HANDLE made;
    OK(dat_rmr_create(pz, &made));
    ENDING(dat_rmr_free(made));
}

static void notifier(void)
{
    DAT_CNO_HANDLE made;
    REFUSABLE(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made));
    OK(dat_cno_free(made));
}

static void notifier_free(void)
{
    DAT_CNO_HANDLE made;
    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made));
    ENDING(dat_cno_free(made));
}

static void called(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
}

static void notifier_with_agent(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = {.proxy_agent_func = called};
    DAT_CNO_HANDLE made;
    EITHER(dat_cno_create(ia, agent, &made), true);
    OK(dat_cno_free(made));
}

static bool has_agent(DAT_CNO_HANDLE cno)
{
    DAT_CNO_PARAM param;
    OK(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
#if UDAPL == 2
    return param.proxy_type == DAT_PROXY_TYPE_AGENT;
#else
    return param.agent.proxy_agent_func != NULL;
#endif
}

static void notifier_agent(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = {.proxy_agent_func = called};
    DAT_CNO_HANDLE made;
    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made));
    EITHER(dat_cno_modify_agent(made, agent), !has_agent(made));
    HOLDS(has_agent(made));
    OK(dat_cno_free(made));
}

static void notifier_wait(void)
{
    DAT_CNO_HANDLE made;
    DAT_EVD_HANDLE evd, found;
    DAT_EVENT event = {.event_number = DAT_SOFTWARE_EVENT};
    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made));
    OK(dat_evd_create(ia, 8, made, DAT_EVD_SOFTWARE_FLAG, &evd));
    OK(dat_evd_post_se(evd, &event));
    ENDING(dat_cno_wait(made, LONG, &found));
    OK(dat_evd_free(evd));
    OK(dat_cno_free(made));
}

static void notifier_with_fd(void)
{
    DAT_CNO_HANDLE made;
    DAT_FD fd;
    DAT_EVD_HANDLE evd, found;
    DAT_EVENT event = {.event_number = DAT_SOFTWARE_EVENT};
    EITHER(dat_cno_fd_create(ia, &fd, &made), true);
    OK(dat_evd_create(ia, 8, made, DAT_EVD_SOFTWARE_FLAG, &evd));
    OK(dat_evd_post_se(evd, &event));
    ENDING(dat_cno_trigger(made, &found));
    HOLDS(found == evd);
    ENDING(dat_cno_fd_arm(made));
    OK(dat_evd_free(evd));
    OK(dat_cno_free(made));
}

static void dispatcher_of(DAT_EVD_FLAGS flags)
{
    DAT_EVD_HANDLE made;
    REFUSABLE(dat_evd_create(ia, 64, DAT_HANDLE_NULL, flags, &made));
    OK(dat_evd_free(made));
}

static void dispatcher(void) { dispatcher_of(DAT_EVD_DTO_FLAG); }
static void software_dispatcher(void) { dispatcher_of(DAT_EVD_SOFTWARE_FLAG); }

static void dispatcher_free(void)
{
    DAT_EVD_HANDLE made;
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &made));
    ENDING(dat_evd_free(made));
}

static DAT_COUNT length_of(DAT_EVD_HANDLE evd)
{
    DAT_EVD_PARAM param;
    OK(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
    return param.evd_qlen;
}

static DAT_CNO_HANDLE notifier_of(DAT_EVD_HANDLE evd)
{
    DAT_EVD_PARAM param;
    OK(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
    return param.cno_handle;
}

static void dispatcher_resize(void)
{
    DAT_EVD_HANDLE made;
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG, &made));
    EITHER(dat_evd_resize(made, 4000), length_of(made) < 4000);
    HOLDS(length_of(made) >= 4000);
    EITHER(dat_evd_resize(made, 10), length_of(made) >= 4000);
    HOLDS(length_of(made) < 4000);
    OK(dat_evd_free(made));
}

static void dispatcher_notifier(void)
{
    DAT_EVD_HANDLE made;
    DAT_CNO_HANDLE cno;
    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &made));
    REFUSABLE_IF(dat_evd_modify_cno(made, cno), notifier_of(made) == DAT_HANDLE_NULL);
    HOLDS(notifier_of(made) == cno);
    REFUSABLE_IF(dat_evd_modify_cno(made, DAT_HANDLE_NULL), notifier_of(made) == cno);
    OK(dat_cno_free(cno));
    OK(dat_evd_free(made));
}

static void dispatcher_switches(void)
{
    REFUSABLE(dat_evd_disable(dto));
    REFUSABLE(dat_evd_enable(dto));
    REFUSABLE(dat_evd_set_unwaitable(dto));
    REFUSABLE(dat_evd_clear_unwaitable(dto));
}

/* Posts and waits have no way back: what they allocate comes from the pool. */
static void software_event(void)
{
    DAT_EVD_HANDLE made;
    DAT_EVENT event = {.event_number = DAT_SOFTWARE_EVENT};
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &made));
    ENDING(dat_evd_post_se(made, &event));
    HOLDS(next(made).event_number == DAT_SOFTWARE_EVENT);
    OK(dat_evd_free(made));
}

static void waiting(void)
{
    DAT_EVD_HANDLE made;
    DAT_EVENT event = {.event_number = DAT_SOFTWARE_EVENT};
    DAT_COUNT more;
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &made));
    OK(dat_evd_post_se(made, &event));
    OK(dat_evd_post_se(made, &event));
    ENDING(dat_evd_wait(made, LONG, 2, &event, &more));
    ENDING(dat_evd_dequeue(made, &event));
    OK(dat_evd_free(made));
}

static void an_endpoint(void)
{
    DAT_EP_HANDLE made;
    REFUSABLE(dat_ep_create(ia, pz, dto, dto, connections, NULL, &made));
    OK(dat_ep_free(made));
}

static void endpoint_free(void)
{
    DAT_EP_HANDLE made = endpoint();
    ENDING(dat_ep_free(made));
}

static DAT_COUNT receives_of(DAT_EP_HANDLE ep)
{
    DAT_EP_PARAM param;
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    return param.ep_attr.max_recv_dtos;
}

static void endpoint_modify(void)
{
    DAT_EP_HANDLE made = endpoint();
    DAT_EP_PARAM param;
    DAT_COUNT before;
    OK(dat_ep_query(made, DAT_EP_FIELD_ALL, &param));
    before = param.ep_attr.max_recv_dtos;
    param.ep_attr.max_recv_dtos = before + 13;
    EITHER(dat_ep_modify(made, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &param),
                 receives_of(made) == before);
    HOLDS(receives_of(made) >= before + 13);
    OK(dat_ep_free(made));
}

static void shared_queue(void)
{
    DAT_SRQ_ATTR attributes = {16, 1, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_HANDLE made;
    DAT_SRQ_PARAM param;
    REFUSABLE(dat_srq_create(ia, pz, &attributes, &made));
    REFUSABLE(dat_srq_query(made, DAT_SRQ_FIELD_ALL, &param));
    OK(dat_srq_free(made));
}

static void shared_queue_resize(void)
{
    DAT_SRQ_ATTR attributes = {16, 1, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_HANDLE made;
    DAT_SRQ_PARAM param;
    OK(dat_srq_create(ia, pz, &attributes, &made));
    /* A ConnectX holds what its size was rounded up to, and no more. */
    REFUSABLE(dat_srq_resize(made, 20));
    OK(dat_srq_query(made, DAT_SRQ_FIELD_ALL, &param));
    HOLDS(param.max_recv_dtos >= 20);
    EITHER(dat_srq_set_lw(made, 2), true);
    OK(dat_srq_free(made));
}

static void shared_queue_free(void)
{
    DAT_SRQ_ATTR attributes = {16, 1, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_HANDLE made;
    OK(dat_srq_create(ia, pz, &attributes, &made));
    ENDING(dat_srq_free(made));
}

static void endpoint_on_shared_queue(void)
{
    DAT_SRQ_ATTR attributes = {16, 1, DAT_SRQ_LW_DEFAULT};
    DAT_EP_PARAM param;
    DAT_SRQ_HANDLE srq;
    DAT_EP_HANDLE model = endpoint(), made;
    OK(dat_srq_create(ia, pz, &attributes, &srq));
    OK(dat_ep_query(model, DAT_EP_FIELD_ALL, &param));
    REFUSABLE(dat_ep_create_with_srq(ia, pz, dto, dto, connections, srq, &param.ep_attr, &made));
    OK(dat_ep_free(made));
    OK(dat_ep_free(model));
    OK(dat_srq_free(srq));
}

static void listener(void)
{
    DAT_PSP_HANDLE made;
    DAT_CONN_QUAL its;
    REFUSABLE(dat_psp_create_any(ia, &its, requests, DAT_PSP_CONSUMER_FLAG, &made));
    OK(dat_psp_free(made));
    REFUSABLE(dat_psp_create(ia, its, requests, DAT_PSP_PROVIDER_FLAG, &made));
    OK(dat_psp_free(made));
}

static void listener_free(void)
{
    DAT_PSP_HANDLE made;
    DAT_CONN_QUAL its;
    OK(dat_psp_create_any(ia, &its, requests, DAT_PSP_CONSUMER_FLAG, &made));
    ENDING(dat_psp_free(made));
}

static void reservation(void)
{
    DAT_RSP_HANDLE made;
    DAT_EP_HANDLE ep = endpoint();
    DAT_PSP_HANDLE before;
    DAT_CONN_QUAL its;
    OK(dat_psp_create_any(ia, &its, requests, DAT_PSP_CONSUMER_FLAG, &before));
    OK(dat_psp_free(before));
    REFUSABLE(dat_rsp_create(ia, its, ep, requests, &made));
    ENDING(dat_rsp_free(made));
    OK(dat_ep_free(ep));
}

const struct row object_rows[] = {
    ROW(open_and_close), ROW(close_gracefully), ROW(close_abruptly), ROW(zone), ROW(zone_free),
    ROW(region), ROW(region_free), ROW(window), ROW(window_free), ROW(notifier), ROW(notifier_free),
    ROW(notifier_with_agent), ROW(notifier_agent), ROW(notifier_wait),
    ROW(notifier_with_fd), ROW(dispatcher),
    ROW(software_dispatcher), ROW(dispatcher_free), ROW(dispatcher_resize),
    ROW(dispatcher_notifier), ROW(dispatcher_switches), ROW(software_event), ROW(waiting),
    ROW(an_endpoint), ROW(endpoint_free), ROW(endpoint_modify), ROW(shared_queue),
    ROW(shared_queue_resize), ROW(shared_queue_free), ROW(endpoint_on_shared_queue), ROW(listener),
    ROW(listener_free), ROW(reservation),
};
const size_t object_row_count = sizeof object_rows / sizeof *object_rows;
