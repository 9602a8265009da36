/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_vendor_specific.h: what this user-level provider has beyond uDAPL.
 * A program that is to be built with the headers of others, too, asks whether
 * DAT_HAS_COUNTERS is defined; one that is to run with the libraries of others
 * finds the function by dlsym.
 */
#ifndef UDAT_VENDOR_SPECIFIC_H
#define UDAT_VENDOR_SPECIFIC_H

#include <dat/dat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_HAS_COUNTERS 1

/*
 * Counted since the object was made. Nothing is counted where an event is
 * there at the first look, nor by a post that goes well.
 */
typedef struct dat_counters {
	DAT_UINT64 spins;         /* waits that spun: their first look had missed */
	DAT_UINT64 hits;          /* of those, the ones that an event ended */
	DAT_UINT64 blocks;        /* how often the thread was put to sleep */
	DAT_UINT64 spurious;      /* how often it woke up for nothing */
	DAT_UINT64 refused_posts; /* posts that found the queue full */
	DAT_UINT64 reserved[3];   /* 0 */
} DAT_COUNTERS;

/*
 * Answers the counters of an EVD or a CNO (waits), of an EP or an SRQ (refused
 * posts), or of an IA: the sum over all its objects, those that are freed
 * among them. The others are 0.
 *
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1: dat_handle names no such
 * object of this library; DAT_INVALID_PARAMETER, DAT_INVALID_ARG2: counters is
 * null.
 */
DAT_RETURN dat_counters_query(DAT_HANDLE dat_handle, DAT_COUNTERS *counters);

#ifdef __cplusplus
}
#endif

#endif
