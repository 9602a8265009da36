//! Return codes. `dat_api` numbers types and subtypes as uDAPL 1.2 does; 2.0 has two
//! more subtypes in between, and another number for `DAT_NOT_IMPLEMENTED`.

use core::ffi::CStr;

use dat_api::{DatReturn, ReturnType, Subtype};

use crate::abi::*;

/// The subtypes that 1.2 does not have, and the numbers that stand for them in
/// `dat_api`: the next ones after those of 1.2.
const ADDED: [(DAT_RETURN_SUBTYPE, u32, &CStr); 2] = [
    (
        DAT_INVALID_HANDLE_CSP,
        Subtype::ALL.len() as u32,
        c"DAT_INVALID_HANDLE_CSP",
    ),
    (
        DAT_INVALID_STATE_SRQ_SHUTDOWN,
        Subtype::ALL.len() as u32 + 1,
        c"DAT_INVALID_STATE_SRQ_SHUTDOWN",
    ),
];
const NOT_IMPLEMENTED: u32 = ReturnType::NotImplemented as u32;

/// Converts a return code to C.
#[inline(always)]
pub(crate) const fn code(code: DatReturn) -> DAT_RETURN {
    match code.bits() {
        DAT_SUCCESS => DAT_SUCCESS,
        bits => renumbered(bits),
    }
}

#[cold]
#[inline(never)]
const fn renumbered(bits: u32) -> DAT_RETURN {
    let kind = match bits & DAT_TYPE_MASK {
        NOT_IMPLEMENTED => DAT_NOT_IMPLEMENTED,
        DAT_NOT_IMPLEMENTED => NOT_IMPLEMENTED,
        kind => kind,
    };
    let subtype = bits & DAT_SUBTYPE_MASK;
    let subtype = if subtype == ADDED[0].1 {
        ADDED[0].0
    } else if subtype == ADDED[1].1 {
        ADDED[1].0
    } else if subtype > ADDED[1].1 || subtype < ADDED[0].0 {
        subtype
    } else if subtype + 1 < ADDED[1].0 {
        subtype + 1
    } else {
        subtype + 2
    };
    (bits & !(DAT_TYPE_MASK | DAT_SUBTYPE_MASK)) | kind | subtype
}

/// Converts a return code from C; undoes [`code`].
pub(crate) const fn from_code(code: DAT_RETURN) -> DatReturn {
    let kind = match code & DAT_TYPE_MASK {
        DAT_NOT_IMPLEMENTED => NOT_IMPLEMENTED,
        NOT_IMPLEMENTED => DAT_NOT_IMPLEMENTED,
        kind => kind,
    };
    let subtype = code & DAT_SUBTYPE_MASK;
    let subtype = if subtype == ADDED[0].0 {
        ADDED[0].1
    } else if subtype == ADDED[1].0 {
        ADDED[1].1
    } else if subtype > ADDED[1].1 || subtype < ADDED[0].0 {
        subtype
    } else if subtype < ADDED[1].0 {
        subtype - 1
    } else {
        subtype - 2
    };
    DatReturn::from_bits((code & !(DAT_TYPE_MASK | DAT_SUBTYPE_MASK)) | kind | subtype)
}

/// Returns the names of the type and the subtype of a return code.
pub(crate) fn names(code: DAT_RETURN) -> (Option<&'static CStr>, Option<&'static CStr>) {
    let known = from_code(code);
    let kind = known.kind().map(|kind| kind.c_name());
    let kind = kind.or(match code & DAT_TYPE_MASK {
        DAT_RESERVED_LMR => Some(c"DAT_RESERVED_LMR"),
        DAT_PORT_IN_USE => Some(c"DAT_PORT_IN_USE"),
        DAT_COMM_NOT_SUPPORTED => Some(c"DAT_COMM_NOT_SUPPORTED"),
        DAT_EXTENSION_BASE => Some(c"DAT_EXTENSION_BASE"),
        _ => None,
    });
    let subtype = known.subtype().map(|subtype| subtype.c_name());
    let added = ADDED.iter().find(|row| row.0 == code & DAT_SUBTYPE_MASK);
    (kind, subtype.or(added.map(|row| row.2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_number_of_its_name_and_is_converted_back() {
        for (kind, number) in [
            (ReturnType::InvalidParameter, DAT_INVALID_PARAMETER),
            (ReturnType::NotImplemented, DAT_NOT_IMPLEMENTED),
        ] {
            for subtype in Subtype::ALL {
                let here = DatReturn::error(kind, subtype);
                let c = code(here);
                assert_eq!(from_code(c), here, "{subtype:?}");
                assert_eq!(c & DAT_TYPE_MASK, number);
                assert_eq!(c & DAT_CLASS_ERROR, DAT_CLASS_ERROR);
                assert_eq!(names(c), (Some(kind.c_name()), Some(subtype.c_name())));
            }
        }
        assert_eq!(code(DatReturn::SUCCESS), DAT_SUCCESS);
        assert_eq!(from_code(DAT_SUCCESS), DatReturn::SUCCESS);
    }

    #[test]
    fn subtypes_are_moved_by_the_two_new_ones() {
        for (subtype, number) in [
            (Subtype::NoSubtype, DAT_NO_SUBTYPE),
            (Subtype::InvalidHandleSrq, DAT_INVALID_HANDLE_SRQ),
            (Subtype::InvalidHandle1, DAT_INVALID_HANDLE1),
            (Subtype::InvalidArg1, DAT_INVALID_ARG1),
            (Subtype::InvalidStateSrqInUse, DAT_INVALID_STATE_SRQ_IN_USE),
            (Subtype::PrivilegesRead, DAT_PRIVILEGES_READ),
            (Subtype::ThreadSafetyNotFound, DAT_THREAD_SAFETY_NOT_FOUND),
        ] {
            let c = code(DatReturn::error(ReturnType::InvalidState, subtype));
            assert_eq!(c & DAT_SUBTYPE_MASK, number, "{subtype:?}");
        }
    }

    /// Codes of other providers pass through unchanged, whatever they are.
    #[test]
    fn any_code_of_c_is_converted_and_back() {
        for low in (0..0x200).chain([0xfffe, 0xffff]) {
            for high in [
                0x8000_0000,
                0x8005_0000,
                0x8fff_0000,
                0xbfff_0000,
                0x1000_0000,
            ] {
                let c = high | low;
                assert_eq!(code(from_code(c)), c, "{c:#x}");
            }
        }
    }

    #[test]
    fn the_new_names_are_known() {
        for (value, expected) in [
            (
                DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CSP,
                (c"DAT_INVALID_HANDLE", c"DAT_INVALID_HANDLE_CSP"),
            ),
            (
                DAT_INVALID_STATE | DAT_INVALID_STATE_SRQ_SHUTDOWN,
                (c"DAT_INVALID_STATE", c"DAT_INVALID_STATE_SRQ_SHUTDOWN"),
            ),
            (DAT_PORT_IN_USE, (c"DAT_PORT_IN_USE", c"DAT_NO_SUBTYPE")),
        ] {
            assert_eq!(names(value), (Some(expected.0), Some(expected.1)));
        }
        assert_eq!(names(0x8018_0000).0, None);
        assert_eq!(names(0x8005_0068).1, None);
    }
}
