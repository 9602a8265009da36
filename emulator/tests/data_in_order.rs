//! `ibv_query_qp_data_in_order` of the installed libibverbs and libmlx5.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{finish, run};

/// Compiles the program. Returns its path.
fn compiled() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data_in_order/query.c");
    let thread = std::thread::current().id();
    let name = format!("data-in-order-{}-{thread:?}", std::process::id());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .arg("-libverbs")
        .output()
        .expect("cc is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

/// Returns what the program prints on a device with these options.
fn answers(program: &Path, options: &[&str]) -> String {
    let mut command = run(options);
    command.arg(program);
    finish(command).expect_success("the query")
}

/// libibverbs asks the device on x86 only.
#[cfg(target_arch = "x86_64")]
const YES: &str = "INIT: 0 0 0\nRTS: 1 1 1\nRTS: 1 1 1\n";
#[cfg(not(target_arch = "x86_64"))]
const YES: &str = NO;
const NO: &str = "INIT: 0 0 0\nRTS: 0 0 0\nRTS: 0 0 0\n";

#[test]
fn unmodified_libraries_get_the_answer_of_the_device() {
    let program = compiled();
    for (options, expected) in [
        (&[][..], YES),
        (&["--data-in-order", "yes", "--link", "roce"], YES),
        (&["--data-in-order", "no"], NO),
        (&["--data-in-order", "unknown"], NO),
        (&["--face", "write"], NO),
        (&["--nasty", "parts"], NO),
    ] {
        assert_eq!(answers(&program, options), expected, "{options:?}");
    }
}

#[test]
fn libmlx5_is_told_no_by_the_device_and_not_by_a_refusal() {
    let program = compiled();
    let with = |answer| {
        let options = ["--explain", "--data-in-order", answer];
        answers(&program, &options)
    };
    let (no, unknown) = (with("no"), with("unknown"));
    assert!(!no.contains("DEVX") && !no.contains("DevX"), "{no}");
    assert!(unknown.contains("the device has no DevX"), "{unknown}");
}
