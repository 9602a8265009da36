/* Endpoints, service points and requests to connect. */
#include "calls.h"

static void attributes(struct thread *t, DAT_EP_ATTR *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->max_message_size = one_in(t, 20) ? draw(t) : 4096;
    attr->max_rdma_size = one_in(t, 20) ? draw(t) : 65536;
    attr->recv_completion_flags = one_in(t, 2) ? DAT_COMPLETION_DEFAULT_FLAG : completion(t);
    attr->request_completion_flags = one_in(t, 2) ? DAT_COMPLETION_DEFAULT_FLAG : completion(t);
    attr->max_recv_dtos = one_in(t, 10) ? count(t) : 16;
    attr->max_request_dtos = one_in(t, 10) ? count(t) : 16;
    attr->max_recv_iov = one_in(t, 10) ? count(t) : 4;
    attr->max_request_iov = one_in(t, 10) ? count(t) : 4;
    attr->max_rdma_read_in = one_in(t, 10) ? count(t) : 4;
    attr->max_rdma_read_out = one_in(t, 10) ? count(t) : 4;
    attr->srq_soft_hw = one_in(t, 2) ? 0 : one_in(t, 2) ? DAT_WATERMARK_INFINITE : count(t);
    attr->max_rdma_read_iov = one_in(t, 10) ? count(t) : 1;
    attr->max_rdma_write_iov = one_in(t, 10) ? count(t) : 1;
    attr->qos = one_in(t, 30) ? (DAT_QOS)below(t, 20) : DAT_QOS_BEST_EFFORT;
}

static DAT_EVD_HANDLE some_evd(struct thread *t, DAT_IA_HANDLE ia)
{
    return one_in(t, 10) ? DAT_HANDLE_NULL : mate(t, EVD, ia, 1);
}
CALL(ep_create)
{
    DAT_EP_HANDLE ep;
    DAT_EP_ATTR attr;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer;
    attributes(t, &attr);
    answer = dat_ep_create(ia, one_in(t, 12) ? DAT_HANDLE_NULL : mate(t, PZ, ia, 1),
                           some_evd(t, ia), some_evd(t, ia), some_evd(t, ia),
                           one_in(t, 2) ? NULL : &attr, PLACE(ep));
    if (DONE(answer))
        keep(t, EP, ep, ia, 0);
    return answer;
}
CALL(ep_create_with_srq)
{
    DAT_EP_HANDLE ep;
    DAT_EP_ATTR attr;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer;
    attributes(t, &attr);
    answer = dat_ep_create_with_srq(ia, one_in(t, 12) ? DAT_HANDLE_NULL : mate(t, PZ, ia, 1),
                                    some_evd(t, ia), some_evd(t, ia), some_evd(t, ia),
                                    mate(t, SRQ, ia, 1), PLACE(attr), PLACE(ep));
    if (DONE(answer))
        keep(t, EP, ep, ia, 0);
    return answer;
}
CALL(ep_query)
{
    DAT_EP_PARAM param;
    return dat_ep_query(pick(t, EP, 0, sort), one_in(t, 3) ? DAT_EP_FIELD_ALL : draw(t),
                        PLACE(param));
}
CALL(ep_modify)
{
    DAT_EP_PARAM param;
    DAT_EP_HANDLE ep = pick(t, EP, 0, sort);
    memset(&param, 0, sizeof param);
    attributes(t, &param.ep_attr);
    param.pz_handle = mate(t, PZ, home(t, EP, ep), 1);
    param.recv_evd_handle = some_evd(t, home(t, EP, ep));
    param.request_evd_handle = some_evd(t, home(t, EP, ep));
    param.connect_evd_handle = some_evd(t, home(t, EP, ep));
    param.srq_handle = pick(t, SRQ, 1, NULL);
    param.ep_attr.ep_transport_specific_count = one_in(t, 20) ? -1 : 0;
    return dat_ep_modify(ep,
                         one_in(t, 2) ? DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE |
                                            DAT_EP_FIELD_REQUEST_EVD_HANDLE |
                                            DAT_EP_FIELD_CONNECT_EVD_HANDLE
                         : one_in(t, 2) ? UINT64_C(1) << below(t, 32)
                                        : draw(t) & draw(t) & draw(t),
                         PLACE(param));
}
CALL(ep_connect)
{
    struct sockaddr_storage to = here;
    static char data[512];
    if (one_in(t, 10))
        to.ss_family = (sa_family_t)draw(t);
    return dat_ep_connect(pick(t, EP, 0, sort), one_in(t, 30) ? NULL : (DAT_IA_ADDRESS_PTR)&to,
                          qualifier(t), one_in(t, 10) ? 0 : 1000 + below(t, 50000),
                          one_in(t, 4) ? count(t) % 512 : 0, one_in(t, 4) ? NULL : data,
                          one_in(t, 20) ? (DAT_QOS)below(t, 20) : DAT_QOS_BEST_EFFORT,
                          one_in(t, 20) ? (DAT_CONNECT_FLAGS)below(t, 4)
                                        : DAT_CONNECT_DEFAULT_FLAG);
}
CALL(ep_dup_connect)
{
    static char data[512];
    DAT_EP_HANDLE model = pick(t, EP, 0, NULL);
    return dat_ep_dup_connect(pick(t, EP, 0, sort), model, 1000 + below(t, 50000),
                              one_in(t, 4) ? count(t) % 512 : 0, one_in(t, 4) ? NULL : data,
                              DAT_QOS_BEST_EFFORT);
}
CALL(ep_disconnect)
{
    return dat_ep_disconnect(pick(t, EP, 0, sort), (DAT_CLOSE_FLAGS)below(t, 3));
}
CALL(ep_get_status)
{
    DAT_EP_STATE state;
    DAT_BOOLEAN receives, requests;
    return dat_ep_get_status(pick(t, EP, 0, sort), PLACE(state), PLACE(receives),
                             PLACE(requests));
}
CALL(ep_set_watermark)
{
    return dat_ep_set_watermark(pick(t, EP, 0, sort), count(t), count(t));
}
CALL(ep_reset) { return dat_ep_reset(pick(t, EP, 0, sort)); }
CALL(ep_free)
{
    DAT_EP_HANDLE ep = pick(t, EP, 0, sort);
    DAT_RETURN answer;
    if (*sort == OWN && !one_in(t, 3))
        return DAT_SUCCESS;
    answer = dat_ep_free(ep);
    if (DONE(answer))
        lose(t, EP, ep);
    return answer;
}

QUERY(cr, CR, 0)
CALL(cr_accept)
{
    DAT_CR_HANDLE cr = pick(t, CR, 0, sort);
    DAT_EP_HANDLE ep = one_in(t, 3) ? DAT_HANDLE_NULL : pick(t, EP, 0, NULL);
    static char data[512];
    DAT_RETURN answer = dat_cr_accept(cr, ep, one_in(t, 4) ? count(t) % 512 : 0,
                                      one_in(t, 4) ? NULL : data);
    if (DONE(answer))
        lose(t, CR, cr);
    return answer;
}
#if UDAPL == 2
CALL(cr_reject)
{
    DAT_CR_HANDLE cr = pick(t, CR, 0, sort);
    static char data[512];
    DAT_RETURN answer = dat_cr_reject(cr, one_in(t, 4) ? count(t) % 512 : 0,
                                      one_in(t, 4) ? NULL : data);
    if (DONE(answer))
        lose(t, CR, cr);
    return answer;
}
#else
ENDING(cr_reject, CR)
#endif
CALL(cr_handoff)
{
    DAT_CR_HANDLE cr = pick(t, CR, 0, sort);
    DAT_RETURN answer = dat_cr_handoff(cr, qualifier(t));
    if (DONE(answer))
        lose(t, CR, cr);
    return answer;
}

CALL(psp_create)
{
    DAT_PSP_HANDLE psp;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_psp_create(ia, qualifier(t), mate(t, EVD, ia, 0),
                                       (DAT_PSP_FLAGS)below(t, 3), PLACE(psp));
    if (DONE(answer))
        keep(t, PSP, psp, ia, 1);
    return answer;
}
CALL(psp_create_any)
{
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL found;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_psp_create_any(ia, PLACE(found), mate(t, EVD, ia, 0),
                                           (DAT_PSP_FLAGS)below(t, 3), PLACE(psp));
    if (DONE(answer))
        keep(t, PSP, psp, ia, 1);
    return answer;
}
QUERY(psp, PSP, 1)
ENDING(psp_free, PSP)

CALL(rsp_create)
{
    DAT_RSP_HANDLE rsp;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_EP_HANDLE ep = mate(t, EP, ia, 0);
    DAT_RETURN answer = dat_rsp_create(ia, qualifier(t), ep, mate(t, EVD, ia, 0), PLACE(rsp));
    if (DONE(answer))
        keep(t, RSP, rsp, ia, 0);
    return answer;
}
QUERY(rsp, RSP, 0)
CALL(rsp_free)
{
    DAT_RSP_HANDLE rsp = pick(t, RSP, 0, sort);
    DAT_RETURN answer = dat_rsp_free(rsp);
    /* A request that has used up its endpoint ends it as well. */
    if (*sort == OWN)
        lose(t, RSP, rsp);
    return answer;
}
