//! The exported symbols of the shared library.

use crate::abi::{facts, version};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

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

#[test]
fn programs_link_to_the_soname() {
    let header = output("readelf", &["-d", "-W"]);
    let soname = format!("Library soname: [{}]", version::SONAME);
    assert!(header.contains(&soname), "{header}");
}

/// Exactly the names of the facts, each with the version; everything else in the library is
/// hidden.
#[test]
fn the_library_exports_what_the_facts_list_and_nothing_else() {
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
    assert_eq!(names, facts::exports().collect());
    assert_eq!(names.len(), exported.len(), "a name has two versions");
    for (name, node) in exported {
        // Without a version, the word before the name is the symbol's size.
        let node = node.filter(|word| !word.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(node, version::NODE, "{name}");
    }
}
