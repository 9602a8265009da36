/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ending the program with a reason, and a watchdog. */
#ifndef COMPARE_CHECK_H
#define COMPARE_CHECK_H

#include "versions.h"

enum { STATUS_USAGE = 1, STATUS_ENVIRONMENT = 2, STATUS_FAILED = 3 };

/* Prints the reason, printf-like, and ends the program. */
void fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Ends the program unless the call succeeded. */
#define must(call) must_succeed((call), #call)
void must_refuse(DAT_RETURN answer, const char *call) __attribute__((noreturn, cold));
static inline void must_succeed(DAT_RETURN answer, const char *call)
{
    if (__builtin_expect(answer != DAT_SUCCESS, 0))
        must_refuse(answer, call);
}

/*
 * Ends the program and prints what it was doing, unless it is called again within
 * the given seconds (0: no limit). So polling and waiting need no timeouts.
 */
void watchdog(const char *doing, unsigned seconds);

#endif
