//! librdmacm: connections made by the kernel's connection manager.
//!
//! Types and exported functions of `rdma/rdma_cma.h`.
//! Functions return 0, or -1 with the error in `errno`. `rdma_cm_id` and what
//! an event points to belong to the library.

pub use crate::raw::{
    addr_union_t, dst_addr_union_t, param_t, rdma_addr, rdma_cm_event, rdma_cm_event_type,
    rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_ib_addr, rdma_port_space, rdma_route,
    rdma_ud_param, src_addr_union_t,
};

pub use crate::raw::{
    rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_connect, rdma_create_event_channel,
    rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect, rdma_establish,
    rdma_event_str, rdma_get_cm_event, rdma_get_src_port, rdma_init_qp_attr, rdma_listen,
    rdma_notify, rdma_reject, rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
};

/// What [`rdma_notify`] takes: as an `enum`, since nobody but us makes it. Of
/// events that are read the type is a number: see [`crate::event`].
pub use crate::raw::ibv_event_type;

// Of the header's unnamed enums; the layout test compares them.

/// Level of the options of an id.
pub const RDMA_OPTION_ID: core::ffi::c_int = 0;
/// Option, `int`: an IPv6 address is not also one of IPv4.
pub const RDMA_OPTION_ID_AFONLY: core::ffi::c_int = 2;
/// Option, `uint8_t`: how long the queue pair waits for an acknowledgement.
pub const RDMA_OPTION_ID_ACK_TIMEOUT: core::ffi::c_int = 3;
