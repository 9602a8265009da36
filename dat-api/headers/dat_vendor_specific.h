/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_vendor_specific.h: the place for what one provider has beyond DAT.
 *
 * This library has nothing here: its own settings are named attributes, which
 * dat_ia_query returns.
 */
#ifndef DAT_VENDOR_SPECIFIC_H
#define DAT_VENDOR_SPECIFIC_H

#endif
