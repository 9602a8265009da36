/*
 * A provider library other than libdat. It registers the names in dat.conf,
 * opens adapters without function, and returns the number of every other call.
 * Instance data: "good"; "mute" registers nothing; "refuses" opens nothing;
 * "bare" has a table whose other entries are null; "nested" opens an adapter
 * while it is loaded; "stays" does not remove its entry.
 */
#include <dat/dat_registry.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "slots.h"

struct adapter {
    DAT_PROVIDER *table;
    int open;
};

static DAT_PROVIDER table;
/* Adapters point to a separate table, as those of some providers do. */
static DAT_PROVIDER of_adapters;
static struct adapter adapters[4];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char behaviour[32], device[256];

#define ANSWER(name) \
    static DAT_RETURN answer_##name(void) { return SLOT_ANSWER(SLOT_##name); }
SLOTS(ANSWER)

static DAT_RETURN open_adapter(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd,
                               DAT_IA_HANDLE *ia)
{
    (void)evd;
    printf("open %s %d\n", name, (int)qlen);
    if (strcmp(behaviour, "refuses") == 0)
        return FAILS(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP);
    pthread_mutex_lock(&lock);
    for (struct adapter *adapter = adapters; adapter < adapters + 4; adapter++)
        if (!adapter->open) {
            adapter->table = &of_adapters;
            adapter->open = 1;
            *ia = (DAT_IA_HANDLE)adapter;
            pthread_mutex_unlock(&lock);
            return DAT_SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return FAILS(DAT_INSUFFICIENT_RESOURCES, 0);
}

static DAT_RETURN close_adapter(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    printf("close %d\n", (int)flags);
    if (flags == DAT_CLOSE_GRACEFUL_FLAG)
        return FAILS(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    pthread_mutex_lock(&lock);
    ((struct adapter *)ia)->open = 0;
    pthread_mutex_unlock(&lock);
    return DAT_SUCCESS;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *data)
{
    void *slot[SLOT_COUNT] = {
#define PUT(name) [SLOT_##name] = (void *)answer_##name,
        SLOTS(PUT)
    };
    printf("init %s %u.%u %d '%s'\n", info->ia_name, (unsigned)info->dapl_version_major,
           (unsigned)info->dapl_version_minor, (int)info->is_thread_safe, data);
    snprintf(behaviour, sizeof behaviour, "%s", data);
    snprintf(device, sizeof device, "%s", info->ia_name);
    if (strcmp(behaviour, "bare") != 0)
        memcpy((char *)&of_adapters + 2 * sizeof(void *), slot, sizeof slot);
    of_adapters.device_name = device;
    of_adapters.ia_open_func = open_adapter;
    of_adapters.ia_close_func = close_adapter;
    table = of_adapters;
    if (strcmp(behaviour, "nested") == 0) {
        DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        SHOW("nested", dat_ia_open("other", 8, &evd, &ia));
    }
    if (strcmp(behaviour, "mute") != 0) {
        SHOW("add", dat_registry_add_provider(&table, info));
        SHOW("again", dat_registry_add_provider(&table, info));
    }
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    printf("fini %s\n", info->ia_name);
    if (strcmp(behaviour, "stays") == 0)
        return;
    if (strcmp(behaviour, "mute") != 0)
        SHOW("remove", dat_registry_remove_provider(&table, info));
}
