/*
 * A program that opens adapters by name, through the library that dat.conf
 * names. It executes its arguments in order:
 *
 *   open NAME          opens an adapter and prints the return code
 *   calls              makes every call with the handle of the last adapter, and
 *                      prints the calls that do not reach its provider
 *   null-slots         the same for a provider whose table is empty
 *   graceful, abrupt   closes the last open adapter
 *   remove NAME        removes a registry entry
 *   add NAME           registers a provider inside this program
 *   loaded TEXT        prints whether a library with TEXT in its path is loaded
 *   threads NAME       opens and closes the adapter 200 times in each of 4 threads
 */
#define _GNU_SOURCE
#include <dat/dat_registry.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slots.h"

/* Has enough parameters for every call; surplus arguments are ignored. */
typedef DAT_RETURN (*any)(void *, long, long, long, long, long, long, long, long, long, long, long);

static const char *const names[] = {
#define NAME(name) "dat_" #name,
    SLOTS(NAME)
};

static void all_calls(DAT_IA_HANDLE ia, int has_slots)
{
    unsigned made = 0;
    for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
        any call;
        DAT_RETURN answer, wanted = has_slots ? SLOT_ANSWER(slot) : FAILS(DAT_NOT_IMPLEMENTED, 0);
        if (slot == SLOT_ia_open || slot == SLOT_ia_close)
            continue;
        *(void **)&call = dlsym(RTLD_DEFAULT, names[slot]);
        if (call == NULL) {
            printf("no %s\n", names[slot]);
            continue;
        }
        answer = call(ia, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        if (answer != wanted)
            printf("%s returned %x\n", names[slot], (unsigned)answer);
        made++;
    }
    printf("calls %u\n", made);
}

/* A provider inside the program, with one adapter, which points to its table. */
static DAT_PROVIDER own;
static DAT_PROVIDER *own_adapter = &own;
static int is_own_open;

static DAT_RETURN open_own(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd,
                           DAT_IA_HANDLE *ia)
{
    (void)evd;
    printf("own open %s %d\n", name, (int)qlen);
    *ia = (DAT_IA_HANDLE)&own_adapter;
    is_own_open = 1;
    return DAT_SUCCESS;
}

static DAT_RETURN close_own(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    printf("own close %d %d\n", ia == (DAT_IA_HANDLE)&own_adapter, (int)flags);
    if (!is_own_open)
        return FAILS(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    is_own_open = 0;
    return DAT_SUCCESS;
}

static void *open_and_close(void *name)
{
    unsigned long bad = 0;
    for (int round = 0; round < 200; round++) {
        DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        bad += dat_ia_open(name, 8, &evd, &ia) != DAT_SUCCESS;
        bad += dat_pz_free(ia) != SLOT_ANSWER(SLOT_pz_free);
        bad += dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS;
    }
    return (void *)bad;
}

static int is_loaded(const char *text)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        found |= strstr(line, text) != NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

int main(int argc, char **argv)
{
    DAT_IA_HANDLE open[16];
    int count = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int at = 1; at < argc; at++) {
        const char *what = argv[at];
        if (strcmp(what, "open") == 0) {
            DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
            DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
            DAT_RETURN answer = dat_ia_open(argv[++at], 8, &evd, &ia);
            SHOW("opened", answer);
            if (answer == DAT_SUCCESS)
                open[count++] = ia;
        } else if (strcmp(what, "calls") == 0 || strcmp(what, "null-slots") == 0) {
            all_calls(open[count - 1], strcmp(what, "calls") == 0);
        } else if (strcmp(what, "graceful") == 0 || strcmp(what, "abrupt") == 0) {
            DAT_CLOSE_FLAGS flags = strcmp(what, "abrupt") == 0 ? DAT_CLOSE_ABRUPT_FLAG
                                                                : DAT_CLOSE_GRACEFUL_FLAG;
            DAT_RETURN answer = dat_ia_close(open[count - 1], flags);
            SHOW("closed", answer);
            if (answer == DAT_SUCCESS) {
                /* The library is unloaded with its last adapter: the handle
                 * becomes invalid. */
                if (--count == 0)
                    SHOW("stale", dat_ia_close(open[0], flags));
            }
        } else if (strcmp(what, "remove") == 0) {
            static DAT_PROVIDER any_table;
            DAT_PROVIDER_INFO info = { .dapl_version_major = 1, .dapl_version_minor = 2 };
            snprintf(info.ia_name, sizeof info.ia_name, "%s", argv[++at]);
            SHOW("removed", dat_registry_remove_provider(&any_table, &info));
        } else if (strcmp(what, "add") == 0) {
            DAT_PROVIDER_INFO info = { .dapl_version_major = 1, .dapl_version_minor = 2 };
            snprintf(info.ia_name, sizeof info.ia_name, "%s", argv[++at]);
            own.device_name = argv[at];
            own.ia_open_func = open_own;
            own.ia_close_func = close_own;
            SHOW("added", dat_registry_add_provider(&own, &info));
        } else if (strcmp(what, "loaded") == 0) {
            printf("loaded %d\n", is_loaded(argv[++at]));
        } else if (strcmp(what, "threads") == 0) {
            pthread_t threads[4];
            unsigned long bad = 0;
            void *result;
            at++;
            for (int t = 0; t < 4; t++)
                pthread_create(&threads[t], NULL, open_and_close, argv[at]);
            for (int t = 0; t < 4; t++) {
                pthread_join(threads[t], &result);
                bad += (unsigned long)result;
            }
            printf("bad %lu\n", bad);
        } else {
            printf("what is %s?\n", what);
            return 1;
        }
    }
    return 0;
}
