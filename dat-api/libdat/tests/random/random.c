/*
 * All calls of uDAPL 1.2 in random order with random arguments, from several
 * threads: live handles, dead ones, null, garbage, and those of other kinds;
 * wrong flags, masks, counts and addresses. What DAT asks of its consumer is
 * kept: pointers lead to memory or are null, memory that is registered stays,
 * and of the objects of others only calls are made that DAT calls safe.
 *
 * Wrong is: a crash, a call that does not end, an answer that DAT does not
 * know, DAT_INTERNAL_ERROR, DAT_NOT_IMPLEMENTED, a bad handle that is taken,
 * and descriptors or threads that are left at the end.
 *
 *   random DEVICE SECONDS THREADS SEED [-v]
 */
#define _GNU_SOURCE
#include "pool.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define THREADS 16
#define BYTES 65536
/* A call that takes longer hangs. Valgrind runs one thread at a time. */
#define PATIENCE 60

DAT_HANDLE dead[KINDS][BOARD], shown[KINDS][BOARD];
static DAT_IA_HANDLE adapters[2]; /* not thread-safe, and thread-safe */
static struct sockaddr_storage here;
static char *device;
static unsigned char memory[THREADS][BYTES] __attribute__((aligned(4096)));
static uint32_t contexts[2][BOARD]; /* of LMRs; of remote rights */
static struct thread threads[THREADS];
static int verbose, stop;
static uint64_t agents;

/* --- arguments ------------------------------------------------------------- */

static DAT_COUNT count(struct thread *t)
{
    static const DAT_COUNT odd[] = { 0, -1, -2, INT32_MIN, INT32_MAX, 65536, 1 };
    return one_in(t, 8) ? odd[below(t, 7)] : (DAT_COUNT)(1 + below(t, 40));
}

static DAT_IA_HANDLE adapter(struct thread *t, enum sort *sort)
{
    if (t->mine != NULL && one_in(t, 6)) {
        *sort = OWN;
        return t->mine;
    }
    if (below(t, 100) < 90) {
        *sort = OTHERS;
        return adapters[below(t, 2)];
    }
    return pick(t, IA, 0, sort);
}

static DAT_TIMEOUT soon(struct thread *t)
{
    return one_in(t, 4) ? 0 : below(t, 2000);
}

static DAT_CONN_QUAL qualifier(struct thread *t)
{
    return one_in(t, 20) ? draw(t) : (DAT_CONN_QUAL)(21000 + getpid() % 2000 * 16 + below(t, 12));
}

static DAT_COMPLETION_FLAGS completion(struct thread *t)
{
    return one_in(t, 2) ? DAT_COMPLETION_DEFAULT_FLAG : (DAT_COMPLETION_FLAGS)below(t, 40);
}

static unsigned mask(struct thread *t, unsigned all)
{
    return one_in(t, 3) ? all : one_in(t, 10) ? (unsigned)draw(t) : (unsigned)draw(t) & all;
}

static DAT_LMR_CONTEXT context(struct thread *t, int remote)
{
    return !one_in(t, 3) ? t->kit[below(t, 2)][remote]
           : one_in(t, 8) ? (DAT_LMR_CONTEXT)draw(t)
                        : __atomic_load_n(&contexts[remote][below(t, BOARD)], __ATOMIC_RELAXED);
}

/* As a rule in this thread's memory, and before its end. */
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

static DAT_COUNT listed(struct thread *t)
{
    /* Never more than the list has. */
    static const DAT_COUNT odd[] = { -1, INT32_MIN, 0, 4 };
    return one_in(t, 8) ? odd[below(t, 4)] : (DAT_COUNT)below(t, 4);
}

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

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)evd;
    __atomic_fetch_add((uint64_t *)data, 1, __ATOMIC_RELAXED);
}

static DAT_OS_WAIT_PROXY_AGENT some_agent(struct thread *t)
{
    DAT_OS_WAIT_PROXY_AGENT none = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_OS_WAIT_PROXY_AGENT some = { &agents, agent };
    return one_in(t, 2) ? none : some;
}

/* The place of a result, or null. */
#define PLACE(result) (one_in(t, 40) ? NULL : &(result))

static void took(struct thread *t, DAT_EVD_HANDLE evd, const DAT_EVENT *event)
{
    DAT_CR_PARAM cr;
    if (event->evd_handle != evd)
        t->failed = "the event is of another EVD";
    if (event->event_number != DAT_CONNECTION_REQUEST_EVENT)
        return;
    keep(t, CR, event->event_data.cr_arrival_event_data.cr_handle, adapters[0], 0);
    if (dat_cr_query(event->event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &cr) ==
            DAT_SUCCESS &&
        cr.local_ep_handle != DAT_HANDLE_NULL && t->pools[EP].count < MOST)
        keep(t, EP, cr.local_ep_handle, adapters[0], 0);
}

/* The places of two calls in the table below. */
enum { READS = 36, WRITES = 37 };

/* --- the calls -------------------------------------------------------------- */

/* Each answers what the call did; `sort` is what its main handle is. */
#define CALL(name) static DAT_RETURN try_##name(struct thread *t, enum sort *sort)
#define DONE(answer) ((answer) == DAT_SUCCESS)

CALL(ia_openv)
{
    static char longest[300];
    DAT_IA_HANDLE ia = NULL;
    DAT_EVD_HANDLE evd = one_in(t, 8) ? pick(t, EVD, 0, NULL)
                         : one_in(t, 8) ? DAT_EVD_ASYNC_EXISTS : DAT_HANDLE_NULL;
    DAT_RETURN answer;
    char *name = device;
    *sort = OWN;
    if (one_in(t, 2)) {
        static char *const names[] = { NULL, "", "nobody", "mlx5_0-9", "\xff\xfe" };
        memset(longest, 'x', sizeof longest - 1);
        name = one_in(t, 6) ? longest : names[below(t, 5)];
    } else if (t->mine != NULL || !one_in(t, 10)) {
        return DAT_SUCCESS; /* enough of them */
    }
    answer = dat_ia_openv(name, count(t), PLACE(evd), PLACE(ia), one_in(t, 10) ? below(t, 3) : 1,
                          2, one_in(t, 2) ? DAT_TRUE : DAT_FALSE);
    if (DONE(answer)) {
        t->mine = ia;
        keep(t, IA, ia, ia, 0);
    }
    return answer;
}
CALL(ia_query)
{
    DAT_EVD_HANDLE evd;
    DAT_IA_ATTR ia;
    union {
        DAT_PROVIDER_ATTR attr;
        char bytes[sizeof(DAT_PROVIDER_ATTR)];
    } provider;
    return dat_ia_query(adapter(t, sort), PLACE(evd), one_in(t, 2) ? DAT_IA_ALL : draw(t),
                        PLACE(ia), one_in(t, 2) ? DAT_PROVIDER_FIELD_ALL : draw(t),
                        one_in(t, 40) ? NULL : &provider.attr);
}
CALL(ia_close)
{
    DAT_IA_HANDLE ia = pick(t, IA, 0, sort);
    DAT_CLOSE_FLAGS flags = (DAT_CLOSE_FLAGS)below(t, 3);
    DAT_RETURN answer;
    if (*sort == OWN && !one_in(t, 5))
        return DAT_SUCCESS;
    answer = dat_ia_close(ia, flags);
    if (DONE(answer)) {
        lose_all(t, ia);
        t->mine = NULL;
    }
    return answer;
}

/* A handle of any kind: of our own, for these three are unsafe. */
static DAT_HANDLE any(struct thread *t, enum sort *sort)
{
    DAT_HANDLE handle = pick(t, (enum kind)below(t, KINDS), 0, sort);
    if (*sort == WRONG)
        *sort = OWN;
    return handle;
}
CALL(set_consumer_context)
{
    DAT_CONTEXT value = { .as_64 = draw(t) };
    return dat_set_consumer_context(any(t, sort), value);
}
CALL(get_consumer_context)
{
    DAT_CONTEXT value;
    return dat_get_consumer_context(any(t, sort), PLACE(value));
}
CALL(get_handle_type)
{
    DAT_HANDLE_TYPE type;
    return dat_get_handle_type(any(t, sort), PLACE(type));
}

CALL(cno_create)
{
    DAT_CNO_HANDLE cno;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_cno_create(ia, some_agent(t), PLACE(cno));
    if (DONE(answer))
        keep(t, CNO, cno, ia, 1);
    return answer;
}
CALL(cno_modify_agent)
{
    return dat_cno_modify_agent(pick(t, CNO, 0, sort), some_agent(t));
}
CALL(cno_query)
{
    DAT_CNO_PARAM param;
    return dat_cno_query(pick(t, CNO, 0, sort),
                         (DAT_CNO_PARAM_MASK)mask(t, DAT_CNO_FIELD_ALL), PLACE(param));
}
CALL(cno_free)
{
    DAT_CNO_HANDLE cno = pick(t, CNO, 0, sort);
    DAT_RETURN answer = dat_cno_free(cno);
    if (DONE(answer))
        lose(t, CNO, cno);
    return answer;
}
CALL(cno_wait)
{
    DAT_EVD_HANDLE evd;
    return dat_cno_wait(pick(t, CNO, 1, sort), soon(t), PLACE(evd));
}

CALL(cr_query)
{
    DAT_CR_PARAM param;
    return dat_cr_query(pick(t, CR, 0, sort), (DAT_CR_PARAM_MASK)mask(t, DAT_CR_FIELD_ALL),
                        PLACE(param));
}
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
CALL(cr_reject)
{
    DAT_CR_HANDLE cr = pick(t, CR, 0, sort);
    DAT_RETURN answer = dat_cr_reject(cr);
    if (DONE(answer))
        lose(t, CR, cr);
    return answer;
}
CALL(cr_handoff)
{
    DAT_CR_HANDLE cr = pick(t, CR, 0, sort);
    DAT_RETURN answer = dat_cr_handoff(cr, qualifier(t));
    if (DONE(answer))
        lose(t, CR, cr);
    return answer;
}

CALL(evd_create)
{
    DAT_EVD_HANDLE evd;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_CNO_HANDLE cno = one_in(t, 2) ? DAT_HANDLE_NULL : mate(t, CNO, ia, 1);
    DAT_EVD_FLAGS flags = one_in(t, 3) ? DAT_EVD_DEFAULT_FLAG
                          : one_in(t, 8) ? (DAT_EVD_FLAGS)draw(t)
                                         : (DAT_EVD_FLAGS)draw(t) & 0x1f1;
    DAT_RETURN answer = dat_evd_create(ia, count(t), cno, flags, PLACE(evd));
    /* Whoever takes a request must know that it is his. */
    if (DONE(answer))
        keep(t, EVD, evd, ia, !(flags & DAT_EVD_CR_FLAG));
    return answer;
}
CALL(evd_query)
{
    DAT_EVD_PARAM param;
    return dat_evd_query(pick(t, EVD, 0, sort), (DAT_EVD_PARAM_MASK)mask(t, DAT_EVD_FIELD_ALL),
                         PLACE(param));
}
CALL(evd_modify_cno)
{
    DAT_CNO_HANDLE cno = one_in(t, 2) ? DAT_HANDLE_NULL : pick(t, CNO, 1, NULL);
    return dat_evd_modify_cno(pick(t, EVD, 0, sort), cno);
}
CALL(evd_enable) { return dat_evd_enable(pick(t, EVD, 1, sort)); }
CALL(evd_disable) { return dat_evd_disable(pick(t, EVD, 1, sort)); }
CALL(evd_set_unwaitable) { return dat_evd_set_unwaitable(pick(t, EVD, 1, sort)); }
CALL(evd_clear_unwaitable) { return dat_evd_clear_unwaitable(pick(t, EVD, 1, sort)); }
CALL(evd_wait)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_EVD_HANDLE evd = pick(t, EVD, 1, sort);
    DAT_EVENT *place = PLACE(event);
    DAT_RETURN answer =
        dat_evd_wait(evd, soon(t), one_in(t, 4) ? count(t) : 1, place, PLACE(more));
    if (DONE(answer))
        took(t, evd, &event);
    return answer;
}
CALL(evd_dequeue)
{
    DAT_EVENT event;
    DAT_EVD_HANDLE evd = pick(t, EVD, 1, sort);
    DAT_RETURN answer = dat_evd_dequeue(evd, PLACE(event));
    if (DONE(answer))
        took(t, evd, &event);
    return answer;
}
CALL(evd_resize) { return dat_evd_resize(pick(t, EVD, 0, sort), count(t)); }
CALL(evd_post_se)
{
    DAT_EVENT event = { .event_number = one_in(t, 10) ? (DAT_EVENT_NUMBER)draw(t)
                                                      : DAT_SOFTWARE_EVENT };
    event.event_data.software_event_data.pointer = t;
    return dat_evd_post_se(pick(t, EVD, 0, sort), PLACE(event));
}
CALL(evd_free)
{
    DAT_EVD_HANDLE evd = pick(t, EVD, 0, sort);
    DAT_RETURN answer = dat_evd_free(evd);
    if (DONE(answer))
        lose(t, EVD, evd);
    return answer;
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
static DAT_DTO_COOKIE cookie(struct thread *t)
{
    DAT_DTO_COOKIE value = { .as_64 = draw(t) };
    return value;
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
static DAT_RMR_TRIPLET remote(struct thread *t)
{
    DAT_RMR_TRIPLET there;
    memset(&there, 0, sizeof there);
    there.rmr_context = context(t, 1);
    there.target_address = place(t);
    there.segment_length = one_in(t, 10) ? draw(t) : one_in(t, 4) ? below(t, 6000) : 9000;
    return there;
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
CALL(ep_get_status)
{
    DAT_EP_STATE state;
    DAT_BOOLEAN receives, requests;
    return dat_ep_get_status(pick(t, EP, 0, sort), PLACE(state), PLACE(receives),
                             PLACE(requests));
}
CALL(ep_recv_query)
{
    DAT_COUNT taken, span;
    return dat_ep_recv_query(pick(t, EP, 0, sort), PLACE(taken), PLACE(span));
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

CALL(lmr_create)
{
    static char names[4][DAT_LMR_COOKIE_SIZE] = { "a", "b", "c", "d" };
    DAT_LMR_HANDLE lmr = NULL; /* may be left unsaid */
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
                            PLACE(lmr), PLACE(local), PLACE(there), PLACE(size), PLACE(begin));
    if (DONE(answer)) {
        if (lmr != NULL)
            keep(t, LMR, lmr, ia, 0);
        __atomic_store_n(&contexts[0][below(t, BOARD)], local, __ATOMIC_RELAXED);
        __atomic_store_n(&contexts[1][below(t, BOARD)], there, __ATOMIC_RELAXED);
    }
    return answer;
}
CALL(lmr_query)
{
    DAT_LMR_PARAM param;
    return dat_lmr_query(pick(t, LMR, 0, sort), (DAT_LMR_PARAM_MASK)mask(t, DAT_LMR_FIELD_ALL),
                         PLACE(param));
}
CALL(lmr_free)
{
    DAT_LMR_HANDLE lmr = pick(t, LMR, 0, sort);
    DAT_RETURN answer = dat_lmr_free(lmr);
    if (DONE(answer))
        lose(t, LMR, lmr);
    return answer;
}
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
CALL(rmr_query)
{
    DAT_RMR_PARAM param;
    return dat_rmr_query(pick(t, RMR, 0, sort), (DAT_RMR_PARAM_MASK)mask(t, DAT_RMR_FIELD_ALL),
                         PLACE(param));
}
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
    answer = dat_rmr_bind(pick(t, RMR, 0, sort), one_in(t, 20) ? NULL : list,
                          (DAT_MEM_PRIV_FLAGS)(draw(t) & DAT_MEM_PRIV_ALL_FLAG), ep, value,
                          completion(t), PLACE(there));
    if (DONE(answer))
        __atomic_store_n(&contexts[1][below(t, BOARD)], there, __ATOMIC_RELAXED);
    return answer;
}
CALL(rmr_free)
{
    DAT_RMR_HANDLE rmr = pick(t, RMR, 0, sort);
    DAT_RETURN answer = dat_rmr_free(rmr);
    if (DONE(answer))
        lose(t, RMR, rmr);
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
CALL(psp_query)
{
    DAT_PSP_PARAM param;
    return dat_psp_query(pick(t, PSP, 1, sort), (DAT_PSP_PARAM_MASK)mask(t, DAT_PSP_FIELD_ALL),
                         PLACE(param));
}
CALL(psp_free)
{
    DAT_PSP_HANDLE psp = pick(t, PSP, 0, sort);
    DAT_RETURN answer = dat_psp_free(psp);
    if (DONE(answer))
        lose(t, PSP, psp);
    return answer;
}
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
CALL(rsp_query)
{
    DAT_RSP_PARAM param;
    return dat_rsp_query(pick(t, RSP, 0, sort), (DAT_RSP_PARAM_MASK)mask(t, DAT_RSP_FIELD_ALL),
                         PLACE(param));
}
CALL(rsp_free)
{
    DAT_RSP_HANDLE rsp = pick(t, RSP, 0, sort);
    DAT_RETURN answer = dat_rsp_free(rsp);
    /* One that a request has used up is gone as well. */
    if (*sort == OWN)
        lose(t, RSP, rsp);
    return answer;
}

CALL(pz_create)
{
    DAT_PZ_HANDLE pz;
    DAT_IA_HANDLE ia = adapter(t, sort);
    DAT_RETURN answer = dat_pz_create(ia, PLACE(pz));
    if (DONE(answer))
        keep(t, PZ, pz, ia, 1);
    return answer;
}
CALL(pz_query)
{
    DAT_PZ_PARAM param;
    return dat_pz_query(pick(t, PZ, 1, sort), (DAT_PZ_PARAM_MASK)mask(t, DAT_PZ_FIELD_ALL),
                        PLACE(param));
}
CALL(pz_free)
{
    DAT_PZ_HANDLE pz = pick(t, PZ, 0, sort);
    DAT_RETURN answer = dat_pz_free(pz);
    if (DONE(answer))
        lose(t, PZ, pz);
    return answer;
}

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
CALL(srq_query)
{
    DAT_SRQ_PARAM param;
    return dat_srq_query(pick(t, SRQ, 0, sort), (DAT_SRQ_PARAM_MASK)mask(t, DAT_SRQ_FIELD_ALL),
                         PLACE(param));
}
CALL(srq_resize) { return dat_srq_resize(pick(t, SRQ, 0, sort), count(t)); }
CALL(srq_set_lw) { return dat_srq_set_lw(pick(t, SRQ, 0, sort), count(t)); }
CALL(srq_free)
{
    DAT_SRQ_HANDLE srq = pick(t, SRQ, 0, sort);
    DAT_RETURN answer = dat_srq_free(srq);
    if (DONE(answer))
        lose(t, SRQ, srq);
    return answer;
}

CALL(registry_list_providers)
{
    DAT_PROVIDER_INFO infos[64], *places[64];
    DAT_COUNT found;
    *sort = OWN;
    for (int at = 0; at < 64; at++)
        places[at] = one_in(t, 500) ? NULL : &infos[at];
    return dat_registry_list_providers(one_in(t, 2) ? 64 : listed(t), PLACE(found), one_in(t, 20) ? NULL : places);
}
static DAT_PROVIDER table;
static DAT_PROVIDER_INFO some_info(struct thread *t)
{
    DAT_PROVIDER_INFO info = { .dapl_version_major = below(t, 3), .dapl_version_minor = 2 };
    snprintf(info.ia_name, sizeof info.ia_name, "random-%u", below(t, 3));
    return info;
}
CALL(registry_add_provider)
{
    DAT_PROVIDER_INFO info = some_info(t);
    *sort = OWN;
    return dat_registry_add_provider(PLACE(table), PLACE(info));
}
CALL(registry_remove_provider)
{
    DAT_PROVIDER_INFO info = some_info(t);
    *sort = OWN;
    return dat_registry_remove_provider(PLACE(table), PLACE(info));
}
CALL(strerror)
{
    const char *type = NULL, *subtype = NULL;
    *sort = OWN;
    DAT_RETURN of = one_in(t, 2) ? (DAT_RETURN)draw(t) : DAT_CLASS_ERROR | DAT_INVALID_STATE;
    DAT_RETURN answer = dat_strerror(of, PLACE(type), PLACE(subtype));
    /* The one answer that is told without its class. */
    return answer == DAT_INVALID_PARAMETER ? answer | DAT_CLASS_ERROR : answer;
}

/* Requests that would be carried out if nobody disturbed them. */
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
        there.target_address = from + below(t, BYTES / 2);
        there.segment_length = local.segment_length;
        switch (below(t, 4)) {
        case 0: dat_ep_post_recv(passive, 1, &local, cookie(t), DAT_COMPLETION_DEFAULT_FLAG); break;
        case 1: dat_ep_post_send(active, 1, &local, cookie(t), completion(t)); break;
        case 2: t->good[WRITES] += dat_ep_post_rdma_write(active, 1, &local, cookie(t), &there,
                                                          completion(t)) == DAT_SUCCESS; break;
        default: t->good[READS] += dat_ep_post_rdma_read(active, 1, &local, cookie(t), &there,
                                                         completion(t)) == DAT_SUCCESS; break;
        }
    }
}

/*
 * Two endpoints of this thread, connected as far as the others let them: so
 * that requests are also carried out.
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
                                 DAT_MEM_PRIV_ALL_FLAG, &lmr, &t->kit[which][0],
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
        if (event.event_number == DAT_CONNECTION_REQUEST_EVENT &&
            !DONE(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, passive, 0,
                                NULL)))
            break;
    }
    traffic(t, which, active, passive);
    return DAT_SUCCESS;
}

/* Most of what this thread has goes, so that there is room again. */
CALL(tidy)
{
    static const enum kind order[] = { CR, RSP, PSP, EP, RMR, LMR, SRQ, EVD, CNO, PZ };
    *sort = OWN;
    for (unsigned kind = 0; kind < sizeof order / sizeof *order; kind++) {
        struct pool *pool = &t->pools[order[kind]];
        for (int at = pool->count - 1; at >= 0; at--) {
            DAT_HANDLE handle = pool->items[at].handle;
            DAT_RETURN answer = DAT_CLASS_ERROR;
            if (one_in(t, 4))
                continue;
            switch (order[kind]) {
            case CR: answer = dat_cr_reject(handle); break;
            case RSP: answer = dat_rsp_free(handle); break;
            case PSP: answer = dat_psp_free(handle); break;
            case EP: answer = dat_ep_free(handle); break;
            case RMR: answer = dat_rmr_free(handle); break;
            case LMR: answer = dat_lmr_free(handle); break;
            case SRQ: answer = dat_srq_free(handle); break;
            case EVD: answer = dat_evd_free(handle); break;
            case CNO: answer = dat_cno_free(handle); break;
            default: answer = dat_pz_free(handle); break;
            }
            if (answer == DAT_SUCCESS || DAT_GET_TYPE(answer) == DAT_INVALID_HANDLE)
                lose(t, order[kind], handle);
        }
    }
    return DAT_SUCCESS;
}

struct call {
    const char *name;
    DAT_RETURN (*make)(struct thread *, enum sort *);
    unsigned weight;
};
#define C(name, weight) { #name, try_##name, weight }
static const struct call calls[] = {
    C(ia_openv, 2), C(ia_query, 4), C(ia_close, 2), C(set_consumer_context, 4),
    C(get_consumer_context, 4), C(get_handle_type, 4), C(cno_create, 6), C(cno_modify_agent, 6),
    C(cno_query, 4), C(cno_free, 5), C(cno_wait, 5), C(cr_query, 6), C(cr_accept, 30),
    C(cr_reject, 3), C(cr_handoff, 6), C(evd_create, 14), C(evd_query, 5), C(evd_modify_cno, 8),
    C(evd_enable, 6), C(evd_disable, 3), C(evd_wait, 20), C(evd_resize, 6), C(evd_post_se, 16),
    C(evd_dequeue, 60), C(evd_free, 6), C(evd_set_unwaitable, 2), C(evd_clear_unwaitable, 6),
    C(ep_create, 24), C(ep_create_with_srq, 12), C(ep_query, 5), C(ep_modify, 12),
    C(ep_connect, 40), C(ep_dup_connect, 20), C(ep_disconnect, 4), C(ep_post_send, 40),
    C(ep_post_recv, 40), C(ep_post_rdma_read, 30), C(ep_post_rdma_write, 30),
    C(ep_get_status, 5), C(ep_recv_query, 5), C(ep_set_watermark, 3), C(ep_reset, 12),
    C(ep_free, 6), C(lmr_create, 16), C(lmr_query, 4), C(lmr_free, 8), C(lmr_sync_rdma_read, 4),
    C(lmr_sync_rdma_write, 4), C(rmr_create, 8), C(rmr_query, 4), C(rmr_bind, 30), C(rmr_free, 6),
    C(psp_create, 12), C(psp_create_any, 4), C(psp_query, 4), C(psp_free, 5), C(rsp_create, 10),
    C(rsp_query, 4), C(rsp_free, 5), C(pz_create, 8), C(pz_query, 4), C(pz_free, 5),
    C(srq_create, 8), C(srq_post_recv, 20), C(srq_query, 4), C(srq_resize, 5), C(srq_set_lw, 5),
    C(srq_free, 4), C(registry_list_providers, 1), C(registry_add_provider, 2),
    C(registry_remove_provider, 2), C(strerror, 2), C(pair, 12), C(tidy, 2),
};
#define CALLS (sizeof calls / sizeof *calls)
_Static_assert(CALLS == 72 + 2, "every call, and two that are made of some");

/* --- what must hold --------------------------------------------------------- */

static const char *wrong_answer(DAT_RETURN answer, enum sort sort)
{
    const char *type, *subtype;
    if (answer == DAT_SUCCESS)
        return sort == WRONG || sort == DEAD || sort == NONE || sort == GARBAGE
                   ? "takes a handle that is none" : NULL;
    if ((answer & DAT_CLASS_ERROR) == 0)
        return "answers neither success nor an error";
    if (dat_strerror(answer, &type, &subtype) != DAT_SUCCESS)
        return "answers what DAT does not know";
    switch (DAT_GET_TYPE(answer)) {
    case DAT_INTERNAL_ERROR: return "answers DAT_INTERNAL_ERROR";
    case DAT_NOT_IMPLEMENTED: return "answers DAT_NOT_IMPLEMENTED";
    }
    if ((sort == WRONG || sort == DEAD || sort == NONE || sort == GARBAGE) &&
        DAT_GET_TYPE(answer) != DAT_INVALID_HANDLE && DAT_GET_TYPE(answer) != DAT_INVALID_PARAMETER)
        return "does not say that the handle is bad";
    return NULL;
}

static const struct call *some_call(struct thread *t)
{
    static unsigned all;
    unsigned at, sum = 0;
    for (at = 0; all == 0 && at < CALLS; at++)
        sum += calls[at].weight;
    if (all == 0)
        all = sum;
    sum = below(t, all);
    for (at = 0; sum >= calls[at].weight; at++)
        sum -= calls[at].weight;
    return &calls[at];
}

/* The last refusal of each call, for people. */
static DAT_RETURN refusals[80];

static void *run(void *argument)
{
    struct thread *t = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE) && t->failed == NULL) {
        const struct call *call = some_call(t);
        enum sort sort = OWN;
        DAT_RETURN answer;
        const char *wrong;
        t->doing = call->name;
        answer = call->make(t, &sort);
        t->calls[call - calls]++;
        t->good[call - calls] += answer == DAT_SUCCESS;
        if (answer != DAT_SUCCESS && sort == OWN)
            __atomic_store_n(&refusals[call - calls], answer, __ATOMIC_RELAXED);
        wrong = wrong_answer(answer, sort);
        if (wrong != NULL) {
            printf("dat_%s %s: %#x, the handle is of sort %d\n", call->name, wrong,
                   (unsigned)answer, (int)sort);
            t->failed = wrong;
        }
        t->turns++;
    }
    t->doing = "nothing more";
    /* Adapters of one's own are closed by their thread. */
    if (t->mine != NULL && dat_ia_close(t->mine, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS)
        t->failed = "its adapter does not close";
    return NULL;
}

static unsigned entries(const char *folder)
{
    unsigned found = 0;
    DIR *directory = opendir(folder);
    while (directory != NULL && readdir(directory) != NULL)
        found++;
    if (directory != NULL)
        closedir(directory);
    return found;
}

static void open_adapters(void)
{
    DAT_IA_ATTR attr;
    for (int at = 0; at < 2; at++) {
        DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
        DAT_RETURN answer = dat_ia_openv(device, 64, &evd, &adapters[at], 1, 2,
                                         at == 0 ? DAT_FALSE : DAT_TRUE);
        if (answer != DAT_SUCCESS) {
            printf("%s does not open: %#x\n", device, (unsigned)answer);
            exit(2);
        }
    }
    dat_ia_query(adapters[0], NULL, DAT_IA_ALL, &attr, 0, NULL);
    memcpy(&here, attr.ia_address_ptr,
           attr.ia_address_ptr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in));
}

static void close_adapters(void)
{
    for (int at = 0; at < 2; at++)
        if (dat_ia_close(adapters[at], DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS) {
            printf("adapter %d does not close\n", at);
            exit(1);
        }
}

/* Descriptors, and threads; some go a moment after they were told to. */
static int settles(unsigned descriptors, unsigned threads_then)
{
    for (int wait = 0; wait < 100; wait++) {
        if (entries("/proc/self/fd") <= descriptors && entries("/proc/self/task") <= threads_then)
            return 1;
        usleep(50000);
    }
    printf("left: descriptors %u of %u, threads %u of %u\n", entries("/proc/self/fd"),
           descriptors, entries("/proc/self/task"), threads_then);
    return 0;
}

/* What each thread sleeps in, for who looks for the cause. */
static void where_all_are(void)
{
    struct dirent *entry;
    DIR *directory = opendir("/proc/self/task");
    for (unsigned n = 0; n < THREADS; n++)
        if (threads[n].doing != NULL)
            printf("thread %u: dat_%s\n", n, threads[n].doing);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        static const char *const files[] = { "comm", "syscall" };
        if (entry->d_name[0] == '.')
            continue;
        for (int file = 0; file < 2; file++) {
            char path[300], text[200] = "";
            FILE *opened;
            snprintf(path, sizeof path, "/proc/self/task/%s/%s", entry->d_name, files[file]);
            opened = fopen(path, "r");
            if (opened == NULL)
                continue;
            if (fgets(text, sizeof text, opened) != NULL)
                printf("task %s: %s", entry->d_name, text);
            fclose(opened);
        }
    }
}

int main(int argc, char **argv)
{
    pthread_t ids[THREADS];
    unsigned long seconds, used, seed, descriptors, tasks, never = 0;
    uint64_t all = 0, good = 0, before[THREADS] = { 0 }, quiet[THREADS] = { 0 };
    int bad = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 5) {
        fprintf(stderr, "usage: random DEVICE SECONDS THREADS SEED [-v]\n");
        return 2;
    }
    if (strcmp(calls[READS].name, "ep_post_rdma_read") != 0 ||
        strcmp(calls[WRITES].name, "ep_post_rdma_write") != 0) {
        fprintf(stderr, "the table of the calls has changed\n");
        return 2;
    }
    device = argv[1];
    seconds = strtoul(argv[2], NULL, 0);
    used = strtoul(argv[3], NULL, 0);
    seed = strtoul(argv[4], NULL, 0);
    verbose = argc > 5;
    used = used > THREADS ? THREADS : used == 0 ? 1 : used;
    printf("seed %lu, %lu threads, %lu s\n", seed, used, seconds);
    /* What stays from the first time on is no leak. */
    open_adapters();
    close_adapters();
    descriptors = entries("/proc/self/fd");
    tasks = entries("/proc/self/task");
    open_adapters();
    for (unsigned n = 0; n < used; n++) {
        threads[n].number = n;
        threads[n].state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + n * UINT64_C(77777777777);
        threads[n].state |= 1;
        pthread_create(&ids[n], NULL, run, &threads[n]);
    }
    for (unsigned long second = 0; second < seconds; second++) {
        sleep(1);
        for (unsigned n = 0; n < used; n++) {
            quiet[n] = threads[n].turns == before[n] ? quiet[n] + 1 : 0;
            before[n] = threads[n].turns;
            bad |= threads[n].failed != NULL;
        }
        if (bad)
            break;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned n = 0; n < used; n++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE - (long)(quiet[n] < PATIENCE ? quiet[n] : PATIENCE);
        if (pthread_timedjoin_np(ids[n], NULL, &until) != 0) {
            printf("thread %u hangs in dat_%s\n", n, threads[n].doing);
            where_all_are();
            abort();
        }
        if (threads[n].failed != NULL) {
            printf("thread %u: %s\n", n, threads[n].failed);
            bad = 1;
        }
    }
    for (unsigned call = 0; call < CALLS; call++) {
        uint64_t made = 0, done = 0;
        for (unsigned n = 0; n < used; n++) {
            made += threads[n].calls[call];
            done += threads[n].good[call];
        }
        all += made;
        good += done;
        never += done == 0;
        if (verbose)
            printf("%-28s %9lu calls, %9lu good\n", calls[call].name, (unsigned long)made,
                   (unsigned long)done);
        else if (done == 0)
            printf("never good: dat_%s, last %#x\n", calls[call].name, (unsigned)refusals[call]);
    }
    close_adapters();
    bad |= !settles((unsigned)descriptors, (unsigned)tasks);
    printf("%lu calls, %lu good, %lu never; agents %lu\n", (unsigned long)all,
           (unsigned long)good, never, (unsigned long)agents);
    printf(bad ? "BAD\n" : "well\n");
    return bad;
}
