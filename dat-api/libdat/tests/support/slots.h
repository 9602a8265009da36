/* The names of a provider table's entries after the first two words, in its
 * order. */
#define SLOTS(S) \
    S(ia_open) S(ia_query) S(ia_close) S(set_consumer_context) S(get_consumer_context) \
    S(get_handle_type) S(cno_create) S(cno_modify_agent) S(cno_query) S(cno_free) S(cno_wait) \
    S(cr_query) S(cr_accept) S(cr_reject) S(cr_handoff) S(evd_create) S(evd_query) \
    S(evd_modify_cno) S(evd_enable) S(evd_disable) S(evd_wait) S(evd_resize) S(evd_post_se) \
    S(evd_dequeue) S(evd_free) S(ep_create) S(ep_query) S(ep_modify) S(ep_connect) \
    S(ep_dup_connect) S(ep_disconnect) S(ep_post_send) S(ep_post_recv) S(ep_post_rdma_read) \
    S(ep_post_rdma_write) S(ep_get_status) S(ep_free) S(lmr_create) S(lmr_query) S(lmr_free) \
    S(rmr_create) S(rmr_query) S(rmr_bind) S(rmr_free) S(psp_create) S(psp_query) S(psp_free) \
    S(rsp_create) S(rsp_query) S(rsp_free) S(pz_create) S(pz_query) S(pz_free) \
    S(psp_create_any) S(ep_reset) S(evd_set_unwaitable) S(evd_clear_unwaitable) \
    S(lmr_sync_rdma_read) S(lmr_sync_rdma_write) S(ep_create_with_srq) S(ep_recv_query) \
    S(ep_set_watermark) S(srq_create) S(srq_free) S(srq_post_recv) S(srq_query) S(srq_resize) \
    S(srq_set_lw)

#define SLOT_NUMBER(name) SLOT_##name,
enum slot { SLOTS(SLOT_NUMBER) SLOT_COUNT };
/* The return code of the foreign provider for a call; not a DAT type. */
#define SLOT_ANSWER(slot) (0xf0000000u | (unsigned)(slot))

#define FAILS(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))

/* Prints a return code by name. */
#define SHOW(what, answer) \
    do { \
        const char *type = "?", *subtype = ""; \
        dat_strerror((answer), &type, &subtype); \
        printf("%s %s%s%s\n", (what), type, *subtype ? " " : "", subtype); \
    } while (0)
