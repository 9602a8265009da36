//! `dat-bench cost` on the emulated device, in short runs.

use std::fs;

use crate::common::{bench, emulated, file, launcher, libdat, libdat2, run};
use serde_json::Value;

/// Operations for which DAT has no call.
const LISTS: [&str; 4] = [
    "post_recv_list",
    "srq_post_list",
    "send_list",
    "send_inline_list",
];
/// Operations for which DAT has a call in Rust only.
const BATCHES: [&str; 3] = ["hit_recv_batch", "hit_srq_batch", "hit_send_batch"];
/// Operations that are measured through uDAPL 2.0 only.
const ATOMICS: [&str; 3] = ["fetch_add", "compare_swap", "hit_fetch_add"];
/// The operation that is measured through C of uDAPL 2.0 only.
const IMMEDIATE: &str = "hit_immed";
/// Operations that only DAT has.
const WAITS: [&str; 3] = ["wait", "wait_two", "wait_empty"];
/// The operation that the engine alone does not have.
const SLEEP: &str = "wait_sleep";
/// The operation that only Rust has: a descriptor, for a reactor.
const AWAIT: &str = "await_sleep";
/// All operations.
const OPERATIONS: usize = 29;

fn results(words: &str, name: &str) -> (String, Vec<Value>) {
    let json = file(name);
    let words = format!("cost {words} --json {}", json.display());
    let ended = run(emulated("cost", &words)).expect(0, &["EMULATED", "empty poll"]);
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["schema"], "dat-bench/cost/2");
    crate::common::schema::check(&value);
    assert_eq!(value["emulated"], true);
    (ended.stdout, value["results"].as_array().unwrap().clone())
}

#[test]
fn every_variant_has_a_figure_for_every_operation_it_has() {
    libdat();
    libdat2();
    let (table, results) = results("-n 3 --turns 1", "cost.json");
    let variants = [
        "libmlx5",
        "libmlx5-st",
        "engine",
        "engine-st",
        "rust",
        "rust-st",
        "c",
        "c-st",
        "c2",
        "c2-st",
    ];
    assert_eq!(results.len(), OPERATIONS * variants.len());
    for result in &results {
        let (operation, variant) = (
            result["operation"].as_str().unwrap(),
            result["variant"].as_str().unwrap(),
        );
        assert!(variants.contains(&variant), "{variant}");
        let is_c = variant.starts_with('c');
        let is_atomic = ATOMICS.contains(&operation);
        // uDAPL 1.2 has no atomic operations.
        let lacks_atomics = is_atomic && matches!(variant, "c" | "c-st");
        let lacks_lists = is_c && LISTS.contains(&operation);
        let lacks_batches = is_c && BATCHES.contains(&operation);
        let lacks_waits = WAITS.contains(&operation)
            && (variant.starts_with("libmlx5") || variant.starts_with("engine"));
        let lacks_immediate = operation == IMMEDIATE && !variant.starts_with("c2");
        let lacks_sleep = operation == SLEEP && variant.starts_with("engine");
        let lacks_await = operation == AWAIT && !variant.starts_with("rust");
        let has_call = !(lacks_atomics
            || lacks_lists
            || lacks_batches
            || lacks_waits
            || lacks_immediate
            || lacks_sleep
            || lacks_await);
        let rounds = result["rounds"].as_u64().unwrap() + result["spoiled"].as_u64().unwrap();
        let expected = if has_call { 3 } else { 0 };
        assert_eq!(rounds, expected, "{operation} of {variant}");
        if let Some(figure) = result["nanoseconds"].as_object() {
            let of = |name: &str| figure[name].as_f64().unwrap();
            assert!(
                0.0 < of("min")
                    && of("min") <= of("first_quartile")
                    && of("first_quartile") <= of("median")
                    && of("median") <= of("third_quartile")
                    && of("third_quartile") <= of("max"),
                "{operation} of {variant}: {figure:?}"
            );
        }
        assert!(result["instructions"].is_null());
    }
    // One column per variant, with '-' if it has no call; a block for every three variants.
    let row = |title: &str| {
        let lines = table.lines().filter(|line| line.trim().starts_with(title));
        lines.collect::<String>()
    };
    assert_eq!(row("post_recv, list of 32").matches(" -").count(), 4);
    assert_eq!(row("post_recv, single").matches('±').count(), 10);
    // All but the calls of uDAPL 1.2.
    assert_eq!(row("fetch-and-add, single").matches('±').count(), 8);
}

#[test]
fn dat_bench_starts_the_emulated_device_itself() {
    launcher();
    run(bench(
        "cost -d emu --api engine-st,libmlx5-st -n 2 --turns 2",
    ))
    .expect(0, &["EMULATED", "libmlx5-st", "engine-st", "4 rounds"]);
}

#[test]
fn the_verbs_path_is_measured_too() {
    let words = "cost --path verbs --api engine-st,rust -n 2 --turns 1 --fail-if time>1000s";
    run(emulated("cost-verbs", words)).expect(0, &["verbs path", "engine-st"]);
    let words = "cost --api engine-st -n 2 --turns 1 --fail-if time<1000s";
    run(emulated("cost-fails", words)).expect(3, &["engine-st", "--fail-if: time<1000s"]);
}

#[test]
fn two_runs_count_the_same_instructions() {
    if std::process::Command::new("valgrind")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("SKIPPED two_runs_count_the_same_instructions: valgrind is not installed");
        return;
    }
    let words = "--api engine-st,libmlx5-st -n 1 --turns 1 --instructions";
    let counts = |name| {
        let (table, results) = results(words, name);
        assert!(table.contains("instructions per operation"), "{table}");
        results
            .iter()
            .filter(|result| {
                let operation = result["operation"].as_str().unwrap();
                !ATOMICS.contains(&operation)
                    && ![IMMEDIATE, AWAIT].contains(&operation)
                    && !WAITS.contains(&operation)
                    && (operation != SLEEP || result["variant"] == "libmlx5-st")
            })
            .map(|result| {
                let count = result["instructions"].as_f64();
                count.unwrap_or_else(|| panic!("{result}"))
            })
            .collect::<Vec<_>>()
    };
    let (first, second) = (counts("counts-1.json"), counts("counts-2.json"));
    // The sleep is one of libmlx5's alone.
    let both = OPERATIONS - ATOMICS.len() - WAITS.len() - [IMMEDIATE, AWAIT, SLEEP].len();
    assert_eq!(first.len(), 2 * both + 1);
    for (at, (one, other)) in first.iter().zip(&second).enumerate() {
        assert!(*one >= 5.0, "{at}: {one}");
        assert!((one - other).abs() <= 0.02 * one, "{at}: {one}, {other}");
    }
}

#[test]
fn wrong_options_are_refused_by_name_and_help_explains_the_method() {
    for (words, status, named) in [
        ("cost --api engine,engine", 1, "--api"),
        ("cost --api verbs", 1, "--api"),
        ("cost -n 0", 1, "--iters"),
        ("cost --turns 0", 1, "--turns"),
        ("cost --counted", 1, "--worker"),
        ("cost --cpu 0-3", 1, "--cpu"),
        ("cost -d mlx4_7", 1, "mlx4_7"),
    ] {
        run(bench(words)).expect(status, &[named]);
    }
    launcher();
    run(emulated("cost-port", "cost -i 9 -n 1")).expect(1, &["port 9"]);
    run(bench("cost --help")).expect(
        0,
        &[
            "callgrind",
            "is stopped during",
            "not: latencies",
            "'-st'",
            "'c2'",
        ],
    );
}
