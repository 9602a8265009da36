/* Calls that disable cancellation, or reach no cancellation point. */
#include "cancel.h"

static struct pair *pair;

/* Although these calls print and send, they complete. */
static void control_calls(void)
{
    DAT_REGION_DESCRIPTION region;
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL, evd, connections;
    DAT_IA_HANDLE other;
    DAT_PZ_HANDLE zone;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT context;
    DAT_EP_HANDLE ep;
    DAT_PSP_HANDLE psp;
    DAT_CNO_HANDLE cno;
    DAT_CONN_QUAL qualifier;
    DAT_IA_ATTR attributes;
    DAT_PROVIDER_INFO info, *infos = &info;
    DAT_COUNT count;
    DAT_RETURN answer;
    static char memory[4096];

    answer = dat_ia_open("nothing", 8, &errors, &other);
    EXPECT(DAT_GET_TYPE(answer), DAT_PROVIDER_NOT_FOUND);
    errors = DAT_HANDLE_NULL;
    OK(dat_ia_open("mlx5_0", 8, &errors, &other));
    answer = dat_registry_list_providers(1, &count, &infos);
    HOLDS(answer == DAT_SUCCESS || DAT_GET_TYPE(answer) == DAT_INVALID_PARAMETER);
    OK(dat_ia_query(other, NULL, DAT_IA_ALL, &attributes, 0, NULL));
    OK(dat_pz_create(other, &zone));
    region.for_va = memory;
    OK(dat_lmr_create(other, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, zone,
                      DAT_MEM_PRIV_ALL_FLAG, VIRTUAL &lmr, &context, NULL, NULL, NULL));
    OK(dat_cno_create(other, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(other, 64, cno, DAT_EVD_DTO_FLAG, &evd));
    OK(dat_evd_create(other, 8, cno, DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &connections));
    OK(dat_ep_create(other, zone, evd, evd, connections, NULL, &ep));
    OK(dat_psp_create_any(other, &qualifier, connections, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_ep_connect(ep, attributes.ia_address_ptr, qualifier, LONG, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    OK(dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG));
    OK(dat_psp_free(psp));
    OK(dat_ep_free(ep));
    OK(dat_evd_free(evd));
    OK(dat_evd_modify_cno(connections, DAT_HANDLE_NULL));
    OK(dat_cno_free(cno));
    OK(dat_lmr_free(lmr));
    OK(dat_ia_close(other, DAT_CLOSE_ABRUPT_FLAG));
}

static DAT_RETURN until_one(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
    DAT_RETURN answer;
    while (IS_EMPTY(answer = dat_evd_dequeue(evd, event)))
        sched_yield();
    return answer;
}

/* Posts until the queue is full, and takes events, also of a transfer that
 * fails. */
static void posts_and_dequeues(void)
{
    DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_LMR_TRIPLET brief = pair->segment;
    DAT_EVENT event;
    DAT_EVD_HANDLE evd = software_evd(DAT_HANDLE_NULL);
    int posted = 0;

    OK(dat_ep_post_recv(pair->passive, 1, &pair->segment, cookie, flags));
    brief.segment_length = 8;
    while (dat_ep_post_recv(pair->passive, 1, &brief, cookie, flags) == DAT_SUCCESS)
        posted++;
    HOLDS(posted > 0);
    OK(dat_ep_post_send(pair->active, 1, &pair->segment, cookie, flags));
    OK(until_one(pair->received, &event));
    HOLDS(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
    OK(until_one(pair->sent, &event));
    post(evd);
    OK(until_one(evd, &event));
    HOLDS(IS_EMPTY(dat_evd_dequeue(evd, &event)));
    OK(dat_evd_free(evd));
    /* Longer than its receive, which breaks the connection. */
    OK(dat_ep_post_send(pair->active, 1, &pair->segment, cookie, flags));
    OK(until_one(pair->received, &event));
    HOLDS(event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_LOCAL_LENGTH);
    OK(until_one(pair->sent, &event));
    HOLDS(event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS);
}

static void *call(void *argument)
{
    /* Pending from here on: the thread would end at the first cancellation
     * point. */
    HOLDS(pthread_cancel(pthread_self()) == 0);
    control_calls();
    posts_and_dequeues();
    *(atomic_int *)argument = 1;
    pthread_testcancel();
    return NULL;
}

void hold(void)
{
    atomic_int is_through = 0;
    pthread_t thread;

    pair = connected();
    start(&thread, call, &is_through);
    cancelled(thread);
    HOLDS(is_through);
    disconnect(pair);
}
