/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_objects.h: attributes of objects, as the queries return them. A part of
 * dat/dat.h; include that. Structures of uDAPL only are in dat/udat.h.
 */
#ifndef DAT_OBJECTS_H
#define DAT_OBJECTS_H

#include <dat/dat_types.h>

/* Structures of dat/udat.h that the calls of dat/dat.h use. */
typedef struct dat_provider_attr DAT_PROVIDER_ATTR;
typedef DAT_UINT64 DAT_PROVIDER_ATTR_MASK;
typedef struct dat_evd_param DAT_EVD_PARAM;
typedef struct dat_lmr_param DAT_LMR_PARAM;

/* The key of a registry entry: all four members. */
typedef struct dat_provider_info {
    char ia_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 dapl_version_major;
    DAT_UINT32 dapl_version_minor;
    DAT_BOOLEAN is_thread_safe;
} DAT_PROVIDER_INFO;

/* The owner of the list of segments between a post and its completion. */
typedef enum dat_iov_ownership {
    DAT_IOV_CONSUMER = 0,       /* the caller's: it may be reused at once */
    DAT_IOV_PROVIDER_NOMOD = 1, /* the provider reads it */
    DAT_IOV_PROVIDER_MOD = 2,   /* the provider may change it */
} DAT_IOV_OWNERSHIP;

/* Whether a public service point creates endpoints for its requests. */
typedef enum dat_ep_creator_for_psp {
    DAT_PSP_CREATES_EP_NEVER = 0,
    DAT_PSP_CREATES_EP_IFASKED = 1,
    DAT_PSP_CREATES_EP_ALWAYS = 2,
} DAT_EP_CREATOR_FOR_PSP;

/* IA */

typedef struct dat_ia_attr {
    char adapter_name[DAT_NAME_MAX_LENGTH];
    char vendor_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 hardware_version_major;
    DAT_UINT32 hardware_version_minor;
    DAT_UINT32 firmware_version_major;
    DAT_UINT32 firmware_version_minor;
    DAT_IA_ADDRESS_PTR ia_address_ptr; /* valid while the IA is open */
    DAT_COUNT max_eps;
    DAT_COUNT max_dto_per_ep;
    DAT_COUNT max_rdma_read_per_ep_in;  /* reads of the peer in progress */
    DAT_COUNT max_rdma_read_per_ep_out; /* reads of this side in progress */
    DAT_COUNT max_evds;
    DAT_COUNT max_evd_qlen;
    DAT_COUNT max_iov_segments_per_dto; /* of a send or a receive */
    DAT_COUNT max_lmrs;
#ifndef DAT2
    DAT_VLEN max_lmr_block_size;
#else
    DAT_SEG_LENGTH max_lmr_block_size; /* of a larger limit, the most that fits */
#endif
    DAT_VADDR max_lmr_virtual_address;
    DAT_COUNT max_pzs;
#ifndef DAT2
    DAT_VLEN max_message_size; /* bytes of a send */
    DAT_VLEN max_rdma_size;    /* bytes of an RDMA transfer */
#else
    DAT_SEG_LENGTH max_message_size; /* bytes of a send */
    DAT_SEG_LENGTH max_rdma_size;    /* bytes of an RDMA transfer */
#endif
    DAT_COUNT max_rmrs;
    DAT_VADDR max_rmr_target_address;
    DAT_COUNT max_srqs;
    DAT_COUNT max_ep_per_srq;
    DAT_COUNT max_recv_per_srq;
    DAT_COUNT max_iov_segments_per_rdma_read;
    DAT_COUNT max_iov_segments_per_rdma_write;
    DAT_COUNT max_rdma_read_in;  /* of all endpoints together */
    DAT_COUNT max_rdma_read_out; /* likewise */
    DAT_BOOLEAN max_rdma_read_per_ep_in_guaranteed; /* on every endpoint at once */
    DAT_BOOLEAN max_rdma_read_per_ep_out_guaranteed;
#ifdef DAT2
    DAT_BOOLEAN zb_supported; /* DAT_VA_TYPE_ZB */
    DAT_EXTENSION extension_supported;
    DAT_COUNT extension_version; /* of the header of the extensions */
#endif
    DAT_COUNT num_transport_attr;
    DAT_NAMED_ATTR *transport_attr;
    DAT_COUNT num_vendor_attr;
    DAT_NAMED_ATTR *vendor_attr;
} DAT_IA_ATTR;
/* Names of earlier versions for two of the members. */
#define max_rdma_read_per_ep max_rdma_read_per_ep_in
#define max_mtu_size max_message_size

typedef DAT_UINT64 DAT_IA_ATTR_MASK;
#define DAT_IA_FIELD_IA_MAX_MTU_SIZE DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE
#define DAT_IA_FIELD_IA_ADAPTER_NAME UINT64_C(0x1)
#define DAT_IA_FIELD_IA_VENDOR_NAME UINT64_C(0x2)
#define DAT_IA_FIELD_IA_HARDWARE_MAJOR_VERSION UINT64_C(0x4)
#define DAT_IA_FIELD_IA_HARDWARE_MINOR_VERSION UINT64_C(0x8)
#define DAT_IA_FIELD_IA_FIRMWARE_MAJOR_VERSION UINT64_C(0x10)
#define DAT_IA_FIELD_IA_FIRMWARE_MINOR_VERSION UINT64_C(0x20)
#define DAT_IA_FIELD_IA_ADDRESS_PTR UINT64_C(0x40)
#define DAT_IA_FIELD_IA_MAX_EPS UINT64_C(0x80)
#define DAT_IA_FIELD_IA_MAX_DTO_PER_EP UINT64_C(0x100)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN UINT64_C(0x200)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT UINT64_C(0x400)
#define DAT_IA_FIELD_IA_MAX_EVDS UINT64_C(0x800)
#define DAT_IA_FIELD_IA_MAX_EVD_QLEN UINT64_C(0x1000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_DTO UINT64_C(0x2000)
#define DAT_IA_FIELD_IA_MAX_LMRS UINT64_C(0x4000)
#define DAT_IA_FIELD_IA_MAX_LMR_BLOCK_SIZE UINT64_C(0x8000)
#define DAT_IA_FIELD_IA_MAX_LMR_VIRTUAL_ADDRESS UINT64_C(0x10000)
#define DAT_IA_FIELD_IA_MAX_PZS UINT64_C(0x20000)
#define DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE UINT64_C(0x40000)
#define DAT_IA_FIELD_IA_MAX_RDMA_SIZE UINT64_C(0x80000)
#define DAT_IA_FIELD_IA_MAX_RMRS UINT64_C(0x100000)
#define DAT_IA_FIELD_IA_MAX_RMR_TARGET_ADDRESS UINT64_C(0x200000)
#define DAT_IA_FIELD_IA_MAX_SRQS UINT64_C(0x400000)
#define DAT_IA_FIELD_IA_MAX_EP_PER_SRQ UINT64_C(0x800000)
#define DAT_IA_FIELD_IA_MAX_RECV_PER_SRQ UINT64_C(0x1000000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_READ UINT64_C(0x2000000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE UINT64_C(0x4000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_IN UINT64_C(0x8000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_OUT UINT64_C(0x10000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED UINT64_C(0x20000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED UINT64_C(0x40000000)
#ifndef DAT2
#define DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR UINT64_C(0x80000000)
#define DAT_IA_FIELD_IA_TRANSPORT_ATTR UINT64_C(0x100000000)
#define DAT_IA_FIELD_IA_NUM_VENDOR_ATTR UINT64_C(0x200000000)
#define DAT_IA_FIELD_IA_VENDOR_ATTR UINT64_C(0x400000000)
#else
#define DAT_IA_FIELD_IA_ZB_SUPPORTED UINT64_C(0x80000000)
#define DAT_IA_FIELD_IA_EXTENSION UINT64_C(0x100000000)
#define DAT_IA_FIELD_IA_EXTENSION_VERSION UINT64_C(0x200000000)
#define DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR UINT64_C(0x400000000)
#define DAT_IA_FIELD_IA_TRANSPORT_ATTR UINT64_C(0x800000000)
#define DAT_IA_FIELD_IA_NUM_VENDOR_ATTR UINT64_C(0x1000000000)
#define DAT_IA_FIELD_IA_VENDOR_ATTR UINT64_C(0x2000000000)
#endif
#define DAT_IA_ALL DAT_IA_FIELD_ALL
#ifndef DAT2
#define DAT_IA_FIELD_ALL UINT64_C(0x7ffffffff)
#else
#define DAT_IA_FIELD_ALL UINT64_C(0x3fffffffff)
#endif
#define DAT_IA_FIELD_NONE UINT64_C(0x0)
#ifndef DAT2
/* The name of an earlier version. */
#else
/* Other names in use. */
#endif
#define DAT_IA_FIELD_IA_MAX_DTO_PER_OP DAT_IA_FIELD_IA_MAX_DTO_PER_EP
#ifdef DAT2
#define DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED DAT_IA_FIELD_IA_EXTENSION
#endif

/* EP */

typedef struct dat_ep_attr {
    DAT_SERVICE_TYPE service_type;
#ifndef DAT2
    DAT_VLEN max_message_size;
    DAT_VLEN max_rdma_size;
#else
    DAT_SEG_LENGTH max_message_size;
    DAT_SEG_LENGTH max_rdma_size;
#endif
    DAT_QOS qos;
    DAT_COMPLETION_FLAGS recv_completion_flags;
    DAT_COMPLETION_FLAGS request_completion_flags;
    DAT_COUNT max_recv_dtos;    /* receives outstanding; on an SRQ the hard watermark */
    DAT_COUNT max_request_dtos; /* sends, RDMA transfers and binds outstanding */
    DAT_COUNT max_recv_iov;     /* segments of a receive */
    DAT_COUNT max_request_iov;  /* segments of a send */
    DAT_COUNT max_rdma_read_in;
    DAT_COUNT max_rdma_read_out;
    DAT_COUNT srq_soft_hw; /* soft high watermark of receives taken from the SRQ */
    DAT_COUNT max_rdma_read_iov;
    DAT_COUNT max_rdma_write_iov;
    DAT_COUNT ep_transport_specific_count;
    DAT_NAMED_ATTR *ep_transport_specific;
    DAT_COUNT ep_provider_specific_count;
    DAT_NAMED_ATTR *ep_provider_specific;
} DAT_EP_ATTR;

typedef struct dat_ep_param {
    DAT_IA_HANDLE ia_handle;
    DAT_EP_STATE ep_state;
#ifdef DAT2
    DAT_COMM comm; /* of dat_ep_common_connect; otherwise 0 */
#endif
    DAT_IA_ADDRESS_PTR local_ia_address_ptr;
    DAT_PORT_QUAL local_port_qual;
    DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
    DAT_PORT_QUAL remote_port_qual;
    DAT_PZ_HANDLE pz_handle;
    DAT_EVD_HANDLE recv_evd_handle;
    DAT_EVD_HANDLE request_evd_handle;
    DAT_EVD_HANDLE connect_evd_handle;
    DAT_SRQ_HANDLE srq_handle;
    DAT_EP_ATTR ep_attr;
} DAT_EP_PARAM;

#ifndef DAT2
/* Bit 11 has no meaning. */
#endif
typedef DAT_UINT64 DAT_EP_PARAM_MASK;
#define DAT_EP_FIELD_IA_HANDLE UINT64_C(0x1)
#define DAT_EP_FIELD_EP_STATE UINT64_C(0x2)
#ifndef DAT2
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR UINT64_C(0x4)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL UINT64_C(0x8)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR UINT64_C(0x10)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL UINT64_C(0x20)
#define DAT_EP_FIELD_PZ_HANDLE UINT64_C(0x40)
#define DAT_EP_FIELD_RECV_EVD_HANDLE UINT64_C(0x80)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE UINT64_C(0x100)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE UINT64_C(0x200)
#define DAT_EP_FIELD_SRQ_HANDLE UINT64_C(0x400)
#else
#define DAT_EP_FIELD_COMM UINT64_C(0x4)
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR UINT64_C(0x8)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL UINT64_C(0x10)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR UINT64_C(0x20)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL UINT64_C(0x40)
#define DAT_EP_FIELD_PZ_HANDLE UINT64_C(0x80)
#define DAT_EP_FIELD_RECV_EVD_HANDLE UINT64_C(0x100)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE UINT64_C(0x200)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE UINT64_C(0x400)
#define DAT_EP_FIELD_SRQ_HANDLE UINT64_C(0x800)
#endif
#define DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE UINT64_C(0x1000)
#define DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE UINT64_C(0x2000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE UINT64_C(0x4000)
#define DAT_EP_FIELD_EP_ATTR_QOS UINT64_C(0x8000)
#define DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS UINT64_C(0x10000)
#define DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS UINT64_C(0x20000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS UINT64_C(0x40000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS UINT64_C(0x80000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV UINT64_C(0x100000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV UINT64_C(0x200000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN UINT64_C(0x400000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT UINT64_C(0x800000)
#define DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW UINT64_C(0x1000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV UINT64_C(0x2000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV UINT64_C(0x4000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR UINT64_C(0x8000000)
#define DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR UINT64_C(0x10000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR UINT64_C(0x20000000)
#define DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR UINT64_C(0x40000000)
#define DAT_EP_FIELD_EP_ATTR_ALL UINT64_C(0x7ffff000)
#ifndef DAT2
#define DAT_EP_FIELD_ALL UINT64_C(0x7ffff7ff)
#else
#define DAT_EP_FIELD_ALL UINT64_C(0x7fffffff)
#endif

/* SRQ */

typedef struct dat_srq_attr {
    DAT_COUNT max_recv_dtos;
    DAT_COUNT max_recv_iov;
    DAT_COUNT low_watermark; /* DAT_SRQ_LW_DEFAULT at creation */
} DAT_SRQ_ATTR;

typedef struct dat_srq_param {
    DAT_IA_HANDLE ia_handle;
    DAT_SRQ_STATE srq_state;
    DAT_PZ_HANDLE pz_handle;
    DAT_COUNT max_recv_dtos;
    DAT_COUNT max_recv_iov;
    DAT_COUNT low_watermark;
    DAT_COUNT available_dto_count;   /* receives that endpoints can take */
    DAT_COUNT outstanding_dto_count; /* receives posted and not yet completed */
} DAT_SRQ_PARAM;

typedef enum dat_srq_param_mask {
    DAT_SRQ_FIELD_IA_HANDLE = 0x1,
    DAT_SRQ_FIELD_SRQ_STATE = 0x2,
    DAT_SRQ_FIELD_PZ_HANDLE = 0x4,
    DAT_SRQ_FIELD_MAX_RECV_DTO = 0x8,
    DAT_SRQ_FIELD_MAX_RECV_IOV = 0x10,
    DAT_SRQ_FIELD_LOW_WATERMARK = 0x20,
    DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT = 0x40,
    DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x80,
    DAT_SRQ_FIELD_ALL = 0xff,
} DAT_SRQ_PARAM_MASK;

/* RMR */

/* While the RMR is unbound, only the two handles are valid. */
typedef struct dat_rmr_param {
    DAT_IA_HANDLE ia_handle;
    DAT_PZ_HANDLE pz_handle;
    DAT_LMR_TRIPLET lmr_triplet;
    DAT_MEM_PRIV_FLAGS mem_priv;
    DAT_RMR_CONTEXT rmr_context;
#ifdef DAT2
    DAT_RMR_SCOPE rmr_scope;
    DAT_VA_TYPE va_type;
#endif
} DAT_RMR_PARAM;

typedef enum dat_rmr_param_mask {
    DAT_RMR_FIELD_IA_HANDLE = 0x1,
    DAT_RMR_FIELD_PZ_HANDLE = 0x2,
    DAT_RMR_FIELD_LMR_TRIPLET = 0x4,
    DAT_RMR_FIELD_MEM_PRIV = 0x8,
    DAT_RMR_FIELD_RMR_CONTEXT = 0x10,
#ifndef DAT2
    DAT_RMR_FIELD_ALL = 0x1f,
#else
    DAT_RMR_FIELD_RMR_SCOPE = 0x20,
    DAT_RMR_FIELD_VA_TYPE = 0x40,
    DAT_RMR_FIELD_ALL = 0x7f,
#endif
} DAT_RMR_PARAM_MASK;

/* LMR and EVD: the structures themselves are in dat/udat.h. */

typedef enum dat_lmr_param_mask {
    DAT_LMR_FIELD_IA_HANDLE = 0x1,
    DAT_LMR_FIELD_MEM_TYPE = 0x2,
    DAT_LMR_FIELD_REGION_DESC = 0x4,
    DAT_LMR_FIELD_LENGTH = 0x8,
    DAT_LMR_FIELD_PZ_HANDLE = 0x10,
    DAT_LMR_FIELD_MEM_PRIV = 0x20,
#ifndef DAT2
    DAT_LMR_FIELD_LMR_CONTEXT = 0x40,
    DAT_LMR_FIELD_RMR_CONTEXT = 0x80,
    DAT_LMR_FIELD_REGISTERED_SIZE = 0x100,
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x200,
    DAT_LMR_FIELD_ALL = 0x3ff,
#else
    DAT_LMR_FIELD_VA_TYPE = 0x40,
    DAT_LMR_FIELD_LMR_CONTEXT = 0x80,
    DAT_LMR_FIELD_RMR_CONTEXT = 0x100,
    DAT_LMR_FIELD_REGISTERED_SIZE = 0x200,
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x400,
    DAT_LMR_FIELD_ALL = 0x7ff,
#endif
} DAT_LMR_PARAM_MASK;

typedef enum dat_evd_param_mask {
    DAT_EVD_FIELD_IA_HANDLE = 0x1,
    DAT_EVD_FIELD_EVD_QLEN = 0x2,
    DAT_EVD_FIELD_EVD_STATE = 0x4,
    DAT_EVD_FIELD_CNO = 0x8,
    DAT_EVD_FIELD_EVD_FLAGS = 0x10,
    DAT_EVD_FIELD_ALL = 0x1f,
} DAT_EVD_PARAM_MASK;

#ifndef DAT2
/* PZ, PSP, RSP, CR */
#else
/* PZ, PSP, RSP, CSP, CR */
#endif

typedef struct dat_pz_param {
    DAT_IA_HANDLE ia_handle;
} DAT_PZ_PARAM;

typedef enum dat_pz_param_mask {
    DAT_PZ_FIELD_IA_HANDLE = 0x1,
    DAT_PZ_FIELD_ALL = 0x1,
} DAT_PZ_PARAM_MASK;

typedef struct dat_psp_param {
    DAT_IA_HANDLE ia_handle;
    DAT_CONN_QUAL conn_qual;
    DAT_EVD_HANDLE evd_handle;
    DAT_PSP_FLAGS psp_flags;
} DAT_PSP_PARAM;

typedef enum dat_psp_param_mask {
    DAT_PSP_FIELD_IA_HANDLE = 0x1,
    DAT_PSP_FIELD_CONN_QUAL = 0x2,
    DAT_PSP_FIELD_EVD_HANDLE = 0x4,
    DAT_PSP_FIELD_PSP_FLAGS = 0x8,
    DAT_PSP_FIELD_ALL = 0xf,
} DAT_PSP_PARAM_MASK;

typedef struct dat_rsp_param {
    DAT_IA_HANDLE ia_handle;
    DAT_CONN_QUAL conn_qual;
    DAT_EVD_HANDLE evd_handle;
    DAT_EP_HANDLE ep_handle;
} DAT_RSP_PARAM;

typedef enum dat_rsp_param_mask {
    DAT_RSP_FIELD_IA_HANDLE = 0x1,
    DAT_RSP_FIELD_CONN_QUAL = 0x2,
    DAT_RSP_FIELD_EVD_HANDLE = 0x4,
    DAT_RSP_FIELD_EP_HANDLE = 0x8,
    DAT_RSP_FIELD_ALL = 0xf,
} DAT_RSP_PARAM_MASK;

#ifdef DAT2
typedef struct dat_csp_param {
    DAT_IA_HANDLE ia_handle;
    DAT_COMM *comm;
    DAT_IA_ADDRESS_PTR address_ptr;
    DAT_EVD_HANDLE evd_handle;
} DAT_CSP_PARAM;

typedef enum dat_csp_param_mask {
    DAT_CSP_FIELD_IA_HANDLE = 0x1,
    DAT_CSP_FIELD_COMM = 0x2,
    DAT_CSP_FIELD_IA_ADDRESS = 0x4,
    DAT_CSP_FIELD_EVD_HANDLE = 0x8,
    DAT_CSP_FIELD_ALL = 0xf,
} DAT_CSP_PARAM_MASK;

#endif
/* The private data is valid until the request is accepted, rejected or handed off. */
typedef struct dat_cr_param {
    DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
    DAT_PORT_QUAL remote_port_qual;
    DAT_COUNT private_data_size; /* bytes */
    DAT_PVOID private_data;
    DAT_EP_HANDLE local_ep_handle; /* null unless the service point supplied one */
} DAT_CR_PARAM;

typedef enum dat_cr_param_mask {
    DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 0x1,
    DAT_CR_FIELD_REMOTE_PORT_QUAL = 0x2,
    DAT_CR_FIELD_PRIVATE_DATA_SIZE = 0x4,
    DAT_CR_FIELD_PRIVATE_DATA = 0x8,
    DAT_CR_FIELD_LOCAL_EP_HANDLE = 0x10,
    DAT_CR_FIELD_ALL = 0x1f,
} DAT_CR_PARAM_MASK;

#endif
