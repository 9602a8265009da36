//! Generates the bindings and compiles the C shims for the inline functions
//! of `verbs.h` and `mlx5dv.h`.

use std::env;
use std::path::PathBuf;

#[path = "../build/rdma_core.rs"]
mod rdma_core;

/// Inline functions of `verbs.h`: rdma-sys ported them to Rust, several of
/// them wrongly, so they come from the installed header instead.
const INLINE_VERBS: &str = "dv_.*|ibv_(wr|wc_read)_.*|ibv_(start|next|end)_poll|ibv_cq_ex_to_cq|\
     ibv_query_(device|gid)_ex|ibv_query_gid_table|ibv_create_(cq|qp|srq)_ex|ibv_get_srq_num|\
     ibv_(alloc|dealloc)_td|ibv_alloc_parent_domain|ibv_(alloc|dealloc|bind)_mw|ibv_inc_rkey|\
     ibv_post_(send|recv|srq_recv)|ibv_poll_cq|ibv_req_notify_cq|ibv_modify_cq|ibv_advise_mr";

/// Exported functions of libibverbs that name `ibv_event_type`: rdma-sys
/// types it as a Rust `enum`, for which an event unknown to the header would
/// be undefined behaviour.
const EVENT_VERBS: &str = "ibv_(get|ack)_async_event|ibv_event_type_str";

/// What `mlx5dv.h` is used for.
const MLX5DV_FUNCTIONS: &str = "mlx5dv_(init_obj|is_supported|open_device|query_device|\
     set_context_attr|create_cq|create_qp|get_cqe_.*|set_.*_seg)";

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
        .allowlist_function(INLINE_VERBS)
        .allowlist_function(EVENT_VERBS)
        .allowlist_var("IBV_LINK_LAYER_.*")
        // All types are rdma-sys', except this one: see EVENT_VERBS. `ibv_ev`
        // is the only prefix that it has for itself.
        .blocklist_type("_?ibv_([a-df-z]|e[a-uw-z]).*|ib_uverbs_.*");
    generate(verbs, &out, "verbs_inline", &mut shims);

    let mlx5dv = header("c/mlx5dv.h", &include)
        .allowlist_function(MLX5DV_FUNCTIONS)
        .allowlist_type(
            "mlx5dv_(obj|cq|qp|srq)(_.*)?|mlx5dv_context(_.*)?|mlx5dv_set_ctx_attr_type",
        )
        .allowlist_type("mlx5_(cqe64|err_cqe|wqe_.*)")
        .allowlist_var("MLX5_.*")
        // `ibv_tmh`, a part of the CQE, is not in rdma-sys.
        .blocklist_type("_?ibv_([a-su-z]|t[a-ln-z]|tm_).*|verbs_.*")
        // Packed and aligned at once, which Rust cannot say: wqe.rs has it.
        .blocklist_type("mlx5_wqe_ctrl_seg");
    generate(mlx5dv, &out, "mlx5dv", &mut shims);

    println!("cargo::rerun-if-changed=c/layout.c");
    shims.file("c/layout.c").compile("dv_shims");
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
