/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_registry.h: the interface between providers and the registry.
 * Programs that use DAT do not need it.
 */
#ifndef DAT_REGISTRY_H
#define DAT_REGISTRY_H

#include <dat/udat.h>
#include <dat/udat_redirection.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Adds an entry. The table must stay valid until the entry is removed; the key is copied.
 * Errors: DAT_INVALID_PARAMETER, DAT_PROVIDER_ALREADY_REGISTERED,
 * DAT_INSUFFICIENT_RESOURCES.
 */
#ifndef DAT2
DAT_RETURN dat_registry_add_provider(DAT_PROVIDER *provider,
#else
DAT_RETURN dat_registry_add_provider(const DAT_PROVIDER *provider,
#endif
                                     const DAT_PROVIDER_INFO *provider_info);

/*
 * Removes an entry.
 * Errors: DAT_INVALID_PARAMETER (also if there is no such entry), DAT_PROVIDER_IN_USE (an
 * adapter is open).
 */
#ifndef DAT2
DAT_RETURN dat_registry_remove_provider(DAT_PROVIDER *provider,
#else
DAT_RETURN dat_registry_remove_provider(const DAT_PROVIDER *provider,
#endif
                                        const DAT_PROVIDER_INFO *provider_info);

#ifdef DAT2
/*
 * Returns whether two adapters lead to the same place. Known to providers for high
 * availability only.
 * Errors: DAT_INVALID_PARAMETER, DAT_PROVIDER_NOT_FOUND, DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_registry_providers_related(const DAT_NAME_PTR ia_name_1,
                                          const DAT_NAME_PTR ia_name_2,
                                          DAT_HA_RELATIONSHIP *ha_relationship);

#endif
/*
 * A provider library exports two functions. dat_provider_init is called before an
 * adapter is opened for the first time, with the key of its registry entry and the
 * instance data of the configuration file; the function adds that entry.
 * dat_provider_fini is called when no adapter is open any more, before the library
 * is unloaded.
 */
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"

typedef void (*DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO *provider_info,
                                       const char *instance_data);
typedef void (*DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO *provider_info);

void DAT_PROVIDER_INIT_FUNC_NAME(const DAT_PROVIDER_INFO *provider_info,
                                 const char *instance_data);
void DAT_PROVIDER_FINI_FUNC_NAME(const DAT_PROVIDER_INFO *provider_info);

#ifdef __cplusplus
}
#endif

#endif
