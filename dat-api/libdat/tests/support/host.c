/*
 * Another registry, which loads this project's library as its provider and
 * uses an adapter through the registered table. Arguments: the library, and
 * "serves", "refuses" (the registry takes no entry) or "unknown" (no such
 * device).
 */
#include <dat/dat_registry.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slots.h"

static DAT_PROVIDER *entry;
static int refuses;

/* The loader finds these functions before the library's own of the same names. */
DAT_RETURN dat_registry_add_provider(DAT_PROVIDER *table, const DAT_PROVIDER_INFO *info)
{
    printf("add %s %u.%u\n", info->ia_name, (unsigned)info->dapl_version_major,
           (unsigned)info->dapl_version_minor);
    if (refuses)
        return FAILS(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    entry = table;
    return DAT_SUCCESS;
}

DAT_RETURN dat_registry_remove_provider(DAT_PROVIDER *table, const DAT_PROVIDER_INFO *info)
{
    printf("remove %s %d\n", info->ia_name, table == entry);
    entry = NULL;
    return DAT_SUCCESS;
}

/* The library's table must not call these functions instead of its own. */
DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
    (void)ia, (void)pz;
    printf("the wrong dat_pz_create\n");
    exit(1);
}

static int all_well = 1;
static void expect(const char *what, DAT_RETURN answer, DAT_RETURN wanted)
{
    if (answer != wanted) {
        printf("%s returned %x\n", what, (unsigned)answer);
        all_well = 0;
    }
}

static void use(DAT_IA_HANDLE ia, DAT_EVD_HANDLE async)
{
    const DAT_PROVIDER *table = DAT_HANDLE_TO_PROVIDER(ia);
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE evd;
    DAT_EVENT event = { .event_number = DAT_SOFTWARE_EVENT }, taken;
    DAT_PROVIDER_ATTR attributes;
    int mark;
    printf("adapter %s\n", table->device_name);
    expect("query", DAT_IA_QUERY(ia, &evd, 0, NULL, DAT_PROVIDER_FIELD_ALL, &attributes),
           DAT_SUCCESS);
    printf("safe %d, version %u.%u, async %d\n", (int)attributes.is_thread_safe,
           (unsigned)attributes.dapl_version_major, (unsigned)attributes.dapl_version_minor,
           evd == async);
    expect("pz", DAT_PZ_CREATE(ia, &pz), DAT_SUCCESS);
    expect("evd", DAT_EVD_CREATE(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd),
           DAT_SUCCESS);
    event.event_data.software_event_data.pointer = &mark;
    expect("post", DAT_EVD_POST_SE(evd, &event), DAT_SUCCESS);
    expect("dequeue", DAT_EVD_DEQUEUE(evd, &taken), DAT_SUCCESS);
    printf("pointer %d\n", taken.event_data.software_event_data.pointer == &mark);
    expect("in use", DAT_HANDLE_TO_PROVIDER(ia)->ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG),
           FAILS(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE));
    expect("evd free", DAT_EVD_FREE(evd), DAT_SUCCESS);
    expect("pz free", DAT_PZ_FREE(pz), DAT_SUCCESS);
}

int main(int argc, char **argv)
{
    DAT_PROVIDER_INFO info = { .dapl_version_major = 1, .dapl_version_minor = 2 };
    DAT_PROVIDER_INIT_FUNC init;
    DAT_PROVIDER_FINI_FUNC fini;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    void *library;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3)
        return 2;
    library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&init = dlsym(library, DAT_PROVIDER_INIT_FUNC_STR);
    *(void **)&fini = dlsym(library, DAT_PROVIDER_FINI_FUNC_STR);
    refuses = strcmp(argv[2], "refuses") == 0;
    snprintf(info.ia_name, sizeof info.ia_name, "guest");
    init(NULL, NULL);
    init(&info, strcmp(argv[2], "unknown") == 0 ? "nothing_7 1" : "mlx5_0 1 wait=block");
    if (entry != NULL) {
        DAT_RETURN answer;
        printf("table %s\n", entry->device_name);
        answer = entry->ia_open_func(info.ia_name, 8, &async, &ia);
        if (answer == DAT_SUCCESS) {
            use(ia, async);
            expect("close", DAT_HANDLE_TO_PROVIDER(ia)->ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
        } else {
            printf("open %x %d\n", (unsigned)answer,
                   answer == FAILS(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED));
        }
    }
    fini(&info);
    fini(&info);
    fini(NULL);
    printf(all_well ? "well\n" : "not well\n");
    return 0;
}
