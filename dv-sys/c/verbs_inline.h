/* verbs.h, and one plain function for each of its macros that chooses between
 * functions. */
#include <infiniband/verbs.h>

/* A macro: chooses ibv_reg_mr_iova2 when optional access flags may be set. */
static inline struct ibv_mr *dv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr(pd, addr, length, access);
}

/* A macro over ___ibv_query_port: the plain symbol fills an older, shorter struct. */
static inline int dv_query_port(struct ibv_context *context, uint8_t port_num,
				struct ibv_port_attr *attr)
{
	return ibv_query_port(context, port_num, attr);
}
