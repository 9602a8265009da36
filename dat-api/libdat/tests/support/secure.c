/*
 * Shows what a program uses from its environment: prints AT_SECURE, the
 * adapters that the registry lists, and the result of opening the adapter
 * named by the argument.
 */
#include <dat/udat.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(int argc, char **argv)
{
    DAT_PROVIDER_INFO infos[64], *places[64];
    DAT_COUNT count = 0, at;
    DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_RETURN answer;
    const char *type, *subtype;

    if (argc != 2)
        return 2;
    for (at = 0; at < 64; at++)
        places[at] = &infos[at];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("secure %lu\n", getauxval(AT_SECURE));
    answer = dat_registry_list_providers(64, &count, places);
    if (answer != DAT_SUCCESS)
        printf("the registry returned %x\n", (unsigned)answer);
    for (at = 0; at < count; at++)
        printf("name %s\n", infos[at].ia_name);
    answer = dat_ia_open(argv[1], 8, &evd, &ia);
    dat_strerror(answer, &type, &subtype);
    printf("open %s %s\n", type, subtype);
    return 0;
}
