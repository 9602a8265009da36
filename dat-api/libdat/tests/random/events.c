/* Adapters, the registry, CNOs and EVDs. */
#include "calls.h"

#include <stdio.h>

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

/* Checks and counts a dequeued event. */

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
    answer = dat_ia_openv(name, count(t), PLACE(evd), PLACE(ia), one_in(t, 10) ? below(t, 4) : DAT_VERSION_MAJOR,
                          DAT_VERSION_MINOR, one_in(t, 2) ? DAT_TRUE : DAT_FALSE);
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

/* A handle of any kind that this thread owns: these three calls are not
 * thread-safe. */
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
QUERY(cno, CNO, 0)
ENDING(cno_free, CNO)
CALL(cno_wait)
{
    DAT_EVD_HANDLE evd;
    return dat_cno_wait(pick(t, CNO, 1, sort), soon(t), PLACE(evd));
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
    /* A thread that takes a request must be its owner. */
    if (DONE(answer))
        keep(t, EVD, evd, ia, !(flags & DAT_EVD_CR_FLAG));
    return answer;
}
QUERY(evd, EVD, 0)
CALL(evd_modify_cno)
{
    DAT_CNO_HANDLE cno = one_in(t, 2) ? DAT_HANDLE_NULL : pick(t, CNO, 1, NULL);
    return dat_evd_modify_cno(pick(t, EVD, 0, sort), cno);
}
CALL(evd_enable) { return dat_evd_enable(pick(t, EVD, 1, sort)); }
CALL(evd_disable) { return dat_evd_disable(pick(t, EVD, 1, sort)); }
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
CALL(evd_resize) { return dat_evd_resize(pick(t, EVD, 0, sort), count(t)); }
CALL(evd_post_se)
{
    DAT_EVENT event = { .event_number = one_in(t, 10) ? (DAT_EVENT_NUMBER)draw(t)
                                                      : DAT_SOFTWARE_EVENT };
    event.event_data.software_event_data.pointer = t;
    return dat_evd_post_se(pick(t, EVD, 0, sort), PLACE(event));
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
ENDING(evd_free, EVD)
CALL(evd_set_unwaitable) { return dat_evd_set_unwaitable(pick(t, EVD, 1, sort)); }
CALL(evd_clear_unwaitable) { return dat_evd_clear_unwaitable(pick(t, EVD, 1, sort)); }

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
    /* The one code that is returned without its class. */
    return answer == DAT_INVALID_PARAMETER ? answer | DAT_CLASS_ERROR : answer;
}
