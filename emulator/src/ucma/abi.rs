//! The bytes of the rdma_ucm ABI: numbers and structures as librdmacm sends them.
//!
//! Source: the kernel's `rdma/rdma_user_cm.h` and `rdma/ib_user_sa.h`, version 4
//! of the ABI. The doc of each structure names the C structure.

use crate::abi::{AhAttr, abi};

/// `RDMA_USER_CM_CMD_*`.
pub(super) mod command {
    pub(in crate::ucma) const CREATE_ID: u32 = 0;
    pub(in crate::ucma) const DESTROY_ID: u32 = 1;
    pub(in crate::ucma) const BIND_IP: u32 = 2;
    pub(in crate::ucma) const RESOLVE_IP: u32 = 3;
    pub(in crate::ucma) const RESOLVE_ROUTE: u32 = 4;
    pub(in crate::ucma) const QUERY_ROUTE: u32 = 5;
    pub(in crate::ucma) const CONNECT: u32 = 6;
    pub(in crate::ucma) const LISTEN: u32 = 7;
    pub(in crate::ucma) const ACCEPT: u32 = 8;
    pub(in crate::ucma) const REJECT: u32 = 9;
    pub(in crate::ucma) const DISCONNECT: u32 = 10;
    pub(in crate::ucma) const INIT_QP_ATTR: u32 = 11;
    pub(in crate::ucma) const GET_EVENT: u32 = 12;
    pub(in crate::ucma) const GET_OPTION: u32 = 13;
    pub(in crate::ucma) const SET_OPTION: u32 = 14;
    pub(in crate::ucma) const NOTIFY: u32 = 15;
    pub(in crate::ucma) const JOIN_IP_MCAST: u32 = 16;
    pub(in crate::ucma) const LEAVE_MCAST: u32 = 17;
    pub(in crate::ucma) const MIGRATE_ID: u32 = 18;
    pub(in crate::ucma) const QUERY: u32 = 19;
    pub(in crate::ucma) const BIND: u32 = 20;
    pub(in crate::ucma) const RESOLVE_ADDR: u32 = 21;
    pub(in crate::ucma) const JOIN_MCAST: u32 = 22;
    pub(in crate::ucma) const RESOLVE_IB_SERVICE: u32 = 23;
    pub(in crate::ucma) const WRITE_CM_EVENT: u32 = 24;
}

/// `enum rdma_cm_event_type`.
pub(super) mod event {
    pub(in crate::ucma) const ADDR_RESOLVED: u32 = 0;
    pub(in crate::ucma) const ADDR_ERROR: u32 = 1;
    pub(in crate::ucma) const ROUTE_RESOLVED: u32 = 2;
    pub(in crate::ucma) const ROUTE_ERROR: u32 = 3;
    pub(in crate::ucma) const CONNECT_REQUEST: u32 = 4;
    pub(in crate::ucma) const CONNECT_RESPONSE: u32 = 5;
    pub(in crate::ucma) const UNREACHABLE: u32 = 7;
    pub(in crate::ucma) const REJECTED: u32 = 8;
    pub(in crate::ucma) const ESTABLISHED: u32 = 9;
    pub(in crate::ucma) const DISCONNECTED: u32 = 10;
    pub(in crate::ucma) const DEVICE_REMOVAL: u32 = 11;
    pub(in crate::ucma) const TIMEWAIT_EXIT: u32 = 15;
    pub(in crate::ucma) const USER: u32 = 18;
    pub(in crate::ucma) const INTERNAL: u32 = 19;
}

/// `RDMA_USER_CM_QUERY_*`.
pub(super) mod query {
    pub(in crate::ucma) const ADDR: u32 = 0;
    pub(in crate::ucma) const PATH: u32 = 1;
    pub(in crate::ucma) const GID: u32 = 2;
}

/// Levels and names of options.
pub(super) mod option {
    pub(in crate::ucma) const LEVEL_ID: u32 = 0;
    pub(in crate::ucma) const LEVEL_IB: u32 = 1;
    pub(in crate::ucma) const ID_TOS: u32 = 0;
    pub(in crate::ucma) const ID_REUSEADDR: u32 = 1;
    pub(in crate::ucma) const ID_AFONLY: u32 = 2;
    pub(in crate::ucma) const ID_ACK_TIMEOUT: u32 = 3;
    pub(in crate::ucma) const IB_PATH: u32 = 1;
}

/// `enum ibv_qp_type`, as far as rdma_cm uses it.
pub(super) mod qp_type {
    pub(in crate::ucma) const RC: u8 = 2;
    pub(in crate::ucma) const UD: u8 = 4;
    pub(in crate::ucma) const XRC_INI: u8 = 9;
}

/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`.
pub(super) const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
/// `RDMA_UDP_QKEY`.
pub(super) const UDP_QKEY: u32 = 0x0123_4567;
/// The partition key of all ports, as it is in replies: in network byte order.
pub(super) const PKEY: u16 = 0xffff;
/// The room for an address (`struct __kernel_sockaddr_storage`).
pub(super) const STORAGE: usize = 128;

abi! {
    /// `struct rdma_ucm_cmd_hdr`.
    struct Header = 8 { command: u32, in_len: u16, out_len: u16, }
    /// `struct rdma_ucm_create_id`.
    struct CreateId = 24 { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5], }
    /// `struct rdma_ucm_destroy_id`, and other requests for a number of events.
    struct DestroyId = 16 { response: u64, id: u32, reserved: u32, }
    /// `struct rdma_ucm_bind_ip`. The address is a `sockaddr_in6`.
    struct BindIp = 40 { response: u64, addr: [u8; 28], id: u32, }
    /// `struct rdma_ucm_bind`.
    struct Bind = 136 { id: u32, addr_size: u16, reserved: u16, addr: [u8; STORAGE], }
    /// `struct rdma_ucm_resolve_ip`.
    struct ResolveIp = 64 { src_addr: [u8; 28], dst_addr: [u8; 28], id: u32, timeout_ms: u32, }
    /// `struct rdma_ucm_resolve_addr`.
    struct ResolveAddr = 272 {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32,
        src_addr: [u8; STORAGE], dst_addr: [u8; STORAGE],
    }
    /// `struct rdma_ucm_resolve_route`.
    struct ResolveRoute = 8 { id: u32, timeout_ms: u32, }
    /// `struct rdma_ucm_query`.
    struct Query = 16 { response: u64, id: u32, option: u32, }
    /// `struct ib_user_path_rec`: network byte order in `dlid`, `slid`,
    /// `flow_label` and `pkey`.
    struct UserPath = 64 {
        dgid: [u8; 16], sgid: [u8; 16], dlid: [u8; 2], slid: [u8; 2], raw_traffic: u32,
        flow_label: [u8; 4], reversible: u32, mtu: u32, pkey: [u8; 2], hop_limit: u8,
        traffic_class: u8, numb_path: u8, sl: u8, mtu_selector: u8, rate_selector: u8,
        rate: u8, packet_life_time_selector: u8, packet_life_time: u8, preference: u8,
    }
    /// `struct rdma_ucm_query_route_resp`.
    struct RouteReply = 208 {
        node_guid: [u8; 8], path: [UserPath; 2], src_addr: [u8; 28], dst_addr: [u8; 28],
        num_paths: u32, port_num: u8, reserved: [u8; 3], ibdev_index: u32, reserved1: u32,
    }
    /// `struct rdma_ucm_query_addr_resp`.
    struct AddrReply = 280 {
        node_guid: [u8; 8], port_num: u8, reserved: u8, pkey: u16, src_size: u16, dst_size: u16,
        src_addr: [u8; STORAGE], dst_addr: [u8; STORAGE], ibdev_index: u32, reserved1: u32,
    }
    /// `struct rdma_ucm_query_path_resp` without the paths.
    struct PathReply = 8 { num_paths: u32, reserved: u32, }
    /// `struct ib_path_rec_data`.
    struct PathData = 72 { flags: u32, reserved: u32, record: [u8; 64], }
    /// `struct rdma_ucm_conn_param`.
    struct ConnParam = 272 {
        qp_num: u32, qkey: u32, private_data: [u8; 256], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8,
        rnr_retry_count: u8, valid: u8,
    }
    /// `struct rdma_ucm_ud_param`.
    struct UdParam = 304 {
        qp_num: u32, qkey: u32, ah_attr: AhAttr, private_data: [u8; 256], private_data_len: u8,
        reserved: [u8; 7],
    }
    /// `struct rdma_ucm_ece`.
    struct EceParam = 8 { vendor_id: u32, attr_mod: u32, }
    /// `struct rdma_ucm_connect`.
    struct Connect = 288 { conn_param: ConnParam, id: u32, reserved: u32, ece: EceParam, }
    /// `struct rdma_ucm_listen`, and other requests with an id and a number.
    struct Listen = 8 { id: u32, backlog: u32, }
    /// `struct rdma_ucm_accept`.
    struct Accept = 296 { uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: EceParam, }
    /// `struct rdma_ucm_reject`.
    struct Reject = 264 {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; 256],
    }
    /// `struct rdma_ucm_disconnect`.
    struct IdOnly = 4 { id: u32, }
    /// `struct rdma_ucm_init_qp_attr`.
    struct InitQpAttr = 16 { response: u64, id: u32, qp_state: u32, }
    /// `struct ib_uverbs_qp_attr`.
    struct QpAttr = 144 {
        qp_attr_mask: u32, qp_state: u32, cur_qp_state: u32, path_mtu: u32, path_mig_state: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        ah_attr: AhAttr, alt_ah_attr: AhAttr, cap: [u32; 5], pkey_index: u16,
        alt_pkey_index: u16, en_sqd_async_notify: u8, sq_draining: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8,
        rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, reserved: [u8; 5],
    }
    /// `struct rdma_ucm_get_event`.
    struct GetEvent = 8 { response: u64, }
    /// `struct rdma_ucm_event_resp`. The union `param` is as long as `UdParam`.
    struct EventReply = 336 {
        uid: u64, id: u32, event: u32, status: u32, param: [u8; 304], reserved: u32, ece: EceParam,
    }
    /// `struct rdma_ucm_set_option`.
    struct SetOption = 24 { value: u64, id: u32, level: u32, name: u32, len: u32, }
    /// `struct rdma_ucm_migrate_id`.
    struct MigrateId = 16 { response: u64, id: u32, fd: i32, }
    /// `struct rdma_ucm_write_cm_event`, up to the 64-bit argument.
    struct WriteEvent = 24 { id: u32, reserved: u32, event: u32, status: u32, argument: u64, }
}

/// The least room for an event: old librdmacm knows neither the padding nor ECE.
pub(super) const SHORT_EVENT: usize =
    size_of::<EventReply>() - size_of::<EceParam>() - size_of::<u32>();
/// The length of a connect or accept command without ECE.
pub(super) const ECE_LEN: usize = size_of::<EceParam>();
