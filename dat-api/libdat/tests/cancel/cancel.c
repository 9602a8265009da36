/*
 * Threads that end inside calls: cancelled (pthread_cancel(3), deferred) while
 * they wait, with a cancellation pending in all other calls, and ended by an
 * agent (pthread_exit(3)); and children that end. Arguments: the parts to run; see `parts`.
 */
#include "cancel.h"

DAT_IA_HANDLE ia;
DAT_PZ_HANDLE pz;

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {{"evd", wait_evd}, {"cno", wait_cno}, {"hold", hold}, {"agents", agents}, {"children", children}};

void expect(const char *what, const char *file, int line, DAT_RETURN answer, DAT_RETURN wanted)
{
    if (answer == wanted)
        return;
    printf("%s:%d: %s is 0x%x, not 0x%x\n", file, line, what, (unsigned)answer, (unsigned)wanted);
    fflush(stdout);
    exit(1);
}

DAT_EVD_HANDLE software_evd(DAT_CNO_HANDLE cno)
{
    DAT_EVD_HANDLE evd;
    OK(dat_evd_create(ia, 64, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    return evd;
}

void post(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(evd, &event));
}

void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    HOLDS(pthread_create(thread, NULL, run, argument) == 0);
}

void cancelled(pthread_t thread)
{
    void *end = NULL;
    HOLDS(pthread_join(thread, &end) == 0);
    HOLDS(end == PTHREAD_CANCELED);
}

void until_waited(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) != IS_WAITED)
        sched_yield();
}

void dawdle(unsigned round)
{
    /* Sometimes longer than a spin lasts. */
    if (round % 4 == 3)
        usleep(round % 7 * 300);
    else
        for (unsigned at = 0; at < round % 5; at++)
            sched_yield();
}

static void until_established(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    OK(dat_evd_wait(evd, LONG, 1, &event, &more));
    HOLDS(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
}

struct pair *connected(void)
{
    struct pair *pair = calloc(1, sizeof *pair);
    DAT_REGION_DESCRIPTION region;
    DAT_CONN_QUAL qualifier;
    DAT_IA_ATTR attributes;
    DAT_EVENT event;
    DAT_COUNT more;

    HOLDS(pair != NULL);
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &pair->requests));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &pair->connections));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &pair->sent));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &pair->received));
    OK(dat_ep_create(ia, pz, pair->sent, pair->sent, pair->connections, NULL, &pair->active));
    OK(dat_ep_create(ia, pz, pair->received, pair->received, pair->connections, NULL,
                     &pair->passive));
    region.for_va = pair->memory;
    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof pair->memory, pz,
                      DAT_MEM_PRIV_ALL_FLAG, VIRTUAL &pair->lmr, &pair->segment.lmr_context, NULL, NULL,
                      NULL));
    pair->segment.virtual_address = (DAT_VADDR)(uintptr_t)pair->memory;
    pair->segment.segment_length = 64;
    OK(dat_psp_create_any(ia, &qualifier, pair->requests, DAT_PSP_CONSUMER_FLAG, &pair->psp));
    OK(dat_ia_query(ia, NULL, DAT_IA_ALL, &attributes, 0, NULL));
    OK(dat_ep_connect(pair->active, attributes.ia_address_ptr, qualifier, LONG, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    OK(dat_evd_wait(pair->requests, LONG, 1, &event, &more));
    HOLDS(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, pair->passive, 0, NULL));
    until_established(pair->connections);
    until_established(pair->connections);
    return pair;
}

void disconnect(struct pair *pair)
{
    OK(dat_ep_free(pair->active));
    OK(dat_ep_free(pair->passive));
    OK(dat_psp_free(pair->psp));
    OK(dat_lmr_free(pair->lmr));
    OK(dat_evd_free(pair->requests));
    OK(dat_evd_free(pair->connections));
    OK(dat_evd_free(pair->sent));
    OK(dat_evd_free(pair->received));
    free(pair);
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    OK(dat_ia_open("mlx5_0", 8, &errors, &ia));
    OK(dat_pz_create(ia, &pz));
    for (int at = 1; at < argc; at++)
        for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
            if (strcmp(argv[at], parts[part].name) == 0) {
                parts[part].run();
                printf("%s well\n", argv[at]);
            }
    OK(dat_pz_free(pz));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    puts("closed");
    return 0;
}
