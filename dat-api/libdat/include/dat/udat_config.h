/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_config.h: the version that a program is compiled for, and what the
 * macro dat_ia_open asks the registry for.
 */
#ifndef UDAT_CONFIG_H
#define UDAT_CONFIG_H

#undef DAT_VERSION_MAJOR
#undef DAT_VERSION_MINOR
#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2

/*
 * uDAPL 1.2 fixes this to the provider that leaves locking to its callers;
 * dat_ia_openv can ask for the other one.
 */
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE

#endif
