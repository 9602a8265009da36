/*
 * Programs of uDAPL 1.2 and 2.0 on one connection:
 *
 *     both SIDE1 SIDE2 together ADAPTER          in one process, with both libraries
 *     both SIDE listen ADAPTER EXPECTED          prints the qualifier; the peer's data
 *     both SIDE connect ADAPTER QUALIFIER        in another process
 *
 * SIDE is the path of a shared object of side.c. Prints "well" at the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "side.h"

static const struct side *load(const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct side *side = object == NULL ? NULL : dlsym(object, "side");

    if (side == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return side;
}

/* The file that has this address. */
static const char *file_of(void *address)
{
    Dl_info info;

    return dladdr(address, &info) == 0 ? "" : info.dli_fname;
}

static void together(const struct side *first, const struct side *second, const char *adapter)
{
    const struct side *sides[] = {first, second};

    if (first->library() == second->library() ||
        strstr(file_of(first->library()), "libdat.so") == NULL ||
        strstr(file_of(second->library()), "libdat2.so") == NULL) {
        printf("%s, %s\n", file_of(first->library()), file_of(second->library()));
        exit(1);
    }
    for (int lap = 0; lap < 2; lap++) {
        const struct side *active = sides[lap], *passive = sides[1 - lap];

        active->open(adapter);
        passive->open(adapter);
        active->connect(passive->listen());
        passive->accept(lap == 0 ? "from 1.2" : "from 2.0");
        active->establish();
        passive->establish();
        active->refuse(passive);
        passive->refuse(active);
        active->announce();
        passive->announce();
        active->learn();
        passive->learn();
        active->write(0x11 + lap);
        passive->check(0x11 + lap);
        passive->write(0x22 + lap);
        active->check(0x22 + lap);
        second->write_immediate(0x55 + lap);
        first->take_immediate(0x55 + lap);
        if (lap == 0) {
            active->close(1);
            passive->close(0);
        } else {
            passive->close(1);
            active->close(0);
        }
    }
}

/* Both sides do the same, each in its process. */
static void transfer(const struct side *side, int active)
{
    int own = active ? 0x33 : 0x44, theirs = active ? 0x44 : 0x33;

    side->establish();
    side->announce();
    side->learn();
    if (active)
        side->write(own);
    side->check(theirs);
    if (!active)
        side->write(own);
    side->close(active);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 5 && strcmp(argv[3], "together") == 0) {
        together(load(argv[1]), load(argv[2]), argv[4]);
    } else if (argc == 5 && strcmp(argv[2], "listen") == 0) {
        const struct side *side = load(argv[1]);

        side->open(argv[3]);
        printf("%" PRIu64 "\n", side->listen());
        side->accept(argv[4]);
        transfer(side, 0);
    } else if (argc == 5 && strcmp(argv[2], "connect") == 0) {
        const struct side *side = load(argv[1]);

        side->open(argv[3]);
        side->connect(strtoull(argv[4], NULL, 0));
        transfer(side, 1);
    } else {
        printf("usage: see the head of both.c\n");
        return 2;
    }
    printf("well\n");
    return 0;
}
