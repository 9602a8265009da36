//! Tests that need their own process: they count the process's resources, or set
//! its limits.

use std::env;
use std::process::Command;
use std::thread;

/// Runs the test of this name in child processes, one for each data path, whose
/// emulated device has these limits. Returns `true` in those processes, where the
/// caller runs the test; otherwise the caller returns.
#[must_use]
pub fn is_on_small_device(name: &str, limits: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    for path in ["direct", "verbs"] {
        let program = env::current_exe().expect("this binary has a path");
        let output = Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, "1")
            .env("MLX5EMU_LIMITS", limits)
            .env("DAT_PATH", path)
            .output()
            .expect("this binary can be run");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stdout.contains("1 passed"),
            "{name} on the {path} path: {}\n{stdout}{stderr}",
            output.status
        );
    }
    false
}

/// Set in the environment of a process that runs one test.
const ALONE: &str = "UDAPL_TEST_ALONE";

/// Returns whether the calling test runs in its own process. If not, runs the
/// test in one, and the caller returns.
///
/// # Panics
/// If the test has failed there.
#[must_use]
pub fn is_alone() -> bool {
    // nextest runs each test in its own process.
    if env::var_os("NEXTEST").is_some() || env::var_os(ALONE).is_some() {
        return true;
    }
    let this = thread::current();
    let name = this.name().expect("a test has a name");
    if name == "main" {
        // Tests run one after the other on the main thread (`--test-threads=1`).
        return true;
    }
    let program = env::current_exe().expect("this binary has a path");
    let output = Command::new(program)
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("this binary can be run");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    print!("{stdout}");
    eprint!("{stderr}");
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name}, in a process of its own: {}",
        output.status
    );
    false
}
