//! Generates the bindings and compiles the C shims for the inline functions
//! of `verbs.h` and `mlx5dv.h`.

use std::env;
use std::path::PathBuf;

#[path = "../build/rdma_core.rs"]
mod rdma_core;

// Every item is listed by its name, never by a prefix: a newer header may add
// a function whose types the bindings lack, and the build must not depend on
// it.

/// Inline functions of `verbs.h`: rdma-sys ported them to Rust, several of
/// them wrongly, so they come from the installed header instead. The first two
/// are our own wrappers of macros.
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

/// Exported functions of libibverbs that name `ibv_event_type`: rdma-sys
/// types it as a Rust `enum`, for which an event unknown to the header would
/// be undefined behaviour.
const EVENT_VERBS: [&str; 3] = [
    "ibv_ack_async_event",
    "ibv_event_type_str",
    "ibv_get_async_event",
];

/// Constants of `verbs.h` that rdma-sys leaves out. A constant of an unnamed
/// enum brings the whole enum.
const VERBS_CONSTANTS: [&str; 2] = ["IBV_LINK_LAYER_ETHERNET", "IBV_LINK_LAYER_INFINIBAND"];

/// Functions of `mlx5dv.h`.
const MLX5DV_FUNCTIONS: [&str; 6] = [
    "mlx5dv_create_cq",
    "mlx5dv_create_qp",
    "mlx5dv_init_obj",
    "mlx5dv_is_supported",
    "mlx5dv_set_ctrl_seg",
    "mlx5dv_set_data_seg",
];

/// Types of `mlx5dv.h` that no function above brings.
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

/// Constants of `mlx5dv.h`; one of an unnamed enum brings the whole enum.
const MLX5DV_CONSTANTS: [&str; 21] = [
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

/// Enums that rdma-sys has as a module with a `Type` in it.
const ENUM_MODULES: [&str; 3] = ["ibv_mw_type", "ibv_wc_opcode", "ib_uverbs_advise_mr_advice"];

fn main() {
    let include = rdma_core::probe();
    if clang_sys::load().is_err() {
        rdma_core::fail("libclang, by which bindgen reads the headers, was not found");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut shims = cc::Build::new();
    shims
        .includes(&include)
        .include(".")
        .flag_if_supported("-Wno-unused-parameter");

    let verbs = header("c/verbs_inline.h", &include)
        .allowlist_function(any_of(&INLINE_VERBS))
        .allowlist_function(any_of(&EVENT_VERBS))
        .allowlist_var(any_of(&VERBS_CONSTANTS))
        // All types are rdma-sys', except this one: see EVENT_VERBS. `ibv_ev`
        // is the only prefix that it has for itself.
        .blocklist_type("_?ibv_([a-df-z]|e[a-uw-z]).*|ib_uverbs_.*");
    generate(verbs, &out, "verbs_inline", &mut shims);

    let mlx5dv = header("c/mlx5dv.h", &include)
        .allowlist_function(any_of(&MLX5DV_FUNCTIONS))
        .allowlist_type(any_of(&MLX5DV_TYPES))
        .allowlist_var(any_of(&MLX5DV_CONSTANTS))
        // `ibv_tmh`, a part of the CQE, is not in rdma-sys.
        .blocklist_type("_?ibv_([a-su-z]|t[a-ln-z]|tm_).*|verbs_.*")
        // Packed and aligned at once, which Rust cannot say: wqe.rs has it.
        .blocklist_type("mlx5_wqe_ctrl_seg");
    generate(mlx5dv, &out, "mlx5dv", &mut shims);

    println!("cargo::rerun-if-changed=c/layout.c");
    shims.file("c/layout.c").compile("dv_shims");
}

/// Returns the pattern that fits these names and no other.
fn any_of(names: &[&str]) -> String {
    names.join("|")
}

/// The settings that both headers share. Layout assertions are generated as
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
        .generate_comments(false)
        .wrap_static_fns(true);
    for name in ENUM_MODULES {
        builder = builder.constified_enum_module(name);
    }
    builder
}

fn generate(builder: bindgen::Builder, out: &std::path::Path, name: &str, shims: &mut cc::Build) {
    let source = out.join(format!("{name}_shims.c"));
    builder
        .wrap_static_fns_path(&source)
        .generate()
        .unwrap_or_else(|cause| rdma_core::fail(&format!("bindgen cannot read {name}: {cause}")))
        .write_to_file(out.join(format!("{name}.rs")))
        .expect("OUT_DIR can be written");
    shims.file(source);
}
