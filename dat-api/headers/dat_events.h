/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_events.h: events and their data. A part of dat/dat.h; include
 * that.
 */
#ifndef DAT_EVENTS_H
#define DAT_EVENTS_H

#include <dat/dat_types.h>

/* The number of an event; the comment names its member of DAT_EVENT_DATA. */
typedef enum dat_event_number {
    DAT_DTO_COMPLETION_EVENT = 0x00001,      /* dto_completion_event_data */
    DAT_RMR_BIND_COMPLETION_EVENT = 0x01001, /* rmr_completion_event_data */
    DAT_CONNECTION_REQUEST_EVENT = 0x02001,  /* cr_arrival_event_data */

    /* connect_event_data */
    DAT_CONNECTION_EVENT_ESTABLISHED = 0x04001,
    DAT_CONNECTION_EVENT_PEER_REJECTED = 0x04002,     /* the peer's program refused */
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED = 0x04003, /* refused by something else */
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x04004, /* accepted, but not established */
    DAT_CONNECTION_EVENT_DISCONNECTED = 0x04005,
    DAT_CONNECTION_EVENT_BROKEN = 0x04006, /* lost by an error */
    DAT_CONNECTION_EVENT_TIMED_OUT = 0x04007,
    DAT_CONNECTION_EVENT_UNREACHABLE = 0x04008,

    /* asynch_error_event_data */
    DAT_ASYNC_ERROR_EVD_OVERFLOW = 0x08001,
    DAT_ASYNC_ERROR_IA_CATASTROPHIC = 0x08002,
    DAT_ASYNC_ERROR_EP_BROKEN = 0x08003,
    DAT_ASYNC_ERROR_TIMED_OUT = 0x08004,
    DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR = 0x08005,

#ifdef DAT2
    DAT_HA_DOWN_TO_1 = 0x08101,
    DAT_HA_UP_TO_MULTI_PATH = 0x08102,

#endif
    DAT_SOFTWARE_EVENT = 0x10001, /* software_event_data */
#ifdef DAT2

    /* The data of extension events are in event_extension_data. */
    DAT_EXTENSION_EVENT = 0x20000,
    DAT_IB_EXTENSION_RANGE_BASE = 0x40000,
    DAT_IW_EXTENSION_RANGE_BASE = 0x80000,
#endif
} DAT_EVENT_NUMBER;
/* Another spelling in use. */
#define DAT_CONNECTION_COMPLETION_ERROR DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR

/* How a transfer or a bind ended. */
typedef enum dat_dto_completion_status {
    DAT_DTO_SUCCESS = 0,
    DAT_DTO_ERR_FLUSHED = 1,            /* not executed: no longer Connected */
    DAT_DTO_ERR_LOCAL_LENGTH = 2,       /* the message is longer than the buffer */
    DAT_DTO_ERR_LOCAL_EP = 3,           /* the endpoint cannot execute it */
    DAT_DTO_ERR_LOCAL_PROTECTION = 4,   /* no access to a local segment */
    DAT_DTO_ERR_BAD_RESPONSE = 5,       /* invalid response of the peer */
    DAT_DTO_ERR_REMOTE_ACCESS = 6,      /* no access to the peer's memory */
    DAT_DTO_ERR_REMOTE_RESPONDER = 7,   /* the peer could not execute it */
    DAT_DTO_ERR_TRANSPORT = 8,          /* the peer does not respond */
    DAT_DTO_ERR_RECEIVER_NOT_READY = 9, /* the peer has no buffer posted */
    DAT_DTO_ERR_PARTIAL_PACKET = 10,
    DAT_RMR_OPERATION_FAILED = 11, /* the bind failed */
#ifdef DAT2
    DAT_DTO_ERR_LOCAL_MM_ERROR = 12,
#endif
} DAT_DTO_COMPLETION_STATUS;
/* Names of earlier versions, and those of binds. */
#define DAT_DTO_LENGTH_ERROR DAT_DTO_ERR_LOCAL_LENGTH
#define DAT_DTO_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_COMPLETION_STATUS DAT_DTO_COMPLETION_STATUS
#define DAT_RMR_BIND_SUCCESS DAT_DTO_SUCCESS
#define DAT_RMR_BIND_FAILURE DAT_DTO_ERR_FLUSHED

#ifdef DAT2
/* The operation that a completion is of. */
typedef enum dat_dtos {
    DAT_DTO_SEND = 0,
    DAT_DTO_RDMA_WRITE = 1,
    DAT_DTO_RDMA_READ = 2,
    DAT_DTO_RECEIVE = 3,
    DAT_DTO_RECEIVE_WITH_INVALIDATE = 4, /* rmr_context is the one that was invalidated */
    DAT_DTO_BIND_MW = 5,
    DAT_DTO_LMR_FMR = 6,
    DAT_DTO_LMR_INVALIDATE = 7,
    DAT_DTO_EXTENSION_BASE = 8,
} DAT_DTOS;

#endif
typedef struct dat_dto_completion_event_data {
    DAT_EP_HANDLE ep_handle;
    DAT_DTO_COOKIE user_cookie;
    DAT_DTO_COMPLETION_STATUS status;
#ifndef DAT2
    DAT_VLEN transfered_length; /* bytes; only on success */
#else
    DAT_SEG_LENGTH transfered_length; /* bytes; only on success */
    DAT_DTOS operation;
    DAT_RMR_CONTEXT rmr_context; /* only for DAT_DTO_RECEIVE_WITH_INVALIDATE */
#endif
} DAT_DTO_COMPLETION_EVENT_DATA;

typedef struct dat_rmr_bind_completion_event_data {
    DAT_RMR_HANDLE rmr_handle;
    DAT_RMR_COOKIE user_cookie;
    DAT_RMR_BIND_COMPLETION_STATUS status;
} DAT_RMR_BIND_COMPLETION_EVENT_DATA;

typedef union dat_sp_handle {
    DAT_RSP_HANDLE rsp_handle;
    DAT_PSP_HANDLE psp_handle;
#ifdef DAT2
    DAT_CSP_HANDLE csp_handle;
#endif
} DAT_SP_HANDLE;

typedef struct dat_cr_arrival_event_data {
    DAT_SP_HANDLE sp_handle;
    DAT_IA_ADDRESS_PTR local_ia_address_ptr;
    DAT_CONN_QUAL conn_qual;
    DAT_CR_HANDLE cr_handle;
#ifdef DAT2
    DAT_BOOLEAN truncate_flag; /* private data was lost, because it was too long */
#endif
} DAT_CR_ARRIVAL_EVENT_DATA;

#ifndef DAT2
/*
 * Private data comes with Established on the side that connected, and is
 * valid until its endpoint is freed or Unconnected again. Otherwise the size is 0.
 */
#else
/*
 * Private data comes with Established and with a rejection by the peer's program, on the
 * side that connected, and is valid until its endpoint is freed or Unconnected again.
 * Otherwise the size is 0.
 */
#endif
typedef struct dat_connection_event_data {
    DAT_EP_HANDLE ep_handle;
    DAT_COUNT private_data_size; /* bytes */
    DAT_PVOID private_data;
} DAT_CONNECTION_EVENT_DATA;

typedef struct dat_asynch_error_event_data {
    DAT_HANDLE dat_handle; /* the object concerned */
    DAT_COUNT reason;      /* of the enumeration below for that kind of object */
} DAT_ASYNCH_ERROR_EVENT_DATA;

typedef enum ia_async_error_reason {
    DAT_IA_CATASTROPHIC_ERROR = 0,
    DAT_IA_OTHER_ERROR = 1,
} DAT_IA_ASYNC_ERROR_REASON;

typedef enum ep_async_error_reason {
    DAT_EP_TRANSFER_TO_ERROR = 0,
    DAT_EP_OTHER_ERROR = 1,
    DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT = 2, /* the endpoint holds more receives than the mark */
} DAT_EP_ASYNC_ERROR_REASON;

#ifndef DAT2
typedef enum ep_evd_error_reason {
#else
typedef enum evd_async_error_reason {
#endif
    DAT_EVD_OVERFLOW_ERROR = 0,
    DAT_EVD_OTHER_ERROR = 1,
} DAT_EVD_ASYNC_ERROR_REASON;

#ifndef DAT2
typedef enum ep_srq_error_reason {
#else
typedef enum srq_async_error_reason {
#endif
    DAT_SRQ_TRANSFER_TO_ERROR = 0,
    DAT_SRQ_OTHER_ERROR = 1,
    DAT_SRQ_LOW_WATERMARK_EVENT = 2, /* the SRQ has fewer receives than the mark */
} DAT_SRQ_ASYNC_ERROR_REASON;

typedef enum lmr_async_error_reason {
    DAT_LMR_OTHER_ERROR = 0,
} DAT_LMR_ASYNC_ERROR_REASON;

typedef enum rmr_async_error_reason {
    DAT_RMR_OTHER_ERROR = 0,
} DAT_RMR_ASYNC_ERROR_REASON;

typedef enum pz_async_error_reason {
    DAT_PZ_OTHER_ERROR = 0,
} DAT_PZ_ASYNC_ERROR_REASON;

/* The pointer that was given to dat_evd_post_se. */
typedef struct dat_software_event_data {
    DAT_PVOID pointer;
} DAT_SOFTWARE_EVENT_DATA;

typedef union dat_event_data {
    DAT_DTO_COMPLETION_EVENT_DATA dto_completion_event_data;
    DAT_RMR_BIND_COMPLETION_EVENT_DATA rmr_completion_event_data;
    DAT_CR_ARRIVAL_EVENT_DATA cr_arrival_event_data;
    DAT_CONNECTION_EVENT_DATA connect_event_data;
    DAT_ASYNCH_ERROR_EVENT_DATA asynch_error_event_data;
    DAT_SOFTWARE_EVENT_DATA software_event_data;
} DAT_EVENT_DATA;

typedef struct dat_event {
    DAT_EVENT_NUMBER event_number;
    DAT_EVD_HANDLE evd_handle; /* the EVD that it was taken from */
    DAT_EVENT_DATA event_data;
#ifdef DAT2
    DAT_UINT64 event_extension_data[8]; /* written for extension events only */
#endif
} DAT_EVENT;

#endif
