/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_vendor_specific.h: additions of this provider to uDAPL.
 * A program that is also built with other headers tests whether
 * DAT_HAS_COUNTERS is defined. A program that also runs with other libraries
 * looks up the function by dlsym.
 */
#ifndef UDAT_VENDOR_SPECIFIC_H
#define UDAT_VENDOR_SPECIFIC_H

#include <dat/dat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_HAS_COUNTERS 1

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

#ifdef __cplusplus
}
#endif

#endif
