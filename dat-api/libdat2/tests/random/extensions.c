/* The calls that only uDAPL 2.0 has, and the operations of its extensions. */
#include "calls.h"

#include <dat2/dat_ib_extensions.h>

/* No header of uDAPL declares it; other libraries of 2.0 export it. */
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE ia_handle, DAT_IA_HANDLE *provider_handle);

/* A call that the library does not support must say so, for every valid handle. */
static DAT_RETURN unsupported(struct thread *t, enum sort sort, DAT_RETURN answer)
{
    if (DAT_GET_TYPE(answer) == DAT_MODEL_NOT_SUPPORTED)
        return DAT_SUCCESS;
    if (answer == DAT_SUCCESS || (sort == OWN && DAT_GET_TYPE(answer) != DAT_INVALID_HANDLE))
        t->failed = "does not return DAT_MODEL_NOT_SUPPORTED";
    return answer;
}

/* Usually the contexts and an aligned place of this thread's memory. */
static void segments(struct thread *t, DAT_LMR_TRIPLET *local, DAT_RMR_TRIPLET *there,
                     unsigned most)
{
    DAT_VADDR from = (DAT_VADDR)(uintptr_t)memory[t->number];
    unsigned which = below(t, 2);

    memset(local, 0, sizeof *local);
    memset(there, 0, sizeof *there);
    local->lmr_context = one_in(t, 20) ? (DAT_LMR_CONTEXT)draw(t) : t->kit[which][0];
    local->virtual_address = one_in(t, 20) ? draw(t) : from + below(t, BYTES / 2);
    local->segment_length = one_in(t, 20) ? (DAT_SEG_LENGTH)draw(t)
                            : one_in(t, 10) ? below(t, 20) : most;
    there->rmr_context = one_in(t, 20) ? (DAT_RMR_CONTEXT)draw(t) : t->kit[which][1];
    there->virtual_address = one_in(t, 20) ? draw(t)
                             : from + below(t, BYTES / 16) * 8 + (one_in(t, 10) ? below(t, 8) : 0);
    there->segment_length = one_in(t, 20) ? (DAT_SEG_LENGTH)draw(t)
                            : one_in(t, 10) ? below(t, 20) : most;
}

CALL(write_immed)
{
    DAT_LMR_TRIPLET list[4];
    DAT_RMR_TRIPLET there;

    for (int at = 0; at < 4; at++)
        segments(t, &list[at], &there, below(t, 1000));
    there.segment_length = one_in(t, 8) ? below(t, 100) : 4000;
    return dat_ib_post_rdma_write_immed(pick(t, EP, 0, sort), listed(t),
                                        one_in(t, 20) ? NULL : list, cookie(t), PLACE(there),
                                        draw(t), completion(t));
}
CALL(fetch_and_add)
{
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET there;

    segments(t, &local, &there, 8);
    return dat_ib_post_fetch_and_add(pick(t, EP, 0, sort), draw(t), PLACE(local), cookie(t),
                                     PLACE(there), completion(t));
}
CALL(cmp_and_swap)
{
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET there;

    segments(t, &local, &there, 8);
    return dat_ib_post_cmp_and_swap(pick(t, EP, 0, sort), draw(t), draw(t), PLACE(local),
                                    cookie(t), PLACE(there), completion(t));
}
void extended_traffic(struct thread *t, DAT_EP_HANDLE active, DAT_LMR_TRIPLET local,
                      DAT_RMR_TRIPLET there)
{
    DAT_RETURN answer = dat_ib_post_rdma_write_immed(active, 1, &local, cookie(t), &there, 7,
                                                     completion(t));

    t->good[AT_write_immed] += DONE(answer);
    local.segment_length = there.segment_length = 8;
    there.virtual_address &= ~(DAT_VADDR)7;
    answer = dat_ib_post_fetch_and_add(active, 1, &local, cookie(t), &there, completion(t));
    t->good[AT_fetch_and_add] += DONE(answer);
    answer = dat_ib_post_cmp_and_swap(active, 1, 2, &local, cookie(t), &there, completion(t));
    t->good[AT_cmp_and_swap] += DONE(answer);
}
/* Opens an adapter, and closes it again. */
CALL(open_query)
{
    DAT_IA_HANDLE queried = NULL;
    DAT_IA_ATTR ia;
    DAT_PROVIDER_ATTR provider;
    DAT_RETURN answer;

    *sort = OWN;
    answer = dat_ib_open_query(one_in(t, 3) ? (char *)"nobody" : device, PLACE(queried),
                               one_in(t, 2) ? DAT_IA_FIELD_ALL : draw(t), PLACE(ia),
                               one_in(t, 2) ? DAT_PROVIDER_FIELD_ALL : draw(t), PLACE(provider));
    if (!DONE(answer))
        return answer;
    return dat_ib_close_query(queried);
}
/* Operations that the library does not have, and those that are none. */
CALL(extension_op)
{
    int operation = one_in(t, 2) ? (int)draw(t) : (int)below(t, 80);
    DAT_HANDLE handle = pick(t, (enum kind)below(t, KINDS), 1, sort);
    DAT_RETURN answer;

    switch (operation) {
    case DAT_IB_FETCH_AND_ADD_OP:
    case DAT_IB_CMP_AND_SWAP_OP:
    case DAT_IB_RDMA_WRITE_IMMED_OP:
    case DAT_IB_OPEN_QUERY_OP:
    case DAT_IB_CLOSE_QUERY_OP:
        operation = DAT_IB_UD_SEND_OP;
    }
    answer = dat_extension_op(handle, (DAT_EXTENDED_OP)operation);
    /* The operation is refused whatever the handle is. */
    if (answer == DAT_SUCCESS)
        t->failed = "an extension that does not exist succeeds";
    *sort = OWN;
    return DAT_GET_TYPE(answer) == DAT_MODEL_NOT_SUPPORTED ? DAT_SUCCESS : answer;
}

CALL(cno_fd_create)
{
    DAT_FD fd;
    DAT_CNO_HANDLE cno;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_cno_fd_create(ia, PLACE(fd), PLACE(cno));
    if (DONE(answer))
        keep(t, CNO, cno, ia, 1);
    return answer;
}
CALL(cno_trigger)
{
    DAT_EVD_HANDLE evd;
    DAT_CNO_HANDLE cno = pick(t, CNO, 1, sort);
    DAT_RETURN answer = dat_cno_trigger(cno, PLACE(evd));
    /* CNOs of dat_cno_create have no descriptor. */
    return DAT_GET_TYPE(answer) == DAT_INVALID_STATE ? DAT_SUCCESS : answer;
}
CALL(csp_create)
{
    DAT_COMM comm = { 0, 0, 0 };
    DAT_CSP_HANDLE csp;
    DAT_IA_HANDLE ia = adapter(t, sort);
    return unsupported(t, *sort,
                       dat_csp_create(ia, PLACE(comm), (DAT_IA_ADDRESS_PTR)&here,
                                      mate(t, EVD, ia, 0), PLACE(csp)));
}
/* No object is a common service point, so every handle is bad. */
static DAT_RETURN refused(struct thread *t, enum sort *sort, DAT_RETURN answer)
{
    *sort = OWN;
    if (DAT_GET_TYPE(answer) != DAT_INVALID_HANDLE)
        t->failed = "accepts a common service point";
    return DAT_SUCCESS;
}
CALL(csp_query)
{
    DAT_CSP_PARAM param;
    DAT_HANDLE handle = pick(t, (enum kind)below(t, KINDS), 1, sort);
    return refused(t, sort, dat_csp_query(handle, DAT_CSP_FIELD_ALL, PLACE(param)));
}
CALL(csp_free)
{
    return refused(t, sort, dat_csp_free(pick(t, (enum kind)below(t, KINDS), 1, sort)));
}
CALL(ep_common_connect)
{
    DAT_EP_HANDLE ep = pick(t, EP, 0, sort);
    return unsupported(t, *sort,
                       dat_ep_common_connect(ep, (DAT_IA_ADDRESS_PTR)&here, soon(t), 0, NULL));
}
CALL(ep_post_rdma_read_to_rmr)
{
    DAT_RMR_TRIPLET there;
    DAT_EP_HANDLE ep = pick(t, EP, 0, sort);
    memset(&there, 0, sizeof there);
    return unsupported(t, *sort,
                       dat_ep_post_rdma_read_to_rmr(ep, PLACE(there), cookie(t), PLACE(there),
                                                    completion(t)));
}
CALL(ep_post_send_with_invalidate)
{
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET there;
    DAT_EP_HANDLE ep = pick(t, EP, 0, sort);
    segments(t, &local, &there, 100);
    return unsupported(t, *sort,
                       dat_ep_post_send_with_invalidate(ep, 1, &local, cookie(t), completion(t),
                                                        below(t, 2), there.rmr_context));
}
CALL(registry_providers_related)
{
    DAT_HA_RELATIONSHIP related;
    *sort = OWN;
    return unsupported(t, OWN,
                       dat_registry_providers_related(device, (char *)"nobody", PLACE(related)));
}
CALL(rmr_create_for_ep)
{
    DAT_RMR_HANDLE rmr;
    DAT_PZ_HANDLE pz = pick(t, PZ, 1, sort);
    return unsupported(t, *sort, dat_rmr_create_for_ep(pz, PLACE(rmr)));
}
CALL(get_ia_handle)
{
    DAT_IA_HANDLE ia = adapter(t, sort), known = NULL;
    DAT_RETURN answer = dats_get_ia_handle(ia, PLACE(known));
    if (DONE(answer) && known != ia)
        t->failed = "the provider has another handle";
    return answer;
}
