//! All calls in random order with random arguments, from several threads
//! (`random/random.c` defines the failures), on the emulated adapter, and also
//! under valgrind. `libdat2` compiles this file for uDAPL 2.0. `DAT_SEED` and `DAT_RANDOM_SECONDS` set the first seed and the
//! duration; `perf-scripts/soak calls` uses them.

use std::process::Command;
use std::sync::OnceLock;

use crate::c_program::{CProgram, VALGRIND, is_2};
use crate::emulator::{fabric, launcher};
use crate::tool::is_installed;

const SOURCES: [&str; 5] = [
    "random.c",
    "events.c",
    "connections.c",
    "transfers.c",
    "together.c",
];
/// What only uDAPL 2.0 has.
const SOURCES_OF_2: [&str; 1] = ["extensions.c"];

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text}: expected a number")),
        Err(_) => otherwise,
    }
}

fn program() -> &'static CProgram {
    static PROGRAM: OnceLock<CProgram> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let of_2 = SOURCES_OF_2.iter().filter(|_| is_2());
        let sources: Vec<&str> = SOURCES.iter().chain(of_2).copied().collect();
        CProgram::build("random", &sources)
    })
}

/// Runs for `seconds`, and returns what it printed.
fn run(under: &[&str], seconds: u64, threads: u32, seed: u64) -> String {
    let program = program();
    let output = Command::new("timeout")
        .arg((seconds + 120).to_string())
        .arg(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .args(under)
        .arg(&program.path)
        .args(["mlx5_0", &seconds.to_string(), &threads.to_string()])
        .arg(seed.to_string())
        .env("LD_LIBRARY_PATH", &program.libraries)
        .output()
        .expect("timeout can be run");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && stdout.ends_with("passed\n");
    assert!(passed, "{:?}\n{stdout}{stderr}", output.status);
    stdout
}

#[test]
fn every_call_in_random_order_from_four_threads() {
    let seconds = number("DAT_RANDOM_SECONDS", 8);
    let mut stdout = String::new();
    // A call that never succeeded was not tested. A busy machine makes few calls in
    // the first time.
    let is_complete = [1, 2, 4].into_iter().any(|times| {
        stdout = run(&[], seconds * times, 4, number("DAT_SEED", 1));
        println!("{stdout}");
        stdout.contains("never succeeded: 0;")
    });
    assert!(is_complete, "{stdout}");
}

#[test]
fn every_call_in_random_order_under_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    let seconds = number("DAT_RANDOM_SECONDS", 12);
    println!("{}", run(&VALGRIND, seconds, 2, number("DAT_SEED", 2)));
}
