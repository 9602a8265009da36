/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is measured. */
#ifndef COMPARE_TESTS_H
#define COMPARE_TESTS_H

#include "pair.h"

struct test {
    const char *name;
    const char *what;
    /*
     * Does `count` of it, an even number of at least WINDOW, on a connected
     * pair whose receives are posted, and leaves it so. Answers the
     * nanoseconds of all.
     */
    uint64_t (*run)(struct pair *pair, DAT_UINT32 bytes, unsigned long count);
    DAT_UINT32 bytes;
    int connects; /* makes its connections itself, and is counted in them */
};

void post_all_receives(struct end *end);

extern const struct test tests[];
extern const unsigned tests_count;

#endif
