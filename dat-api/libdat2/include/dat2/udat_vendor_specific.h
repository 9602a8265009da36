/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat2/udat_vendor_specific.h: the place for what one provider has beyond uDAPL.
 *
 * This library has nothing here: the extensions of InfiniBand are in
 * dat2/dat_ib_extensions.h.
 */
#ifndef UDAT2_VENDOR_SPECIFIC_H
#define UDAT2_VENDOR_SPECIFIC_H

#endif
