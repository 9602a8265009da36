/* What values and layouts do not cover: aliases, macros, initialisers.
 * Compiled as C and as C++, with all warnings as errors. */

#include <dat/udat.h>
#include <dat/dat_registry.h>

/* An array of negative length does not compile. */
#define HOLDS(name, condition) extern char name[(condition) ? 1 : -1]

/* Other spellings that programs use. */
HOLDS(solicited_wait,
      (int)DAT_COMPLETION_SOLICITED_WAIT == (int)DAT_COMPLETION_SOLICITED_WAIT_FLAG);
HOLDS(evd_threshold, (int)DAT_COMPLETION_EVD_THRESHOLD == (int)DAT_COMPLETION_EVD_THRESHOLD_FLAG);
HOLDS(completion_error, (int)DAT_CONNECTION_COMPLETION_ERROR ==
                            (int)DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
HOLDS(max_dto_per_op, DAT_IA_FIELD_IA_MAX_DTO_PER_OP == DAT_IA_FIELD_IA_MAX_DTO_PER_EP);
HOLDS(pz_difference, sizeof(((DAT_PROVIDER_ATTR *)0)->srq_ep_pz_difference_supported) == 4);

/* Members under their former names. */
HOLDS(mtu, offsetof(DAT_IA_ATTR, max_mtu_size) == offsetof(DAT_IA_ATTR, max_message_size));
HOLDS(read_in, offsetof(DAT_IA_ATTR, max_rdma_read_per_ep) ==
                   offsetof(DAT_IA_ATTR, max_rdma_read_per_ep_in));

/* Return codes split into their parts. */
HOLDS(error_type, DAT_GET_TYPE(0x8005000cu) == (DAT_UINT32)DAT_INVALID_HANDLE);
HOLDS(error_subtype, DAT_GET_SUBTYPE(0x8005000cu) == (DAT_UINT32)DAT_INVALID_HANDLE_EP);
HOLDS(no_warning, !DAT_IS_WARNING(0x8005000cu) && !DAT_IS_WARNING(DAT_SUCCESS));
HOLDS(warning, DAT_IS_WARNING(0x40050000u));
HOLDS(largest_type, DAT_GET_TYPE(0x8fff0000u) == (DAT_UINT32)DAT_NOT_IMPLEMENTED);

/* Values for a peer of the other byte order. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define AS_IS_32 0x01020304u
#define SWAPPED_32 0x04030201u
#define AS_IS_64 UINT64_C(0x0102030405060708)
#define SWAPPED_64 UINT64_C(0x0807060504030201)
HOLDS(lmrc_lsb, DAT_LMRC_TO_LSB(AS_IS_32) == AS_IS_32);
HOLDS(lmrc_msb, DAT_LMRC_TO_MSB(AS_IS_32) == SWAPPED_32);
HOLDS(rmrc_lsb, DAT_RMRC_TO_LSB(AS_IS_32) == AS_IS_32);
HOLDS(rmrc_msb, DAT_RMRC_TO_MSB(AS_IS_32) == SWAPPED_32);
HOLDS(vaddr_lsb, DAT_VADDR_TO_LSB(AS_IS_64) == AS_IS_64);
HOLDS(vaddr_msb, DAT_VADDR_TO_MSB(AS_IS_64) == SWAPPED_64);
HOLDS(vlen_lsb, DAT_VLEN_TO_LSB(AS_IS_64) == AS_IS_64);
HOLDS(vlen_msb, DAT_VLEN_TO_MSB(AS_IS_64) == SWAPPED_64);
HOLDS(sizes, sizeof(DAT_RMRC_TO_MSB(0)) == 4 && sizeof(DAT_VLEN_TO_MSB(0)) == 8);
#endif

/* The preprocessor can tell versions apart. */
#if DAT_VERSION_MAJOR != 1 || DAT_VERSION_MINOR != 2
#error "not uDAPL 1.2"
#endif

DAT_RETURN open_and_close(IN DAT_NAME_PTR name, OUT DAT_IA_HANDLE *ia, INOUT DAT_EVD_HANDLE *evd);
DAT_RETURN open_and_close(DAT_NAME_PTR name, DAT_IA_HANDLE *ia, DAT_EVD_HANDLE *evd)
{
    DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
    DAT_RMR_BIND_COMPLETION_STATUS status = DAT_RMR_BIND_SUCCESS;
    DAT_IA_ATTR ia_attr;
    DAT_PROVIDER_ATTR provider_attr;
    DAT_RETURN result = dat_ia_open(name, 8, evd, ia);

    if (DAT_GET_TYPE(result) == DAT_NAME_NOT_FOUND || *evd == DAT_EVD_OUT_OF_SCOPE)
        return result;
    *evd = DAT_EVD_ASYNC_EXISTS;
    result = dat_ia_query(*ia, evd, DAT_IA_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL, &provider_attr);
    if (result == DAT_SUCCESS && provider_attr.evd_stream_merging_supported[0][5] == DAT_TRUE)
        result = dat_cno_create(*ia, agent, &cno);
    if (result == DAT_SUCCESS && status == DAT_RMR_BIND_SUCCESS)
        result = DAT_CNO_CREATE(*ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno);
    if (ia_attr.max_mtu_size < 4096 && DAT_TIMEOUT_INFINITE > 0 && DAT_VALUE_UNKNOWN < 0)
        return dat_ia_close(*ia, DAT_CLOSE_DEFAULT);
    return DAT_EVD_FREE(*evd);
}

/* A provider defines its two entry points by the macros. */
void DAT_PROVIDER_INIT_FUNC_NAME(const DAT_PROVIDER_INFO *provider_info, const char *instance_data)
{
    static DAT_PROVIDER table;
    DAT_PROVIDER_INIT_FUNC self = DAT_PROVIDER_INIT_FUNC_NAME;

    if (instance_data && self)
        (void)dat_registry_add_provider(&table, provider_info);
}
