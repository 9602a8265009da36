//! The types of all calls: those of the provider table in Rust, compared with the facts.

use crate::abi::listed::Type;
use crate::abi::{facts, here, version};
use core::any::TypeId;
use core::ffi::c_char;
use std::collections::BTreeMap;

/// A type as C spells it.
struct Types(BTreeMap<&'static str, Type>);

impl Types {
    fn id(&self, spelling: &str) -> TypeId {
        let bare = spelling.trim_start_matches("const ").trim_end_matches(" *");
        let found = |name| self.0.get(name).unwrap_or_else(|| panic!("no type {name}"));
        match (spelling.starts_with("const "), spelling.ends_with(" *")) {
            _ if spelling == "void" => TypeId::of::<()>(),
            _ if spelling == "va_list" => version::va_list(),
            _ if spelling == "const char *" => TypeId::of::<*const c_char>(),
            // `const` on a parameter itself does not change the function's type.
            (_, false) => found(bare).id,
            (true, true) => found(bare).constant,
            (false, true) => found(bare).mutable,
        }
    }
}

#[test]
fn the_types_of_all_calls_are_those_of_the_facts() {
    let types = Types(here::types().into_iter().map(|t| (t.name, t)).collect());
    let facts: BTreeMap<_, _> = facts::calls("pointer")
        .into_iter()
        .map(|call| {
            let parameters = call.parameters.iter().map(|p| types.id(p)).collect();
            (call.name, (parameters, types.id(call.result)))
        })
        .collect();
    let here = here::pointers();
    assert_eq!(
        here.keys().collect::<Vec<_>>(),
        facts.keys().collect::<Vec<_>>()
    );
    for (name, pointer) in here {
        assert!(pointer == facts[name], "{name}");
    }
}
