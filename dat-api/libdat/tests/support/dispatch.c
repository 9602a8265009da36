/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls through the table that every handle points to, as in programs that
 * include the redirection headers. */
#include <dat/udat.h>
#include <dat/udat_redirection.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(const char *what, DAT_RETURN answer, DAT_RETURN expected)
{
    if (answer != expected) {
        fprintf(stderr, "%s: 0x%x instead of 0x%x\n", what, answer, expected);
        failures++;
    }
}

int main(void)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, evd;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_PZ_PARAM param;

    expect("open", dat_ia_open("mlx5_0", 8, &async_evd, &ia), DAT_SUCCESS);
    if (failures)
        return 1;
    expect("pz_create", DAT_PZ_CREATE(ia, &pz), DAT_SUCCESS);
    expect("pz_query", DAT_PZ_QUERY(pz, DAT_PZ_FIELD_ALL, &param), DAT_SUCCESS);
    if (param.ia_handle != ia)
        failures++;
    expect("evd_create",
           DAT_EVD_CREATE(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
    context.as_64 = 0x1122334455667788u;
    expect("set_context", DAT_SET_CONSUMER_CONTEXT(evd, context), DAT_SUCCESS);
    context.as_64 = 0;
    expect("get_context", DAT_GET_CONSUMER_CONTEXT(evd, &context), DAT_SUCCESS);
    if (context.as_64 != 0x1122334455667788u)
        failures++;
    expect("handle_type", DAT_GET_HANDLE_TYPE(async_evd, &type), DAT_SUCCESS);
    if (type != DAT_HANDLE_TYPE_EVD)
        failures++;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = &event;
    expect("post_se", DAT_EVD_POST_SE(evd, &event), DAT_SUCCESS);
    memset(&event, 0, sizeof event);
    expect("wait", DAT_EVD_WAIT(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more), DAT_SUCCESS);
    if (event.event_data.software_event_data.pointer != &event || event.evd_handle != evd)
        failures++;
    expect("dequeue", DAT_EVD_DEQUEUE(evd, &event), DAT_CLASS_ERROR | DAT_QUEUE_EMPTY);
    expect("evd_free", DAT_EVD_FREE(evd), DAT_SUCCESS);
    expect("pz_free", DAT_PZ_FREE(pz), DAT_SUCCESS);
    expect("close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
    puts(failures ? "failed" : "all through the table");
    return failures != 0;
}
