/*
 * A uDAPL 1.2 program on the registry of OFED's DAT 2.0 (libdat2.so.2), whose
 * dat.conf names this project's library for "guest". It makes only calls that
 * have the same form in both versions. Argument: libdat2.
 */
#include <dat/udat.h>
#include <dlfcn.h>
#include <stdio.h>

#include "slots.h"

static void *registry;
static int all_well = 1;

#define CALL(name) ((__typeof__(&name))(unsigned long)dlsym(registry, #name))
#define EXPECT(call, wanted) \
    do { \
        DAT_RETURN answer = (call); \
        if (answer != (wanted)) { \
            printf("%s returned %x\n", #call, (unsigned)answer); \
            all_well = 0; \
        } \
    } while (0)

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, evd, requests;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event = { .event_number = DAT_SOFTWARE_EVENT }, taken;
    DAT_CONN_QUAL qualifier = 0;
    DAT_COUNT more;
    int mark;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2)
        return 2;
    registry = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (registry == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    EXPECT(CALL(dat_ia_openv)("guest", 8, &async, &ia, 1, 2, DAT_FALSE), DAT_SUCCESS);
    if (!all_well)
        return 1;
    EXPECT(CALL(dat_pz_create)(ia, &pz), DAT_SUCCESS);
    EXPECT(CALL(dat_evd_create)(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
    EXPECT(CALL(dat_evd_create)(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests), DAT_SUCCESS);
    EXPECT(CALL(dat_psp_create_any)(ia, &qualifier, requests, DAT_PSP_CONSUMER_FLAG, &psp),
           DAT_SUCCESS);
    event.event_data.software_event_data.pointer = &mark;
    EXPECT(CALL(dat_evd_post_se)(evd, &event), DAT_SUCCESS);
    EXPECT(CALL(dat_evd_wait)(evd, 1000000, 1, &taken, &more), DAT_SUCCESS);
    printf("pointer %d\n", taken.event_data.software_event_data.pointer == &mark);
    EXPECT(CALL(dat_evd_wait)(evd, 1000, 1, &taken, &more), FAILS(DAT_TIMEOUT_EXPIRED, 0));
    EXPECT(CALL(dat_ia_close)(ia, DAT_CLOSE_GRACEFUL_FLAG),
           FAILS(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE));
    EXPECT(CALL(dat_psp_free)(psp), DAT_SUCCESS);
    EXPECT(CALL(dat_evd_free)(requests), DAT_SUCCESS);
    EXPECT(CALL(dat_evd_free)(evd), DAT_SUCCESS);
    EXPECT(CALL(dat_pz_free)(pz), DAT_SUCCESS);
    EXPECT(CALL(dat_ia_close)(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
    printf(all_well ? "well\n" : "not well\n");
    return 0;
}
