/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat2/dat_error.h: return codes.
 *
 * 32 bits: class (2), type (14), subtype (16). Success is 0. An error is
 * DAT_CLASS_ERROR | type | subtype; some providers omit the class, so compare
 * the whole code with DAT_SUCCESS, and DAT_GET_TYPE() with the types.
 */
#ifndef DAT2_ERROR_H
#define DAT2_ERROR_H

#include <dat2/dat_platform_specific.h>

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
    DAT_RESERVED_LMR = 0x00150000,
    DAT_PORT_IN_USE = 0x00160000,
    DAT_COMM_NOT_SUPPORTED = 0x00170000, /* no such DAT_COMM */
    DAT_EXTENSION_BASE = 0x10000000, /* codes of extensions begin here */
    DAT_NOT_IMPLEMENTED = 0x3fff0000,
} DAT_RETURN_TYPE;

/* The name of DAT_PROVIDER_NOT_FOUND in earlier versions. */
#define DAT_NAME_NOT_FOUND DAT_PROVIDER_NOT_FOUND

/* The subtype of an error: its detail. No two subtypes have the same value. */
typedef enum dat_return_subtype {
    DAT_NO_SUBTYPE = 0,

    /* DAT_ABORT */
    DAT_SUB_INTERRUPTED = 1,

    /* DAT_INSUFFICIENT_RESOURCES: which */
    DAT_RESOURCE_MEMORY = 2,
    DAT_RESOURCE_DEVICE = 3,
    DAT_RESOURCE_TEP = 4,
    DAT_RESOURCE_TEVD = 5,
    DAT_RESOURCE_PROTECTION_DOMAIN = 6,
    DAT_RESOURCE_MEMORY_REGION = 7,
    DAT_RESOURCE_ERROR_HANDLER = 8,
    DAT_RESOURCE_CREDITS = 9,
    DAT_RESOURCE_SRQ = 10,

    /* DAT_INVALID_HANDLE: the kind of handle */
    DAT_INVALID_HANDLE_IA = 11,
    DAT_INVALID_HANDLE_EP = 12,
    DAT_INVALID_HANDLE_LMR = 13,
    DAT_INVALID_HANDLE_RMR = 14,
    DAT_INVALID_HANDLE_PZ = 15,
    DAT_INVALID_HANDLE_PSP = 16,
    DAT_INVALID_HANDLE_RSP = 17,
    DAT_INVALID_HANDLE_CR = 18,
    DAT_INVALID_HANDLE_CNO = 19,
    DAT_INVALID_HANDLE_EVD_CR = 20,
    DAT_INVALID_HANDLE_EVD_REQUEST = 21,
    DAT_INVALID_HANDLE_EVD_RECV = 22,
    DAT_INVALID_HANDLE_EVD_CONN = 23,
    DAT_INVALID_HANDLE_EVD_ASYNC = 24,
    DAT_INVALID_HANDLE_SRQ = 25,
    DAT_INVALID_HANDLE_CSP = 26,

    /* DAT_INVALID_HANDLE: the position of the argument */
    DAT_INVALID_HANDLE1 = 27,
    DAT_INVALID_HANDLE2 = 28,
    DAT_INVALID_HANDLE3 = 29,
    DAT_INVALID_HANDLE4 = 30,
    DAT_INVALID_HANDLE5 = 31,
    DAT_INVALID_HANDLE6 = 32,
    DAT_INVALID_HANDLE7 = 33,
    DAT_INVALID_HANDLE8 = 34,
    DAT_INVALID_HANDLE9 = 35,
    DAT_INVALID_HANDLE10 = 36,

    /* DAT_INVALID_PARAMETER: the position of the argument */
    DAT_INVALID_ARG1 = 37,
    DAT_INVALID_ARG2 = 38,
    DAT_INVALID_ARG3 = 39,
    DAT_INVALID_ARG4 = 40,
    DAT_INVALID_ARG5 = 41,
    DAT_INVALID_ARG6 = 42,
    DAT_INVALID_ARG7 = 43,
    DAT_INVALID_ARG8 = 44,
    DAT_INVALID_ARG9 = 45,
    DAT_INVALID_ARG10 = 46,

    /* DAT_INVALID_STATE: the state that the object is in */
    DAT_INVALID_STATE_EP_UNCONNECTED = 47,
    DAT_INVALID_STATE_EP_ACTCONNPENDING = 48,
    DAT_INVALID_STATE_EP_PASSCONNPENDING = 49,
    DAT_INVALID_STATE_EP_TENTCONNPENDING = 50,
    DAT_INVALID_STATE_EP_CONNECTED = 51,
    DAT_INVALID_STATE_EP_DISCONNECTED = 52,
    DAT_INVALID_STATE_EP_RESERVED = 53,
    DAT_INVALID_STATE_EP_COMPLPENDING = 54,
    DAT_INVALID_STATE_EP_DISCPENDING = 55,
    DAT_INVALID_STATE_EP_PROVIDERCONTROL = 56,
    DAT_INVALID_STATE_EP_NOTREADY = 57,
    DAT_INVALID_STATE_EP_RECV_WATERMARK = 58,
    DAT_INVALID_STATE_EP_PZ = 59,
    DAT_INVALID_STATE_EP_EVD_REQUEST = 60,
    DAT_INVALID_STATE_EP_EVD_RECV = 61,
    DAT_INVALID_STATE_EP_EVD_CONNECT = 62,
    DAT_INVALID_STATE_EP_UNCONFIGURED = 63,
    DAT_INVALID_STATE_EP_UNCONFRESERVED = 64,
    DAT_INVALID_STATE_EP_UNCONFPASSIVE = 65,
    DAT_INVALID_STATE_EP_UNCONFTENTATIVE = 66,
    DAT_INVALID_STATE_CNO_IN_USE = 67,
    DAT_INVALID_STATE_CNO_DEAD = 68,
    DAT_INVALID_STATE_EVD_OPEN = 69,
    DAT_INVALID_STATE_EVD_ENABLED = 70,
    DAT_INVALID_STATE_EVD_DISABLED = 71,
    DAT_INVALID_STATE_EVD_WAITABLE = 72,
    DAT_INVALID_STATE_EVD_UNWAITABLE = 73,
    DAT_INVALID_STATE_EVD_IN_USE = 74,
    DAT_INVALID_STATE_EVD_CONFIG_NOTIFY = 75,
    DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = 76,
    DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = 77,
    DAT_INVALID_STATE_EVD_WAITER = 78,
    DAT_INVALID_STATE_EVD_ASYNC = 79,
    DAT_INVALID_STATE_IA_IN_USE = 80,
    DAT_INVALID_STATE_LMR_IN_USE = 81,
    DAT_INVALID_STATE_LMR_FREE = 82,
    DAT_INVALID_STATE_PZ_IN_USE = 83,
    DAT_INVALID_STATE_PZ_FREE = 84,
    DAT_INVALID_STATE_SRQ_OPERATIONAL = 85,
    DAT_INVALID_STATE_SRQ_ERROR = 86,
    DAT_INVALID_STATE_SRQ_IN_USE = 87,
    DAT_INVALID_STATE_SRQ_SHUTDOWN = 88,

    /* DAT_PRIVILEGES_VIOLATION: the privilege */
    DAT_PRIVILEGES_READ = 89,
    DAT_PRIVILEGES_WRITE = 90,
    DAT_PRIVILEGES_RDMA_READ = 91,
    DAT_PRIVILEGES_RDMA_WRITE = 92,

    /* DAT_PROTECTION_VIOLATION: the access */
    DAT_PROTECTION_READ = 93,
    DAT_PROTECTION_WRITE = 94,
    DAT_PROTECTION_RDMA_READ = 95,
    DAT_PROTECTION_RDMA_WRITE = 96,

    /* DAT_INVALID_ADDRESS */
    DAT_INVALID_ADDRESS_UNSUPPORTED = 97,
    DAT_INVALID_ADDRESS_UNREACHABLE = 98,
    DAT_INVALID_ADDRESS_MALFORMED = 99,

    /* DAT_PROVIDER_NOT_FOUND: the first part of the key that no entry has */
    DAT_NAME_NOT_REGISTERED = 100,
    DAT_MAJOR_NOT_FOUND = 101,
    DAT_MINOR_NOT_FOUND = 102,
    DAT_THREAD_SAFETY_NOT_FOUND = 103,
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
