/* Calls through a provider table whose functions are in Rust, with the arguments that
 * differ from uDAPL 1.2. Each function returns 0 if its arguments arrived intact. */

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

/* Returns the number of the first call that failed, or 0. */
int calls_by_value(DAT_HANDLE object);
int calls_by_value(DAT_HANDLE object)
{
    DAT_CONTEXT context;
    DAT_REGION_DESCRIPTION region;
    char name[DAT_LMR_COOKIE_SIZE] = "shared";
    DAT_LMR_TRIPLET local[2] = {{0x2000, 0x30, 0x11}, {0x5000, 0x60, 0x44}};
    DAT_RMR_TRIPLET remote = {0x8000, 0x90, 0x77};
    DAT_LMR_HANDLE lmr = DAT_HANDLE_NULL;
    DAT_LMR_CONTEXT lmr_context = 0;
    DAT_RMR_CONTEXT rmr_context = 0;
    DAT_VLEN length = 0;
    DAT_VADDR address = 0;
    DAT_EVENT event;
    DAT_COUNT nmore = 0;

    context.as_64 = UINT64_C(0x0123456789abcdef);
    if (DAT_CR_REJECT(object, 7, name))
        return 1;
    if (DAT_EP_POST_RDMA_WRITE(object, 2, local, context, &remote, DAT_COMPLETION_SUPPRESS_FLAG))
        return 2;
    if (DAT_RMR_BIND(object, object, local, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB, object, context,
                     DAT_COMPLETION_BARRIER_FENCE_FLAG, &rmr_context) ||
        rmr_context != 0x1234)
        return 3;
    region.for_shared_memory.virtual_address = local;
    region.for_shared_memory.shared_memory_id = &name;
    if (DAT_LMR_CREATE(object, DAT_MEM_TYPE_SHARED_VIRTUAL, region, sizeof local, object,
                       DAT_MEM_PRIV_READ_FLAG, DAT_VA_TYPE_ZB, &lmr, &lmr_context, &rmr_context,
                       &length, &address) ||
        lmr != object || lmr_context != 0x21 || rmr_context != 0x22 || length != 0x23 ||
        address != 0x24)
        return 4;
    if (DAT_EVD_WAIT(object, DAT_TIMEOUT_INFINITE, 3, &event, &nmore) || nmore != 2 ||
        event.event_number != DAT_DTO_COMPLETION_EVENT || event.evd_handle != object ||
        event.event_data.dto_completion_event_data.ep_handle != object ||
        event.event_data.dto_completion_event_data.user_cookie.as_64 != context.as_64 ||
        event.event_data.dto_completion_event_data.status != DAT_DTO_ERR_FLUSHED ||
        event.event_data.dto_completion_event_data.transfered_length != 0x80000000u ||
        event.event_data.dto_completion_event_data.operation != DAT_DTO_RDMA_READ ||
        event.event_data.dto_completion_event_data.rmr_context != 0x55)
        return 5;
    return 0;
}
