/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ends the program with a reason, and sees to it that it ends at all. */
#ifndef COMPARE_CHECK_H
#define COMPARE_CHECK_H

#include "versions.h"

enum { STATUS_USAGE = 1, STATUS_ENVIRONMENT = 2, STATUS_FAILED = 3 };

/* Says why, printf-like, and ends the program. */
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
 * Ends the program if it is not called again within so many seconds, if not 0;
 * it then says what it was doing. So polling and waiting need no clock of their own.
 */
void watchdog(const char *doing, unsigned seconds);

#endif
