//! The names of the ABI's facts, which the tests look up in Rust: Rust cannot list the items of a
//! module.

use std::path::Path;
use std::{env, fs};

const FACTS: &str = "tests/abi/facts";

/// Writes a file for each macro of `tests/abi/listed.rs`: a call of it with the names in the
/// facts. A package of the crate has no tests.
pub(crate) fn write() {
    if !Path::new(FACTS).exists() {
        return;
    }
    println!("cargo::rerun-if-changed={FACTS}");
    println!("cargo::rerun-if-changed=build/names.rs");
    let mut lists = ["values", "types", "layouts", "pointers"].map(|list| (list, String::new()));
    let [values, types, layouts, pointers] = lists.each_mut().map(|(_, names)| names);
    let read = |file| fs::read_to_string(Path::new(FACTS).join(file)).expect("the facts");
    for line in read("values.txt").lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["enum", name, _] => *types += &format!("{name} "),
            ["macro", name, _, _] => *values += &format!("{name} "),
            [name, _] if line.starts_with(' ') => *values += &format!("{name} "),
            _ => {}
        }
    }
    for line in read("layouts.txt").lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["type", name, _] if !line.starts_with(' ') => *types += &format!("{name} "),
            ["struct" | "union", name, _, _] => {
                *types += &format!("{name} ");
                *layouts += &format!("}} {name} {{ ");
            }
            // The generator adds `_` to a name that is a keyword.
            ["type", _, _] => *layouts += "type_ ",
            [name, _, _] if line.starts_with(' ') => *layouts += &format!("{name} "),
            _ => {}
        }
    }
    for line in read("calls.txt").lines() {
        if let Some((name, _)) = line
            .strip_prefix("pointer ")
            .and_then(|it| it.split_once(':'))
        {
            *pointers += &format!("{name} ");
        }
    }
    // The first structure ends none.
    *layouts = format!("{} }}", layouts.trim_start_matches('}'));
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    for (list, names) in lists {
        let file = Path::new(&out).join(list).with_extension("rs");
        fs::write(file, format!("{list}! {{ {names} }}\n")).expect("OUT_DIR can be written");
    }
}
