/* What the programs of this directory share: a TCP connection between both sides. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUIRE(holds) require(holds, #holds, __LINE__)

static int channel;
static int is_client;

static void require(int holds, const char *what, int line)
{
    if (!holds) {
        printf("line %d: %s: %s\n", line, what, strerror(errno));
        fflush(NULL);
        _exit(1);
    }
}

/* Connects to the server, or waits for the client if there is no server's name. */
static void connect_sides(const char *server, const char *port)
{
    struct addrinfo *list, *one, hints = {.ai_socktype = SOCK_STREAM,
                                          .ai_family = server ? AF_UNSPEC : AF_INET6,
                                          .ai_flags = server ? 0 : AI_PASSIVE};
    int on = 1, listener;
    is_client = server != NULL;
    REQUIRE(!getaddrinfo(server, port, &hints, &list));
    if (!server) {
        REQUIRE((listener = socket(list->ai_family, SOCK_STREAM, 0)) >= 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        REQUIRE(!bind(listener, list->ai_addr, list->ai_addrlen) && !listen(listener, 1));
        REQUIRE((channel = accept(listener, NULL, NULL)) >= 0);
        return;
    }
    for (int tries = 0; tries < 600; tries++, usleep(100000))
        for (one = list; one; one = one->ai_next) {
            REQUIRE((channel = socket(one->ai_family, SOCK_STREAM, 0)) >= 0);
            if (!connect(channel, one->ai_addr, one->ai_addrlen))
                return;
            close(channel);
        }
    REQUIRE(!"the server listens");
}

static void tell(const void *data, size_t size)
{
    REQUIRE(send(channel, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void hear(void *data, size_t size)
{
    REQUIRE(recv(channel, data, size, MSG_WAITALL) == (ssize_t)size);
}

/* Gives the other side a value, and returns its value in place of it. */
static void swap(void *mine, void *theirs, size_t size)
{
    tell(mine, size);
    hear(theirs, size);
}

static void both_are_here(void)
{
    char byte = 0;
    swap(&byte, &byte, 1);
}

#endif
