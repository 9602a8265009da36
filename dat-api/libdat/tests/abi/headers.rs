//! The headers: compared with the facts, compiled each alone, and as programs use
//! them.

use crate::abi::compiler::{Assertions, c, compile, cxx, include};
use crate::abi::{facts, version};
use std::collections::BTreeSet;
use std::fs;

/// Warning flags that a program may use.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
const C_STANDARDS: [&str; 3] = ["-std=c99", "-std=gnu11", "-std=c17"];
const CXX_STANDARDS: [&str; 3] = ["-std=c++11", "-std=c++17", "-std=c++20"];

/// Every pair of compiler and standard.
fn dialects() -> impl Iterator<Item = (&'static str, &'static str)> {
    let c = c().flat_map(|c| C_STANDARDS.map(|std| (c, std)));
    let cxx = cxx().flat_map(|cxx| CXX_STANDARDS.map(|std| (cxx, std)));
    c.chain(cxx)
}

fn compile_strictly(source: &str) {
    for (compiler, standard) in dialects() {
        let mut flags = vec![standard];
        flags.extend(STRICT);
        compile(compiler, &flags, source, None);
    }
}

/// File names and contents.
fn headers() -> Vec<(String, String)> {
    let mut headers: Vec<_> = fs::read_dir(include().join(version::FOLDER))
        .expect("the folder of the headers")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a file").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a header");
            (name.into_owned(), text)
        })
        .collect();
    headers.sort();
    headers
}

/// Adds the assertions for C and C++.
fn facts_in_c(assert: &mut Assertions) {
    for value in facts::values() {
        assert.value(value.name, value.value);
        if let Some(size) = value.size {
            assert.holds(&format!("sizeof({}) == {size}", value.name));
        }
    }
    for (name, text) in facts::other_macros("text") {
        assert.holds(&format!("sizeof({name}) == sizeof(\"{text}\")"));
    }
    for (name, size) in facts::types() {
        assert.holds(&format!("sizeof({name}) == {size}"));
    }
    for layout in facts::layouts() {
        let name = layout.name;
        assert.holds(&format!("sizeof({name}) == {}", layout.size));
        assert.holds(&format!("_Alignof({name}) == {}", layout.align));
        for (member, offset, size) in layout.members {
            assert.holds(&format!("offsetof({name}, {member}) == {offset}"));
            assert.holds(&format!("sizeof((({name} *)0)->{member}) == {size}"));
        }
    }
    // A second declaration with another type does not compile.
    for call in version::CALLS.into_iter().flat_map(facts::calls) {
        let parameters = call.parameters.join(", ");
        assert.line(&format!("{} {}({parameters});", call.result, call.name));
    }
}

#[test]
fn headers_agree_with_the_facts_in_c() {
    for compiler in c() {
        let mut assert = Assertions::new();
        facts_in_c(&mut assert);
        for call in facts::calls("pointer") {
            let parameters = call.parameters.join(", ");
            assert.holds(&format!(
                "__builtin_types_compatible_p({}, {} (*)({parameters}))",
                call.name, call.result
            ));
        }
        for (slot, kind) in facts::slots() {
            assert.holds(&format!(
                "__builtin_types_compatible_p(__typeof__(((DAT_PROVIDER *)0)->{slot}), {kind})"
            ));
        }
        assert.check(compiler, version::ASSERTIONS);
    }
}

#[test]
fn headers_agree_with_the_facts_in_cxx() {
    for compiler in cxx() {
        let mut assert = Assertions::new();
        facts_in_c(&mut assert);
        assert.check(compiler, version::ASSERTIONS - 150);
    }
}

#[test]
fn each_header_compiles_alone_and_twice() {
    let headers = headers();
    assert!(headers.len() >= 10, "{} headers", headers.len());
    for (name, _) in headers {
        let include = format!("#include <{}/{name}>\n", version::FOLDER);
        compile_strictly(&format!("{include}{include}int nothing_else;\n"));
    }
}

/// The header names that programs include.
#[test]
fn the_headers_of_the_standard_are_there() {
    for name in version::STANDARD {
        assert!(
            include().join(version::FOLDER).join(name).is_file(),
            "{name}"
        );
    }
}

/// Aliases, macros and special values as a program uses them.
#[test]
fn a_program_can_use_aliases_macros_and_special_values() {
    compile_strictly(version::USE);
}

/// Every macro of the redirection headers, by name, parameters and body.
fn redirections() -> Vec<(String, Vec<String>, String)> {
    let mut found = Vec::new();
    for (_, text) in headers()
        .into_iter()
        .filter(|(name, _)| name.ends_with("redirection.h"))
    {
        let text = text.replace("\\\n", " ");
        for line in text.lines() {
            let Some(line) = line.strip_prefix("#define ") else {
                continue;
            };
            let Some((head, body)) = line.split_once(") ") else {
                continue;
            };
            let (name, parameters) = head.split_once('(').expect("a macro with parameters");
            let parameters = parameters.split(',').map(|p| p.trim().to_owned()).collect();
            let body = body.split_whitespace().collect();
            found.push((name.to_owned(), parameters, body));
        }
    }
    found
}

#[test]
fn each_redirection_macro_calls_the_slot_of_its_name_with_its_arguments() {
    let mut slots: BTreeSet<&str> = facts::slots().into_iter().map(|(slot, _)| slot).collect();
    // Opening and closing go through the registry, which counts open adapters.
    assert!(slots.remove("ia_open_func") && slots.remove("ia_close_func"));
    for (name, parameters, body) in redirections() {
        if name == "DAT_HANDLE_TO_PROVIDER" {
            assert_eq!(body, "(*(DAT_PROVIDER**)(handle))");
            continue;
        }
        let slot = format!("{}_func", name.strip_prefix("DAT_").expect(&name)).to_lowercase();
        assert!(slots.remove(&slot[..]), "{name}");
        let arguments: Vec<_> = parameters.iter().map(|p| format!("({p})")).collect();
        let provider = format!("DAT_HANDLE_TO_PROVIDER({})", parameters[0]);
        assert_eq!(
            body,
            format!("({provider}->{slot}({}))", arguments.join(","))
        );
    }
    assert!(slots.is_empty(), "without a macro: {slots:?}");
}

#[test]
fn every_function_is_declared_once_and_documented() {
    let mut calls: BTreeSet<_> = version::CALLS
        .into_iter()
        .flat_map(facts::calls)
        .map(|call| call.name)
        .collect();
    for (file, text) in headers() {
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((name, _)) = line
                .strip_prefix("DAT_RETURN ")
                .and_then(|rest| rest.split_once('('))
            else {
                continue;
            };
            assert!(calls.remove(name), "{file}: {name}");
            assert!(lines[at - 1].ends_with("*/"), "{file}: {name}");
        }
    }
    assert!(calls.is_empty(), "not declared: {calls:?}");
}
