/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_vendor_specific.h: additions of this provider to uDAPL.
 * A program that is also built with other headers tests whether
 * DAT_HAS_COUNTERS, DAT_HAS_TIMESTAMPS, DAT_HAS_NAMES or DAT_HAS_CNO_FD is
 * defined. A program that also runs with other libraries looks up the functions
 * by dlsym.
 */
#ifndef UDAT_VENDOR_SPECIFIC_H
#define UDAT_VENDOR_SPECIFIC_H

#include <dat/dat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_HAS_COUNTERS 1
#define DAT_HAS_TIMESTAMPS 1
#define DAT_HAS_NAMES 1
#define DAT_HAS_CNO_FD 1

/*
 * Counted since the object was created. A wait whose first poll finds an event,
 * and a post that succeeds, count nothing.
 */
typedef struct dat_counters {
	DAT_UINT64 spins;         /* waits that spun, because their first poll missed */
	DAT_UINT64 hits;          /* spins that ended with an event */
	DAT_UINT64 blocks;        /* how often a thread slept */
	DAT_UINT64 spurious;      /* how often a thread woke up without an event to return */
	DAT_UINT64 refused_posts; /* posts that found the queue full */
	DAT_UINT64 reserved[3];   /* 0 */
} DAT_COUNTERS;

/*
 * Returns the counters of an EVD or a CNO (waits), of an EP or an SRQ (refused
 * posts), or of an IA: the sum of all its objects, including freed ones. Other
 * counters are 0.
 *
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1: dat_handle is no such
 * object of this library; DAT_INVALID_PARAMETER, DAT_INVALID_ARG2: counters is
 * null.
 */
DAT_RETURN dat_counters_query(DAT_HANDLE dat_handle, DAT_COUNTERS *counters);

/*
 * As dat_evd_dequeue, and returns when the device wrote the completion of the
 * event: nanoseconds since 1970 by the device's clock as the kernel keeps it, or
 * 0 if that is not known. The first call for an EVD makes the EVD keep time
 * stamps from then on, which takes its events off the fast path.
 *
 * Errors: as dat_evd_dequeue; DAT_INVALID_PARAMETER, DAT_INVALID_ARG3:
 * nanoseconds is null; DAT_MODEL_NOT_SUPPORTED: completions of this device, or
 * on this data path, have no time stamps; DAT_INSUFFICIENT_RESOURCES,
 * DAT_RESOURCE_MEMORY: no memory for the time stamps.
 */
DAT_RETURN dat_evd_dequeue_timestamped(DAT_EVD_HANDLE evd_handle,
				       DAT_EVENT *event,
				       DAT_UINT64 *nanoseconds);

/*
 * As dat_evd_wait, with the time stamp as above. Not a cancellation point.
 *
 * Errors: as dat_evd_wait; DAT_INVALID_PARAMETER, DAT_INVALID_ARG6: nanoseconds
 * is null; DAT_MODEL_NOT_SUPPORTED and DAT_INSUFFICIENT_RESOURCES,
 * DAT_RESOURCE_MEMORY: as above.
 */
DAT_RETURN dat_evd_wait_timestamped(DAT_EVD_HANDLE evd_handle,
				    DAT_TIMEOUT timeout,
				    DAT_COUNT threshold,
				    DAT_EVENT *event,
				    DAT_COUNT *nmore,
				    DAT_UINT64 *nanoseconds);

/*
 * Returns the name of the enumerator of an event number.
 *
 * Errors: DAT_INVALID_PARAMETER, DAT_INVALID_ARG1: there is no such event;
 * DAT_INVALID_ARG2: name is null.
 */
DAT_RETURN dat_strevent(DAT_EVENT_NUMBER value, const char **name);

/*
 * Returns the name of the enumerator of the status of a completed DTO or bind.
 *
 * Errors: DAT_INVALID_PARAMETER, DAT_INVALID_ARG1: there is no such status;
 * DAT_INVALID_ARG2: name is null.
 */
DAT_RETURN dat_strdtostatus(DAT_DTO_COMPLETION_STATUS value, const char **name);

/*
 * Returns the name of the enumerator of the state of an endpoint.
 *
 * Errors: DAT_INVALID_PARAMETER, DAT_INVALID_ARG1: there is no such state;
 * DAT_INVALID_ARG2: name is null.
 */
DAT_RETURN dat_strepstate(DAT_EP_STATE value, const char **name);

/* A file descriptor. */
typedef int DAT_FD;

/*
 * Creates a CNO whose trigger makes a file descriptor readable, as uDAPL 2.0 does.
 * The descriptor belongs to the CNO: a program polls it, and does not close it.
 *
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA; DAT_INVALID_PARAMETER,
 * DAT_INVALID_ARG2, DAT_INVALID_ARG3: a result pointer is null;
 * DAT_INSUFFICIENT_RESOURCES: no memory, or no file descriptors.
 */
DAT_RETURN dat_cno_fd_create(DAT_IA_HANDLE ia_handle, DAT_FD *file_descriptor,
			     DAT_CNO_HANDLE *cno_handle);

/*
 * Takes a trigger of a CNO that has a file descriptor, as uDAPL 2.0 does, and
 * returns its EVD as a hint. The descriptor stays readable while other triggers
 * are pending.
 *
 * Errors: DAT_QUEUE_EMPTY: no trigger; DAT_INVALID_HANDLE,
 * DAT_INVALID_HANDLE_CNO; DAT_INVALID_PARAMETER, DAT_INVALID_ARG2: evd_handle is
 * null; DAT_INVALID_STATE: the CNO has no descriptor; DAT_INTERNAL_ERROR: the
 * device cannot be armed.
 */
DAT_RETURN dat_cno_trigger(DAT_CNO_HANDLE cno_handle, DAT_EVD_HANDLE *evd_handle);

/*
 * Arms the file descriptor of a CNO: it is not readable until a later event
 * triggers the CNO. The program then takes the events of all EVDs of the CNO until
 * they are empty, and polls the descriptor after that.
 *
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO; DAT_INVALID_STATE: the CNO
 * has no descriptor; DAT_INTERNAL_ERROR: the device cannot be armed;
 * DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY: no memory.
 */
DAT_RETURN dat_cno_fd_arm(DAT_CNO_HANDLE cno_handle);

#ifdef __cplusplus
}
#endif

#endif
