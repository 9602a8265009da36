//! The calls that return names, against the facts. `libdat2` compiles this file for uDAPL 2.0.

use core::ffi::{CStr, c_char};
use core::ptr;

use dat::abi::{DAT_INVALID_ARG1, DAT_INVALID_ARG2, DAT_INVALID_PARAMETER, DAT_RETURN};
use dat::exports::{dat_strdtostatus, dat_strepstate, dat_strevent};

use crate::abi::facts;

type Call = unsafe extern "C" fn(u32, *mut *const c_char) -> DAT_RETURN;

/// The bits of an error's type and subtype.
const WITHOUT_CLASS: u32 = 0x3fff_ffff;

fn name(call: Call, value: u32) -> Result<&'static str, u32> {
    let mut name = ptr::null();
    // SAFETY: the place is writable.
    match unsafe { call(value, &raw mut name) } {
        // SAFETY: a C string that is never freed.
        0 => Ok(unsafe { CStr::from_ptr(name) }.to_str().expect("ASCII")),
        answer => {
            assert!(name.is_null(), "nothing is written");
            Err(answer & WITHOUT_CLASS)
        }
    }
}

#[test]
fn numbers_have_the_names_of_their_enumerators() {
    let calls: [(Call, &[&str], usize); 3] = [
        (
            dat_strevent,
            &["DAT_EVENT_NUMBER", "DAT_IB_EVENT_NUMBER"],
            17,
        ),
        (dat_strdtostatus, &["DAT_DTO_COMPLETION_STATUS"], 12),
        (dat_strepstate, &["DAT_EP_STATE"], 13),
    ];
    for (call, enumerations, least) in calls {
        let mut seen = 0;
        for fact in facts::values() {
            // The first number of a range is that of its first event.
            let is_range = fact.name == "DAT_IB_EXTENSION_RANGE_BASE";
            if is_range || !fact.of.is_some_and(|of| enumerations.contains(&of)) {
                continue;
            }
            let number = u32::try_from(fact.value).expect("32 bits");
            assert_eq!(name(call, number), Ok(fact.name));
            seen += 1;
        }
        assert!(seen >= least, "{enumerations:?}: {seen}");
        let unknown = DAT_INVALID_PARAMETER | DAT_INVALID_ARG1;
        assert_eq!(name(call, u32::MAX), Err(unknown));
        assert_eq!(name(call, 99), Err(unknown));
        // SAFETY: a null pointer is refused.
        let answer = unsafe { call(1, ptr::null_mut()) };
        let expected = DAT_INVALID_PARAMETER | DAT_INVALID_ARG2;
        assert_eq!(answer & WITHOUT_CLASS, expected);
    }
}
