/* The calls: how often each is made, and the common forms. */
#ifndef CALLS_H
#define CALLS_H

#include "arguments.h"

/* The name of each, without dat_, and its weight. */
#define EACH_CALL(C) \
    C(ia_openv, 2) C(ia_query, 4) C(ia_close, 2) C(set_consumer_context, 4) \
    C(get_consumer_context, 4) C(get_handle_type, 4) C(cno_create, 6) C(cno_modify_agent, 6) \
    C(cno_query, 4) C(cno_free, 5) C(cno_wait, 5) C(cr_query, 6) \
    C(cr_accept, 30) C(cr_reject, 3) C(cr_handoff, 6) C(evd_create, 14) \
    C(evd_query, 5) C(evd_modify_cno, 8) C(evd_enable, 6) C(evd_disable, 3) \
    C(evd_wait, 20) C(evd_resize, 6) C(evd_post_se, 16) C(evd_dequeue, 60) \
    C(evd_free, 6) C(evd_set_unwaitable, 2) C(evd_clear_unwaitable, 6) C(ep_create, 24) \
    C(ep_create_with_srq, 12) C(ep_query, 5) C(ep_modify, 12) C(ep_connect, 40) \
    C(ep_dup_connect, 20) C(ep_disconnect, 4) C(ep_post_send, 40) C(ep_post_recv, 40) \
    C(ep_post_rdma_read, 30) C(ep_post_rdma_write, 30) C(ep_get_status, 5) C(ep_recv_query, 5) \
    C(ep_set_watermark, 3) C(ep_reset, 12) C(ep_free, 6) C(lmr_create, 16) \
    C(lmr_query, 4) C(lmr_free, 8) C(lmr_sync_rdma_read, 4) C(lmr_sync_rdma_write, 4) \
    C(rmr_create, 8) C(rmr_query, 4) C(rmr_bind, 30) C(rmr_free, 6) \
    C(psp_create, 12) C(psp_create_any, 4) C(psp_query, 4) C(psp_free, 5) \
    C(rsp_create, 10) C(rsp_query, 4) C(rsp_free, 5) C(pz_create, 8) \
    C(pz_query, 4) C(pz_free, 5) C(srq_create, 8) C(srq_post_recv, 20) \
    C(srq_query, 4) C(srq_resize, 5) C(srq_set_lw, 5) C(srq_free, 4) \
    C(registry_list_providers, 1) C(registry_add_provider, 2) C(registry_remove_provider, 2) C(strerror, 2) \
    C(pair, 12) C(tidy, 2) EACH_OF_2(C)

/* The calls that only uDAPL 2.0 has, and the operations of its extensions. */
#if UDAPL == 2
#define EXPORTED (72 + 16)
/* Extended requests that would complete if no other thread interfered. */
void extended_traffic(struct thread *t, DAT_EP_HANDLE active, DAT_LMR_TRIPLET local,
                      DAT_RMR_TRIPLET there);
#define EACH_OF_2(C) \
    C(write_immed, 30) C(fetch_and_add, 30) C(cmp_and_swap, 30) C(open_query, 1) \
    C(extension_op, 4) C(cno_fd_create, 1) C(cno_trigger, 1) C(csp_create, 1) C(csp_query, 1) \
    C(csp_free, 1) C(ep_common_connect, 1) C(ep_post_rdma_read_to_rmr, 2) \
    C(ep_post_send_with_invalidate, 2) C(registry_providers_related, 1) C(rmr_create_for_ep, 1) \
    C(get_ia_handle, 1)
#else
#define EXPORTED 72
#define EACH_OF_2(C)
#endif

enum place {
#define PLACE_OF(name, weight) AT_##name,
    EACH_CALL(PLACE_OF)
#undef PLACE_OF
    CALLS
};

/* Returns the code of the call; `sort` is the sort of its main handle. */
#define CALL(name) DAT_RETURN try_##name(struct thread *t, enum sort *sort)
#define DONE(answer) ((answer) == DAT_SUCCESS)

#define PROTOTYPE(name, weight) CALL(name);
EACH_CALL(PROTOTYPE)
#undef PROTOTYPE

/* Queries some or all fields of an object. */
#define QUERY(name, kind, of_others)                                            \
    CALL(name##_query)                                                          \
    {                                                                           \
        DAT_##kind##_PARAM param;                                               \
        unsigned fields = mask(t, DAT_##kind##_FIELD_ALL);                      \
        return dat_##name##_query(pick(t, kind, of_others, sort),               \
                                  (DAT_##kind##_PARAM_MASK)fields, PLACE(param)); \
    }

/* A call that frees an object. */
#define ENDING(name, kind)                                                      \
    CALL(name)                                                                  \
    {                                                                           \
        DAT_HANDLE handle = pick(t, kind, 0, sort);                             \
        DAT_RETURN answer = dat_##name(handle);                                 \
        if (DONE(answer))                                                       \
            lose(t, kind, handle);                                              \
        return answer;                                                          \
    }

#endif
