/* Memory, shared receive queues, and posts. */
#include "calls.h"

static DAT_LMR_CONTEXT context(struct thread *t, int remote)
{
    return !one_in(t, 3) ? t->kit[below(t, 2)][remote]
           : one_in(t, 8) ? (DAT_LMR_CONTEXT)draw(t)
                        : __atomic_load_n(&contexts[remote][below(t, BOARD)], __ATOMIC_RELAXED);
}

/* Usually in this thread's memory, and before its end. */
static DAT_VADDR place(struct thread *t)
{
    unsigned whose = one_in(t, 6) ? below(t, THREADS) : t->number;
    return (DAT_VADDR)(uintptr_t)&memory[whose][below(t, one_in(t, 8) ? BYTES : BYTES / 2)];
}

static void segments(struct thread *t, DAT_LMR_TRIPLET *list)
{
    for (int at = 0; at < 4; at++) {
        memset(&list[at], 0, sizeof list[at]);
        list[at].lmr_context = context(t, 0);
        list[at].virtual_address = place(t);
        list[at].segment_length = one_in(t, 40) ? draw(t) : below(t, 3000);
    }
}

CALL(lmr_create)
{
    static char names[4][DAT_LMR_COOKIE_SIZE] = { "a", "b", "c", "d" };
    DAT_LMR_HANDLE lmr = NULL; /* optional */
    DAT_LMR_CONTEXT local = 0;
    DAT_RMR_CONTEXT there = 0;
    DAT_VLEN size;
    DAT_VADDR begin;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_MEM_TYPE type = one_in(t, 20) ? (DAT_MEM_TYPE)draw(t) : (DAT_MEM_TYPE)below(t, 3);
    unsigned at = below(t, BYTES);
    DAT_REGION_DESCRIPTION region;
    DAT_RETURN answer;
    memset(&region, 0, sizeof region);
    if (type == DAT_MEM_TYPE_LMR)
        region.for_lmr_handle = mate(t, LMR, ia, 0);
    else if (type == DAT_MEM_TYPE_SHARED_VIRTUAL) {
        region.for_shared_memory.virtual_address = &memory[t->number][at];
        region.for_shared_memory.shared_memory_id = one_in(t, 20) ? NULL : &names[below(t, 4)];
    } else
        region.for_va = one_in(t, 20) ? (DAT_PVOID)(uintptr_t)draw(t) : &memory[t->number][at];
    answer = dat_lmr_create(ia, type, region, one_in(t, 10) ? draw(t) : BYTES - at,
                            mate(t, PZ, ia, 1),
                            one_in(t, 2) ? DAT_MEM_PRIV_ALL_FLAG
                            : one_in(t, 8) ? (DAT_MEM_PRIV_FLAGS)draw(t)
                                           : (DAT_MEM_PRIV_FLAGS)draw(t) & DAT_MEM_PRIV_ALL_FLAG,
#if UDAPL == 2
                            one_in(t, 20) ? (DAT_VA_TYPE)below(t, 3) : DAT_VA_TYPE_VA,
#endif
                            PLACE(lmr), PLACE(local), PLACE(there), PLACE(size), PLACE(begin));
    if (DONE(answer)) {
        if (lmr != NULL)
            keep(t, LMR, lmr, ia, 0);
        __atomic_store_n(&contexts[0][below(t, BOARD)], local, __ATOMIC_RELAXED);
        __atomic_store_n(&contexts[1][below(t, BOARD)], there, __ATOMIC_RELAXED);
    }
    return answer;
}
QUERY(lmr, LMR, 0)
ENDING(lmr_free, LMR)
CALL(lmr_sync_rdma_read)
{
    DAT_LMR_TRIPLET list[4];
    segments(t, list);
    return dat_lmr_sync_rdma_read(adapter(t, sort), one_in(t, 20) ? NULL : list, below(t, 5));
}
CALL(lmr_sync_rdma_write)
{
    DAT_LMR_TRIPLET list[4];
    segments(t, list);
    return dat_lmr_sync_rdma_write(adapter(t, sort), one_in(t, 20) ? NULL : list, below(t, 5));
}

CALL(rmr_create)
{
    DAT_RMR_HANDLE rmr;
    DAT_PZ_HANDLE pz = pick(t, PZ, 1, sort);
    DAT_RETURN answer = dat_rmr_create(pz, PLACE(rmr));
    if (DONE(answer))
        keep(t, RMR, rmr, adapters[0], 0);
    return answer;
}
QUERY(rmr, RMR, 0)
CALL(rmr_bind)
{
    DAT_LMR_TRIPLET list[4];
    DAT_RMR_COOKIE value = { .as_64 = draw(t) };
    DAT_RMR_CONTEXT there = 0;
    DAT_EP_HANDLE ep = pick(t, EP, 0, NULL);
    DAT_RETURN answer;
    segments(t, list);
    if (one_in(t, 4))
        list[0].segment_length = 0;
    answer = dat_rmr_bind(pick(t, RMR, 0, sort),
#if UDAPL == 2
                          one_in(t, 2) ? t->known[below(t, 2)] : pick(t, LMR, 0, NULL),
#endif
                          one_in(t, 20) ? NULL : list,
                          (DAT_MEM_PRIV_FLAGS)(draw(t) & DAT_MEM_PRIV_ALL_FLAG),
#if UDAPL == 2
                          one_in(t, 20) ? (DAT_VA_TYPE)below(t, 3) : DAT_VA_TYPE_VA,
#endif
                          ep, value,
                          completion(t), PLACE(there));
    if (DONE(answer))
        __atomic_store_n(&contexts[1][below(t, BOARD)], there, __ATOMIC_RELAXED);
    return answer;
}
ENDING(rmr_free, RMR)

CALL(pz_create)
{
    DAT_PZ_HANDLE pz;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_pz_create(ia, PLACE(pz));
    if (DONE(answer))
        keep(t, PZ, pz, ia, 1);
    return answer;
}
QUERY(pz, PZ, 1)
ENDING(pz_free, PZ)

CALL(srq_create)
{
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_ATTR attr = { count(t), one_in(t, 8) ? count(t) : 4, one_in(t, 10) ? count(t) : 0 };
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_srq_create(ia, mate(t, PZ, ia, 1), PLACE(attr), PLACE(srq));
    if (DONE(answer))
        keep(t, SRQ, srq, ia, 1);
    return answer;
}
CALL(srq_post_recv)
{
    DAT_LMR_TRIPLET list[4];
    segments(t, list);
    return dat_srq_post_recv(pick(t, SRQ, 0, sort), listed(t), one_in(t, 20) ? NULL : list,
                             cookie(t));
}
QUERY(srq, SRQ, 0)
CALL(srq_resize) { return dat_srq_resize(pick(t, SRQ, 0, sort), count(t)); }
CALL(srq_set_lw) { return dat_srq_set_lw(pick(t, SRQ, 0, sort), count(t)); }
ENDING(srq_free, SRQ)

static DAT_RMR_TRIPLET remote(struct thread *t)
{
    DAT_RMR_TRIPLET there;
    memset(&there, 0, sizeof there);
    there.rmr_context = context(t, 1);
    there.RMR_ADDRESS = place(t);
    there.segment_length = one_in(t, 10) ? draw(t) : one_in(t, 4) ? below(t, 6000) : 9000;
    return there;
}
CALL(ep_post_send)
{
    DAT_LMR_TRIPLET list[4];
    segments(t, list);
    return dat_ep_post_send(pick(t, EP, 0, sort), listed(t), one_in(t, 20) ? NULL : list,
                            cookie(t), completion(t));
}
CALL(ep_post_recv)
{
    DAT_LMR_TRIPLET list[4];
    segments(t, list);
    return dat_ep_post_recv(pick(t, EP, 0, sort), listed(t), one_in(t, 20) ? NULL : list,
                            cookie(t), one_in(t, 2) ? 0 : completion(t));
}
CALL(ep_post_rdma_read)
{
    DAT_LMR_TRIPLET list[4];
    DAT_RMR_TRIPLET there = remote(t);
    segments(t, list);
    return dat_ep_post_rdma_read(pick(t, EP, 0, sort), listed(t), one_in(t, 20) ? NULL : list,
                                 cookie(t), PLACE(there), completion(t));
}
CALL(ep_post_rdma_write)
{
    DAT_LMR_TRIPLET list[4];
    DAT_RMR_TRIPLET there = remote(t);
    segments(t, list);
    return dat_ep_post_rdma_write(pick(t, EP, 0, sort), listed(t), one_in(t, 20) ? NULL : list,
                                  cookie(t), PLACE(there), completion(t));
}
CALL(ep_recv_query)
{
    DAT_COUNT taken, span;
    return dat_ep_recv_query(pick(t, EP, 0, sort), PLACE(taken), PLACE(span));
}
