/* Agents of CNOs that end the thread on which they are called. */
#include "cancel.h"

struct agent {
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd;
    /* Sets the agent again before it ends its thread. */
    int renews;
    /* Waits to be cancelled. */
    int lingers;
    atomic_int calls;
    pthread_t thread;
};

static void called(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    struct agent *agent = data;
    DAT_OS_WAIT_PROXY_AGENT again = {agent, called};
    DAT_EVENT event;

    if (evd != DAT_HANDLE_NULL)
        while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
            ;
    if (agent->renews)
        OK(dat_cno_modify_agent(agent->cno, again));
    agent->thread = pthread_self();
    agent->calls++;
    if (agent->lingers)
        for (;;)
            pause();
    pthread_exit(NULL);
}

static void until(struct agent *agent, int calls)
{
    while (agent->calls < calls)
        sched_yield();
}

static void make(struct agent *agent)
{
    OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &agent->cno));
    agent->evd = software_evd(agent->cno);
}

void agents(void)
{
    DAT_EVENT event;

    /* Set again by the program, and by the agent itself. */
    for (int renews = 0; renews < 2; renews++) {
        struct agent agent = {.renews = renews};
        DAT_OS_WAIT_PROXY_AGENT self = {&agent, called};

        make(&agent);
        for (int calls = 1; calls <= 50; calls++) {
            if (calls == 1 || !renews)
                OK(dat_cno_modify_agent(agent.cno, self));
            post(agent.evd);
            until(&agent, calls);
            dawdle((unsigned)calls);
        }
        agent.renews = 0;
        OK(dat_cno_modify_agent(agent.cno, DAT_OS_WAIT_PROXY_AGENT_NULL));
        HOLDS(agent.calls == 50);
        /* Waiting works meanwhile. */
        while (dat_evd_dequeue(agent.evd, &event) == DAT_SUCCESS)
            ;
        OK(dat_evd_free(agent.evd));
        OK(dat_cno_free(agent.cno));
    }
    /* Cancelled by another thread; and ended while the CNO is being freed. */
    for (int round = 0; round < 20; round++) {
        struct agent agent = {.lingers = 1};
        DAT_OS_WAIT_PROXY_AGENT self = {&agent, called};

        make(&agent);
        OK(dat_cno_modify_agent(agent.cno, self));
        post(agent.evd);
        until(&agent, 1);
        dawdle((unsigned)round);
        HOLDS(pthread_cancel(agent.thread) == 0);
        if (round % 2) {
            OK(dat_cno_modify_agent(agent.cno, self));
            post(agent.evd);
            until(&agent, 2);
            HOLDS(pthread_cancel(agent.thread) == 0);
        }
        while (dat_evd_dequeue(agent.evd, &event) == DAT_SUCCESS)
            ;
        OK(dat_evd_free(agent.evd));
        OK(dat_cno_free(agent.cno));
    }
}
