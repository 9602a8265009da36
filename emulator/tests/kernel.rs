//! The emulator's reading of the kernel's uverbs, compared with what the kernel gives.

use std::process::Command;

use crate::common::{compiled_with, fabric, finish, run, skipped};

/// The version of libibverbs that `uverbs.expected` was made with: others check other values
/// themselves.
const LIBIBVERBS: &str = "1.14.44";

#[test]
fn the_calls_of_libibverbs_give_what_the_kernel_gives() {
    let version = Command::new("pkg-config")
        .args(["--modversion", "libibverbs"])
        .output();
    let version = version.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    if !version.as_ref().is_ok_and(|it| it.starts_with(LIBIBVERBS)) {
        skipped(&format!(
            "the expected results are of libibverbs {LIBIBVERBS} (Debian 12), not of {version:?}"
        ));
        return;
    }
    let mut command = run(&["--fabric", &fabric()]);
    command.arg(compiled_with("kernel/uverbs.c", &["-lmlx5", "-libverbs"]));
    let output = finish(command).expect_success("uverbs");
    let expected = include_str!("kernel/uverbs.expected");
    let emulated = |line: &&str| line.starts_with("? ") || line.starts_with("e ");
    let expected: Vec<_> = expected.lines().filter(emulated).collect();
    for (line, expected) in output.lines().zip(&expected) {
        assert_eq!(line, &expected[2..]);
    }
    assert_eq!(output.lines().count(), expected.len(), "{output}");
}
