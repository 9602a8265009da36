//! The exported symbols of the shared library.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

const EXPORTS: &str = include_str!("../../exports.txt");

/// Returns the library, which cargo builds beside the test binaries.
fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("this binary has a path");
    tests.parent().expect("it is in a folder").join("libdat.so")
}

fn output(program: &str, flags: &[&str]) -> String {
    let output = Command::new(program)
        .args(flags)
        .arg(library())
        .output()
        .unwrap_or_else(|cause| panic!("{program} cannot be run: {cause}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {stderr}");
    String::from_utf8(output.stdout).expect("names are ASCII")
}

fn listed() -> BTreeSet<&'static str> {
    EXPORTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn the_list_has_the_facts_the_extension_and_the_two_provider_functions() {
    let calls = ["call", "own"]
        .into_iter()
        .flat_map(crate::facts::calls)
        .map(|call| call.name);
    let expected: BTreeSet<_> = calls
        .chain(["dat_provider_init", "dat_provider_fini"])
        .collect();
    assert_eq!(listed(), expected);
}

#[test]
fn programs_link_to_libdat_so_1() {
    let header = output("readelf", &["-d", "-W"]);
    assert!(header.contains("Library soname: [libdat.so.1]"), "{header}");
}

/// Exactly the listed names: everything else in the library is hidden.
#[test]
fn the_library_exports_what_is_listed_and_nothing_else() {
    let table = output("nm", &["-D", "--defined-only", "--format=posix"]);
    let exported: BTreeSet<_> = table
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(exported, listed());
}
