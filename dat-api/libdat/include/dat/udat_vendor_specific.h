/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/udat_vendor_specific.h: the place for what one user-level provider has
 * beyond uDAPL. This one has nothing here.
 */
#ifndef UDAT_VENDOR_SPECIFIC_H
#define UDAT_VENDOR_SPECIFIC_H

#endif
