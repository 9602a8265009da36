/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ending the program with a reason, and a watchdog. */
#ifndef COMPARE_CHECK_H
#define COMPARE_CHECK_H

#include "versions.h"

enum { STATUS_USAGE = 1, STATUS_ENVIRONMENT = 2, STATUS_FAILED = 3 };

/* Prints the reason, printf-like, and ends the program. */
void fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Ends the program unless the call succeeds. */
#define must(call) must_succeed((call), #call)
void call_failed(DAT_RETURN code, const char *call) __attribute__((noreturn, cold));
static inline void must_succeed(DAT_RETURN code, const char *call)
{
    if (__builtin_expect(code != DAT_SUCCESS, 0))
        call_failed(code, call);
}

/*
 * Starts a time limit in seconds (0: none), in place of the previous one. When it is
 * exceeded, the program prints what it was doing, and ends. So polling and waiting
 * need no timeouts.
 */
void watchdog(const char *doing, unsigned seconds);

#endif
