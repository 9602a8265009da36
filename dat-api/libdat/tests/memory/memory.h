/* Shared by the parts of the program: see memory.c. */
#ifndef MEMORY_H
#define MEMORY_H
#define _GNU_SOURCE
#include "../support/version.h"

#include "fail.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A timeout in microseconds that no call here reaches. */
#define LONG 60000000

/* The allocation that fails, and whether a call of the row has reached it. */
extern long nth;
extern bool was_reached;

/* Ends the program unless the answer has this type. */
void expect(const char *what, int line, DAT_RETURN answer, DAT_RETURN type);

#define OK(call) expect(#call, __LINE__, (call), DAT_SUCCESS)
#define HOLDS(condition) expect(#condition, __LINE__, (condition) ? DAT_SUCCESS : DAT_INTERNAL_ERROR, DAT_SUCCESS)

/* Calls with the allocation failing. */
#define FAILING(call) (fail_arm(nth), answer = (call), is_hit = fail_disarm(), was_reached |= is_hit)

/* A call that is refused, and then succeeds; `undone` must hold between. */
#define REFUSABLE(call) REFUSABLE_IF(call, true)
#define REFUSABLE_IF(call, undone)                                           \
    do {                                                                     \
        DAT_RETURN answer;                                                   \
        bool is_hit;                                                         \
        FAILING(call);                                                       \
        expect(#call, __LINE__, answer, is_hit ? DAT_INSUFFICIENT_RESOURCES : DAT_SUCCESS); \
        if (is_hit) {                                                        \
            HOLDS(undone);                                                   \
            OK(call);                                                        \
        }                                                                    \
    } while (0)

/* A call that is refused without an effect, or succeeds: it allocates after its last step that can
 * be undone. */
#define EITHER(call, undone)                                                 \
    do {                                                                     \
        DAT_RETURN answer;                                                   \
        bool is_hit;                                                         \
        FAILING(call);                                                       \
        if (is_hit && answer != DAT_SUCCESS) {                               \
            expect(#call, __LINE__, answer, DAT_INSUFFICIENT_RESOURCES);     \
            HOLDS(undone);                                                   \
            OK(call);                                                        \
        }                                                                    \
    } while (0)

/* A call that succeeds. */
#define ENDING(call)                                                         \
    do {                                                                     \
        DAT_RETURN answer;                                                   \
        bool is_hit;                                                         \
        FAILING(call);                                                       \
        expect(#call, __LINE__, answer, DAT_SUCCESS);                        \
    } while (0)

extern DAT_IA_HANDLE ia;
extern DAT_PZ_HANDLE pz;
extern DAT_EVD_HANDLE requests, connections, dto;
extern DAT_LMR_HANDLE lmr;
extern DAT_LMR_TRIPLET segment;
extern DAT_PSP_HANDLE psp, other_psp;
extern DAT_CONN_QUAL qualifier, other_qualifier;
extern DAT_IA_ATTR about;
extern char memory[4096];

DAT_EP_HANDLE endpoint(void);
DAT_EVENT next(DAT_EVD_HANDLE evd);

/* Calls, each with what must be there before it, and what frees that. */
struct row {
    const char *name;
    void (*run)(void);
};
#define ROW(function) {#function, function}
extern const struct row object_rows[];
extern const size_t object_row_count;

#endif
