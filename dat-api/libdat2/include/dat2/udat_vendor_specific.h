/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat2/udat_vendor_specific.h: additions of this provider to uDAPL.
 * A program that is also built with other headers tests whether
 * DAT_HAS_TIMESTAMPS, DAT_HAS_NAMES or DAT_HAS_CNO_FD is defined. A program that
 * also runs with other libraries looks up the functions by dlsym.
 *
 * The extensions of InfiniBand are in dat2/dat_ib_extensions.h.
 */
#ifndef UDAT2_VENDOR_SPECIFIC_H
#define UDAT2_VENDOR_SPECIFIC_H

#include <dat2/dat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_HAS_TIMESTAMPS 1
#define DAT_HAS_NAMES 1
#define DAT_HAS_CNO_FD 1

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
