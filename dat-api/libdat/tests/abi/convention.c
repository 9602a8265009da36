/* Calls through a provider table whose functions are in Rust, with arguments
 * passed by value. Each function returns 0 if its arguments arrived intact. */

#include <dat/udat.h>
#include <dat/dat_registry.h>

static DAT_PVOID seen_data;
static DAT_EVD_HANDLE seen_evd;

static void agent_function(DAT_PVOID instance_data, DAT_EVD_HANDLE evd)
{
    seen_data = instance_data;
    seen_evd = evd;
}

/* Returns the number of the first call that failed, or 0. */
int calls_by_value(DAT_HANDLE object);
int calls_by_value(DAT_HANDLE object)
{
    DAT_CONTEXT context;
    DAT_REGION_DESCRIPTION region;
    DAT_OS_WAIT_PROXY_AGENT agent;
    char name[DAT_LMR_COOKIE_SIZE] = "shared";
    DAT_LMR_TRIPLET local[2] = {{0x11, 0, 0x2000, 0x30}, {0x44, 0, 0x5000, 0x60}};
    DAT_RMR_TRIPLET remote = {0x77, 0, 0x8000, 0x90};
    DAT_LMR_HANDLE lmr = DAT_HANDLE_NULL;
    DAT_LMR_CONTEXT lmr_context = 0;
    DAT_RMR_CONTEXT rmr_context = 0;
    DAT_VLEN length = 0;
    DAT_VADDR address = 0;
    DAT_EVENT event;
    DAT_COUNT nmore = 0;

    context.as_64 = UINT64_C(0x0123456789abcdef);
    if (DAT_SET_CONSUMER_CONTEXT(object, context))
        return 1;
    if (DAT_EP_POST_SEND(object, 2, local, context, DAT_COMPLETION_UNSIGNALLED_FLAG))
        return 2;
    if (DAT_EP_POST_RDMA_WRITE(object, 2, local, context, &remote, DAT_COMPLETION_SUPPRESS_FLAG))
        return 3;
    if (DAT_SRQ_POST_RECV(object, 2, local, context))
        return 4;
    if (DAT_RMR_BIND(object, local, DAT_MEM_PRIV_ALL_FLAG, object, context,
                     DAT_COMPLETION_BARRIER_FENCE_FLAG, &rmr_context) ||
        rmr_context != 0x1234)
        return 5;
    region.for_shared_memory.virtual_address = local;
    region.for_shared_memory.shared_memory_id = &name;
    if (DAT_LMR_CREATE(object, DAT_MEM_TYPE_SHARED_VIRTUAL, region, sizeof local, object,
                       DAT_MEM_PRIV_READ_FLAG, &lmr, &lmr_context, &rmr_context, &length,
                       &address) ||
        lmr != object || lmr_context != 0x21 || rmr_context != 0x22 || length != 0x23 ||
        address != 0x24)
        return 6;
    agent.instance_data = local;
    agent.proxy_agent_func = agent_function;
    if (DAT_CNO_CREATE(object, agent, &lmr) || seen_data != local || seen_evd != object)
        return 7;
    if (DAT_EVD_WAIT(object, DAT_TIMEOUT_INFINITE, 3, &event, &nmore) || nmore != 2 ||
        event.event_number != DAT_DTO_COMPLETION_EVENT || event.evd_handle != object ||
        event.event_data.dto_completion_event_data.ep_handle != object ||
        event.event_data.dto_completion_event_data.user_cookie.as_64 != context.as_64 ||
        event.event_data.dto_completion_event_data.status != DAT_DTO_ERR_FLUSHED ||
        event.event_data.dto_completion_event_data.transfered_length != UINT64_C(1) << 40)
        return 8;
    return 0;
}
