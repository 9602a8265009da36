//! Asynchronous events.
//!
//! The type of an event is an integer here: a newer libibverbs may report events
//! that the header does not know, which a Rust `enum` cannot hold.

pub use crate::inline::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL,
    IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SM_CHANGE,
    IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_WQ_FATAL,
    ibv_ack_async_event, ibv_event_type, ibv_event_type_str, ibv_get_async_event,
};
use crate::verbs::{ibv_cq, ibv_qp, ibv_srq, ibv_wq};

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_async_event {
    /// The object of the event; the type determines which member is valid.
    pub element: ibv_async_event_element,
    /// One of `IBV_EVENT_*`, or a number that this header does not know.
    pub event_type: ibv_event_type,
}

/// The unnamed union in `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_event_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub wq: *mut ibv_wq,
    pub port_num: core::ffi::c_int,
}
