#ifdef DAT2
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_ib_extensions.h: operations of InfiniBand and RoCE that DAT does not have: atomic
 * operations, immediate data, datagrams. Each macro here calls dat_extension_op.
 *
 * dat_ia_query says what an adapter supports: DAT_IA_ATTR.extension_supported is
 * DAT_EXTENSION_IB, and the provider-specific attributes have the names below, with the
 * value "TRUE". This library has RDMA writes with immediate data and atomic operations, on
 * devices that have them. Other operations return DAT_MODEL_NOT_SUPPORTED.
 *
 * The event of such an operation has a number of DAT_IB_EVENT_NUMBER. Its
 * dto_completion_event_data are as for other transfers, and event_extension_data begins with
 * a DAT_IB_EXTENSION_EVENT_DATA.
 */
#ifndef DAT_IB_EXTENSIONS_H
#define DAT_IB_EXTENSIONS_H

#include <dat/dat_registry.h>
#include <dat/udat.h>

#define DAT_IB_EXTENSION_VERSION 209 /* 2.0.9 */

/* Names of provider-specific attributes: what an adapter supports. */
#define DAT_IB_ATTR_FETCH_AND_ADD "DAT_IB_FETCH_AND_ADD"
#define DAT_IB_ATTR_CMP_AND_SWAP "DAT_IB_CMP_AND_SWAP"
#define DAT_IB_ATTR_IMMED_DATA "DAT_IB_IMMED_DATA"
#define DAT_IB_ATTR_UD "DAT_IB_UD"

/* For DAT_EVENT.event_number. */
typedef enum dat_ib_event_number {
    DAT_IB_DTO_EVENT = 0x40000, /* a transfer has completed */
    DAT_IB_UD_CONNECTION_REQUEST_EVENT = 0x40001,
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED = 0x40002,
    DAT_IB_UD_CONNECTION_REJECT_EVENT = 0x40003,
    DAT_IB_UD_CONNECTION_ERROR_EVENT = 0x40004,
    DAT_IB_COLLECTIVE_EVENT = 0x40005,
} DAT_IB_EVENT_NUMBER;

/* For DAT_DTO_COMPLETION_EVENT_DATA.operation. */
typedef enum dat_ib_dtos {
    DAT_IB_DTO_RDMA_WRITE_IMMED = 8,
    DAT_IB_DTO_RECV_IMMED = 9,
    DAT_IB_DTO_FETCH_ADD = 10,
    DAT_IB_DTO_CMP_SWAP = 11,
    DAT_IB_DTO_RECV_MSG_IMMED = 12,
    DAT_IB_DTO_SEND_UD = 13,
    DAT_IB_DTO_RECV_UD = 14,
    DAT_IB_DTO_RECV_UD_IMMED = 15,
    DAT_IB_DTO_COLLECTIVES = 16,
} DAT_IB_DTOS;

typedef enum dat_ib_handle_type {
    DAT_IB_HANDLE_TYPE_EXT = 12,
    DAT_IB_HANDLE_TYPE_COLLECTIVE = 13,
} DAT_IB_HANDLE_TYPE;

/* For dat_evd_create: extension events. */
typedef enum dat_ib_evd_extension_flags {
    DAT_IB_EVD_EXTENSION_FLAG = 0x200,
} DAT_IB_EVD_EXTENSION_FLAGS;

/* For dat_lmr_create: peers may use atomic operations on the memory. */
typedef enum dat_ib_mem_priv_flags {
    DAT_IB_MEM_PRIV_REMOTE_ATOMIC = 64,
} DAT_IB_MEM_PRIV_FLAGS;

/* For DAT_EP_ATTR.service_type: unreliable datagrams. */
typedef enum dat_ib_service_type {
    DAT_IB_SERVICE_TYPE_UD = 1,
} DAT_IB_SERVICE_TYPE;

/* The operation of dat_extension_op. */
typedef enum dat_ib_op {
    DAT_IB_FETCH_AND_ADD_OP = 0,
    DAT_IB_CMP_AND_SWAP_OP = 1,
    DAT_IB_RDMA_WRITE_IMMED_OP = 2,
    DAT_IB_UD_SEND_OP = 3,
    DAT_IB_QUERY_COUNTERS_OP = 4,
    DAT_IB_PRINT_COUNTERS_OP = 5,
    DAT_IB_COLLECTIVE_CREATE_MEMBER_OP = 6,
    DAT_IB_COLLECTIVE_FREE_MEMBER_OP = 7,
    DAT_IB_COLLECTIVE_CREATE_GROUP_OP = 8,
    DAT_IB_COLLECTIVE_FREE_GROUP_OP = 9,
    DAT_IB_COLLECTIVE_SET_CLOCK_OP = 10,
    DAT_IB_COLLECTIVE_READ_CLOCK_OP = 11,
    DAT_IB_COLLECTIVE_SCATTER_OP = 12,
    DAT_IB_COLLECTIVE_SCATTERV_OP = 13,
    DAT_IB_COLLECTIVE_GATHER_OP = 14,
    DAT_IB_COLLECTIVE_GATHERV_OP = 15,
    DAT_IB_COLLECTIVE_ALLGATHER_OP = 16,
    DAT_IB_COLLECTIVE_ALLGATHERV_OP = 17,
    DAT_IB_COLLECTIVE_ALLTOALL_OP = 18,
    DAT_IB_COLLECTIVE_ALLTOALLV_OP = 19,
    DAT_IB_COLLECTIVE_REDUCE_OP = 20,
    DAT_IB_COLLECTIVE_ALLREDUCE_OP = 21,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP = 22,
    DAT_IB_COLLECTIVE_SCAN_OP = 23,
    DAT_IB_COLLECTIVE_BROADCAST_OP = 24,
    DAT_IB_COLLECTIVE_BARRIER_OP = 25,
    DAT_IB_START_COUNTERS_OP = 26,
    DAT_IB_STOP_COUNTERS_OP = 27,
    DAT_IB_UD_CM_FREE_OP = 28,
    DAT_IB_UD_AH_FREE_OP = 29,
    DAT_IB_OPEN_QUERY_OP = DAT_OPEN_EXTENSION_BASE,
    DAT_IB_CLOSE_QUERY_OP = DAT_CLOSE_EXTENSION_BASE,
} DAT_IB_OP;

/* What extension events are about. */
typedef enum dat_ib_ext_type {
    DAT_IB_FETCH_AND_ADD = 0,
    DAT_IB_CMP_AND_SWAP = 1,
    DAT_IB_RDMA_WRITE_IMMED = 2, /* the write has completed */
    DAT_IB_RDMA_WRITE_IMMED_DATA = 3, /* the peer's write took a receive */
    DAT_IB_RECV_IMMED_DATA = 4, /* a message with immediate data */
    DAT_IB_UD_CONNECT_REQUEST = 5,
    DAT_IB_UD_REMOTE_AH = 6,
    DAT_IB_UD_PASSIVE_REMOTE_AH = 7,
    DAT_IB_UD_SEND = 8,
    DAT_IB_UD_RECV = 9,
    DAT_IB_UD_CONNECT_REJECT = 10,
    DAT_IB_UD_CONNECT_ERROR = 11,
    DAT_IB_COLLECTIVE_CREATE_STATUS = 12,
    DAT_IB_COLLECTIVE_CREATE_DATA = 13,
    DAT_IB_COLLECTIVE_CLOCK_SET_STATUS = 14,
    DAT_IB_COLLECTIVE_SCATTER_STATUS = 15,
    DAT_IB_COLLECTIVE_SCATTERV_STATUS = 16,
    DAT_IB_COLLECTIVE_GATHER_STATUS = 17,
    DAT_IB_COLLECTIVE_GATHERV_STATUS = 18,
    DAT_IB_COLLECTIVE_ALLGATHER_STATUS = 19,
    DAT_IB_COLLECTIVE_ALLGATHERV_STATUS = 20,
    DAT_IB_COLLECTIVE_ALLTOALL_STATUS = 21,
    DAT_IB_COLLECTIVE_ALLTOALLV_STATUS = 22,
    DAT_IB_COLLECTIVE_REDUCE_STATUS = 23,
    DAT_IB_COLLECTIVE_ALLREDUCE_STATUS = 24,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS = 25,
    DAT_IB_COLLECTIVE_SCAN_STATUS = 26,
    DAT_IB_COLLECTIVE_BROADCAST_STATUS = 27,
    DAT_IB_COLLECTIVE_BARRIER_STATUS = 28,
} DAT_IB_EXT_TYPE;

typedef enum dat_ib_status {
    DAT_OP_SUCCESS = 0,
    DAT_IB_OP_ERR = 1,
    DAT_IB_COLL_COMP_ERR = 2,
} DAT_IB_STATUS;

/* The type of a DAT_RETURN of an extension. */
typedef enum dat_ib_return {
    DAT_IB_ERR = 0x10000000,
    DAT_IB_COLLECTIVE_ERR = 0x10000001,
} DAT_IB_RETURN;

/* A destination of datagrams. */
typedef struct dat_ib_addr_handle {
    struct ibv_ah *ah;
    DAT_UINT32 qpn;
    DAT_SOCK_ADDR6 ia_addr;
} DAT_IB_ADDR_HANDLE;

/* Immediate data as the peer passed them, if it has the same byte order. */
typedef struct dat_ib_immed_data {
    DAT_UINT32 data;
} DAT_IB_IMMED_DATA;

typedef struct dat_ib_collective_event_data {
    DAT_HANDLE handle;
    DAT_CONTEXT context;
} DAT_IB_COLLECTIVE_EVENT_DATA;

/* C before 2011 has no anonymous unions. */
#ifdef __GNUC__
#define DAT_ANONYMOUS __extension__
#else
#define DAT_ANONYMOUS
#endif

/* The begin of event_extension_data. */
typedef struct dat_ib_extension_event_data {
    DAT_IB_EXT_TYPE type; /* selects the members below */
    DAT_IB_STATUS status;
    union {
        DAT_IB_IMMED_DATA immed;
    } val;
    DAT_ANONYMOUS union {
        DAT_IB_ADDR_HANDLE remote_ah;
        DAT_IB_COLLECTIVE_EVENT_DATA coll;
    };
    DAT_CONTEXT context;
} DAT_IB_EXTENSION_EVENT_DATA;

/* Returns the name of the type of an extension's DAT_RETURN. */
static __inline__ DAT_RETURN dat_strerror_extension(DAT_IB_RETURN value, const char **message)
{
    const char *detail;

    if (DAT_GET_TYPE(value) != (DAT_UINT32)DAT_IB_ERR)
        return dat_strerror((DAT_RETURN)value, message, &detail);
    *message = "DAT_IB_ERR";
    return DAT_SUCCESS;
}

/* Returns the name of the status of an extension event. */
static __inline__ DAT_RETURN dat_strerror_ext_status(DAT_IB_STATUS value, const char **message)
{
    switch (value) {
    case DAT_OP_SUCCESS:
        *message = "DAT_OP_SUCCESS";
        return DAT_SUCCESS;
    case DAT_IB_OP_ERR:
        *message = "DAT_IB_OP_ERR";
        return DAT_SUCCESS;
    case DAT_IB_COLL_COMP_ERR:
        *message = "DAT_IB_COLL_COMP_ERR";
        return DAT_SUCCESS;
    }
    *message = "unknown status";
    return DAT_INVALID_PARAMETER;
}

/*
 * Adds add_val to the 64 bits of the peer's memory at *rbuf, atomically. The bits before go
 * to the first 8 bytes of the local segment *lbuf. The peer's address is a multiple of 8.
 */
#define dat_ib_post_fetch_and_add(ep, add_val, lbuf, cookie, rbuf, flgs) \
    dat_extension_op((ep), DAT_IB_FETCH_AND_ADD_OP, (DAT_UINT64)(add_val), \
                     (DAT_LMR_TRIPLET *)(lbuf), (cookie), (DAT_RMR_TRIPLET *)(rbuf), (flgs))

/*
 * Replaces the 64 bits of the peer's memory at *rbuf by swap_val if they are cmp_val,
 * atomically; otherwise as dat_ib_post_fetch_and_add.
 */
#define dat_ib_post_cmp_and_swap(ep, cmp_val, swap_val, lbuf, cookie, rbuf, flgs) \
    dat_extension_op((ep), DAT_IB_CMP_AND_SWAP_OP, (DAT_UINT64)(cmp_val), \
                     (DAT_UINT64)(swap_val), (DAT_LMR_TRIPLET *)(lbuf), (cookie), \
                     (DAT_RMR_TRIPLET *)(rbuf), (flgs))

/*
 * As dat_ep_post_rdma_write; the peer also gets an event with the immediate data, which takes
 * a receive.
 */
#define dat_ib_post_rdma_write_immed(ep, size, lbuf, cookie, rbuf, idata, flgs) \
    dat_extension_op((ep), DAT_IB_RDMA_WRITE_IMMED_OP, (DAT_COUNT)(size), \
                     (DAT_LMR_TRIPLET *)(lbuf), (cookie), (DAT_RMR_TRIPLET *)(rbuf), \
                     (DAT_UINT32)(idata), (flgs))

/* Datagrams. */
#define dat_ib_post_send_ud(ep, segments, lbuf, ah_ptr, cookie, flgs) \
    dat_extension_op((ep), DAT_IB_UD_SEND_OP, (DAT_COUNT)(segments), \
                     (DAT_LMR_TRIPLET *)(lbuf), (DAT_IB_ADDR_HANDLE *)(ah_ptr), (cookie), \
                     (flgs))
#define dat_ib_post_recv_ud dat_ep_post_recv
#define dat_ib_ud_cm_free(ep, cm) dat_extension_op((ep), DAT_IB_UD_CM_FREE_OP, (cm))
#define dat_ib_ud_ah_free(ep, ah) dat_extension_op((ep), DAT_IB_UD_AH_FREE_OP, (ah))

/* Opens an adapter only to query it, and closes it. */
#define dat_ib_open_query(name, ia_handle, ia_mask, ia_attr, prov_mask, prov_attr) \
    dat_extension_op((DAT_HANDLE)(name), DAT_IB_OPEN_QUERY_OP, (DAT_IA_HANDLE *)(ia_handle), \
                     (DAT_IA_ATTR_MASK)(ia_mask), (DAT_IA_ATTR *)(ia_attr), \
                     (DAT_PROVIDER_ATTR_MASK)(prov_mask), (DAT_PROVIDER_ATTR *)(prov_attr))
#define dat_ib_close_query(ia_handle) dat_extension_op((ia_handle), DAT_IB_CLOSE_QUERY_OP)

#include <dat/dat_ib_collectives.h>
#include <dat/dat_ib_counters.h>

#endif
#endif
