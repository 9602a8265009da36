//! All calls in random order with random arguments, from several threads
//! (`random/random.c` says what counts as wrong), on the emulated adapter; also
//! under valgrind. `DAT_SEED` and `DAT_RANDOM_SECONDS` set the first seed and
//! how long: `perf-scripts/soak calls` uses them.

#[path = "support/emulator.rs"]
mod emulator;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use emulator::{fabric, launcher};

const SOURCES: [&str; 5] = [
    "random.c",
    "events.c",
    "connections.c",
    "transfers.c",
    "together.c",
];

const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) => otherwise,
    }
}

/// The program, and a folder that has the library under the name it asks for.
fn built() -> (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // First: it may have to build the library anew.
        launcher();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("random-calls");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests.parent().expect("a folder").join("libdat.so");
        let process = std::process::id();
        // Another test may do the same at the same time.
        let put = |name: &str, make: &dyn Fn(&Path)| {
            let mine = folder.join(format!("{name}.{process}"));
            make(&mine);
            std::fs::rename(&mine, folder.join(name)).expect("it can be renamed");
        };
        put("libdat.so.1", &|place| {
            let _ = std::fs::remove_file(place);
            std::os::unix::fs::symlink(&library, place).expect("a link can be made");
        });
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        put("random", &|place| {
            let output = Command::new("cc")
                .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
                .args(["-pthread", "-I"])
                .arg(base.join("include"))
                .arg("-o")
                .arg(place)
                .args(SOURCES.map(|name| base.join("tests/random").join(name)))
                .arg(&library)
                .output()
                .expect("cc can be run");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{complaint}");
        });
        (folder.join("random"), folder)
    });
    built.clone()
}

/// Runs for so many seconds; what it said.
fn run(under: &[&str], seconds: u64, threads: u32, seed: u64) -> String {
    let (program, libraries) = built();
    let output = Command::new("timeout")
        .arg((seconds + 120).to_string())
        .arg(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .args(under)
        .arg(program)
        .args(["mlx5_0", &seconds.to_string(), &threads.to_string()])
        .arg(seed.to_string())
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .expect("timeout can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    let well = output.status.success() && said.ends_with("well\n");
    assert!(well, "{:?}\n{said}{complaint}", output.status);
    said
}

#[test]
fn every_call_in_random_order_from_four_threads() {
    let seconds = number("DAT_RANDOM_SECONDS", 8);
    let said = run(&[], seconds, 4, number("DAT_SEED", 1));
    println!("{said}");
    // Nothing is proven of a call that was refused each time.
    assert!(said.contains(" 0 never;"), "{said}");
}

#[test]
fn every_call_in_random_order_under_valgrind() {
    let seconds = number("DAT_RANDOM_SECONDS", 12);
    println!("{}", run(&VALGRIND, seconds, 2, number("DAT_SEED", 2)));
}
