/* What libibverbs and librdmacm export. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
