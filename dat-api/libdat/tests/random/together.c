/* Combinations of several calls, which give the other calls objects to work
 * on. */
#include "calls.h"

/* Requests that would complete if no other thread interfered. */
static void traffic(struct thread *t, unsigned which, DAT_EP_HANDLE active, DAT_EP_HANDLE passive)
{
    for (unsigned turn = below(t, 12); turn > 0; turn--) {
        DAT_VADDR from = (DAT_VADDR)(uintptr_t)memory[t->number];
        DAT_LMR_TRIPLET local = { 0 };
        DAT_RMR_TRIPLET there = { 0 };
        local.lmr_context = t->kit[which][0];
        local.virtual_address = from + below(t, BYTES / 2);
        local.segment_length = below(t, 2000);
        there.rmr_context = t->kit[which][1];
        there.RMR_ADDRESS = from + below(t, BYTES / 2);
        there.segment_length = local.segment_length;
#if UDAPL == 2
        if (one_in(t, 4))
            extended_traffic(t, active, local, there);
#endif
        switch (below(t, 4)) {
        case 0: dat_ep_post_recv(passive, 1, &local, cookie(t), DAT_COMPLETION_DEFAULT_FLAG); break;
        case 1: dat_ep_post_send(active, 1, &local, cookie(t), completion(t)); break;
        case 2: t->good[AT_ep_post_rdma_write] += dat_ep_post_rdma_write(active, 1, &local, cookie(t), &there,
                                                          completion(t)) == DAT_SUCCESS; break;
        default: t->good[AT_ep_post_rdma_read] += dat_ep_post_rdma_read(active, 1, &local, cookie(t), &there,
                                                         completion(t)) == DAT_SUCCESS; break;
        }
    }
}

/*
 * Two endpoints of this thread, connected unless other threads interfere, so
 * that requests are also executed.
 */
CALL(pair)
{
    unsigned which = below(t, 2);
    DAT_IA_HANDLE ia = adapters[which];
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE evd;
    DAT_EP_HANDLE active, passive;
    DAT_PSP_HANDLE psp;
    DAT_LMR_HANDLE lmr;
    DAT_CONN_QUAL free_one;
    DAT_REGION_DESCRIPTION region = { .for_va = memory[t->number] };
    const DAT_EP_ATTR attr = {
        .max_message_size = 65536, .max_rdma_size = 65536, .max_recv_dtos = 16,
        .max_request_dtos = 16, .max_recv_iov = 4, .max_request_iov = 4,
        .max_rdma_read_in = 4, .max_rdma_read_out = 4, .max_rdma_read_iov = 4,
        .max_rdma_write_iov = 4,
    };
    DAT_EVENT event;
    DAT_COUNT more;
    *sort = OWN;
    for (enum kind kind = 0; kind < KINDS; kind++)
        if (t->pools[kind].count + 2 > MOST)
            return DAT_SUCCESS;
    pz = t->zone[which];
    if (pz == NULL || home(t, PZ, pz) != ia) {
        if (!DONE(dat_pz_create(ia, &pz)))
            return DAT_SUCCESS;
        keep(t, PZ, pz, ia, 1);
        t->zone[which] = pz;
        t->kit[which][0] = 0;
    }
    if (one_in(t, 3) || t->kit[which][0] == 0 || home(t, LMR, t->known[which]) != ia) {
        if (!DONE(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, BYTES, pz,
                                 DAT_MEM_PRIV_ALL_FLAG, VIRTUAL &lmr, &t->kit[which][0],
                                 &t->kit[which][1], NULL, NULL)))
            return DAT_SUCCESS;
        keep(t, LMR, lmr, ia, 0);
        t->known[which] = lmr;
    }
    if (!DONE(dat_evd_create(ia, 400, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG, &evd)))
        return DAT_SUCCESS;
    keep(t, EVD, evd, ia, 0);
    if (!DONE(dat_ep_create(ia, pz, evd, evd, evd, &attr, &active)))
        return DAT_SUCCESS;
    keep(t, EP, active, ia, 0);
    if (!DONE(dat_ep_create(ia, pz, evd, evd, evd, &attr, &passive)))
        return DAT_SUCCESS;
    keep(t, EP, passive, ia, 0);
    if (!DONE(dat_psp_create_any(ia, &free_one, evd, DAT_PSP_CONSUMER_FLAG, &psp)))
        return DAT_SUCCESS;
    keep(t, PSP, psp, ia, 1);
    if (!DONE(dat_ep_connect(active, (DAT_IA_ADDRESS_PTR)&here, free_one, 2000000, 0, NULL,
                             DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG)))
        return DAT_SUCCESS;
    for (int turn = 0; turn < 3; turn++) {
        if (!DONE(dat_evd_wait(evd, 1000000, 1, &event, &more)))
            break;
        if (event.event_number == DAT_CONNECTION_REQUEST_EVENT) {
            DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
            if (!DONE(dat_cr_accept(cr, passive, 0, NULL))) {
                keep(t, CR, cr, ia, 0);
                break;
            }
        }
    }
    traffic(t, which, active, passive);
    return DAT_SUCCESS;
}

DAT_RETURN end(enum kind kind, DAT_HANDLE handle)
{
    switch (kind) {
    case CR: return dat_cr_reject(handle NO_DATA);
    case RSP: return dat_rsp_free(handle);
    case PSP: return dat_psp_free(handle);
    case EP: return dat_ep_free(handle);
    case RMR: return dat_rmr_free(handle);
    case LMR: return dat_lmr_free(handle);
    case SRQ: return dat_srq_free(handle);
    case EVD: return dat_evd_free(handle);
    case CNO: return dat_cno_free(handle);
    case PZ: return dat_pz_free(handle);
    default: return DAT_CLASS_ERROR;
    }
}

/* Frees most objects of this thread, to make room. */
CALL(tidy)
{
    static const enum kind order[] = { CR, RSP, PSP, EP, RMR, LMR, SRQ, EVD, CNO, PZ };
    *sort = OWN;
    for (unsigned kind = 0; kind < sizeof order / sizeof *order; kind++) {
        struct pool *pool = &t->pools[order[kind]];
        for (int at = pool->count - 1; at >= 0; at--) {
            DAT_HANDLE handle = pool->items[at].handle;
            DAT_RETURN answer;
            if (one_in(t, 4))
                continue;
            answer = end(order[kind], handle);
            if (answer == DAT_SUCCESS || DAT_GET_TYPE(answer) == DAT_INVALID_HANDLE)
                lose(t, order[kind], handle);
        }
    }
    return DAT_SUCCESS;
}
