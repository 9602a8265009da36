/*
 * Makes every kind of call of libibverbs, right and wrong ones, and prints what each gives, so that the emulator's
 * reading of the kernel's uverbs can be compared with the kernel: it runs under "mlx5-emu run", and in a virtual
 * machine whose mlx5_ib drives the device of "mlx5-emu pci".
 *
 * usage: uverbs [PART…]    (all parts); PAUSE=MS: how long to wait for what does not come (60)
 *
 * uverbs.expected has what both give.
 */
#include "say.h"
#include "objects.h"
#include "pairs.h"
#include "completions.h"

static void each_type(void (*part)(int))
{
    part(IBV_QPT_RC), part(IBV_QPT_UC), part(IBV_QPT_UD);
}
static void all_transitions(void) { each_type(transitions); }
static void all_queries(void) { each_type(queries); }

int main(int count, char **arguments)
{
    struct { const char *name; void (*run)(void); } parts[] = {
        {"port", query_port}, {"domains", domains}, {"regions", regions}, {"cq", completion_queues}, {"srq", shared_queues},
        {"ah", addresses}, {"creation", creation}, {"queries", all_queries}, {"values", values}, {"in-use", in_use},
        {"multicast", multicast}, {"refused", refused}, {"transitions", all_transitions}, {"failures", failures}};
    if (getenv("PAUSE"))
        pause_ms = atoi(getenv("PAUSE"));
    setvbuf(stdout, NULL, _IOLBF, 0);
    int number = 0;
    struct ibv_device **list = ibv_get_device_list(&number);
    REQUIRE(list && list[0] && (context = ibv_open_device(list[0])));
    printf("devices %d, node type %d, transport %d\n", number, list[0]->node_type, list[0]->transport_type);
    query_device();
    REQUIRE(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid));
    REQUIRE((pd = ibv_alloc_pd(context)) && (foreign_pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
    REQUIRE(srq = ibv_create_srq(pd, &(struct ibv_srq_init_attr){.attr = {16, 1, 0}}));
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
        int wanted = count == 1;
        for (int argument = 1; argument < count; argument++)
            wanted |= !strcmp(arguments[argument], parts[at].name);
        if (wanted)
            printf("== %s\n", parts[at].name), parts[at].run();
    }
    printf("== end\n");
    CALL(ibv_destroy_srq(srq), "destroy_srq"), CALL(ibv_destroy_cq(cq), "destroy_cq"), CALL(ibv_dealloc_pd(pd), "dealloc_pd");
    CALL(ibv_dealloc_pd(foreign_pd), "dealloc_pd"), CALL(ibv_close_device(context), "close_device");
    return 0;
}
