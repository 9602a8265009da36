/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the examples: options, error checks, waiting, connecting. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <dat/udat.h>
#include <getopt.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a cache line. Buffers of the two sides begin at separate cache lines,
 * so that the sides do not write to the same line. */
#define LINE 64

/* Exit statuses: 0 is good. */
enum { USAGE = 1, ENVIRONMENT = 2, FAILED = 3 };

#define FAIL(...) (fprintf(stderr, "error: " __VA_ARGS__), fputc('\n', stderr), exit(FAILED))

/* Returns a remedy for an error, or null if none is known. */
static inline const char *next_step(DAT_RETURN answer)
{
    switch (DAT_GET_TYPE(answer)) {
    case DAT_PROVIDER_NOT_FOUND:
        return "`dat-bench devices` lists the adapters of this host; without one,\n"
               "      `mlx5-emu run -- PROGRAM` provides an emulated one";
    case DAT_CONN_QUAL_IN_USE:
        return "end the other server, or choose another qualifier with -p";
    case DAT_INSUFFICIENT_RESOURCES:
        return "see whether `ulimit -l` allows to lock the memory, and `ulimit -n` the descriptors";
    case DAT_PRIVILEGES_VIOLATION:
        return "choose a qualifier of 1024 or more with -p";
    case DAT_INVALID_ADDRESS:
    case DAT_MODEL_NOT_SUPPORTED:
        return "DAT_CM=socket makes connections over TCP, DAT_PATH=verbs drives any RDMA device";
    default:
        return NULL;
    }
}

/* If a call failed, prints the error and a remedy, and ends the program. */
static inline void must(DAT_RETURN answer, const char *call)
{
    const char *type = "", *subtype = "", *step;

    if (answer == DAT_SUCCESS)
        return;
    dat_strerror(answer, &type, &subtype);
    step = next_step(answer);
    fprintf(stderr, "error: %s: %s %s\nnext: %s\n", call, type, subtype,
            step ? step : "run it with DAT_DBG_TYPE=1, which prints the cause in words");
    exit(step ? ENVIRONMENT : FAILED);
}

struct options {
    const char *ia;        /* -d: name of the adapter */
    DAT_CONN_QUAL port;    /* -p: connection qualifier */
    unsigned long count;   /* -n: messages */
    unsigned long size;    /* -s: bytes of a message */
    unsigned long clients; /* -c: clients that a server serves */
    int force;             /* -l: poll memory in any case */
    const char *host;      /* the server's host */
};

/* Returns the number in an option; ends the program if it is not from least to most. */
static inline unsigned long long number(const char *text, unsigned long long least,
                                        unsigned long long most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 0);

    if (end == text || *end != 0 || *text == '-' || value < least || value > most) {
        fprintf(stderr, "error: invalid number '%s': expected %llu to %llu (see --help)\n", text,
                least, most);
        exit(USAGE);
    }
    return value;
}

/* Reads the options into `options`, which has the defaults. `letters` are the
 * program's options in getopt's format, `about` is its help text. */
static inline void parse(int argc, char **argv, const char *letters, const char *about,
                         int takes_host, struct options *options)
{
    static const struct option words[] = { { "help", no_argument, NULL, 'h' },
                                           { "last-byte", required_argument, NULL, 'l' },
                                           { 0 } };
    int letter;

    while ((letter = getopt_long(argc, argv, letters, words, NULL)) != -1) {
        switch (letter) {
        case 'd': options->ia = optarg; break;
        case 'p': options->port = number(optarg, 1, UINT64_MAX); break;
        case 'n': options->count = number(optarg, 1, UINT32_MAX); break;
        case 's': options->size = number(optarg, 8, 1 << 20); break;
        case 'c': options->clients = number(optarg, 1, 512); break;
        case 'l':
            options->force = strcmp(optarg, "force") == 0;
            if (strchr(letters, 'l') == NULL ||
                (!options->force && strcmp(optarg, "never") != 0 && strcmp(optarg, "auto") != 0)) {
                fprintf(stderr, "invalid option --last-byte %s (see --help)\n", optarg);
                exit(USAGE);
            }
            break;
        case 'h': printf("%s", about); exit(0);
        default: fprintf(stderr, "see --help\n"); exit(USAGE); /* getopt has printed the error */
        }
    }
    if (takes_host && optind < argc)
        options->host = argv[optind++];
    if (optind < argc) {
        fprintf(stderr, "error: unexpected argument '%s' (see --help)\n", argv[optind]);
        exit(USAGE);
    }
}

/* Waits for the next event; signals do not end the wait. */
static inline void wait_for_event(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
    DAT_COUNT more;
    DAT_RETURN answer;

    do {
        answer = dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, event, &more);
    } while (DAT_GET_TYPE(answer) == DAT_INTERRUPTED_CALL);
    must(answer, "dat_evd_wait");
}

/* The names of an event and of a status. Other libraries have no calls for that. */
static inline const char *event_name(DAT_EVENT_NUMBER number)
{
    const char *name = "an unknown event";

#ifdef DAT_HAS_NAMES
    dat_strevent(number, &name);
#else
    (void)number;
#endif
    return name;
}

static inline const char *status_name(DAT_DTO_COMPLETION_STATUS status)
{
    const char *name = "an unknown status";

#ifdef DAT_HAS_NAMES
    dat_strdtostatus(status, &name);
#else
    (void)status;
#endif
    return name;
}

/* Waits for the next event; ends the program if it is not the expected one. */
static inline void expect(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER expected, DAT_EVENT *event)
{
    wait_for_event(evd, event);
    if (event->event_number != expected)
        FAIL("%s instead of %s", event_name(event->event_number), event_name(expected));
}

/* Registered memory, zeroed and aligned to a cache line. */
struct memory {
    unsigned char *bytes;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT context; /* for segments of this side */
    DAT_RMR_CONTEXT remote;  /* for the peer */
};

/* Allocates and registers memory. */
static inline struct memory memory_of(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, size_t bytes,
                                      DAT_MEM_PRIV_FLAGS privileges)
{
    struct memory memory;
    DAT_REGION_DESCRIPTION region;
    void *place;

    if (posix_memalign(&place, LINE, bytes) != 0)
        FAIL("no %zu bytes of memory", bytes);
    memory.bytes = memset(place, 0, bytes);
    region.for_va = place;
    must(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, bytes, pz, privileges, &memory.lmr,
                        &memory.context, &memory.remote, NULL, NULL),
         "dat_lmr_create");
    return memory;
}

static inline void memory_free(struct memory *memory)
{
    must(dat_lmr_free(memory->lmr), "dat_lmr_free");
    free(memory->bytes);
}

/* Returns a part of the memory as a segment of a post. */
static inline DAT_LMR_TRIPLET part(const struct memory *memory, size_t at, size_t bytes)
{
    DAT_LMR_TRIPLET segment;

    memset(&segment, 0, sizeof segment);
    segment.lmr_context = memory->context;
    segment.virtual_address = (DAT_VADDR)(uintptr_t)(memory->bytes + at);
    segment.segment_length = bytes;
    return segment;
}

/* Returns the attributes of an endpoint. With the threshold flag, an EVD can take
 * completions together with other events on every provider; this library allows
 * that with the default flag, too. */
static inline DAT_EP_ATTR attributes(DAT_COUNT receives, DAT_COUNT requests)
{
    DAT_EP_ATTR attr;

    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_recv_dtos = receives;
    attr.max_request_dtos = requests;
    attr.max_recv_iov = 1;
    attr.max_request_iov = 1;
    attr.recv_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    attr.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    return attr;
}

/* Connects; if that fails, prints the reason and ends the program. The event has the
 * private data of the server. */
static inline void connect_to(DAT_EP_HANDLE ep, DAT_EVD_HANDLE evd, const struct options *to,
                              DAT_COUNT bytes, void *private_data, DAT_EVENT *event)
{
    unsigned long long port = to->port;
    struct addrinfo *server;
    int error = getaddrinfo(to->host, NULL, NULL, &server);

    if (error != 0)
        FAIL("cannot resolve %s: %s", to->host, gai_strerror(error));
    must(dat_ep_connect(ep, server->ai_addr, to->port, 5000000, bytes, private_data,
                        DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG),
         "dat_ep_connect");
    freeaddrinfo(server);
    wait_for_event(evd, event);
    switch (event->event_number) {
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        return;
    case DAT_CONNECTION_EVENT_PEER_REJECTED:
        FAIL("the server at %s accepts no more clients: wait, or start it for more", to->host);
        break;
    case DAT_CONNECTION_EVENT_NON_PEER_REJECTED:
        FAIL("no server listens at %s on %llu: start the server first, with the same -p\n"
             "(and under mlx5-emu on the same fabric)", to->host, port);
        break;
    case DAT_CONNECTION_EVENT_UNREACHABLE:
    case DAT_CONNECTION_EVENT_TIMED_OUT:
        FAIL("no answer from %s: check that its adapter is up, and that both sides\n"
             "connect alike (DAT_CM)", to->host);
        break;
    default:
        FAIL("the connection was not established: %s", event_name(event->event_number));
    }
}

#endif
