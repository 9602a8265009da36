/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat2/dat_vendor_specific.h: the place for what one provider has beyond DAT.
 *
 * This library has nothing here: its own settings are named attributes, which
 * dat_ia_query returns.
 */
#ifndef DAT2_VENDOR_SPECIFIC_H
#define DAT2_VENDOR_SPECIFIC_H

#endif
