/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_types.h: handles, flags, states. A part of dat/dat.h; include that.
 */
#ifndef DAT_TYPES_H
#define DAT_TYPES_H

#include <dat/dat_platform_specific.h>

/* Bytes of a name, the closing NUL included. */
#define DAT_NAME_MAX_LENGTH 256
typedef char *DAT_NAME_PTR;

/* A named attribute: both are C strings that the provider owns. */
typedef struct dat_named_attr {
    const char *name;
    const char *value;
} DAT_NAMED_ATTR;

typedef enum dat_boolean {
    DAT_FALSE = 0,
    DAT_TRUE = 1,
} DAT_BOOLEAN;

/* 64 bits of the caller, attached to an object or a request. */
typedef union dat_context {
    DAT_PVOID as_ptr;
    DAT_UINT64 as_64;
    DAT_UVERYLONG as_index;
} DAT_CONTEXT;

/* The 64 bits of a request that its completion returns unchanged. */
typedef DAT_CONTEXT DAT_DTO_COOKIE;
typedef DAT_CONTEXT DAT_RMR_COOKIE;

/* Microseconds. 0 does not wait, DAT_TIMEOUT_INFINITE waits without a limit. */
typedef DAT_UINT32 DAT_TIMEOUT;
#define DAT_TIMEOUT_INFINITE ((DAT_TIMEOUT)0xffffffff)

/*
 * Handles are opaque. A handle of a freed object must not be used; calls refuse
 * it with DAT_INVALID_HANDLE.
 */
typedef DAT_PVOID DAT_HANDLE;
typedef DAT_HANDLE DAT_IA_HANDLE;  /* interface adapter, opened */
typedef DAT_HANDLE DAT_PZ_HANDLE;  /* protection zone */
typedef DAT_HANDLE DAT_LMR_HANDLE; /* local memory region */
typedef DAT_HANDLE DAT_RMR_HANDLE; /* remote memory region: a memory window */
typedef DAT_HANDLE DAT_EVD_HANDLE; /* event dispatcher: a queue of events */
typedef DAT_HANDLE DAT_CNO_HANDLE; /* consumer notification object */
typedef DAT_HANDLE DAT_EP_HANDLE;  /* endpoint */
typedef DAT_HANDLE DAT_SRQ_HANDLE; /* shared receive queue */
typedef DAT_HANDLE DAT_PSP_HANDLE; /* public service point: listens for requests */
typedef DAT_HANDLE DAT_RSP_HANDLE; /* reserved service point: listens for one request */
#ifdef DAT2
typedef DAT_HANDLE DAT_CSP_HANDLE; /* common service point: listens on a socket address */
#endif
typedef DAT_HANDLE DAT_CR_HANDLE;  /* connection request */
#define DAT_HANDLE_NULL ((DAT_HANDLE)NULL)

typedef enum dat_handle_type {
    DAT_HANDLE_TYPE_CR = 0,
    DAT_HANDLE_TYPE_EP = 1,
    DAT_HANDLE_TYPE_EVD = 2,
    DAT_HANDLE_TYPE_IA = 3,
    DAT_HANDLE_TYPE_LMR = 4,
    DAT_HANDLE_TYPE_PSP = 5,
    DAT_HANDLE_TYPE_PZ = 6,
    DAT_HANDLE_TYPE_RMR = 7,
    DAT_HANDLE_TYPE_RSP = 8,
    DAT_HANDLE_TYPE_CNO = 9,
    DAT_HANDLE_TYPE_SRQ = 10,
#ifdef DAT2
    DAT_HANDLE_TYPE_CSP = 11,
    DAT_HANDLE_TYPE_EXTENSION_BASE = 12,
#endif
} DAT_HANDLE_TYPE;

typedef DAT_SOCK_ADDR *DAT_IA_ADDRESS_PTR;
typedef DAT_UINT64 DAT_CONN_QUAL; /* the number that a service point listens on */
typedef DAT_UINT64 DAT_PORT_QUAL; /* the same for an end of a connection */

/* How a request completes; or, as an attribute of an EP, how all its receives or all its
 * requests complete. */
typedef enum dat_completion_flags {
    DAT_COMPLETION_DEFAULT_FLAG = 0x00,        /* an event, and it notifies */
    DAT_COMPLETION_SUPPRESS_FLAG = 0x01,       /* no event if it succeeds */
    DAT_COMPLETION_SOLICITED_WAIT_FLAG = 0x02, /* send: the peer's receive notifies */
    DAT_COMPLETION_UNSIGNALLED_FLAG = 0x04,    /* an event that does not notify */
    DAT_COMPLETION_BARRIER_FENCE_FLAG = 0x08,  /* starts after all earlier RDMA reads */
    DAT_COMPLETION_EVD_THRESHOLD_FLAG = 0x10,  /* the waiter's threshold decides */
#ifdef DAT2
    DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20, /* starts after an earlier invalidate */
#endif
} DAT_COMPLETION_FLAGS;
/* Other spellings in use. */
#define DAT_COMPLETION_SOLICITED_WAIT DAT_COMPLETION_SOLICITED_WAIT_FLAG
#define DAT_COMPLETION_EVD_THRESHOLD DAT_COMPLETION_EVD_THRESHOLD_FLAG

typedef enum dat_qos {
    DAT_QOS_BEST_EFFORT = 0x00,
    DAT_QOS_HIGH_THROUGHPUT = 0x01,
    DAT_QOS_LOW_LATENCY = 0x02,
    DAT_QOS_ECONOMY = 0x04,
    DAT_QOS_PREMIUM = 0x08,
} DAT_QOS;

typedef enum dat_connect_flags {
    DAT_CONNECT_DEFAULT_FLAG = 0x00,
#ifndef DAT2
    DAT_CONNECT_MULTIPATH_FLAG = 0x01, /* over several paths, or fail */
#else
    DAT_CONNECT_MULTIPATH_FLAG = 0x01,          /* over several paths, if there are */
    DAT_CONNECT_MULTIPATH_REQUIRED_FLAG = 0x02, /* over several paths, or fail */
#endif
} DAT_CONNECT_FLAGS;
#ifdef DAT2
#define DAT_CONNECT_MULTIPATH_REQUESTED_FLAG DAT_CONNECT_MULTIPATH_FLAG
#endif

/* Abrupt: transfers and objects end at once. Graceful: transfers finish first; an adapter that
 * has objects left is not closed. */
typedef enum dat_close_flags {
    DAT_CLOSE_ABRUPT_FLAG = 0,
    DAT_CLOSE_GRACEFUL_FLAG = 1,
} DAT_CLOSE_FLAGS;
#define DAT_CLOSE_DEFAULT DAT_CLOSE_ABRUPT_FLAG

/* The streams of events that an EVD may carry. */
typedef enum dat_evd_flags {
    DAT_EVD_SOFTWARE_FLAG = 0x001,
    DAT_EVD_CR_FLAG = 0x010,
    DAT_EVD_DTO_FLAG = 0x020,
    DAT_EVD_CONNECTION_FLAG = 0x040,
    DAT_EVD_RMR_BIND_FLAG = 0x080,
    DAT_EVD_ASYNC_FLAG = 0x100,
    DAT_EVD_DEFAULT_FLAG = 0x1f0, /* all but software */
#ifdef DAT2
    DAT_EVD_EXTENSION_BASE = 0x200,
#endif
} DAT_EVD_FLAGS;

/* Whether the consumer or the provider creates the endpoint of a request. */
typedef enum dat_psp_flags {
    DAT_PSP_CONSUMER_FLAG = 0x00,
    DAT_PSP_PROVIDER_FLAG = 0x01,
} DAT_PSP_FLAGS;

/* The state of an EVD: ENABLED or DISABLED, WAITABLE or UNWAITABLE, and one
 * CONFIG, combined by OR. */
typedef enum dat_evd_state {
    DAT_EVD_STATE_ENABLED = 0x01,    /* events trigger its CNO */
    DAT_EVD_STATE_DISABLED = 0x02,   /* events do not trigger it */
    DAT_EVD_STATE_WAITABLE = 0x04,   /* dat_evd_wait may be called */
    DAT_EVD_STATE_UNWAITABLE = 0x08, /* dat_evd_wait fails at once */
    DAT_EVD_STATE_CONFIG_NOTIFY = 0x10,
    DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
    DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30,
} DAT_EVD_STATE;

/* Memory: privileges of regions, and segments. */

typedef DAT_UINT32 DAT_LMR_CONTEXT; /* identifies a region in a local segment */
typedef DAT_UINT32 DAT_RMR_CONTEXT; /* identifies a region to peers */
#ifdef DAT2
typedef DAT_UINT32 DAT_SEG_LENGTH;  /* bytes of a segment or a message */
#endif
typedef DAT_UINT64 DAT_VLEN;        /* bytes */
typedef DAT_UINT64 DAT_VADDR;       /* a virtual address */

typedef enum dat_mem_type {
    DAT_MEM_TYPE_VIRTUAL = 0,        /* the caller's memory */
    DAT_MEM_TYPE_LMR = 1,            /* the memory of another LMR */
    DAT_MEM_TYPE_SHARED_VIRTUAL = 2, /* memory that processes share */
} DAT_MEM_TYPE;

typedef enum dat_mem_priv_flags {
    DAT_MEM_PRIV_NONE_FLAG = 0x00,
    DAT_MEM_PRIV_LOCAL_READ_FLAG = 0x01,
    DAT_MEM_PRIV_REMOTE_READ_FLAG = 0x02,
    DAT_MEM_PRIV_LOCAL_WRITE_FLAG = 0x10,
    DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20,
    DAT_MEM_PRIV_ALL_FLAG = 0x33,
#ifdef DAT2
    DAT_MEM_PRIV_EXTENSION_BASE = 0x40,
#endif
} DAT_MEM_PRIV_FLAGS;
/* Local and remote at once, as DAT 1.0 had it. */
#define DAT_MEM_PRIV_READ_FLAG (DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG)
#define DAT_MEM_PRIV_WRITE_FLAG (DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)

#ifdef DAT2
/* The addresses of a region: virtual addresses, or offsets that begin with 0. */
typedef enum dat_va_type {
    DAT_VA_TYPE_VA = 0x0,
    DAT_VA_TYPE_ZB = 0x1,
} DAT_VA_TYPE;

/* Which endpoints of the peer's side may be used with an RMR. */
typedef enum dat_rmr_scope {
    DAT_RMR_SCOPE_EP = 0,  /* the one that it was bound through */
    DAT_RMR_SCOPE_PZ = 1,  /* those of its protection zone */
    DAT_RMR_SCOPE_ANY = 2, /* attribute: both are supported */
} DAT_RMR_SCOPE;

#endif
/* A local segment: a part of an LMR. Segments of length 0 are skipped. */
typedef struct dat_lmr_triplet {
#ifndef DAT2
    DAT_LMR_CONTEXT lmr_context;
    DAT_UINT32 pad;
#endif
    DAT_VADDR virtual_address;
#ifndef DAT2
    DAT_VLEN segment_length;
#else
    DAT_SEG_LENGTH segment_length;
    DAT_LMR_CONTEXT lmr_context;
#endif
} DAT_LMR_TRIPLET;

/* The peer's memory in an RDMA transfer. */
typedef struct dat_rmr_triplet {
#ifdef DAT2
    DAT_VADDR virtual_address;
    DAT_SEG_LENGTH segment_length;
#endif
    DAT_RMR_CONTEXT rmr_context;
#ifndef DAT2
    DAT_UINT32 pad;
    DAT_VADDR target_address;
    DAT_VLEN segment_length;
#endif
} DAT_RMR_TRIPLET;

/* Kinds and states of an endpoint and of a shared receive queue. */

typedef enum dat_service_type {
    DAT_SERVICE_TYPE_RC = 0, /* reliable, connected */
#ifdef DAT2
    DAT_SERVICE_TYPE_EXTENSION_BASE = 1,
#endif
} DAT_SERVICE_TYPE;

typedef enum dat_ep_state {
    DAT_EP_STATE_UNCONNECTED = 0,
    DAT_EP_STATE_UNCONFIGURED_UNCONNECTED = 1,
    DAT_EP_STATE_RESERVED = 2, /* belongs to a reserved service point */
    DAT_EP_STATE_UNCONFIGURED_RESERVED = 3,
    DAT_EP_STATE_PASSIVE_CONNECTION_PENDING = 4, /* the request has arrived */
    DAT_EP_STATE_UNCONFIGURED_PASSIVE = 5,
    DAT_EP_STATE_ACTIVE_CONNECTION_PENDING = 6,    /* dat_ep_connect was called */
    DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING = 7, /* created by the provider for a request */
    DAT_EP_STATE_UNCONFIGURED_TENTATIVE = 8,
    DAT_EP_STATE_CONNECTED = 9,
    DAT_EP_STATE_DISCONNECT_PENDING = 10,
    DAT_EP_STATE_DISCONNECTED = 11,
    DAT_EP_STATE_COMPLETION_PENDING = 12, /* accepted, not yet established */
#ifdef DAT2
    DAT_EP_STATE_CONNECTED_SINGLE_PATH = 13,
    DAT_EP_STATE_CONNECTED_MULTI_PATH = 14,
#endif
} DAT_EP_STATE;
#define DAT_EP_STATE_ERROR DAT_EP_STATE_DISCONNECTED

typedef enum dat_srq_state {
#ifndef DAT2
    DAT_SRQ_STATE_OPERATIONAL = 0,
    DAT_SRQ_STATE_ERROR = 1,
#else
    DAT_SRQ_STATE_ERROR = 0,
    DAT_SRQ_STATE_OPERATIONAL = 1,
    DAT_SRQ_STATE_SHUTDOWN = 2,
#endif
} DAT_SRQ_STATE;

#ifdef DAT2
/* The set of extensions that an adapter has. */
typedef enum dat_extension {
    DAT_EXTENSION_NONE = 0,
    DAT_EXTENSION_IB = 1, /* those of dat/dat_ib_extensions.h */
    DAT_EXTENSION_IW = 2,
} DAT_EXTENSION;
#define DAT_IB_EXTENSION DAT_EXTENSION_IB
#define DAT_IW_EXTENSION DAT_EXTENSION_IW

/* The operation of dat_extension_op. */
typedef int DAT_EXTENDED_OP;
/* Added to an operation that opens or closes an adapter only to query it. */
#define DAT_OPEN_EXTENSION_BASE 0x1000
#define DAT_CLOSE_EXTENSION_BASE 0x2000

/* How a provider spreads connections over its paths. */
typedef DAT_UINT32 DAT_HA_LB;
#define DAT_HA_LB_NONE ((DAT_HA_LB)0x0)
#define DAT_HA_LB_INTERCOMM ((DAT_HA_LB)0x1)
#define DAT_HA_LB_INTRACOMM ((DAT_HA_LB)0x2)

/* Whether two adapters lead to the same place, so that one can replace the other. */
typedef enum dat_ha_relationship {
    DAT_HA_FALSE = 0,
    DAT_HA_TRUE = 1,
    DAT_HA_UNKNOWN = 2,
    DAT_HA_CONFLICTING = 3, /* the two providers disagree */
    DAT_HA_EXTENSION_BASE = 4,
} DAT_HA_RELATIONSHIP;

#endif
/* Special values of counts. */
#define DAT_WATERMARK_INFINITE ((DAT_COUNT)-1) /* no high watermark */
#define DAT_HW_DEFAULT DAT_WATERMARK_INFINITE
#define DAT_SRQ_LW_DEFAULT 0                   /* no low watermark */
#define DAT_VALUE_UNKNOWN ((DAT_COUNT)-2)      /* not known to the provider */

#endif
