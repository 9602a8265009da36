/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Names that differ between uDAPL 1.2 and 2.0. With COMPARE_DAT2 the program is
 * compiled for 2.0, else for 1.2; everything else in it is the same source.
 */
#ifndef COMPARE_VERSIONS_H
#define COMPARE_VERSIONS_H

#ifdef COMPARE_DAT2
#include <dat2/udat.h>
#define COMPARE_VERSION "2.0"
#else
#include <dat/udat.h>
#define COMPARE_VERSION "1.2"
#endif

#include <stdint.h>

static inline DAT_LMR_TRIPLET local_segment(DAT_LMR_CONTEXT context, const void *at,
                                            DAT_UINT32 bytes)
{
    DAT_LMR_TRIPLET segment = { 0 };

    segment.lmr_context = context;
    segment.virtual_address = (DAT_VADDR)(uintptr_t)at;
    segment.segment_length = bytes;
    return segment;
}

static inline DAT_RMR_TRIPLET remote_segment(DAT_RMR_CONTEXT context, const void *at,
                                             DAT_UINT32 bytes)
{
    DAT_RMR_TRIPLET segment = { 0 };

    segment.rmr_context = context;
#ifdef COMPARE_DAT2
    segment.virtual_address = (DAT_VADDR)(uintptr_t)at;
#else
    segment.target_address = (DAT_VADDR)(uintptr_t)at;
#endif
    segment.segment_length = bytes;
    return segment;
}

/* Registers memory for all uses; 2.0 also needs an address type. */
static inline DAT_RETURN register_memory(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, void *at,
                                         DAT_VLEN bytes, DAT_LMR_HANDLE *lmr,
                                         DAT_LMR_CONTEXT *context, DAT_RMR_CONTEXT *remote)
{
    DAT_REGION_DESCRIPTION region = { 0 };
    DAT_VLEN registered_bytes;
    DAT_VADDR registered_at;

    region.for_va = at;
    return dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, bytes, pz, DAT_MEM_PRIV_ALL_FLAG,
#ifdef COMPARE_DAT2
                          DAT_VA_TYPE_VA,
#endif
                          lmr, context, remote, &registered_bytes, &registered_at);
}

#endif
