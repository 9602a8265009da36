//! The slots of the provider table are found in what bindgen writes, with rustfmt and without.

#[path = "../../build/slots.rs"]
mod read;

const EXPECTED: &str = "table! {\n    ia_open_func: DAT_IA_OPEN_FUNC = dat_ia_open,\n    \
                        ep_free_func: DAT_EP_FREE_FUNC = dat_ep_free,\n}\n";

#[test]
fn slots_are_found_with_rustfmt_and_without() {
    let formatted = "pub struct DAT_PROVIDER {\n    pub device_name: *const c_char,\n    \
                     pub ia_open_func: DAT_IA_OPEN_FUNC,\n    \
                     pub handle_extendedop_func: DAT_HANDLE_EXTENDEDOP_FUNC,\n    \
                     pub ep_free_func: DAT_EP_FREE_FUNC,\n}\n";
    let plain = "pub struct DAT_PROVIDER { pub device_name : * const c_char , pub ia_open_func : \
                 DAT_IA_OPEN_FUNC , pub handle_extendedop_func : DAT_HANDLE_EXTENDEDOP_FUNC , \
                 pub ep_free_func : DAT_EP_FREE_FUNC , } pub type OTHER = u8 ;";
    assert_eq!(read::table(formatted), EXPECTED);
    assert_eq!(read::table(plain), EXPECTED);
}
