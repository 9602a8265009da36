/* Prints the frequency of this machine's time stamp counter in kHz, for the kernel of the VM. */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct pair {
    long long ns;
    unsigned long long ticks;
};

static long long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Reads both clocks at nearly the same time: the best of 100 attempts, because a busy machine may
 * take the processor away between two reads. */
static struct pair read_both(void)
{
    struct pair best = {0, 0};
    long long shortest = -1;

    for (int i = 0; i < 100; i++) {
        long long before = now();
        unsigned long long ticks = __rdtsc();
        long long after = now();

        if (shortest < 0 || after - before < shortest) {
            shortest = after - before;
            best.ns = before + shortest / 2;
            best.ticks = ticks;
        }
    }
    return best;
}

int main(void)
{
    struct timespec pause = {0, 50 * 1000 * 1000};
    struct pair first = read_both(), second;

    nanosleep(&pause, NULL);
    second = read_both();
    printf("%.0f\n", (second.ticks - first.ticks) * 1e6 / (second.ns - first.ns));
    return 0;
}
