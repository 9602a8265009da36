//! The layout test: every struct that the engine relies on has the same size and
//! offsets here as in C (`c/layout.c`).
//!
//! bindgen asserts the layouts of the types that it generates, but not of the types
//! in `raw.rs` and `wqe.rs`, which are written by hand.

use crate::{event, mlx5dv, rdmacm, verbs};
use core::ffi::{CStr, c_char};
use core::mem::offset_of;
use std::collections::BTreeMap;

#[repr(C)]
struct Layout {
    name: *const c_char,
    value: usize,
}

unsafe extern "C" {
    // Both are constants of c/layout.c; `dv_layout_count` is the length of the
    // array.
    static dv_layouts: [Layout; 0];
    static dv_layout_count: usize;
}

fn layouts_in_c() -> BTreeMap<&'static str, usize> {
    // SAFETY: a constant of c/layout.c.
    let count = unsafe { dv_layout_count };
    // SAFETY: `dv_layouts` is a constant array of `count` entries.
    let layouts =
        unsafe { core::slice::from_raw_parts((&raw const dv_layouts).cast::<Layout>(), count) };
    let name = |layout: &Layout| {
        // SAFETY: each name is a string literal of C.
        unsafe { CStr::from_ptr(layout.name) }
            .to_str()
            .expect("an ASCII name")
    };
    layouts
        .iter()
        .map(|layout| (name(layout), layout.value))
        .collect()
}

/// `module::type { field, "field in C" => field here }`
macro_rules! layouts {
    ($($module:ident::$type:ident { $($c:literal => $($field:ident).+),* $(,)? })*) => {
        [$(
            (stringify!($type), size_of::<$module::$type>()),
            $((
                concat!(stringify!($type), ".", $c),
                offset_of!($module::$type, $($field).+),
            ),)*
        )*]
    };
}

#[test]
fn every_struct_has_the_layout_that_c_gives_it() {
    let mut c = layouts_in_c();
    let constants = [
        ("RDMA_OPTION_ID", rdmacm::RDMA_OPTION_ID),
        ("RDMA_OPTION_ID_TOS", rdmacm::RDMA_OPTION_ID_TOS),
        ("RDMA_OPTION_ID_AFONLY", rdmacm::RDMA_OPTION_ID_AFONLY),
        (
            "RDMA_OPTION_ID_ACK_TIMEOUT",
            rdmacm::RDMA_OPTION_ID_ACK_TIMEOUT,
        ),
    ];
    let constants = constants.map(|(name, value)| (name, value as usize));
    for (name, here) in layouts_here().chain(constants) {
        let there = c
            .remove(name)
            .unwrap_or_else(|| panic!("c/layout.c lacks {name}"));
        assert_eq!(here, there, "{name}");
    }
    assert!(c.is_empty(), "not compared: {:?}", c.keys());
}

/// The layouts of types of `verbs.h` and `rdma_cma.h`, in the modules that `verbs`
/// and `rdmacm` name where the macro is used.
macro_rules! verbs_layouts {
    () => {
        layouts! {
            verbs::ibv_gid {
                "raw" => raw,
                "global" => global,
                "global.subnet_prefix" => global.subnet_prefix,
                "global.interface_id" => global.interface_id,
            }
            verbs::ibv_gid_entry {
                "gid" => gid,
                "gid_index" => gid_index,
                "port_num" => port_num,
                "gid_type" => gid_type,
                "ndev_ifindex" => ndev_ifindex,
            }
            verbs::ibv_device {
                "node_type" => node_type,
                "transport_type" => transport_type,
                "name" => name,
                "dev_name" => dev_name,
            }
            verbs::ibv_context {
                "device" => device,
                "ops" => ops,
                "cmd_fd" => cmd_fd,
                "async_fd" => async_fd,
                "num_comp_vectors" => num_comp_vectors,
            }
            verbs::ibv_device_attr {
                "fw_ver" => fw_ver,
                "node_guid" => node_guid,
                "max_mr_size" => max_mr_size,
                "vendor_id" => vendor_id,
                "vendor_part_id" => vendor_part_id,
                "max_qp" => max_qp,
                "max_qp_wr" => max_qp_wr,
                "max_sge" => max_sge,
                "max_cq" => max_cq,
                "max_cqe" => max_cqe,
                "max_mr" => max_mr,
                "max_pd" => max_pd,
                "max_qp_rd_atom" => max_qp_rd_atom,
                "max_qp_init_rd_atom" => max_qp_init_rd_atom,
                "max_mw" => max_mw,
                "max_srq" => max_srq,
                "max_srq_wr" => max_srq_wr,
                "max_srq_sge" => max_srq_sge,
                "phys_port_cnt" => phys_port_cnt,
            }
            verbs::ibv_device_attr_ex {
                "orig_attr" => orig_attr,
                "comp_mask" => comp_mask,
                "phys_port_cnt_ex" => phys_port_cnt_ex,
            }
            verbs::ibv_port_attr {
                "state" => state,
                "max_mtu" => max_mtu,
                "active_mtu" => active_mtu,
                "gid_tbl_len" => gid_tbl_len,
                "port_cap_flags" => port_cap_flags,
                "max_msg_sz" => max_msg_sz,
                "pkey_tbl_len" => pkey_tbl_len,
                "lid" => lid,
                "sm_lid" => sm_lid,
                "link_layer" => link_layer,
                "flags" => flags,
                "port_cap_flags2" => port_cap_flags2,
            }
            verbs::ibv_pd {
                "context" => context,
                "handle" => handle,
            }
            verbs::ibv_mr {
                "context" => context,
                "pd" => pd,
                "addr" => addr,
                "length" => length,
                "handle" => handle,
                "lkey" => lkey,
                "rkey" => rkey,
            }
            verbs::ibv_comp_channel {
                "context" => context,
                "fd" => fd,
                "refcnt" => refcnt,
            }
            verbs::ibv_cq {
                "context" => context,
                "channel" => channel,
                "cq_context" => cq_context,
                "handle" => handle,
                "cqe" => cqe,
                "comp_events_completed" => comp_events_completed,
                "async_events_completed" => async_events_completed,
            }
            verbs::ibv_cq_ex {
                "context" => context,
                "cq_context" => cq_context,
                "cqe" => cqe,
                "status" => status,
                "wr_id" => wr_id,
            }
            verbs::ibv_cq_init_attr_ex {
                "cqe" => cqe,
                "cq_context" => cq_context,
                "channel" => channel,
                "comp_vector" => comp_vector,
                "wc_flags" => wc_flags,
                "comp_mask" => comp_mask,
                "flags" => flags,
                "parent_domain" => parent_domain,
            }
            verbs::ibv_srq {
                "context" => context,
                "srq_context" => srq_context,
                "pd" => pd,
                "handle" => handle,
                "events_completed" => events_completed,
            }
            verbs::ibv_srq_attr {
                "max_wr" => max_wr,
                "max_sge" => max_sge,
                "srq_limit" => srq_limit,
            }
            verbs::ibv_srq_init_attr {
                "srq_context" => srq_context,
                "attr" => attr,
            }
            verbs::ibv_qp {
                "context" => context,
                "qp_context" => qp_context,
                "pd" => pd,
                "send_cq" => send_cq,
                "recv_cq" => recv_cq,
                "srq" => srq,
                "handle" => handle,
                "qp_num" => qp_num,
                "state" => state,
                "qp_type" => qp_type,
                "events_completed" => events_completed,
            }
            verbs::ibv_qp_cap {
                "max_send_wr" => max_send_wr,
                "max_recv_wr" => max_recv_wr,
                "max_send_sge" => max_send_sge,
                "max_recv_sge" => max_recv_sge,
                "max_inline_data" => max_inline_data,
            }
            verbs::ibv_qp_init_attr {
                "qp_context" => qp_context,
                "send_cq" => send_cq,
                "recv_cq" => recv_cq,
                "srq" => srq,
                "cap" => cap,
                "qp_type" => qp_type,
                "sq_sig_all" => sq_sig_all,
            }
            verbs::ibv_qp_init_attr_ex {
                "qp_context" => qp_context,
                "send_cq" => send_cq,
                "recv_cq" => recv_cq,
                "srq" => srq,
                "cap" => cap,
                "qp_type" => qp_type,
                "sq_sig_all" => sq_sig_all,
                "comp_mask" => comp_mask,
                "pd" => pd,
                "create_flags" => create_flags,
                "send_ops_flags" => send_ops_flags,
            }
            verbs::ibv_qp_attr {
                "qp_state" => qp_state,
                "cur_qp_state" => cur_qp_state,
                "path_mtu" => path_mtu,
                "path_mig_state" => path_mig_state,
                "qkey" => qkey,
                "rq_psn" => rq_psn,
                "sq_psn" => sq_psn,
                "dest_qp_num" => dest_qp_num,
                "qp_access_flags" => qp_access_flags,
                "cap" => cap,
                "ah_attr" => ah_attr,
                "alt_ah_attr" => alt_ah_attr,
                "pkey_index" => pkey_index,
                "alt_pkey_index" => alt_pkey_index,
                "en_sqd_async_notify" => en_sqd_async_notify,
                "sq_draining" => sq_draining,
                "max_rd_atomic" => max_rd_atomic,
                "max_dest_rd_atomic" => max_dest_rd_atomic,
                "min_rnr_timer" => min_rnr_timer,
                "port_num" => port_num,
                "timeout" => timeout,
                "retry_cnt" => retry_cnt,
                "rnr_retry" => rnr_retry,
                "alt_port_num" => alt_port_num,
                "alt_timeout" => alt_timeout,
                "rate_limit" => rate_limit,
            }
            verbs::ibv_global_route {
                "dgid" => dgid,
                "flow_label" => flow_label,
                "sgid_index" => sgid_index,
                "hop_limit" => hop_limit,
                "traffic_class" => traffic_class,
            }
            verbs::ibv_ah_attr {
                "grh" => grh,
                "dlid" => dlid,
                "sl" => sl,
                "src_path_bits" => src_path_bits,
                "static_rate" => static_rate,
                "is_global" => is_global,
                "port_num" => port_num,
            }
            verbs::ibv_td_init_attr {
                "comp_mask" => comp_mask,
            }
            verbs::ibv_parent_domain_init_attr {
                "pd" => pd,
                "td" => td,
                "comp_mask" => comp_mask,
                "alloc" => alloc,
                "free" => free,
                "pd_context" => pd_context,
            }
            verbs::ibv_sge {
                "addr" => addr,
                "length" => length,
                "lkey" => lkey,
            }
            verbs::ibv_recv_wr {
                "wr_id" => wr_id,
                "next" => next,
                "sg_list" => sg_list,
                "num_sge" => num_sge,
            }
            verbs::ibv_send_wr {
                "wr_id" => wr_id,
                "next" => next,
                "sg_list" => sg_list,
                "num_sge" => num_sge,
                "opcode" => opcode,
                "send_flags" => send_flags,
                "imm_data" => imm_data_invalidated_rkey_union,
                "wr" => wr,
                "wr.rdma.rkey" => wr.rdma.rkey,
                "wr.atomic.compare_add" => wr.atomic.compare_add,
                "wr.atomic.swap" => wr.atomic.swap,
                "wr.atomic.rkey" => wr.atomic.rkey,
                "wr.ud.remote_qpn" => wr.ud.remote_qpn,
                "wr.ud.remote_qkey" => wr.ud.remote_qkey,
                "qp_type" => qp_type,
                "bind_mw" => bind_mw_tso_union,
                "bind_mw.bind_info" => bind_mw_tso_union.bind_mw.bind_info,
                "tso.mss" => bind_mw_tso_union.tso.mss,
            }
            verbs::ibv_wc {
                "wr_id" => wr_id,
                "status" => status,
                "opcode" => opcode,
                "vendor_err" => vendor_err,
                "byte_len" => byte_len,
                "imm_data" => imm_data_invalidated_rkey_union,
                "qp_num" => qp_num,
                "src_qp" => src_qp,
                "wc_flags" => wc_flags,
                "pkey_index" => pkey_index,
                "slid" => slid,
                "sl" => sl,
                "dlid_path_bits" => dlid_path_bits,
            }
            verbs::ibv_mw_bind_info {
                "mr" => mr,
                "addr" => addr,
                "length" => length,
                "mw_access_flags" => mw_access_flags,
            }
            rdmacm::rdma_ib_addr {
                "sgid" => sgid,
                "dgid" => dgid,
                "pkey" => pkey,
            }
            rdmacm::rdma_addr {
                "src_addr" => src_addr_union,
                "src_sin6" => src_addr_union.src_sin6,
                "src_storage" => src_addr_union.src_storage,
                "dst_addr" => dst_addr_union,
                "dst_storage" => dst_addr_union.dst_storage,
                "addr.ibaddr" => addr.ibaddr,
            }
            rdmacm::rdma_route {
                "addr" => addr,
                "path_rec" => path_rec,
                "num_paths" => num_paths,
            }
            rdmacm::rdma_event_channel {
                "fd" => fd,
            }
            rdmacm::rdma_cm_id {
                "verbs" => verbs,
                "channel" => channel,
                "context" => context,
                "qp" => qp,
                "route" => route,
                "ps" => ps,
                "port_num" => port_num,
                "event" => event,
                "send_cq_channel" => send_cq_channel,
                "send_cq" => send_cq,
                "recv_cq_channel" => recv_cq_channel,
                "recv_cq" => recv_cq,
                "srq" => srq,
                "pd" => pd,
                "qp_type" => qp_type,
            }
            rdmacm::rdma_conn_param {
                "private_data" => private_data,
                "private_data_len" => private_data_len,
                "responder_resources" => responder_resources,
                "initiator_depth" => initiator_depth,
                "flow_control" => flow_control,
                "retry_count" => retry_count,
                "rnr_retry_count" => rnr_retry_count,
                "srq" => srq,
                "qp_num" => qp_num,
            }
            rdmacm::rdma_ud_param {
                "private_data" => private_data,
                "private_data_len" => private_data_len,
                "ah_attr" => ah_attr,
                "qp_num" => qp_num,
                "qkey" => qkey,
            }
            rdmacm::rdma_cm_event {
                "id" => id,
                "listen_id" => listen_id,
                "event" => event,
                "status" => status,
                "param" => param,
                "param.conn" => param.conn,
                "param.ud" => param.ud,
            }
        }
    };
}

fn layouts_here() -> impl Iterator<Item = (&'static str, usize)> {
    verbs_layouts!().into_iter().chain(layouts! {
        event::ibv_async_event {
            "element" => element,
            "event_type" => event_type,
        }
        mlx5dv::mlx5dv_obj {
            "qp.in" => qp.in_,
            "qp.out" => qp.out,
            "cq.in" => cq.in_,
            "cq.out" => cq.out,
            "srq.in" => srq.in_,
            "srq.out" => srq.out,
        }
        mlx5dv::mlx5dv_qp {
            "dbrec" => dbrec,
            "sq.buf" => sq.buf,
            "sq.wqe_cnt" => sq.wqe_cnt,
            "sq.stride" => sq.stride,
            "rq.buf" => rq.buf,
            "rq.wqe_cnt" => rq.wqe_cnt,
            "rq.stride" => rq.stride,
            "bf.reg" => bf.reg,
            "bf.size" => bf.size,
            "comp_mask" => comp_mask,
        }
        mlx5dv::mlx5dv_cq {
            "buf" => buf,
            "dbrec" => dbrec,
            "cqe_cnt" => cqe_cnt,
            "cqe_size" => cqe_size,
            "cq_uar" => cq_uar,
            "cqn" => cqn,
            "comp_mask" => comp_mask,
        }
        mlx5dv::mlx5dv_srq {
            "buf" => buf,
            "dbrec" => dbrec,
            "stride" => stride,
            "head" => head,
            "tail" => tail,
            "comp_mask" => comp_mask,
            "srqn" => srqn,
        }
        mlx5dv::mlx5dv_cq_init_attr {
            "comp_mask" => comp_mask,
            "cqe_comp_res_format" => cqe_comp_res_format,
            "flags" => flags,
            "cqe_size" => cqe_size,
        }
        mlx5dv::mlx5_cqe64 {
            "slid" => __bindgen_anon_1.__bindgen_anon_1.slid,
            "flags_rqpn" => __bindgen_anon_1.__bindgen_anon_1.flags_rqpn,
            "srqn_uidx" => srqn_uidx,
            "imm_inval_pkey" => imm_inval_pkey,
            "byte_cnt" => byte_cnt,
            "timestamp" => timestamp,
            "sop_drop_qpn" => sop_drop_qpn,
            "wqe_counter" => wqe_counter,
            "signature" => signature,
            "op_own" => op_own,
        }
        mlx5dv::mlx5_err_cqe {
            "srqn" => srqn,
            "vendor_err_synd" => vendor_err_synd,
            "syndrome" => syndrome,
            "s_wqe_opcode_qpn" => s_wqe_opcode_qpn,
            "wqe_counter" => wqe_counter,
            "signature" => signature,
            "op_own" => op_own,
        }
        mlx5dv::mlx5_wqe_ctrl_seg {
            "opmod_idx_opcode" => opmod_idx_opcode,
            "qpn_ds" => qpn_ds,
            "signature" => signature,
            "dci_stream_channel_id" => dci_stream_channel_id,
            "fm_ce_se" => fm_ce_se,
            "imm" => imm,
        }
        mlx5dv::mlx5_wqe_data_seg {
            "byte_count" => byte_count,
            "lkey" => lkey,
            "addr" => addr,
        }
        mlx5dv::mlx5_wqe_raddr_seg {
            "raddr" => raddr,
            "rkey" => rkey,
            "reserved" => reserved,
        }
        mlx5dv::mlx5_wqe_atomic_seg {
            "swap_add" => swap_add,
            "compare" => compare,
        }
        mlx5dv::mlx5_wqe_inl_data_seg {
            "byte_count" => byte_count,
        }
        mlx5dv::mlx5_wqe_srq_next_seg {
            "next_wqe_index" => next_wqe_index,
            "signature" => signature,
        }
    })
}

/// The same structs in the crate rdma-sys, an independent translation of the
/// headers.
#[cfg(feature = "rdma-sys")]
#[test]
fn every_struct_has_the_layout_that_rdma_sys_gives_it() {
    use rdma_sys as verbs;
    use rdma_sys as rdmacm;
    let here: BTreeMap<_, _> = layouts_here().collect();
    for (name, there) in verbs_layouts!() {
        assert_eq!(here.get(name), Some(&there), "{name}");
    }
}
