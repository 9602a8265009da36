/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_config.h: the version that a program is compiled for, and the
 * thread safety that the macro dat_ia_open requests.
 */
#ifndef UDAT_CONFIG_H
#define UDAT_CONFIG_H

#undef DAT_VERSION_MAJOR
#undef DAT_VERSION_MINOR
#ifndef DAT2
#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2
#else
#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

/* These headers have the extension calls. */
#ifndef DAT_EXTENSIONS
#define DAT_EXTENSIONS 1
#endif
#endif

/*
 * uDAPL 1.2 fixes this to an adapter that is not thread-safe; dat_ia_openv can
 * request the other one.
 */
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE

#endif
