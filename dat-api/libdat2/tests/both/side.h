/*
 * One side of a connection. side.c is compiled for each version of uDAPL, into a shared
 * object that loads the library of that version and exports one table, "side".
 */
#ifndef SIDE_H
#define SIDE_H

#include <stdint.h>

struct side {
    /* Opens the adapter, registers memory and creates an endpoint. */
    void (*open)(const char *adapter);
    /* Creates a service point, and returns its qualifier. */
    uint64_t (*listen)(void);
    /* Starts to connect to a service point of this adapter's address. */
    void (*connect)(uint64_t qualifier);
    /* Accepts the request, whose private data have these bytes. */
    void (*accept)(const char *expected);
    /* Waits until the connection is established. */
    void (*establish)(void);
    /* Sends the address and the key of the memory. */
    void (*announce)(void);
    /* Receives those of the peer. */
    void (*learn)(void);
    /* Writes a pattern to the peer's memory, and sends a message after it. */
    void (*write)(int pattern);
    /* Receives that message, checks the pattern, and reads it from the peer. */
    void (*check)(int pattern);
    /* Version 2: writes a pattern with immediate data. */
    void (*write_immediate)(int pattern);
    /* Version 1: its receive has 0 bytes, and the pattern is there. */
    void (*take_immediate)(int pattern);
    /* Refuses an endpoint, a dispatcher and an adapter of the other library. */
    void (*refuse)(const struct side *other);
    /* Disconnects if `first`, waits for the end of the connection, and closes. */
    void (*close)(int first);
    /* The handles. */
    void *(*endpoint)(void);
    void *(*dispatcher)(void);
    void *(*adapter)(void);
    /* The address of the library's dat_ia_openv. */
    void *(*library)(void);
};

#endif
