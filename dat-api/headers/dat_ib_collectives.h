#ifdef DAT2
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_ib_collectives.h: collective operations in hardware. A part of
 * dat/dat_ib_extensions.h; include that. No known provider has these operations: they
 * return DAT_MODEL_NOT_SUPPORTED.
 */
#ifndef DAT_IB_COLLECTIVES_H
#define DAT_IB_COLLECTIVES_H

#include <dat/dat_ib_extensions.h>

/* Names of provider-specific attributes: what an adapter supports. */
#define DAT_IB_COLL_SET_CLOCK "DAT_COLL_SET_CLOCK"
#define DAT_IB_COLL_READ_CLOCK "DAT_COLL_READ_CLOCK"
#define DAT_IB_COLL_BROADCAST "DAT_COLL_BROADCAST"
#define DAT_IB_COLL_BARRIER "DAT_COLL_BARRIER"
#define DAT_IB_COLL_SCATTER "DAT_COLL_SCATTER"
#define DAT_IB_COLL_SCATTERV "DAT_COLL_SCATTERV"
#define DAT_IB_COLL_GATHER "DAT_COLL_GATHER"
#define DAT_IB_COLL_GATHERV "DAT_COLL_GATHERV"
#define DAT_IB_COLL_ALLGATHER "DAT_COLL_ALLGATHER"
#define DAT_IB_COLL_ALLGATHERV "DAT_COLL_ALLGATHERV"
#define DAT_IB_COLL_ALLTOALL "DAT_COLL_ALLTOALL"
#define DAT_IB_COLL_ALLTOALLV "DAT_COLL_ALLTOALLV"
#define DAT_IB_COLL_REDUCE "DAT_COLL_REDUCE"
#define DAT_IB_COLL_ALLREDUCE "DAT_COLL_ALLREDUCE"
#define DAT_IB_COLL_REDUCE_SCATTER "DAT_COLL_REDUCE_SCATTER"
#define DAT_IB_COLL_SCAN "DAT_COLL_SCAN"

typedef DAT_HANDLE DAT_IB_COLLECTIVE_HANDLE;
typedef unsigned int DAT_IB_COLLECTIVE_RANK;
typedef unsigned int DAT_IB_COLLECTIVE_ID;
typedef void *DAT_IB_COLLECTIVE_MEMBER;

typedef struct dat_ib_collective_group {
    int local_size; /* processes on this host */
    int local_rank;
    int *local_ranks;
    int external_size; /* hosts */
    int external_rank;
    int *external_ranks;
    int *intranode_table;
    int *internode_table;
    int is_comm_world;
} DAT_IB_COLLECTIVE_GROUP;

typedef enum dat_ib_collective_data_type {
    DAT_IB_COLLECTIVE_TYPE_INT8 = 0,
    DAT_IB_COLLECTIVE_TYPE_UINT8 = 1,
    DAT_IB_COLLECTIVE_TYPE_INT16 = 2,
    DAT_IB_COLLECTIVE_TYPE_UINT16 = 3,
    DAT_IB_COLLECTIVE_TYPE_INT32 = 4,
    DAT_IB_COLLECTIVE_TYPE_UINT32 = 5,
    DAT_IB_COLLECTIVE_TYPE_INT64 = 6,
    DAT_IB_COLLECTIVE_TYPE_UINT64 = 7,
    DAT_IB_COLLECTIVE_TYPE_FLOAT = 8,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE = 9,
    DAT_IB_COLLECTIVE_TYPE_LONG_DOUBLE = 10,
    DAT_IB_COLLECTIVE_TYPE_SHORT_INT = 11,
    DAT_IB_COLLECTIVE_TYPE_2INT = 12,
    DAT_IB_COLLECTIVE_TYPE_FLOAT_INT = 13,
    DAT_IB_COLLECTIVE_TYPE_LONG_INT = 14,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE_INT = 15,
} DAT_IB_COLLECTIVE_DATA_TYPE;

typedef enum dat_ib_collective_reduce_data_op {
    DAT_IB_COLLECTIVE_REDUCE_OP_MAX = 0,
    DAT_IB_COLLECTIVE_REDUCE_OP_MIN = 1,
    DAT_IB_COLLECTIVE_REDUCE_OP_SUM = 2,
    DAT_IB_COLLECTIVE_REDUCE_OP_PROD = 3,
    DAT_IB_COLLECTIVE_REDUCE_OP_LAND = 4,
    DAT_IB_COLLECTIVE_REDUCE_OP_BAND = 5,
    DAT_IB_COLLECTIVE_REDUCE_OP_LOR = 6,
    DAT_IB_COLLECTIVE_REDUCE_OP_BOR = 7,
    DAT_IB_COLLECTIVE_REDUCE_OP_LXOR = 8,
    DAT_IB_COLLECTIVE_REDUCE_OP_BXOR = 9,
    DAT_IB_COLLECTIVE_REDUCE_OP_MAXLOC = 10,
    DAT_IB_COLLECTIVE_REDUCE_OP_MINLOC = 11,
} DAT_IB_COLLECTIVE_REDUCE_DATA_OP;

#define dat_ib_collective_create_member(ia_handle, progress_func, member, member_size) \
    dat_extension_op((ia_handle), DAT_IB_COLLECTIVE_CREATE_MEMBER_OP, (progress_func), (member), \
                     (member_size))
#define dat_ib_collective_free_member(ia_handle, member) \
    dat_extension_op((ia_handle), DAT_IB_COLLECTIVE_FREE_MEMBER_OP, (member))
#define dat_ib_collective_create_group(members, group_size, self, group_id, group_info, evd, pd, \
                                       user_context) \
    dat_extension_op((evd), DAT_IB_COLLECTIVE_CREATE_GROUP_OP, (members), (group_size), (self), \
                     (group_id), (group_info), (pd), (user_context))
#define dat_ib_collective_free_group(coll_handle) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_FREE_GROUP_OP)
#define dat_ib_collective_set_clock(coll_handle, clock_value, user_context) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_SET_CLOCK_OP, (clock_value), \
                     (user_context))
#define dat_ib_collective_read_clock(coll_handle, clock_value) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_READ_CLOCK_OP, (clock_value))
#define dat_ib_collective_scatter(coll_handle, sendbuf, sendsize, recvbuf, recvsize, root, \
                                  user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_SCATTER_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsize), (root), (user_context), (flags))
#define dat_ib_collective_scatterv(coll_handle, sendbuf, sendsizes, displs, recvbuf, recvsize, \
                                   root, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_SCATTERV_OP, (sendbuf), (sendsizes), \
                     (displs), (recvbuf), (recvsize), (root), (user_context), (flags))
#define dat_ib_collective_gather(coll_handle, sendbuf, sendsize, recvbuf, recvsize, root, \
                                 user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_GATHER_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsize), (root), (user_context), (flags))
#define dat_ib_collective_gatherv(coll_handle, sendbuf, sendsize, recvbufs, recvsizes, displs, \
                                  root, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_GATHERV_OP, (sendbuf), (sendsize), \
                     (recvbufs), (recvsizes), (displs), (root), (user_context), (flags))
#define dat_ib_collective_allgather(coll_handle, sendbuf, sendsize, recvbuf, recvsize, \
                                    user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_ALLGATHER_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsize), (user_context), (flags))
#define dat_ib_collective_allgatherv(coll_handle, sendbuf, sendsize, recvbuf, recvsizes, displs, \
                                     user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_ALLGATHERV_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsizes), (displs), (user_context), (flags))
#define dat_ib_collective_alltoall(coll_handle, sendbuf, sendsize, recvbuf, recvsize, \
                                   user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_ALLTOALL_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsize), (user_context), (flags))
#define dat_ib_collective_alltoallv(coll_handle, sendbuf, sendsizes, senddspls, recvbuf, \
                                    recvsizes, recvdispls, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_ALLTOALLV_OP, (sendbuf), (sendsizes), \
                     (senddspls), (recvbuf), (recvsizes), (recvdispls), (user_context), (flags))
#define dat_ib_collective_reduce(coll_handle, sendbuf, sendsize, recvbuf, recvsize, op, type, \
                                 root, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_REDUCE_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsize), (op), (type), (root), (user_context), (flags))
#define dat_ib_collective_allreduce(coll_handle, sendbuf, sendsize, recvbuf, recvsize, op, type, \
                                    user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_ALLREDUCE_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsize), (op), (type), (user_context), (flags))
#define dat_ib_collective_reduce_scatter(coll_handle, sendbuf, sendsize, recvbuf, recvsizes, op, \
                                         type, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP, (sendbuf), (sendsize), \
                     (recvbuf), (recvsizes), (op), (type), (user_context), (flags))
#define dat_ib_collective_scan(coll_handle, sendbuf, sendsize, recvbuf, recvsize, op, type, \
                               user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_SCAN_OP, (sendbuf), (sendsize), (recvbuf), \
                     (recvsize), (op), (type), (user_context), (flags))
#define dat_ib_collective_broadcast(coll_handle, buf, size, root, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_BROADCAST_OP, (buf), (size), (root), \
                     (user_context), (flags))
#define dat_ib_collective_barrier(coll_handle, user_context, flags) \
    dat_extension_op((coll_handle), DAT_IB_COLLECTIVE_BARRIER_OP, (user_context), (flags))

#endif
#endif
