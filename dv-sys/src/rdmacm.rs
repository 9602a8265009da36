//! librdmacm: connections through the kernel's connection manager.
//!
//! Types and exported functions of `rdma/rdma_cma.h`. Functions return 0, or -1
//! with the error in `errno`. The library owns every `rdma_cm_id` and the data that
//! an event points to.

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

/// The argument of [`rdma_notify`]: an `enum`, since only this program creates its
/// values. The type of an event that is read is an integer: see [`crate::event`].
pub use crate::raw::ibv_event_type;

// Constants of the header's unnamed enums; the layout test compares them.

/// The level of the options of an id.
pub const RDMA_OPTION_ID: core::ffi::c_int = 0;
/// Option, `uint8_t`: the traffic class.
pub const RDMA_OPTION_ID_TOS: core::ffi::c_int = 0;
/// Option, `int`: an IPv6 address does not serve IPv4 addresses too.
pub const RDMA_OPTION_ID_AFONLY: core::ffi::c_int = 2;
/// Option, `uint8_t`: the ACK timeout of the queue pair.
pub const RDMA_OPTION_ID_ACK_TIMEOUT: core::ffi::c_int = 3;
