/*
 * The handles that threads use: their own, those that other threads share,
 * stale ones, and numbers that are no handles.
 */
#ifndef POOL_H
#define POOL_H

#include "../support/version.h"
#include <stdint.h>
#include <string.h>

enum kind { IA, EP, LMR, RMR, PSP, RSP, EVD, CR, CNO, SRQ, PZ, KINDS };

/* The largest number of objects of a kind that a thread has. */
#define MOST 24
/* How many stale and shared handles are remembered. */
#define BOARD 64

/* The sort of a handle that was picked. */
enum sort { OWN, OTHERS, WRONG, DEAD, NONE, GARBAGE };

struct item {
    DAT_HANDLE handle;
    DAT_IA_HANDLE ia;
};

struct pool {
    struct item items[MOST];
    int count;
};

struct thread {
    uint64_t state; /* of the random numbers */
    unsigned number;
    struct pool pools[KINDS];
    /* For its pairs on the two common adapters: a zone, and the contexts of
     * memory in it, local and for the peer. */
    DAT_PZ_HANDLE zone[2];
    DAT_LMR_HANDLE known[2];
    DAT_LMR_CONTEXT kit[2][2];
    DAT_IA_HANDLE mine; /* an adapter that only this thread uses, or null */
    volatile uint64_t turns;
    const char *volatile doing;
    const char *volatile failed;
    uint64_t calls[100], good[100];
};

/* Stale handles of each kind, of any thread; and live ones of other threads. */
extern DAT_HANDLE dead[KINDS][BOARD], shown[KINDS][BOARD];
/* How many handles were recorded in `dead`. */
extern uint32_t deaths;

/* xorshift64* */
static inline uint64_t draw(struct thread *t)
{
    t->state ^= t->state >> 12;
    t->state ^= t->state << 25;
    t->state ^= t->state >> 27;
    return t->state * UINT64_C(2685821657736338717);
}
static inline unsigned below(struct thread *t, unsigned limit)
{
    return limit == 0 ? 0 : (unsigned)((draw(t) >> 32) % limit);
}
static inline int one_in(struct thread *t, unsigned times)
{
    return below(t, times) == 0;
}

static inline void retire(enum kind kind, DAT_HANDLE handle, struct thread *t)
{
    __atomic_store_n(&dead[kind][below(t, BOARD)], handle, __ATOMIC_RELEASE);
    /* The library recognises the handle until 32,768 others were freed: forget it before. */
    if (__atomic_add_fetch(&deaths, 1, __ATOMIC_RELAXED) % 4096 == 0)
        for (unsigned at = 0; at < KINDS * BOARD; at++)
            __atomic_store_n(&dead[at / BOARD][at % BOARD], NULL, __ATOMIC_RELEASE);
    for (int at = 0; at < BOARD; at++)
        if (__atomic_load_n(&shown[kind][at], __ATOMIC_ACQUIRE) == handle)
            __atomic_store_n(&shown[kind][at], NULL, __ATOMIC_RELEASE);
}

/* Frees an object of any kind but IA. */
DAT_RETURN end(enum kind kind, DAT_HANDLE handle);

static inline void keep(struct thread *t, enum kind kind, DAT_HANDLE handle, DAT_IA_HANDLE ia,
                        int show)
{
    struct pool *pool = &t->pools[kind];
    if (pool->count == MOST) {
        if (end(kind, handle) == DAT_SUCCESS)
            retire(kind, handle, t);
        return;
    }
    pool->items[pool->count++] = (struct item){ handle, ia };
    if (show && ia != t->mine)
        __atomic_store_n(&shown[kind][below(t, BOARD)], handle, __ATOMIC_RELEASE);
}

static inline void lose(struct thread *t, enum kind kind, DAT_HANDLE handle)
{
    struct pool *pool = &t->pools[kind];
    for (int at = 0; at < pool->count; at++)
        if (pool->items[at].handle == handle)
            pool->items[at--] = pool->items[--pool->count];
    retire(kind, handle, t);
}

/* Forgets all objects of an adapter. */
static inline void lose_all(struct thread *t, DAT_IA_HANDLE ia)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int at = 0; at < t->pools[kind].count; at++) {
            struct item item = t->pools[kind].items[at];
            if (item.ia == ia || item.handle == ia)
                lose(t, (enum kind)kind, item.handle), at--;
        }
}

static inline DAT_HANDLE garbage(struct thread *t)
{
    static uint64_t memory[64];
    static const uint64_t odd[] = { 1, 3, 8, 0x1000, 0xdeadbeef, UINT64_MAX, UINT64_MAX - 7,
                                    UINT64_C(0x800000000000), UINT64_C(0x7fffffffe000) };
    switch (below(t, 4)) {
    case 0: return (DAT_HANDLE)(uintptr_t)odd[below(t, 9)];
    case 1: return &memory[below(t, 64)];
    case 2: return (char *)&memory[below(t, 60)] + below(t, 8);
    default: return (DAT_HANDLE)(uintptr_t)draw(t);
    }
}

/*
 * Picks a handle for an argument of this kind. Handles of other threads are
 * used only where DAT lets threads share an object.
 */
static inline DAT_HANDLE pick(struct thread *t, enum kind kind, int of_others, enum sort *sort)
{
    unsigned what = below(t, 100);
    const struct pool *pool = &t->pools[kind];
    enum sort ignored;
    DAT_HANDLE handle = NULL;
    if (sort == NULL)
        sort = &ignored;
    if (of_others && what < 30) {
        *sort = OTHERS;
        handle = __atomic_load_n(&shown[kind][below(t, BOARD)], __ATOMIC_ACQUIRE);
        if (handle != NULL)
            return handle;
    }
    if (what < 84 && pool->count > 0) {
        *sort = OWN;
        return pool->items[below(t, (unsigned)pool->count)].handle;
    }
    if (what < 89) {
        unsigned other = below(t, KINDS);
        *sort = WRONG;
        pool = &t->pools[other];
        if (other != (unsigned)kind && pool->count > 0)
            return pool->items[below(t, (unsigned)pool->count)].handle;
    }
    if (what < 94) {
        *sort = DEAD;
        handle = __atomic_load_n(&dead[kind][below(t, BOARD)], __ATOMIC_ACQUIRE);
        if (handle != NULL)
            return handle;
    }
    *sort = what < 97 ? NONE : GARBAGE;
    return what < 97 ? NULL : garbage(t);
}

/* Usually picks one of the same adapter, so that calls also succeed. */
static inline DAT_HANDLE mate(struct thread *t, enum kind kind, DAT_IA_HANDLE ia, int of_others)
{
    const struct pool *pool = &t->pools[kind];
    unsigned from = below(t, MOST);
    if (!one_in(t, 12))
        for (unsigned at = 0; at < MOST; at++) {
            const struct item *item = &pool->items[(from + at) % MOST];
            if ((from + at) % MOST < (unsigned)pool->count && item->ia == ia)
                return item->handle;
        }
    return pick(t, kind, of_others, NULL);
}

/* Returns the adapter of one of the thread's own handles. */
static inline DAT_IA_HANDLE home(struct thread *t, enum kind kind, DAT_HANDLE handle)
{
    for (int at = 0; at < t->pools[kind].count; at++)
        if (t->pools[kind].items[at].handle == handle)
            return t->pools[kind].items[at].ia;
    return NULL;
}

#endif
