/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat2/udat.h: uDAPL 2.0, the Direct Access Transport API of user programs.
 * This is the header to include. It includes dat2/dat.h, which has the calls
 * that user and kernel programs have in common.
 */
#ifndef UDAT2_H
#define UDAT2_H

#include <dat2/dat.h>
#include <dat2/udat_config.h>
#include <dat2/udat_vendor_specific.h>

/* For *async_evd_handle of dat_ia_open: creates no EVD, because another IA has one. */
#define DAT_EVD_ASYNC_EXISTS ((DAT_EVD_HANDLE)0x1)
/* Returned in *async_evd_handle in that case. */
#define DAT_EVD_OUT_OF_SCOPE ((DAT_EVD_HANDLE)0x2)

/* Notification */

/* Called with the EVD when a CNO triggers, or with a null EVD when the CNO ends. */
typedef void (*DAT_AGENT_FUNC)(DAT_PVOID instance_data, DAT_EVD_HANDLE evd_handle);

typedef struct dat_os_wait_proxy_agent {
    DAT_PVOID instance_data;
    DAT_AGENT_FUNC proxy_agent_func;
} DAT_OS_WAIT_PROXY_AGENT;

#ifdef __cplusplus
#define DAT_OS_WAIT_PROXY_AGENT_NULL (DAT_OS_WAIT_PROXY_AGENT())
#else
#define DAT_OS_WAIT_PROXY_AGENT_NULL \
    ((DAT_OS_WAIT_PROXY_AGENT){(DAT_PVOID)NULL, (DAT_AGENT_FUNC)NULL})
#endif

/* What a CNO triggers besides the threads that wait on it. */
typedef enum dat_proxy_type {
    DAT_PROXY_TYPE_NONE = 0,
    DAT_PROXY_TYPE_AGENT = 1,
    DAT_PROXY_TYPE_FD = 2,
} DAT_PROXY_TYPE;

typedef struct dat_cno_param {
    DAT_IA_HANDLE ia_handle;
    DAT_PROXY_TYPE proxy_type; /* selects the member of proxy */
    union {
        DAT_OS_WAIT_PROXY_AGENT agent;
        DAT_FD fd;
        DAT_PVOID none;
    } proxy;
} DAT_CNO_PARAM;

/* The values are no bits: DAT_CNO_FIELD_ALL is not the sum of the others. */
typedef enum dat_cno_param_mask {
    DAT_CNO_FIELD_IA_HANDLE = 0x1,
    DAT_CNO_FIELD_PROXY_TYPE = 0x2,
    DAT_CNO_FIELD_PROXY = 0x3,
    DAT_CNO_FIELD_ALL = 0x4,
} DAT_CNO_PARAM_MASK;

struct dat_evd_param {
    DAT_IA_HANDLE ia_handle;
    DAT_COUNT evd_qlen; /* events that it holds */
    DAT_EVD_STATE evd_state;
    DAT_CNO_HANDLE cno_handle;
    DAT_EVD_FLAGS evd_flags;
};

/* Memory */

/* Identifies shared memory: processes that register it use the same bytes. */
#define DAT_LMR_COOKIE_SIZE 40
typedef char (*DAT_LMR_COOKIE)[DAT_LMR_COOKIE_SIZE];

typedef struct dat_shared_memory {
    DAT_PVOID virtual_address;
    DAT_LMR_COOKIE shared_memory_id;
} DAT_SHARED_MEMORY;

/* What to register; DAT_MEM_TYPE selects the member. */
typedef union dat_region_description {
    DAT_PVOID for_va;
    DAT_LMR_HANDLE for_lmr_handle;
    DAT_SHARED_MEMORY for_shared_memory;
} DAT_REGION_DESCRIPTION;

struct dat_lmr_param {
    DAT_IA_HANDLE ia_handle;
    DAT_MEM_TYPE mem_type;
    DAT_REGION_DESCRIPTION region_desc;
    DAT_VLEN length;
    DAT_PZ_HANDLE pz_handle;
    DAT_MEM_PRIV_FLAGS mem_priv;
    DAT_VA_TYPE va_type;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context;
    DAT_VLEN registered_size;
    DAT_VADDR registered_address;
};

/* Provider */

/* How the zones of the two ends of a connection may relate. */
typedef enum dat_pz_support {
    DAT_PZ_UNIQUE = 0,
    DAT_PZ_SHAREABLE = 1,
} DAT_PZ_SUPPORT;

struct dat_provider_attr {
    char provider_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 provider_version_major;
    DAT_UINT32 provider_version_minor;
    DAT_UINT32 dapl_version_major;
    DAT_UINT32 dapl_version_minor;
    DAT_MEM_TYPE lmr_mem_types_supported;
    DAT_IOV_OWNERSHIP iov_ownership_on_return;
    DAT_QOS dat_qos_supported;
    DAT_COMPLETION_FLAGS completion_flags_supported;
    DAT_BOOLEAN is_thread_safe;
    DAT_COUNT max_private_data_size; /* bytes */
    DAT_BOOLEAN supports_multipath;
    DAT_EP_CREATOR_FOR_PSP ep_creator;
    DAT_PZ_SUPPORT pz_support;
    DAT_UINT32 optimal_buffer_alignment; /* bytes */
    /* Which pairs of streams one EVD may carry. The indices are: software, CR, DTO,
     * connection, RMR bind, asynchronous. */
#ifdef __cplusplus /* where a const member would forbid a variable of this type */
    DAT_BOOLEAN evd_stream_merging_supported[6][6];
#else
    const DAT_BOOLEAN evd_stream_merging_supported[6][6];
#endif
    DAT_BOOLEAN srq_supported;
    DAT_COUNT srq_watermarks_supported;
    DAT_BOOLEAN srq_ep_pz_difference_supported; /* zones of an SRQ and its endpoints */
    DAT_COUNT srq_info_supported;
    DAT_COUNT ep_recv_info_supported;
    DAT_BOOLEAN lmr_sync_req;
    DAT_BOOLEAN dto_async_return_guaranteed;
    DAT_BOOLEAN rdma_write_for_rdma_read_req;
    DAT_BOOLEAN rdma_read_lmr_rmr_context_exposure; /* a read needs an LMR that peers may write */
    DAT_RMR_SCOPE rmr_scope_supported;
    DAT_BOOLEAN is_signal_safe; /* calls may be used in signal handlers */
    DAT_BOOLEAN ha_supported;
    DAT_HA_LB ha_loadbalancing;
    DAT_COUNT num_provider_specific_attr;
    DAT_NAMED_ATTR *provider_specific_attr;
};

#define DAT_PROVIDER_FIELD_PROVIDER_NAME UINT64_C(0x1)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MAJOR UINT64_C(0x2)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MINOR UINT64_C(0x4)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MAJOR UINT64_C(0x8)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MINOR UINT64_C(0x10)
#define DAT_PROVIDER_FIELD_LMR_MEM_TYPE_SUPPORTED UINT64_C(0x20)
#define DAT_PROVIDER_FIELD_IOV_OWNERSHIP UINT64_C(0x40)
#define DAT_PROVIDER_FIELD_DAT_QOS_SUPPORTED UINT64_C(0x80)
#define DAT_PROVIDER_FIELD_COMPLETION_FLAGS_SUPPORTED UINT64_C(0x100)
#define DAT_PROVIDER_FIELD_IS_THREAD_SAFE UINT64_C(0x200)
#define DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE UINT64_C(0x400)
#define DAT_PROVIDER_FIELD_SUPPORTS_MULTIPATH UINT64_C(0x800)
#define DAT_PROVIDER_FIELD_EP_CREATOR UINT64_C(0x1000)
#define DAT_PROVIDER_FIELD_PZ_SUPPORT UINT64_C(0x2000)
#define DAT_PROVIDER_FIELD_OPTIMAL_BUFFER_ALIGNMENT UINT64_C(0x4000)
#define DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED UINT64_C(0x8000)
#define DAT_PROVIDER_FIELD_SRQ_SUPPORTED UINT64_C(0x10000)
#define DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED UINT64_C(0x20000)
#define DAT_PROVIDER_FIELD_SRQ_EP_PZ_DIFFERENCE_SUPPORTED UINT64_C(0x40000)
#define DAT_PROVIDER_FIELD_SRQ_INFO_SUPPORTED UINT64_C(0x80000)
#define DAT_PROVIDER_FIELD_EP_RECV_INFO_SUPPORTED UINT64_C(0x100000)
#define DAT_PROVIDER_FIELD_LMR_SYNC_REQ UINT64_C(0x200000)
#define DAT_PROVIDER_FIELD_DTO_ASYNC_RETURN_GUARANTEED UINT64_C(0x400000)
#define DAT_PROVIDER_FIELD_RDMA_WRITE_FOR_RDMA_READ_REQ UINT64_C(0x800000)
#define DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE UINT64_C(0x1000000)
#define DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED UINT64_C(0x2000000)
#define DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE UINT64_C(0x4000000)
#define DAT_PROVIDER_FIELD_HA_SUPPORTED UINT64_C(0x8000000)
#define DAT_PROVIDER_FIELD_HA_LB UINT64_C(0x10000000)
#define DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR UINT64_C(0x20000000)
#define DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR UINT64_C(0x40000000)
#define DAT_PROVIDER_FIELD_ALL UINT64_C(0x7fffffff)
#define DAT_PROVIDER_FIELD_NONE UINT64_C(0x0)

#ifdef __cplusplus
extern "C" {
#endif

/* Event dispatcher */

/*
 * Creates a queue of at least evd_min_qlen events, for the kinds of streams that the flags
 * select. The CNO may be null.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_evd_create(DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen,
                          DAT_CNO_HANDLE cno_handle, DAT_EVD_FLAGS evd_flags,
                          DAT_EVD_HANDLE *evd_handle);

/*
 * Waits until threshold events are queued, takes the first, and sets *nmore to the number
 * of events left. One thread at a time may wait; the CNO is not triggered during the call.
 * Errors: DAT_TIMEOUT_EXPIRED and DAT_INTERRUPTED_CALL (no event is taken, *nmore is set),
 * DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (another thread waits, or
 * the EVD is unwaitable), DAT_ABORT (the EVD was destroyed).
 */
DAT_RETURN dat_evd_wait(DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout,
                        DAT_COUNT threshold, DAT_EVENT *event, DAT_COUNT *nmore);

/*
 * Assigns an EVD to another CNO, or to none.
 * Errors: DAT_INVALID_HANDLE, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_evd_modify_cno(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);

/*
 * Enables the trigger of the CNO.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_evd_enable(DAT_EVD_HANDLE evd_handle);

/*
 * Disables the trigger of the CNO. Waiting threads are not affected.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_evd_disable(DAT_EVD_HANDLE evd_handle);

/*
 * Ends the wait of a thread. Later waits fail with DAT_INVALID_STATE, until
 * dat_evd_clear_unwaitable is called.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_evd_set_unwaitable(DAT_EVD_HANDLE evd_handle);

/*
 * Allows waiting on the EVD again.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd_handle);

/* Notification object */

/*
 * Creates a CNO, which the EVDs of an adapter can trigger. The agent may be
 * DAT_OS_WAIT_PROXY_AGENT_NULL.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_cno_create(DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent,
                          DAT_CNO_HANDLE *cno_handle);

/*
 * Sets the agent, which is called for the next trigger, on a thread of the library. The
 * agent is called once; for another trigger it has to be set again.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_cno_modify_agent(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_cno_query(DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK cno_param_mask,
                         DAT_CNO_PARAM *cno_param);

/*
 * Waits until an EVD triggers the CNO, and returns it as a hint: other EVDs may have
 * events too. Unless the adapter is strict (DAT_STRICT=1), the call returns at once with
 * an EVD that holds events that notify, also if it was returned before.
 * Any number of threads may wait. A null EVD with success means that the
 * adapter is being closed, or that the last EVD of the CNO was freed.
 * Errors: DAT_QUEUE_EMPTY (timeout), DAT_INTERRUPTED_CALL, DAT_INVALID_HANDLE,
 * DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES. On error the EVD is null.
 */
DAT_RETURN dat_cno_wait(DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout,
                        DAT_EVD_HANDLE *evd_handle);

/*
 * Creates a CNO whose trigger makes a file descriptor readable. The descriptor belongs to
 * the CNO: a program polls it, and does not close it.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_cno_fd_create(DAT_IA_HANDLE ia_handle, DAT_FD *file_descriptor,
                             DAT_CNO_HANDLE *cno_handle);

/*
 * Takes a trigger of a CNO that has a file descriptor, and returns its EVD as a hint. The
 * descriptor stays readable while other triggers are pending.
 * Errors: DAT_QUEUE_EMPTY (no trigger), DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER,
 * DAT_INVALID_STATE (no descriptor), DAT_INTERNAL_ERROR.
 */
DAT_RETURN dat_cno_trigger(DAT_CNO_HANDLE cno_handle, DAT_EVD_HANDLE *evd_handle);

/*
 * Destroys a CNO that has no EVDs and no waiting threads.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (in use).
 */
DAT_RETURN dat_cno_free(DAT_CNO_HANDLE cno_handle);

/* Memory */

/*
 * Registers memory. rmr_context is for the peer, and 0 without a remote privilege. Other
 * providers may register more memory than requested. Every output pointer may be null.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_LENGTH_ERROR (no bytes),
 * DAT_INVALID_STATE (shared memory that is not shared), DAT_MODEL_NOT_SUPPORTED,
 * DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type,
                          DAT_REGION_DESCRIPTION region_description, DAT_VLEN length,
                          DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS privileges,
                          DAT_VA_TYPE va_type, DAT_LMR_HANDLE *lmr_handle,
                          DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context,
                          DAT_VLEN *registered_length, DAT_VADDR *registered_address);

#ifdef __cplusplus
}
#endif

#endif
