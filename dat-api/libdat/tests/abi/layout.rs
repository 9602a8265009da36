//! The Rust side: `dat::abi` compared with C and with the facts.

use crate::abi::compiler::{Assertions, c};
use crate::abi::{facts, here};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn c_compilers_and_rust_agree_on_the_headers() {
    for compiler in c() {
        let mut assert = Assertions::new();
        for (name, value) in here::values() {
            assert.value(name, value);
        }
        for kind in here::types() {
            assert.holds(&format!("sizeof({}) == {}", kind.name, kind.size));
            assert.holds(&format!("_Alignof({}) == {}", kind.name, kind.align));
        }
        for layout in here::layouts() {
            let name = layout.name;
            assert.holds(&format!("sizeof({name}) == {}", layout.size));
            assert.holds(&format!("_Alignof({name}) == {}", layout.align));
            for (member, offset, size) in layout.members {
                assert.holds(&format!("offsetof({name}, {member}) == {offset}"));
                assert.holds(&format!("sizeof((({name} *)0)->{member}) == {size}"));
            }
        }
        assert.check(compiler, 1000);
    }
}

#[test]
fn rust_has_every_struct_of_the_facts_with_the_same_layout() {
    let here: BTreeMap<_, _> = here::layouts()
        .into_iter()
        .map(|layout| (layout.name, layout))
        .collect();
    let facts: BTreeMap<_, _> = facts::layouts()
        .into_iter()
        .map(|layout| (layout.name, layout))
        .collect();
    assert_eq!(here, facts);
}

#[test]
fn rust_has_every_value_of_the_facts() {
    let here: BTreeMap<_, _> = here::values().into_iter().collect();
    let facts: BTreeMap<_, _> = facts::values()
        .into_iter()
        .map(|value| (value.name, value.value))
        .collect();
    assert_eq!(here, facts);
}

#[test]
fn rust_has_every_type_of_the_facts_with_the_same_size() {
    let here: BTreeSet<_> = here::types()
        .into_iter()
        .filter(|kind| {
            !here::layouts()
                .iter()
                .any(|layout| layout.name == kind.name)
        })
        .map(|kind| (kind.name, kind.size))
        .collect();
    assert_eq!(here, facts::types().into_iter().collect());
}

#[test]
fn the_special_handles_are_small_numbers() {
    let here = [
        ("DAT_HANDLE_NULL", dat::abi::DAT_HANDLE_NULL.addr()),
        (
            "DAT_EVD_ASYNC_EXISTS",
            dat::abi::DAT_EVD_ASYNC_EXISTS.addr(),
        ),
        (
            "DAT_EVD_OUT_OF_SCOPE",
            dat::abi::DAT_EVD_OUT_OF_SCOPE.addr(),
        ),
    ];
    let facts = facts::other_macros("pointer");
    let here: BTreeSet<_> = here.map(|(name, value)| (name, value.to_string())).into();
    let facts: BTreeSet<_> = facts
        .into_iter()
        .map(|(name, value)| (name, value.to_string()))
        .collect();
    assert_eq!(here, facts);
}
