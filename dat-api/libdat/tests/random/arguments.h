/* Random arguments that several kinds of call have. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "pool.h"

#include <sys/socket.h>
#include <unistd.h>

#define THREADS 16
#define BYTES 65536

extern DAT_IA_HANDLE adapters[2]; /* not thread-safe, and thread-safe */
extern struct sockaddr_storage here;
extern char *device;
extern unsigned char memory[THREADS][BYTES];
extern uint32_t contexts[2][BOARD]; /* of LMRs; of remote rights */
extern uint64_t agents;              /* number of calls of agents */

static inline DAT_COUNT count(struct thread *t)
{
    static const DAT_COUNT odd[] = { 0, -1, -2, INT32_MIN, INT32_MAX, 65536, 1 };
    return one_in(t, 8) ? odd[below(t, 7)] : (DAT_COUNT)(1 + below(t, 40));
}

static inline DAT_IA_HANDLE adapter(struct thread *t, enum sort *sort)
{
    if (t->mine != NULL && one_in(t, 6)) {
        *sort = OWN;
        return t->mine;
    }
    if (below(t, 100) < 90) {
        *sort = OTHERS;
        return adapters[below(t, 2)];
    }
    return pick(t, IA, 0, sort);
}

static inline DAT_TIMEOUT soon(struct thread *t)
{
    return one_in(t, 4) ? 0 : below(t, 2000);
}

static inline DAT_CONN_QUAL qualifier(struct thread *t)
{
    return one_in(t, 20) ? draw(t) : (DAT_CONN_QUAL)(21000 + getpid() % 2000 * 16 + below(t, 12));
}

static inline DAT_COMPLETION_FLAGS completion(struct thread *t)
{
    return one_in(t, 2) ? DAT_COMPLETION_DEFAULT_FLAG : (DAT_COMPLETION_FLAGS)below(t, 40);
}

static inline unsigned mask(struct thread *t, unsigned all)
{
    return one_in(t, 3) ? all : one_in(t, 10) ? (unsigned)draw(t) : (unsigned)draw(t) & all;
}

static inline DAT_COUNT listed(struct thread *t)
{
    /* Never above the length of the list. */
    static const DAT_COUNT odd[] = { -1, INT32_MIN, 0, 4 };
    return one_in(t, 8) ? odd[below(t, 4)] : (DAT_COUNT)below(t, 4);
}

static inline DAT_DTO_COOKIE cookie(struct thread *t)
{
    DAT_DTO_COOKIE value = { .as_64 = draw(t) };
    return value;
}

/* The place for a call's result; sometimes null. */
#define PLACE(result) (one_in(t, 40) ? NULL : &(result))

#endif
