/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *volatile doing_now = "";

void fail(int status, const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    fputs("error: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    /* No destructors: a library may hang in them after an error. */
    _exit(status);
}

void call_failed(DAT_RETURN code, const char *call)
{
    const char *type = "", *subtype = "";

    dat_strerror(code, &type, &subtype);
    fail(STATUS_FAILED, "%s: %s %s (0x%x); %s", call, type, subtype, (unsigned)code,
         COMPARE_VERSION[0] == '1' ? "DAT_DBG_TYPE=1 DAT_DBG_DEST=1 prints the cause"
                                   : "DAPL_DBG_TYPE=0xffff DAPL_DBG_DEST=1 prints the cause");
}

static void time_is_over(int signal)
{
    static const char before[] = "error: time limit (-l) exceeded: ";
    const char *doing = doing_now;

    (void)signal;
    if (write(STDERR_FILENO, before, sizeof before - 1) < 0 ||
        write(STDERR_FILENO, doing, strlen(doing)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(STATUS_ENVIRONMENT);
    _exit(STATUS_FAILED);
}

void watchdog(const char *doing, unsigned seconds)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = time_is_over;
    doing_now = doing;
    if (sigaction(SIGALRM, &action, NULL) != 0)
        fail(STATUS_ENVIRONMENT, "sigaction failed");
    alarm(seconds);
}
