/* Thousands of rdma_cm ids in one process: ids that resolve an address, and ids that listen.
 * Prints the port of the last listener, and rejects one request to it. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 2100

static struct rdma_event_channel *channel;
static struct rdma_cm_id *resolving[COUNT], *listening[COUNT];

static void require(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    require(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    if (event->event != type) {
        fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(event->event),
                event->status, rdma_event_str(type));
        exit(1);
    }
    return event;
}

int main(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET}, local = any;
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    local.sin_port = htons(9);
    channel = rdma_create_event_channel();
    require(channel != NULL, "rdma_create_event_channel");
    for (int n = 0; n < COUNT; n++) {
        require(!rdma_create_id(channel, &resolving[n], NULL, RDMA_PS_TCP), "rdma_create_id");
        require(!rdma_resolve_addr(resolving[n], NULL, (struct sockaddr *)&local, 2000),
                "rdma_resolve_addr");
        require(!rdma_create_id(channel, &listening[n], NULL, RDMA_PS_TCP), "rdma_create_id");
        require(!rdma_bind_addr(listening[n], (struct sockaddr *)&any), "rdma_bind_addr");
        require(!rdma_listen(listening[n], 1), "rdma_listen");
    }
    for (int n = 0; n < COUNT; n++)
        rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
    /* Every id has a port of its own. */
    static char used[65536];
    for (int n = 0; n < COUNT; n++) {
        int ports[] = {ntohs(rdma_get_src_port(resolving[n])),
                       ntohs(rdma_get_src_port(listening[n]))};
        for (int end = 0; end < 2; end++) {
            require(ports[end] != 0 && !used[ports[end]], "a port of its own");
            used[ports[end]] = 1;
        }
    }
    printf("%d\n", ntohs(rdma_get_src_port(listening[COUNT - 1])));
    fflush(stdout);
    struct rdma_cm_event *request = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    require(!rdma_reject(request->id, NULL, 0), "rdma_reject");
    struct rdma_cm_id *id = request->id;
    rdma_ack_cm_event(request);
    rdma_destroy_id(id);
    for (int n = 0; n < COUNT; n++) {
        require(!rdma_destroy_id(resolving[n]), "rdma_destroy_id");
        require(!rdma_destroy_id(listening[n]), "rdma_destroy_id");
    }
    rdma_destroy_event_channel(channel);
    return 0;
}
