/*
 * malloc and its relatives for this program and its libraries. Calls that come from the code of
 * libdat are counted, and one of them can be made to fail. All others reach the C library.
 */
#define _GNU_SOURCE
#include "fail.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

/* The code of libdat. */
static uintptr_t from, to;
static __thread long left = -1;
static __thread bool failed;

/* What libdat has allocated: a table with open addressing, full of it at most by half. */
#define PLACES (1 << 18)
static uintptr_t kept[PLACES];
static atomic_flag locked = ATOMIC_FLAG_INIT;
static long live;
#define GONE 1

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire))
        ;
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&locked, memory_order_release);
}

static void *keep(void *memory, bool is_libdats)
{
    if (memory == NULL || !is_libdats)
        return memory;
    lock();
    size_t at = ((uintptr_t)memory >> 4) % PLACES;
    while (kept[at] > GONE)
        at = (at + 1) % PLACES;
    kept[at] = (uintptr_t)memory;
    live++;
    unlock();
    return memory;
}

static void forget(void *memory)
{
    lock();
    for (size_t at = ((uintptr_t)memory >> 4) % PLACES; kept[at] != 0; at = (at + 1) % PLACES)
        if (kept[at] == (uintptr_t)memory) {
            kept[at] = GONE;
            live--;
            break;
        }
    unlock();
}

static int code_of(struct dl_phdr_info *library, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (strstr(library->dlpi_name, "libdat") == NULL)
        return 0;
    for (int at = 0; at < library->dlpi_phnum; at++) {
        const ElfW(Phdr) *part = library->dlpi_phdr + at;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            from = library->dlpi_addr + part->p_vaddr;
            to = from + part->p_memsz;
        }
    }
    return 1;
}

__attribute__((constructor)) static void find(void)
{
    dl_iterate_phdr(code_of, NULL);
}

void fail_arm(long nth)
{
    failed = false;
    left = nth;
}

bool fail_disarm(void)
{
    left = -1;
    return failed;
}

long fail_live(void)
{
    lock();
    long now = live;
    unlock();
    return now;
}

/* Returns whether the caller is libdat, and whether this allocation of it fails. */
static bool is_libdats(void *caller, bool *fails)
{
    bool its = (uintptr_t)caller >= from && (uintptr_t)caller < to;
    *fails = its && left == 0;
    if (its && left >= 0)
        left--;
    if (*fails) {
        failed = true;
        errno = ENOMEM;
    }
    return its;
}

void *malloc(size_t size)
{
    bool fails, its = is_libdats(__builtin_return_address(0), &fails);
    return fails ? NULL : keep(__libc_malloc(size), its);
}

void *calloc(size_t count, size_t size)
{
    bool fails, its = is_libdats(__builtin_return_address(0), &fails);
    return fails ? NULL : keep(__libc_calloc(count, size), its);
}

void *realloc(void *old, size_t size)
{
    bool fails, its = is_libdats(__builtin_return_address(0), &fails);
    if (fails)
        return NULL;
    if (old != NULL)
        forget(old);
    return keep(__libc_realloc(old, size), its);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    bool fails, its = is_libdats(__builtin_return_address(0), &fails);
    void *got = fails ? NULL : keep(__libc_memalign(alignment, size), its);
    if (got == NULL)
        return ENOMEM;
    *memory = got;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    bool fails, its = is_libdats(__builtin_return_address(0), &fails);
    return fails ? NULL : keep(__libc_memalign(alignment, size), its);
}

void free(void *memory)
{
    if (memory != NULL)
        forget(memory);
    __libc_free(memory);
}
