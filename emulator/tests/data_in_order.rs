//! `ibv_query_qp_data_in_order` of the installed libibverbs and libmlx5.

use std::path::Path;

use crate::common::{compiled, finish, run};

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
    let program = compiled("data_in_order/query.c");
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
    let program = compiled("data_in_order/query.c");
    let with = |answer| {
        let options = ["--explain", "--data-in-order", answer];
        answers(&program, &options)
    };
    let (no, unknown) = (with("no"), with("unknown"));
    assert!(!no.contains("DEVX") && !no.contains("DevX"), "{no}");
    assert!(unknown.contains("the device has no DevX"), "{unknown}");
}
