/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_platform_specific.h: what uDAPL takes from Linux and the compiler.
 */
#ifndef DAT_PLATFORM_SPECIFIC_H
#define DAT_PLATFORM_SPECIFIC_H

#include <netinet/in.h>
#ifdef DAT2
#include <stdarg.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * Direction of a parameter. These macros are empty, and these headers do not
 * use them; programs written for DAT may.
 */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif

#ifdef DAT2
/* Calling convention and linkage of the calls; these headers do not use them. */
#define DAT_API
#define DAT_EXPORT extern

#endif
typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
#ifdef __GNUC__
__extension__ /* C++ before 2011 has no long long */
#endif
typedef unsigned long long DAT_UVERYLONG;
typedef void *DAT_PVOID;
/* A number of things. Negative only as one of the special values. */
typedef int DAT_COUNT;
/* A physical address. */
typedef DAT_UINT64 DAT_PADDR;

#ifdef DAT2
/* A kind of communication: the three arguments of socket(2). */
typedef struct dat_comm {
    int domain;
    int type;
    int protocol;
} DAT_COMM;
/* A file descriptor. */
typedef int DAT_FD;

/* An IA handle as an integer. Handles of other registries are small numbers. */
#define DAT_IA_HANDLE_TO_UL(a) (unsigned long)(a)
#define DAT_UL_TO_IA_HANDLE(a) (DAT_IA_HANDLE)((unsigned long)(a))

#endif
/* The address of an adapter is a socket address of any family. */
typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;
#define DAT_AF_INET AF_INET
#define DAT_AF_INET6 AF_INET6

/* Alignment of buffers for the best speed, in bytes. See also the provider
 * attribute optimal_buffer_alignment. */
#define DAT_OPTIMAL_ALIGNMENT 256

/*
 * Contexts, addresses and lengths for a peer of the other byte order: the
 * value in the byte order named, least (LSB) or most (MSB) significant byte
 * first. The peer applies the same macro to what it received.
 */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define DAT_LMRC_TO_LSB(lmrc) ((DAT_UINT32)(lmrc))
#define DAT_LMRC_TO_MSB(lmrc) ((DAT_UINT32)__builtin_bswap32((DAT_UINT32)(lmrc)))
#define DAT_VADDR_TO_LSB(vaddr) ((DAT_UINT64)(vaddr))
#define DAT_VADDR_TO_MSB(vaddr) ((DAT_UINT64)__builtin_bswap64((DAT_UINT64)(vaddr)))
#else
#define DAT_LMRC_TO_LSB(lmrc) ((DAT_UINT32)__builtin_bswap32((DAT_UINT32)(lmrc)))
#define DAT_LMRC_TO_MSB(lmrc) ((DAT_UINT32)(lmrc))
#define DAT_VADDR_TO_LSB(vaddr) ((DAT_UINT64)__builtin_bswap64((DAT_UINT64)(vaddr)))
#define DAT_VADDR_TO_MSB(vaddr) ((DAT_UINT64)(vaddr))
#endif
#define DAT_RMRC_TO_LSB(rmrc) DAT_LMRC_TO_LSB(rmrc)
#define DAT_RMRC_TO_MSB(rmrc) DAT_LMRC_TO_MSB(rmrc)
#define DAT_VLEN_TO_LSB(length) DAT_VADDR_TO_LSB(length)
#define DAT_VLEN_TO_MSB(length) DAT_VADDR_TO_MSB(length)

#endif
