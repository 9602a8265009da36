//! Generates the bindings and compiles the C shims for the inline functions
//! of `verbs.h` and `mlx5dv.h`.

use std::env;
use std::path::{Path, PathBuf};

#[path = "build/rdma_core.rs"]
mod rdma_core;

// Every item is listed by name, never by a prefix: a newer header may add a
// function with types that the bindings lack, and the build must not depend on
// that.

/// Inline functions of `verbs.h`. The first two are the shims' own wrappers of
/// macros.
const INLINE_VERBS: [&str; 31] = [
    "dv_query_port",
    "dv_reg_mr",
    "ibv_advise_mr",
    "ibv_alloc_mw",
    "ibv_alloc_parent_domain",
    "ibv_alloc_td",
    "ibv_bind_mw",
    "ibv_cq_ex_to_cq",
    "ibv_create_cq_ex",
    "ibv_create_qp_ex",
    "ibv_create_srq_ex",
    "ibv_dealloc_mw",
    "ibv_dealloc_td",
    "ibv_end_poll",
    "ibv_get_srq_num",
    "ibv_inc_rkey",
    "ibv_modify_cq",
    "ibv_poll_cq",
    "ibv_post_recv",
    "ibv_post_send",
    "ibv_post_srq_recv",
    "ibv_query_device_ex",
    "ibv_query_gid_ex",
    "ibv_query_gid_table",
    "ibv_req_notify_cq",
    "ibv_start_poll",
    "ibv_wc_read_byte_len",
    "ibv_wc_read_completion_ts",
    "ibv_wc_read_opcode",
    "ibv_wc_read_qp_num",
    "ibv_wr_start",
];

/// Exported functions of libibverbs with the type `ibv_event_type`. The bindings
/// declare it as an integer, because the library may report events that the header
/// does not know.
const EVENT_VERBS: [&str; 3] = [
    "ibv_ack_async_event",
    "ibv_event_type_str",
    "ibv_get_async_event",
];

/// Constants of `verbs.h`. Listing one constant of an unnamed enum includes the
/// whole enum.
const VERBS_CONSTANTS: [&str; 2] = ["IBV_LINK_LAYER_ETHERNET", "IBV_LINK_LAYER_INFINIBAND"];

/// Functions of `mlx5dv.h`.
const MLX5DV_FUNCTIONS: [&str; 8] = [
    "mlx5dv_create_cq",
    "mlx5dv_create_qp",
    "mlx5dv_get_clock_info",
    "mlx5dv_init_obj",
    "mlx5dv_is_supported",
    "mlx5dv_set_ctrl_seg",
    "mlx5dv_set_data_seg",
    "mlx5dv_ts_to_ns",
];

/// Types of `mlx5dv.h` that the functions above do not include.
const MLX5DV_TYPES: [&str; 17] = [
    "mlx5_cqe64",
    "mlx5_err_cqe",
    "mlx5_wqe_atomic_seg",
    "mlx5_wqe_data_seg",
    "mlx5_wqe_datagram_seg",
    "mlx5_wqe_inl_data_seg",
    "mlx5_wqe_mkey_context_seg",
    "mlx5_wqe_raddr_seg",
    "mlx5_wqe_srq_next_seg",
    "mlx5_wqe_umr_ctrl_seg",
    "mlx5_wqe_umr_klm_seg",
    "mlx5dv_cq_init_attr_mask",
    "mlx5dv_obj",
    "mlx5dv_obj_type",
    "mlx5dv_qp_create_flags",
    "mlx5dv_qp_init_attr_mask",
    "mlx5dv_srq_comp_mask",
];

/// Constants of `mlx5dv.h`. Listing one constant of an unnamed enum includes the
/// whole enum.
const MLX5DV_CONSTANTS: [&str; 23] = [
    "MLX5_CQE_REQ",
    "MLX5_CQE_RESIZE_CQ",
    "MLX5_CQE_RESP_SEND",
    "MLX5_CQ_DB_REQ_NOT_SOL",
    "MLX5_CQ_DOORBELL",
    "MLX5_EXTENDED_UD_AV",
    "MLX5_INLINE_SCATTER_32",
    "MLX5_INLINE_SCATTER_64",
    "MLX5_INLINE_SEG",
    "MLX5_INVALID_LKEY",
    "MLX5_OPCODE_NOP",
    "MLX5_OPCODE_ATOMIC_CS",
    "MLX5_OPCODE_ATOMIC_FA",
    "MLX5_OPCODE_UMR",
    "MLX5_RCV_DBR",
    "MLX5_SND_DBR",
    "MLX5_WQE_CTRL_CQ_UPDATE",
    "MLX5_WQE_CTRL_FENCE",
    "MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE",
    "MLX5_WQE_CTRL_SOLICITED",
    "MLX5_WQE_MKEY_CONTEXT_FREE",
    "MLX5_WQE_UMR_CTRL_FLAG_INLINE",
    "MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET",
];

/// Exported functions of libibverbs and librdmacm: those in `verbs.rs` and
/// `rdmacm.rs`.
const RAW_FUNCTIONS: [&str; 56] = [
    "ibv_ack_cq_events",
    "ibv_alloc_pd",
    "ibv_close_device",
    "ibv_create_ah",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_create_qp",
    "ibv_create_srq",
    "ibv_dealloc_pd",
    "ibv_dereg_mr",
    "ibv_destroy_ah",
    "ibv_destroy_comp_channel",
    "ibv_destroy_cq",
    "ibv_destroy_qp",
    "ibv_destroy_srq",
    "ibv_fork_init",
    "ibv_free_device_list",
    "ibv_get_cq_event",
    "ibv_get_device_guid",
    "ibv_get_device_list",
    "ibv_get_device_name",
    "ibv_is_fork_initialized",
    "ibv_modify_qp",
    "ibv_modify_srq",
    "ibv_node_type_str",
    "ibv_open_device",
    "ibv_port_state_str",
    "ibv_qp_to_qp_ex",
    "ibv_query_device",
    "ibv_query_gid",
    "ibv_query_pkey",
    "ibv_query_qp",
    "ibv_query_qp_data_in_order",
    "ibv_query_srq",
    "ibv_resize_cq",
    "ibv_wc_status_str",
    "rdma_accept",
    "rdma_ack_cm_event",
    "rdma_bind_addr",
    "rdma_connect",
    "rdma_create_event_channel",
    "rdma_create_id",
    "rdma_destroy_event_channel",
    "rdma_destroy_id",
    "rdma_disconnect",
    "rdma_establish",
    "rdma_event_str",
    "rdma_get_cm_event",
    "rdma_get_src_port",
    "rdma_init_qp_attr",
    "rdma_listen",
    "rdma_notify",
    "rdma_reject",
    "rdma_resolve_addr",
    "rdma_resolve_route",
    "rdma_set_option",
];

/// Types of `verbs.h` and `rdma_cma.h` in the same modules, and those that the
/// other bindings use.
const RAW_TYPES: [&str; 73] = [
    "ibv_dm",
    "ib_uverbs_advise_mr_advice",
    "ibv_access_flags",
    "ibv_ah",
    "ibv_atomic_cap",
    "ibv_comp_channel",
    "ibv_context",
    "ibv_cq",
    "ibv_cq_ex",
    "ibv_cq_init_attr_ex",
    "ibv_cq_init_attr_mask",
    "ibv_create_cq_attr_flags",
    "ibv_create_cq_wc_flags",
    "ibv_device",
    "ibv_device_attr",
    "ibv_device_attr_ex",
    "ibv_device_cap_flags",
    "ibv_event_type",
    "ibv_fork_status",
    "ibv_gid_entry",
    "ibv_gid_type",
    "ibv_mig_state",
    "ibv_modify_cq_attr",
    "ibv_mr",
    "ibv_mtu",
    "ibv_mw",
    "ibv_mw_bind",
    "ibv_mw_type",
    "ibv_node_type",
    "ibv_parent_domain_init_attr",
    "ibv_parent_domain_init_attr_mask",
    "ibv_pd",
    "ibv_poll_cq_attr",
    "ibv_port_attr",
    "ibv_port_cap_flags",
    "ibv_port_state",
    "ibv_qp",
    "ibv_qp_attr",
    "ibv_qp_attr_mask",
    "ibv_qp_cap",
    "ibv_qp_create_flags",
    "ibv_qp_create_send_ops_flags",
    "ibv_qp_ex",
    "ibv_qp_init_attr",
    "ibv_qp_init_attr_ex",
    "ibv_qp_init_attr_mask",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_query_device_ex_input",
    "ibv_recv_wr",
    "ibv_send_flags",
    "ibv_sge",
    "ibv_srq",
    "ibv_srq_attr",
    "ibv_srq_attr_mask",
    "ibv_srq_init_attr",
    "ibv_srq_init_attr_ex",
    "ibv_srq_init_attr_mask",
    "ibv_srq_type",
    "ibv_td",
    "ibv_td_init_attr",
    "ibv_transport_type",
    "ibv_wc_flags",
    "ibv_wc_opcode",
    "ibv_wc_status",
    "ibv_wq",
    "ibv_wr_opcode",
    "rdma_cm_event_type",
    "rdma_cm_id",
    "rdma_conn_param",
    "rdma_event_channel",
    "rdma_port_space",
    "rdma_route",
];

/// Types that `raw.rs` writes by hand.
const RAW_BY_HAND: [&str; 10] = [
    "ibv_ah_attr",
    "ibv_gid",
    "ibv_global_route",
    "ibv_mw_bind_info",
    "ibv_send_wr",
    "ibv_wc",
    "rdma_addr",
    "rdma_cm_event",
    "rdma_ib_addr",
    "rdma_ud_param",
];

/// Enums of flags that may be combined.
const FLAG_WORDS: [&str; 15] = [
    "ibv_access_flags",
    "ibv_cq_init_attr_mask",
    "ibv_create_cq_attr_flags",
    "ibv_create_cq_wc_flags",
    "ibv_device_cap_flags",
    "ibv_parent_domain_init_attr_mask",
    "ibv_port_cap_flags",
    "ibv_qp_attr_mask",
    "ibv_qp_create_flags",
    "ibv_qp_create_send_ops_flags",
    "ibv_qp_init_attr_mask",
    "ibv_send_flags",
    "ibv_srq_attr_mask",
    "ibv_srq_init_attr_mask",
    "ibv_wc_flags",
];

/// Enums that become a module of constants with a `Type` in it.
const RAW_ENUM_MODULES: [&str; 18] = [
    "ib_uverbs_advise_mr_advice",
    "ibv_atomic_cap",
    "ibv_mig_state",
    "ibv_mtu",
    "ibv_mw_type",
    "ibv_node_type",
    "ibv_port_state",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_rate",
    "ibv_srq_type",
    "ibv_transport_type",
    "ibv_wc_opcode",
    "ibv_wc_status",
    "ibv_wr_opcode",
    "rdma_cm_event_type",
    "rdma_driver_id",
    "rdma_port_space",
];

/// Those of them that the other bindings use.
const ENUM_MODULES: [&str; 3] = ["ibv_mw_type", "ibv_wc_opcode", "ib_uverbs_advise_mr_advice"];

/// The bindings for docs.rs, which has no headers of rdma-core: `packaging/crates` puts
/// those that this script has generated into the package.
const PREPARED: &str = "bindings";

fn main() {
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_some() && Path::new(PREPARED).exists() {
        for name in ["raw.rs", "verbs_inline.rs", "mlx5dv.rs"] {
            std::fs::copy(Path::new(PREPARED).join(name), out_dir().join(name))
                .expect("the folder has all bindings, and OUT_DIR can be written");
        }
        return;
    }
    let include = rdma_core::probe();
    if clang_sys::load().is_err() {
        rdma_core::fail("libclang, which bindgen needs to read the headers, was not found");
    }
    let out = out_dir();
    let mut shims = cc::Build::new();
    shims
        .includes(&include)
        .include(".")
        .flag_if_supported("-Wno-unused-parameter");

    let mut raw = header("c/raw.h", &include)
        .allowlist_function(any_of(&RAW_FUNCTIONS))
        .allowlist_type(any_of(&RAW_TYPES))
        .allowlist_type("__be16|__be32|__be64")
        .blocklist_type(any_of(&RAW_BY_HAND))
        // Defined by the crate libc.
        .blocklist_type("in6_addr|sockaddr.*|socklen_t|timespec|pthread_.*")
        .rustified_enum("ibv_event_type");
    for name in FLAG_WORDS {
        raw = raw.bitfield_enum(name);
    }
    for name in RAW_ENUM_MODULES {
        raw = raw.constified_enum_module(name);
    }
    generate(raw, &out, "raw", None);

    let verbs = header("c/verbs_inline.h", &include)
        .allowlist_function(any_of(&INLINE_VERBS))
        .allowlist_function(any_of(&EVENT_VERBS))
        .allowlist_var(any_of(&VERBS_CONSTANTS))
        // The raw bindings have all types except this one: see EVENT_VERBS. It is
        // the only type with the prefix `ibv_ev`.
        .blocklist_type("_?ibv_([a-df-z]|e[a-uw-z]).*|ib_uverbs_.*");
    generate(verbs, &out, "verbs_inline", Some(&mut shims));

    let mlx5dv = header("c/mlx5dv.h", &include)
        .allowlist_function(any_of(&MLX5DV_FUNCTIONS))
        .allowlist_type(any_of(&MLX5DV_TYPES))
        .allowlist_var(any_of(&MLX5DV_CONSTANTS))
        // The raw bindings lack `ibv_tmh`, a part of the CQE.
        .blocklist_type("_?ibv_([a-su-z]|t[a-ln-z]|tm_).*|verbs_.*")
        // Packed and aligned at once, which Rust cannot express: wqe.rs defines it.
        .blocklist_type("mlx5_wqe_ctrl_seg");
    generate(mlx5dv, &out, "mlx5dv", Some(&mut shims));

    println!("cargo::rerun-if-changed=c/layout.c");
    shims.file("c/layout.c").compile("dv_shims");
}

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

/// Returns the pattern that matches exactly these names.
fn any_of(names: &[&str]) -> String {
    names.join("|")
}

/// Returns the settings that all headers share. Layout assertions are generated as
/// constants, so that a wrong layout does not compile.
fn header(name: &str, include: &[PathBuf]) -> bindgen::Builder {
    let folders = include
        .iter()
        .map(|folder| format!("-I{}", folder.display()));
    let mut builder = bindgen::Builder::default()
        .header(name)
        .clang_args(folders)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false);
    for name in ENUM_MODULES {
        builder = builder.constified_enum_module(name);
    }
    builder
}

/// Writes the bindings, and the shims of the inline functions if there are any.
fn generate(builder: bindgen::Builder, out: &Path, name: &str, shims: Option<&mut cc::Build>) {
    let source = out.join(format!("{name}_shims.c"));
    builder
        .wrap_static_fns(shims.is_some())
        .wrap_static_fns_path(&source)
        .generate()
        .unwrap_or_else(|cause| rdma_core::fail(&format!("bindgen cannot read {name}: {cause}")))
        .write_to_file(out.join(format!("{name}.rs")))
        .expect("OUT_DIR can be written");
    if let Some(shims) = shims {
        shims.file(source);
    }
}
