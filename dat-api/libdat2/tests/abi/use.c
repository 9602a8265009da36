/* What values and layouts do not cover: aliases, macros, initialisers, members of
 * anonymous unions. Compiled as C and as C++, with all warnings as errors. */

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

/* An array of negative length does not compile. */
#define HOLDS(name, condition) extern char name[(condition) ? 1 : -1]

/* Other spellings that programs use. */
HOLDS(multipath, (int)DAT_CONNECT_MULTIPATH_REQUESTED_FLAG == (int)DAT_CONNECT_MULTIPATH_FLAG);
HOLDS(max_dto_per_op, DAT_IA_FIELD_IA_MAX_DTO_PER_OP == DAT_IA_FIELD_IA_MAX_DTO_PER_EP);
HOLDS(extensions, DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED == DAT_IA_FIELD_IA_EXTENSION);
HOLDS(mtu, offsetof(DAT_IA_ATTR, max_mtu_size) == offsetof(DAT_IA_ATTR, max_message_size));

/* Members of anonymous unions. */
HOLDS(agent, offsetof(DAT_CNO_PARAM, proxy.agent) == 16);
HOLDS(fd, offsetof(DAT_CNO_PARAM, proxy.fd) == 16 && offsetof(DAT_CNO_PARAM, proxy.none) == 16);
HOLDS(immed, offsetof(DAT_IB_EXTENSION_EVENT_DATA, val.immed) == 8);
HOLDS(remote_ah, offsetof(DAT_IB_EXTENSION_EVENT_DATA, remote_ah) == 16);
HOLDS(coll, offsetof(DAT_IB_EXTENSION_EVENT_DATA, coll) == 16);
HOLDS(extension_data, sizeof(DAT_IB_EXTENSION_EVENT_DATA) <=
                          sizeof(((DAT_EVENT *)0)->event_extension_data));

/* Return codes split into their parts. */
HOLDS(error_type, DAT_GET_TYPE(0x80060025u) == (DAT_UINT32)DAT_INVALID_PARAMETER);
HOLDS(error_subtype, DAT_GET_SUBTYPE(0x80060025u) == (DAT_UINT32)DAT_INVALID_ARG1);
HOLDS(largest_type, DAT_GET_TYPE(0xbfff0000u) == (DAT_UINT32)DAT_NOT_IMPLEMENTED);

/* The preprocessor can tell versions apart. */
#if DAT_VERSION_MAJOR != 2 || DAT_VERSION_MINOR != 0 || !DAT_EXTENSIONS
#error "not uDAPL 2.0"
#endif

DAT_EXPORT DAT_RETURN DAT_API open_and_close(IN DAT_NAME_PTR name, OUT DAT_IA_HANDLE *ia,
                                             INOUT DAT_EVD_HANDLE *evd);
DAT_RETURN DAT_API open_and_close(DAT_NAME_PTR name, DAT_IA_HANDLE *ia, DAT_EVD_HANDLE *evd)
{
    DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
    DAT_IA_ATTR ia_attr;
    DAT_PROVIDER_ATTR provider_attr;
    const char *message;
    DAT_RETURN result = dat_ia_open(name, 8, evd, ia);

    if (DAT_GET_TYPE(result) == DAT_NAME_NOT_FOUND || *evd == DAT_EVD_OUT_OF_SCOPE)
        return result;
    *ia = DAT_UL_TO_IA_HANDLE(DAT_IA_HANDLE_TO_UL(*ia));
    result = dat_ia_query(*ia, evd, DAT_IA_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL, &provider_attr);
    if (result == DAT_SUCCESS && ia_attr.extension_supported == DAT_EXTENSION_IB)
        result = dat_strerror_extension(DAT_IB_ERR, &message);
    if (result == DAT_SUCCESS && provider_attr.rmr_scope_supported == DAT_RMR_SCOPE_ANY)
        result = dat_strerror_ext_status(DAT_IB_OP_ERR, &message);
    if (result == DAT_SUCCESS)
        result = DAT_CNO_CREATE(*ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno);
    return DAT_EVD_FREE(*evd);
}

/* Every extension with a program's arguments. */
DAT_RETURN extensions_of(DAT_EP_HANDLE ep, DAT_IA_HANDLE ia, DAT_NAME_PTR name);
DAT_RETURN extensions_of(DAT_EP_HANDLE ep, DAT_IA_HANDLE ia, DAT_NAME_PTR name)
{
    DAT_LMR_TRIPLET local = {0, 8, 0};
    DAT_RMR_TRIPLET remote = {0, 8, 0};
    DAT_DTO_COOKIE cookie;
    DAT_IB_ADDR_HANDLE peer;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    DAT_UINT64 counters[DCNT_EP_ALL_COUNTERS];
    DAT_RETURN result;

    cookie.as_64 = 1;
    peer.ah = NULL;
    result = dat_ib_post_fetch_and_add(ep, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG);
    result |= dat_ib_post_cmp_and_swap(ep, 1, 2, &local, cookie, &remote,
                                       DAT_COMPLETION_DEFAULT_FLAG);
    result |= dat_ib_post_rdma_write_immed(ep, 1, &local, cookie, &remote, 7,
                                           DAT_COMPLETION_DEFAULT_FLAG);
    result |= dat_ib_post_send_ud(ep, 1, &local, &peer, cookie, DAT_COMPLETION_DEFAULT_FLAG);
    result |= dat_ib_query_counters(ep, DCNT_EP_ALL_COUNTERS, counters, 0);
    result |= dat_query_counters(ep, DCNT_EP_ALL_COUNTERS, counters, 0);
    result |= dat_ib_start_counter(ia, DCNT_IA_CM) | dat_ib_stop_counter(ia, DCNT_IA_CM);
    result |= dat_ib_open_query(name, &ia, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL,
                                &provider);
    result |= dat_ib_close_query(ia);
    result |= dat_ib_collective_barrier(ia, cookie, DAT_COMPLETION_DEFAULT_FLAG);
    return result;
}

/* A provider defines its two entry points by the macros. */
void DAT_PROVIDER_INIT_FUNC_NAME(const DAT_PROVIDER_INFO *provider_info, const char *instance_data)
{
    static const DAT_PROVIDER *table;
    DAT_PROVIDER_INIT_FUNC self = DAT_PROVIDER_INIT_FUNC_NAME;

    if (instance_data && self)
        (void)dat_registry_add_provider(table, provider_info);
}
