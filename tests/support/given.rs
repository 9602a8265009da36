//! The device that `DAT_TEST_DEVICE` names, which tests use instead of an
//! emulated one.

use std::sync::OnceLock;

/// Returns the name of an existing device, if the environment names one.
pub fn given() -> Option<&'static str> {
    static GIVEN: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let name = std::env::var_os("DAT_TEST_DEVICE").filter(|name| !name.is_empty())?;
        Some(name.into_string().expect("the name of a device"))
    };
    GIVEN.get_or_init(read).as_deref()
}

/// Returns the name of the device that the tests work on.
pub fn name() -> &'static str {
    given().unwrap_or("mlx5_0")
}
