//! Every call with each of its allocations failing in turn: a C program (`memory/memory.c`) on the
//! emulated adapter. `libdat2` compiles this file for uDAPL 2.0.

use std::process::Command;

use crate::c_program::CProgram;
use crate::emulator::{fabric, launcher};

#[test]
fn a_call_without_memory_is_refused_and_loses_nothing() {
    let program = CProgram::build("memory", &["memory.c", "objects.c", "fail.c"]);
    for (manager, path) in [
        ("socket", "direct"),
        ("rdma_cm", "direct"),
        ("socket", "verbs"),
    ] {
        let output = Command::new("timeout")
            .arg("300")
            .arg(launcher())
            .args(["run", "--fabric", &fabric(), "--"])
            .arg(&program.path)
            .env("LD_LIBRARY_PATH", &program.libraries)
            .env("DAT_CM", manager)
            .env("DAT_PATH", path)
            .output()
            .expect("timeout can be run");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        let passed = status.success() && stdout.ends_with("passed\n");
        assert!(passed, "{manager}, {path}: {status:?}\n{stdout}{stderr}");
    }
}
