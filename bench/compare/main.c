/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measures a DAT library on one adapter, both ends in this process. */
#include "tests.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 99 };

struct options {
    const char *adapter;
    const char *only;
    DAT_IA_ADDRESS_PTR address;
    DAT_CONN_QUAL qualifier;
    unsigned rounds;
    unsigned long count, connections;
    unsigned seconds;
    int machine;
};

static void usage(FILE *to, const char *program)
{
    unsigned at;

    fprintf(to,
            "usage: %s [OPTION]… ADAPTER\n"
            "\n"
            "Measures the DAT " COMPARE_VERSION " library that it is linked with. Both ends are in this\n"
            "process, on one adapter. Times are microseconds per message, write, call or\n"
            "connection: the median of the rounds, the least and the greatest.\n"
            "\n"
            "  -a ADDRESS   where A finds B, IPv4 or IPv6 (default: the adapter's own address)\n"
            "  -q NUMBER    connection qualifier to listen on (default 18600)\n"
            "  -r ROUNDS    rounds of each test after one warm-up round (default 5, at most %d)\n"
            "  -n COUNT     messages, writes or calls in a round (default 2000; even, at least %d)\n"
            "  -c COUNT     connections in a round (default 50)\n"
            "  -t TEST,…    only these tests\n"
            "  -l SECONDS   time limit of one test (default 120); 0: no limit\n"
            "  -m           print name, median, least, greatest separated by tabs\n"
            "\n"
            "Tests:\n",
            program, MOST_ROUNDS, WINDOW);
    for (at = 0; at < tests_count; at++)
        fprintf(to, "  %-20s %s\n", tests[at].name, tests[at].what);
    fprintf(to, "\nExit status: 0 good, 1 usage, 2 environment, 3 the run failed.\n");
}

static unsigned long number_of(const char *word, const char *option, unsigned long least,
                               unsigned long most)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(word, &end, 10);
    if (errno != 0 || end == word || *end != '\0' || *word == '-' || value < least || value > most)
        fail(STATUS_USAGE, "invalid value %s %s: expected a number from %lu to %lu", option, word, least, most);
    return value;
}

static DAT_IA_ADDRESS_PTR address_of(const char *word)
{
    static struct sockaddr_in v4;
    static struct sockaddr_in6 v6;

    if (inet_pton(AF_INET, word, &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        return (DAT_IA_ADDRESS_PTR)(void *)&v4;
    }
    if (inet_pton(AF_INET6, word, &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        return (DAT_IA_ADDRESS_PTR)(void *)&v6;
    }
    fail(STATUS_USAGE, "invalid address -a %s: expected a numeric IPv4 or IPv6 address", word);
}

/* Whether the next name of a comma-separated list is this one. */
static int is_next(const char *list, const char *name)
{
    size_t length = strcspn(list, ",");

    return strlen(name) == length && strncmp(list, name, length) == 0;
}

static const char *after_next(const char *list)
{
    const char *comma = strchr(list, ',');

    return comma == NULL ? NULL : comma + 1;
}

static int listed(const char *list, const char *name)
{
    for (; list != NULL; list = after_next(list))
        if (is_next(list, name))
            return 1;
    return 0;
}

static void check_list(const char *list)
{
    for (; list != NULL; list = after_next(list)) {
        unsigned test = 0;

        while (test < tests_count && !is_next(list, tests[test].name))
            test++;
        if (test == tests_count)
            fail(STATUS_USAGE, "unknown test -t %.*s; see -h", (int)strcspn(list, ","),
                 list);
    }
}

static struct options parse(int argc, char **argv)
{
    struct options options = { NULL, NULL, NULL, 18600, 5, 2000, 50, 120, 0 };
    int at;

    for (at = 1; at < argc; at++) {
        const char *word = argv[at], *value;

        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            usage(stdout, argv[0]);
            exit(0);
        }
        if (strcmp(word, "-m") == 0) {
            options.machine = 1;
            continue;
        }
        if (word[0] != '-') {
            if (options.adapter != NULL)
                fail(STATUS_USAGE, "two adapters given: %s and %s; see -h", options.adapter, word);
            options.adapter = word;
            continue;
        }
        if (strlen(word) != 2 || strchr("aqrnctl", word[1]) == NULL)
            fail(STATUS_USAGE, "unknown option %s; see -h", word);
        if (++at == argc)
            fail(STATUS_USAGE, "%s needs a value; see -h", word);
        value = argv[at];
        switch (word[1]) {
        case 'a': options.address = address_of(value); break;
        case 'q': options.qualifier = number_of(value, word, 1, 65535); break;
        case 'r': options.rounds = (unsigned)number_of(value, word, 1, MOST_ROUNDS); break;
        case 'n': options.count = number_of(value, word, WINDOW, 1000000000); break;
        case 'c': options.connections = number_of(value, word, 1, 1000000); break;
        case 'l': options.seconds = (unsigned)number_of(value, word, 0, 86400); break;
        case 't': options.only = value; break;
        }
    }
    if (options.adapter == NULL)
        fail(STATUS_USAGE, "no adapter given; see -h");
    if (options.count % 2 != 0)
        fail(STATUS_USAGE, "invalid value -n %lu: expected an even number", options.count);
    check_list(options.only);
    return options;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static void measure(struct pair *pair, const struct test *test, const struct options *options)
{
    unsigned long count = test->connects ? options->connections : options->count;
    double times[MOST_ROUNDS + 1]; /* the first is for warm-up */
    unsigned round, half = options->rounds / 2;

    watchdog(test->name, options->seconds);
    if (!test->connects) {
        pair_connect(pair);
        post_all_receives(&pair->a);
        post_all_receives(&pair->b);
    }
    for (round = 0; round <= options->rounds; round++)
        times[round] = (double)test->run(pair, test->bytes, count) / (double)count / 1000;
    if (!test->connects)
        pair_disconnect(pair, RECEIVES);

    qsort(times + 1, options->rounds, sizeof times[0], by_size);
    printf(options->machine ? "%s\t%.4f\t%.4f\t%.4f\n" : "%-20s %10.3f %10.3f %10.3f\n", test->name,
           options->rounds % 2 != 0 ? times[1 + half] : (times[half] + times[1 + half]) / 2,
           times[1], times[options->rounds]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    struct pair pair;
    unsigned test;

    watchdog("opening the adapter", options.seconds);
    pair_open(&pair, options.adapter, options.address, options.qualifier);
    if (!options.machine)
        printf("%-20s %10s %10s %10s\n", "us", "median", "least", "greatest");
    for (test = 0; test < tests_count; test++)
        if (options.only == NULL || listed(options.only, tests[test].name))
            measure(&pair, &tests[test], &options);
    watchdog("closing the adapter", options.seconds);
    pair_close(&pair);
    return 0;
}
