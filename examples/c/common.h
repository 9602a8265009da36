/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the examples share: checking answers, and options. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <dat/udat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless a call succeeded, and says in words why not. */
static inline void must(DAT_RETURN answer, const char *what)
{
    const char *type = "", *subtype = "";

    if (answer == DAT_SUCCESS)
        return;
    dat_strerror(answer, &type, &subtype);
    fprintf(stderr, "%s: %s %s\n", what, type, subtype);
    exit(1);
}

struct options {
    const char *ia;       /* -d: name of the adapter */
    const char *host;     /* client: where the server is */
    DAT_CONN_QUAL port;   /* -p: connection qualifier */
    unsigned long count;  /* -n: messages */
};

static inline void usage(const char *program, int client)
{
    fprintf(stderr,
            "usage: %s [-d ADAPTER] [-p QUALIFIER] [-n MESSAGES]%s\n"
            "  -d  name of the interface adapter (default mlx5_0)\n"
            "  -p  what the server listens on (default 18515)\n"
            "  -n  how many messages (default 1000)\n",
            program, client ? " [HOST]" : "");
    exit(1);
}

static inline struct options parse(int argc, char **argv, int client)
{
    struct options options = { "mlx5_0", "127.0.0.1", 18515, 1000 };
    int at;

    for (at = 1; at < argc; at++) {
        const char *word = argv[at];
        if (word[0] != '-' && client) {
            options.host = word;
            continue;
        }
        if (at + 1 == argc || word[0] != '-' || strlen(word) != 2)
            usage(argv[0], client);
        at++;
        switch (word[1]) {
        case 'd': options.ia = argv[at]; break;
        case 'p': options.port = strtoull(argv[at], NULL, 0); break;
        case 'n': options.count = strtoul(argv[at], NULL, 0); break;
        default: usage(argv[0], client);
        }
    }
    return options;
}

#endif
