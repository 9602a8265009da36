/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The measured operations. */
#ifndef COMPARE_TESTS_H
#define COMPARE_TESTS_H

#include "pair.h"

struct test {
    const char *name;
    const char *what;
    /*
     * Runs `count` operations, an even number of at least WINDOW, on a connected
     * pair whose receives are posted, and posts them again. Returns the total
     * time in nanoseconds.
     */
    uint64_t (*run)(struct pair *pair, DAT_UINT32 bytes, unsigned long count);
    DAT_UINT32 bytes;
    int connects; /* creates its own connections, and counts them */
};

void post_all_receives(struct end *end);

extern const struct test tests[];
extern const unsigned tests_count;

#endif
