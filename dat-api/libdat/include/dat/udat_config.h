/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_config.h: the version that a program is compiled for, and the
 * thread safety that the macro dat_ia_open requests.
 */
#ifndef UDAT_CONFIG_H
#define UDAT_CONFIG_H

#undef DAT_VERSION_MAJOR
#undef DAT_VERSION_MINOR
#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2

/*
 * uDAPL 1.2 fixes this to an adapter that is not thread-safe; dat_ia_openv can
 * request the other one.
 */
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE

#endif
