//! Tests that need a device run themselves again, each with its own emulated one;
//! or they use the device that `DAT_TEST_DEVICE` names.

use std::ffi::CString;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::emulator::{fabric, launcher};
use crate::given::{given, name};

/// Set in a test that was started again.
const INSIDE: &str = "LIBDAT_TEST_INSIDE";

/// Returns the name of the device.
pub(crate) fn device() -> CString {
    CString::new(name()).expect("no NUL")
}

/// Runs `test` on an emulated device of its own; `name` is the path of the
/// calling test in `face`. On an existing device the tests run one at a
/// time.
pub(crate) fn on_a_device(name: &str, test: impl FnOnce()) {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var_os(INSIDE).is_some() || given().is_some() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        return test();
    }
    let output = Command::new(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .arg(std::env::current_exe().expect("this binary has a path"))
        .args([
            "--exact",
            &format!("face::{name}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(INSIDE, "1")
        .output()
        .expect("the launcher runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name} on a device: {}\n{stdout}\n{stderr}",
        output.status
    );
}
