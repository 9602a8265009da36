/* An allocator for the program: it fails one chosen allocation of libdat (fail.c). */
#ifndef FAIL_H
#define FAIL_H
#include <stdbool.h>

/* From now on the allocation number `nth` of libdat fails, on this thread; 0 is the next. */
void fail_arm(long nth);
/* Ends that; returns whether the allocation was reached. */
bool fail_disarm(void);
/* The allocations of libdat that are not freed. */
long fail_live(void);
#endif
