//! `dat_api` numbers types and subtypes as uDAPL 1.2 does.

use crate::abi::facts;
use dat_api::types::DtoStatus;
use dat_api::{DatReturn, ReturnType, Subtype};
use std::collections::BTreeMap;

fn enumeration(name: &str) -> BTreeMap<&'static str, i128> {
    facts::values()
        .into_iter()
        .filter(|value| value.of == Some(name))
        .map(|value| (value.name, value.value))
        .collect()
}

#[test]
fn types_have_the_numbers_of_the_facts() {
    let here: BTreeMap<_, _> = ReturnType::ALL
        .into_iter()
        .map(|kind| (kind.name(), i128::from(kind as u32)))
        .collect();
    assert_eq!(here, enumeration("DAT_RETURN_TYPE"));
}

#[test]
fn subtypes_have_the_numbers_of_the_facts() {
    let here: BTreeMap<_, _> = Subtype::ALL
        .into_iter()
        .map(|subtype| (subtype.name(), i128::from(subtype as u32)))
        .collect();
    assert_eq!(here, enumeration("DAT_RETURN_SUBTYPE"));
}

#[test]
fn results_of_transfers_have_the_names_and_numbers_of_the_facts() {
    let all = [
        DtoStatus::Success,
        DtoStatus::Flushed,
        DtoStatus::LocalLength,
        DtoStatus::LocalEp,
        DtoStatus::LocalProtection,
        DtoStatus::BadResponse,
        DtoStatus::RemoteAccess,
        DtoStatus::RemoteResponder,
        DtoStatus::Transport,
        DtoStatus::ReceiverNotReady,
        DtoStatus::PartialPacket,
        DtoStatus::RmrOperationFailed,
    ];
    let here = all.map(|status| (status.to_string(), i128::from(status as u8)));
    let facts = enumeration("DAT_DTO_COMPLETION_STATUS").into_iter();
    let facts = facts.map(|(name, number)| (name.to_owned(), number));
    assert_eq!(BTreeMap::from(here), facts.collect());
}

#[test]
fn an_error_is_composed_of_class_type_and_subtype() {
    let value = |name| {
        let found = facts::values().into_iter().find(|value| value.name == name);
        found.expect("a fact").value
    };
    for kind in ReturnType::ALL {
        for subtype in Subtype::ALL {
            let composed = match kind {
                ReturnType::Success => 0,
                _ => value("DAT_CLASS_ERROR") | i128::from(kind as u32) | subtype as i128,
            };
            let bits = DatReturn::error(kind, subtype).bits();
            assert_eq!(i128::from(bits), composed, "{kind:?} {subtype:?}");
        }
    }
}
