/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_error.h: return codes.
 *
 * 32 bits: class (2), type (14), subtype (16). Success is 0. An error is
 * DAT_CLASS_ERROR | type | subtype; some providers omit the class, so compare
 * the whole code with DAT_SUCCESS, and DAT_GET_TYPE() with the types.
 */
#ifndef DAT_ERROR_H
#define DAT_ERROR_H

#include <dat/dat_platform_specific.h>

typedef DAT_UINT32 DAT_RETURN;

#define DAT_CLASS_ERROR 0x80000000
#define DAT_CLASS_WARNING 0x40000000
#define DAT_CLASS_SUCCESS 0x00000000
#define DAT_TYPE_MASK 0x3fff0000
#define DAT_SUBTYPE_MASK 0x0000ffff

#define DAT_IS_WARNING(status) (((DAT_UINT32)(status) & DAT_CLASS_WARNING) != 0)
#define DAT_GET_TYPE(status) ((DAT_UINT32)(status) & DAT_TYPE_MASK)
#define DAT_GET_SUBTYPE(status) ((DAT_UINT32)(status) & DAT_SUBTYPE_MASK)

/* The type of an error. */
typedef enum dat_return_type {
    DAT_SUCCESS = 0x00000000,
    DAT_ABORT = 0x00010000, /* the object was destroyed during the call */
    DAT_CONN_QUAL_IN_USE = 0x00020000, /* the qualifier is in use */
    DAT_INSUFFICIENT_RESOURCES = 0x00030000, /* memory, a queue or the device is exhausted */
    DAT_INTERNAL_ERROR = 0x00040000, /* an error in the provider */
    DAT_INVALID_HANDLE = 0x00050000, /* null, stale, or of another kind */
    DAT_INVALID_PARAMETER = 0x00060000, /* the subtype says which argument */
    DAT_INVALID_STATE = 0x00070000, /* not allowed in this state of the object */
    DAT_LENGTH_ERROR = 0x00080000, /* a transfer that is too long; no bytes to register */
    DAT_MODEL_NOT_SUPPORTED = 0x00090000, /* an optional feature is missing */
    DAT_PROVIDER_NOT_FOUND = 0x000a0000, /* no matching registry entry */
    DAT_PRIVILEGES_VIOLATION = 0x000b0000, /* memory lacks the privilege */
    DAT_PROTECTION_VIOLATION = 0x000c0000, /* the memory is in another zone */
    DAT_QUEUE_EMPTY = 0x000d0000, /* no event */
    DAT_QUEUE_FULL = 0x000e0000, /* no room for the event */
    DAT_TIMEOUT_EXPIRED = 0x000f0000, /* the timeout expired */
    DAT_PROVIDER_ALREADY_REGISTERED = 0x00100000,
    DAT_PROVIDER_IN_USE = 0x00110000, /* an adapter of the provider is open */
    DAT_INVALID_ADDRESS = 0x00120000, /* not an address of an adapter */
    DAT_INTERRUPTED_CALL = 0x00130000, /* the thread handled a signal */
    DAT_CONN_QUAL_UNAVAILABLE = 0x00140000, /* all qualifiers are taken */
#ifndef DAT2
    DAT_NOT_IMPLEMENTED = 0x0fff0000,
#else
    DAT_RESERVED_LMR = 0x00150000,
    DAT_PORT_IN_USE = 0x00160000,
    DAT_COMM_NOT_SUPPORTED = 0x00170000, /* no such DAT_COMM */
    DAT_EXTENSION_BASE = 0x10000000, /* codes of extensions begin here */
    DAT_NOT_IMPLEMENTED = 0x3fff0000,
#endif
} DAT_RETURN_TYPE;

/* The name of DAT_PROVIDER_NOT_FOUND in earlier versions. */
#define DAT_NAME_NOT_FOUND DAT_PROVIDER_NOT_FOUND

/* The subtype of an error: its detail. No two subtypes have the same value. */
typedef enum dat_return_subtype {
    DAT_NO_SUBTYPE,

    /* DAT_ABORT */
    DAT_SUB_INTERRUPTED,

    /* DAT_INSUFFICIENT_RESOURCES: which */
    DAT_RESOURCE_MEMORY,
    DAT_RESOURCE_DEVICE,
    DAT_RESOURCE_TEP,
    DAT_RESOURCE_TEVD,
    DAT_RESOURCE_PROTECTION_DOMAIN,
    DAT_RESOURCE_MEMORY_REGION,
    DAT_RESOURCE_ERROR_HANDLER,
    DAT_RESOURCE_CREDITS,
    DAT_RESOURCE_SRQ,

    /* DAT_INVALID_HANDLE: the kind of handle */
    DAT_INVALID_HANDLE_IA,
    DAT_INVALID_HANDLE_EP,
    DAT_INVALID_HANDLE_LMR,
    DAT_INVALID_HANDLE_RMR,
    DAT_INVALID_HANDLE_PZ,
    DAT_INVALID_HANDLE_PSP,
    DAT_INVALID_HANDLE_RSP,
    DAT_INVALID_HANDLE_CR,
    DAT_INVALID_HANDLE_CNO,
    DAT_INVALID_HANDLE_EVD_CR,
    DAT_INVALID_HANDLE_EVD_REQUEST,
    DAT_INVALID_HANDLE_EVD_RECV,
    DAT_INVALID_HANDLE_EVD_CONN,
    DAT_INVALID_HANDLE_EVD_ASYNC,
    DAT_INVALID_HANDLE_SRQ,
#ifdef DAT2
    DAT_INVALID_HANDLE_CSP,
#endif

    /* DAT_INVALID_HANDLE: the position of the argument */
    DAT_INVALID_HANDLE1,
    DAT_INVALID_HANDLE2,
    DAT_INVALID_HANDLE3,
    DAT_INVALID_HANDLE4,
    DAT_INVALID_HANDLE5,
    DAT_INVALID_HANDLE6,
    DAT_INVALID_HANDLE7,
    DAT_INVALID_HANDLE8,
    DAT_INVALID_HANDLE9,
    DAT_INVALID_HANDLE10,

    /* DAT_INVALID_PARAMETER: the position of the argument */
    DAT_INVALID_ARG1,
    DAT_INVALID_ARG2,
    DAT_INVALID_ARG3,
    DAT_INVALID_ARG4,
    DAT_INVALID_ARG5,
    DAT_INVALID_ARG6,
    DAT_INVALID_ARG7,
    DAT_INVALID_ARG8,
    DAT_INVALID_ARG9,
    DAT_INVALID_ARG10,

    /* DAT_INVALID_STATE: the state that the object is in */
    DAT_INVALID_STATE_EP_UNCONNECTED,
    DAT_INVALID_STATE_EP_ACTCONNPENDING,
    DAT_INVALID_STATE_EP_PASSCONNPENDING,
    DAT_INVALID_STATE_EP_TENTCONNPENDING,
    DAT_INVALID_STATE_EP_CONNECTED,
    DAT_INVALID_STATE_EP_DISCONNECTED,
    DAT_INVALID_STATE_EP_RESERVED,
    DAT_INVALID_STATE_EP_COMPLPENDING,
    DAT_INVALID_STATE_EP_DISCPENDING,
    DAT_INVALID_STATE_EP_PROVIDERCONTROL,
    DAT_INVALID_STATE_EP_NOTREADY,
    DAT_INVALID_STATE_EP_RECV_WATERMARK,
    DAT_INVALID_STATE_EP_PZ,
    DAT_INVALID_STATE_EP_EVD_REQUEST,
    DAT_INVALID_STATE_EP_EVD_RECV,
    DAT_INVALID_STATE_EP_EVD_CONNECT,
    DAT_INVALID_STATE_EP_UNCONFIGURED,
    DAT_INVALID_STATE_EP_UNCONFRESERVED,
    DAT_INVALID_STATE_EP_UNCONFPASSIVE,
    DAT_INVALID_STATE_EP_UNCONFTENTATIVE,
    DAT_INVALID_STATE_CNO_IN_USE,
    DAT_INVALID_STATE_CNO_DEAD,
    DAT_INVALID_STATE_EVD_OPEN,
    DAT_INVALID_STATE_EVD_ENABLED,
    DAT_INVALID_STATE_EVD_DISABLED,
    DAT_INVALID_STATE_EVD_WAITABLE,
    DAT_INVALID_STATE_EVD_UNWAITABLE,
    DAT_INVALID_STATE_EVD_IN_USE,
    DAT_INVALID_STATE_EVD_CONFIG_NOTIFY,
    DAT_INVALID_STATE_EVD_CONFIG_SOLICITED,
    DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD,
    DAT_INVALID_STATE_EVD_WAITER,
    DAT_INVALID_STATE_EVD_ASYNC,
    DAT_INVALID_STATE_IA_IN_USE,
    DAT_INVALID_STATE_LMR_IN_USE,
    DAT_INVALID_STATE_LMR_FREE,
    DAT_INVALID_STATE_PZ_IN_USE,
    DAT_INVALID_STATE_PZ_FREE,
    DAT_INVALID_STATE_SRQ_OPERATIONAL,
    DAT_INVALID_STATE_SRQ_ERROR,
    DAT_INVALID_STATE_SRQ_IN_USE,
#ifdef DAT2
    DAT_INVALID_STATE_SRQ_SHUTDOWN,
#endif

    /* DAT_PRIVILEGES_VIOLATION: the privilege */
    DAT_PRIVILEGES_READ,
    DAT_PRIVILEGES_WRITE,
    DAT_PRIVILEGES_RDMA_READ,
    DAT_PRIVILEGES_RDMA_WRITE,

    /* DAT_PROTECTION_VIOLATION: the access */
    DAT_PROTECTION_READ,
    DAT_PROTECTION_WRITE,
    DAT_PROTECTION_RDMA_READ,
    DAT_PROTECTION_RDMA_WRITE,

    /* DAT_INVALID_ADDRESS */
    DAT_INVALID_ADDRESS_UNSUPPORTED,
    DAT_INVALID_ADDRESS_UNREACHABLE,
    DAT_INVALID_ADDRESS_MALFORMED,

    /* DAT_PROVIDER_NOT_FOUND: the first part of the key that no entry has */
    DAT_NAME_NOT_REGISTERED,
    DAT_MAJOR_NOT_FOUND,
    DAT_MINOR_NOT_FOUND,
    DAT_THREAD_SAFETY_NOT_FOUND,
} DAT_RETURN_SUBTYPE;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the names of the type and the subtype of a return code, as the
 * enumerators above are spelled. The strings are constants.
 * Errors: DAT_INVALID_PARAMETER for a code of unknown type or subtype.
 */
DAT_RETURN dat_strerror(DAT_RETURN value, const char **major_message,
                        const char **minor_message);

#ifdef __cplusplus
}
#endif

#endif
