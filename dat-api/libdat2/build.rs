//! Generates `abi.rs` from the headers in `include/dat2`, compiles the C part, and
//! sets the soname and the versions of the symbols of the library.
//!
//! Decision: `docs/decisions/069-symbol-versions-by-aliases.md`

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "build/abi.rs"]
mod abi;

/// What the library exports although no header declares it.
const UNDECLARED: [&str; 3] = [
    "dat_provider_fini",
    "dat_provider_init",
    "dats_get_ia_handle",
];

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat2.so.2");
    abi::bind_own_functions();
    println!("cargo::rerun-if-changed=build.rs");
    abi::compile(&["c/cancel.c", "c/extension.c"]);
    abi::generate("dat2");
    let headers = headers();
    let declared = headers.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("DAT_RETURN ")?.split_once('(')?;
        Some(name)
    });
    // In order, so that every build links the same library.
    version_symbols(&declared.chain(UNDECLARED).collect());
}

/// Returns the text of all headers.
fn headers() -> String {
    let folder = fs::read_dir("include/dat2").expect("the folder of the headers");
    let read = |entry: io::Result<fs::DirEntry>| fs::read_to_string(entry?.path());
    let headers: io::Result<String> = folder.map(read).collect();
    headers.expect("the headers can be read")
}

/// Exports each name with the version `DAT_2.0`: as an alias of the hidden function
/// `_NAME`. A function that Rust exports itself could have no version, because the
/// linker gets a list without versions from rustc.
fn version_symbols(names: &BTreeSet<&str>) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let map = out.join("versions.map");
    let mut script = String::from("DAT_2.0 {\n    global:\n");
    let mut hidden = String::from("core::arch::global_asm!(\n");
    let mut flags = Vec::new();
    for name in names {
        // Writing to a string cannot fail.
        let _ = writeln!(script, "        {name};");
        let _ = writeln!(hidden, "    \".hidden _{name}\",");
        flags.push(format!("-Wl,--defsym={name}=_{name}"));
    }
    script.push_str("};\n");
    hidden.push_str(");\n");
    write(&map, &script);
    write(&out.join("hidden.rs"), &hidden);
    if !links_with(&out, &[]) {
        let lld = "-fuse-ld=lld";
        if !links_with(&out, &[lld]) {
            println!(
                "cargo::error=the linker cannot give the symbols of libdat2.so.2 their version \
                 DAT_2.0, because it accepts only one version script: use lld, the default linker \
                 of Rust on x86-64, or install it (apt-get install lld)"
            );
            std::process::exit(1);
        }
        println!("cargo::rustc-cdylib-link-arg={lld}");
    }
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--version-script={}",
        map.display()
    );
    for flag in flags {
        println!("cargo::rustc-cdylib-link-arg={flag}");
    }
}

/// Returns whether a library with one such symbol can be linked, as rustc will link this
/// one, with further flags.
fn links_with(out: &Path, flags: &[&str]) -> bool {
    // `cargo check` for another architecture has no linker, and needs none.
    if env::var("HOST") != env::var("TARGET") {
        return true;
    }
    let (source, map) = (out.join("probe.rs"), out.join("probe.map"));
    write(
        &source,
        "#[unsafe(export_name = \"_probe\")]\n\
         pub extern \"C\" fn probe() {}\n\
         core::arch::global_asm!(\".hidden _probe\");\n",
    );
    write(&map, "DAT_2.0 { global: probe; };\n");
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=probe",
        ])
        .arg("--out-dir")
        .arg(out)
        .arg(&source)
        .env_remove("RUSTC_WRAPPER");
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-Clinker").arg(linker);
    }
    let given = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(given.split('\u{1f}').filter(|flag| !flag.is_empty()));
    let script = format!("-Wl,--version-script={}", map.display());
    let asked = [script.as_str(), "-Wl,--defsym=probe=_probe"];
    let flags = flags.iter().copied().chain(asked);
    rustc.args(flags.map(|flag| format!("-Clink-arg={flag}")));
    rustc.output().is_ok_and(|output| output.status.success())
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("OUT_DIR can be written");
}
