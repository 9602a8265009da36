//! What the build scripts of the C interfaces of DAT have in common: each generates
//! its types from its own headers.

use bindgen::callbacks::{
    DeriveInfo, DeriveTrait, ImplementsTrait, IntKind, ItemInfo, ParseCallbacks,
};
use fail::fail;
use std::env;
use std::fs;
use std::path::PathBuf;

#[path = "fail.rs"]
mod fail;
#[path = "names.rs"]
mod names;
#[path = "slots.rs"]
mod slots;

/// Binds the library's calls of its own functions to them. The provider table must
/// hold this library's own functions even if another library in the process exports
/// the same names.
pub(crate) fn bind_own_functions() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}

/// Compiles the C part of a library.
pub(crate) fn compile(files: &[&str]) {
    println!("cargo::rerun-if-changed=build/abi.rs");
    println!("cargo::rerun-if-changed=build/fail.rs");
    println!("cargo::rerun-if-changed=build/slots.rs");
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(files)
        .include("include")
        .std("gnu11")
        // A cancelled thread unwinds through this code and runs the cleanup
        // handlers that its frames have registered.
        .flag("-fexceptions")
        .warnings_into_errors(cfg!(debug_assertions))
        .compile("dat_c");
}

/// The integer types of macros. A `*` in a name matches any text; the first
/// matching name counts.
const MACRO_TYPES: [(&str, &str); 32] = [
    ("DAT_AF_*", "DAT_COUNT"),
    ("DAT_CLASS_*", "DAT_RETURN"),
    ("DAT_CLOSE_DEFAULT", "DAT_CLOSE_FLAGS"),
    ("DAT_COMPLETION_*", "DAT_COMPLETION_FLAGS"),
    ("DAT_CONNECT_MULTIPATH_*", "DAT_CONNECT_FLAGS"),
    ("DAT_CONNECTION_COMPLETION_ERROR", "DAT_EVENT_NUMBER"),
    ("DAT_DTO_*", "DAT_DTO_COMPLETION_STATUS"),
    ("DAT_EP_FIELD_*", "DAT_EP_PARAM_MASK"),
    ("DAT_EP_STATE_ERROR", "DAT_EP_STATE"),
    ("DAT_EXTENSIONS", "DAT_COUNT"),
    ("DAT_HA_LB_*", "DAT_HA_LB"),
    ("DAT_HW_DEFAULT", "DAT_COUNT"),
    ("DAT_IA_ALL", "DAT_IA_ATTR_MASK"),
    ("DAT_IA_FIELD_*", "DAT_IA_ATTR_MASK"),
    ("DAT_LMR_COOKIE_SIZE", "DAT_COUNT"),
    ("DAT_MEM_PRIV_*", "DAT_MEM_PRIV_FLAGS"),
    ("DAT_NAME_MAX_LENGTH", "DAT_COUNT"),
    ("DAT_NAME_NOT_FOUND", "DAT_RETURN_TYPE"),
    ("DAT_OPTIMAL_ALIGNMENT", "DAT_COUNT"),
    ("DAT_PROVIDER_FIELD_*", "DAT_PROVIDER_ATTR_MASK"),
    ("DAT_*_COUNTERS_OP", "DAT_EXTENDED_OP"),
    ("DAT_RMR_BIND_*", "DAT_DTO_COMPLETION_STATUS"),
    ("DAT_SRQ_LW_DEFAULT", "DAT_COUNT"),
    ("DAT_THREADSAFE", "DAT_BOOLEAN"),
    ("DAT_TIMEOUT_INFINITE", "DAT_TIMEOUT"),
    ("DAT_*_MASK", "DAT_RETURN"),
    ("DAT_VALUE_UNKNOWN", "DAT_COUNT"),
    ("DAT_VERSION_*", "DAT_UINT32"),
    ("DAT_WATERMARK_INFINITE", "DAT_COUNT"),
    ("DAT_*_EXTENSION", "DAT_EXTENSION"),
    ("DAT_*_EXTENSION_BASE", "DAT_EXTENDED_OP"),
    ("DAT_*_EXTENSION_VERSION", "DAT_COUNT"),
];

/// Answers bindgen's questions about names and types.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    /// Returns the type of an integer macro.
    fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
        let fits = |pattern: &str| match pattern.split_once('*') {
            Some((start, end)) => name.starts_with(start) && name.ends_with(end),
            None => name == pattern,
        };
        let (_, kind) = MACRO_TYPES.iter().find(|(pattern, _)| fits(pattern))?;
        Some(IntKind::Custom {
            name: kind,
            is_signed: value < 0,
        })
    }

    /// Names `struct dat_event` as programs do: `DAT_EVENT`.
    fn item_name(&self, item: ItemInfo) -> Option<String> {
        let tag = item.name.starts_with("dat_");
        tag.then(|| item.name.to_uppercase())
    }

    /// The types of the libc crate can be copied, and so can unions that have them.
    fn blocklisted_type_implements_trait(
        &self,
        _: &str,
        derive: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        (derive == DeriveTrait::Copy).then_some(ImplementsTrait::Yes)
    }

    fn add_derives(&self, info: &DeriveInfo) -> Vec<String> {
        match info.name {
            "DAT_COUNTERS" => ["Default", "PartialEq", "Eq"].map(str::to_owned).into(),
            _ => Vec::new(),
        }
    }
}

/// Writes the types and constants of the headers in `include/FOLDER`, which `c/abi.h`
/// includes, to `abi.rs`, and the slots of the provider table to `slots.rs`; and what the tests
/// of the ABI need.
pub(crate) fn generate(folder: &str) {
    if clang_sys::load().is_err() {
        fail("libclang, which bindgen uses to read the headers, was not found");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let abi = bindgen::Builder::default()
        .header("c/abi.h")
        .clang_args(["-Iinclude", "-fparse-all-comments"])
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .parse_callbacks(Box::new(Names))
        // Every item of this project's own headers is wanted. dv-sys reads the
        // installed headers and therefore names each item.
        .allowlist_file(format!(".*/{folder}/[a-z_]+\\.h"))
        .ignore_functions()
        // These types come from the libc crate.
        .blocklist_type("sockaddr.*|in6_addr.*|sa_family_t|in_port_t")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        // A thread may end inside these functions: they are cancellation points,
        // and an agent may call pthread_exit(3).
        .override_abi(bindgen::Abi::CUnwind, "DAT_(AGENT|CNO_WAIT|EVD_WAIT)_FUNC")
        // For macros that only a C compiler can evaluate: casts and UINT64_C.
        .clang_macro_fallback()
        .clang_macro_fallback_build_dir(&out)
        .generate_cstr(true)
        .use_core()
        .generate()
        .unwrap_or_else(|cause| fail(&format!("bindgen cannot read {folder}/udat.h: {cause}")))
        .to_string();
    fs::write(out.join("slots.rs"), slots::table(&abi)).expect("OUT_DIR can be written");
    fs::write(out.join("abi.rs"), abi).expect("OUT_DIR can be written");
    names::write();
}
