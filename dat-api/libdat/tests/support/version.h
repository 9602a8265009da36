/*
 * The headers of the version of uDAPL that a program of the tests is compiled for: UDAPL
 * is 1 (uDAPL 1.2) or 2 (uDAPL 2.0).
 */
#ifndef VERSION_H
#define VERSION_H

#if UDAPL == 2
#include <dat2/dat_registry.h>
#include <dat2/udat.h>
/* The arguments that only calls of 2.0 have: of dat_lmr_create and dat_rmr_bind, and of
 * dat_cr_reject. */
#define VIRTUAL DAT_VA_TYPE_VA,
#define NO_DATA , 0, NULL
#define RMR_ADDRESS virtual_address
#else
#include <dat/dat_registry.h>
#include <dat/udat.h>
#define VIRTUAL
#define NO_DATA
#define RMR_ADDRESS target_address
#endif

#endif
