//! The exported symbols of the shared library.

use crate::abi::version;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

const EXPORTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/exports.txt"));

/// Returns the library, which cargo builds beside the test binaries.
fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("this binary has a path");
    tests
        .parent()
        .expect("it is in a folder")
        .join(version::LIBRARY)
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
fn the_list_has_the_facts_and_the_functions_beside_them() {
    let calls = version::CALLS
        .into_iter()
        .flat_map(crate::abi::facts::calls)
        .map(|call| call.name);
    let expected: BTreeSet<_> = calls.chain(version::MORE_EXPORTS).collect();
    assert_eq!(listed(), expected);
}

#[test]
fn programs_link_to_the_soname() {
    let header = output("readelf", &["-d", "-W"]);
    let soname = format!("Library soname: [{}]", version::SONAME);
    assert!(header.contains(&soname), "{header}");
}

/// Exactly the listed names, each with the version; everything else in the library is
/// hidden.
#[test]
fn the_library_exports_what_is_listed_and_nothing_else() {
    let table = output("objdump", &["-T"]);
    let exported: BTreeSet<_> = table
        .lines()
        .skip_while(|line| !line.starts_with("DYNAMIC SYMBOL TABLE"))
        .skip(1)
        .filter(|line| !line.contains("*UND*") && !line.is_empty())
        .map(|line| {
            let mut words = line.split_whitespace().rev();
            (words.next().expect("a name"), words.next())
        })
        .collect();
    let names: BTreeSet<_> = exported.iter().map(|&(name, _)| name).collect();
    assert_eq!(names, listed());
    assert_eq!(names.len(), exported.len(), "a name has two versions");
    for (name, node) in exported {
        // Without a version, the word before the name is the symbol's size.
        let node = node.filter(|word| !word.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(node, version::NODE, "{name}");
    }
}
