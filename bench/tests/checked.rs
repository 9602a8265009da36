//! Messages that are compared while they are measured (`--check`), and messages of several segments
//! (`--sge`), on the emulated device. Changed bytes are found in `loop_tests.rs` of `lat` and `bw`.

use std::fs;

use serde_json::Value;

use crate::common::{Ended, emulated, file, libdat, limited, run, server_of};

/// Operations, and the APIs that have them.
const OPERATIONS: [(&str, &str); 5] = [
    ("send", "engine,rust,c"),
    ("write", "engine,rust,c"),
    ("write-imm", "engine,rust"),
    ("read", "engine,rust,c"),
    ("compare-swap", "engine,rust"),
];

/// Runs a command with results as JSON, in a file of the test. Returns its output and `run` of
/// the results.
#[track_caller]
fn conditions(test: &str, words: &str) -> (Ended, Value) {
    let json = file(&format!("checked-{test}.json"));
    let words = format!("{words} --json {}", json.display());
    let ended = run(emulated("checked", &words)).expect(0, &["EMULATED"]);
    let text = fs::read_to_string(&json).expect("the results");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    crate::common::schema::check(&value);
    let results = value["results"].as_array().expect("results");
    assert!(results.iter().all(|it| it["payload_verified"] == true));
    (ended, value["run"].take())
}

#[test]
fn all_messages_are_compared_in_one_process_through_every_api() {
    libdat();
    for (path, operations) in [("direct", &OPERATIONS[..]), ("verbs", &OPERATIONS[2..3])] {
        for &(operation, apis) in operations {
            let words = format!("--loopback --path {path} --api {apis} -o {operation} --check");
            let sge = if operation == "compare-swap" {
                ""
            } else {
                "-s 300 --sge 3"
            };
            let (ended, run) = conditions("apis", &format!("lat {words} {sge} -n 50 --warmup 5"));
            let said = "every byte is compared when the time of a message is over";
            ended.expect(0, &[said]);
            assert_eq!(run["checked"], "outside_of_the_measured_time");
            let (_, run) = conditions(
                "apis",
                &format!("lat {words} --rate 5k -t 7 -n 50 --warmup 5"),
            );
            assert_eq!(run["checked"], "within_the_measured_time");
            if operation != "write" {
                let (ended, run) = conditions("apis", &format!("bw {words} {sge} -q 2 -b -n 300"));
                ended.expect(0, &["WITHIN the measured time"]);
                assert_eq!(run["checked"], "within_the_measured_time");
                assert_eq!(run["segments"], if sge.is_empty() { 1 } else { 3 });
            }
        }
    }
}

#[test]
fn two_processes_compare_what_they_receive_and_need_the_same_options() {
    libdat();
    for (operation, api) in [("send", "c"), ("write", "rust"), ("write-imm", "engine")] {
        let words = format!("-o {operation} --api {api} -s 5000 --sge 4 --check -n 300");
        let (server, port) = server_of("lat", "checked", &words);
        let words = format!("lat {words} -p {port} localhost");
        run(emulated("checked", &words)).expect(0, &["the server compares meanwhile"]);
        server.end().expect(0, &["answered"]);
    }
    let words = "-o send --check --sge 2 -b -n 300";
    let (server, port) = server_of("bw", "checked", words);
    for (others, named) in [
        (
            "-o send --sge 2 -b -n 300",
            "--check: here not given, there given",
        ),
        (
            "-o send --check --sge 3 -b -n 300",
            "--sge: here 3, there 2",
        ),
        (
            "-o send --check --sge 2 -b -n 300 -t 7",
            "-t: here 7, there 128",
        ),
    ] {
        let others = format!("bw {others} -p {port} localhost");
        run(emulated("checked", &others)).expect(1, &[named]);
    }
    let words = format!("bw {words} -p {port} localhost");
    run(emulated("checked", &words)).expect(0, &["WITHIN"]);
    server.end().expect(0, &[]);
}

#[test]
fn endpoints_of_lat_take_turns() {
    libdat();
    for (operation, apis) in OPERATIONS {
        let words = format!("--api {apis} -o {operation} -q 3 -n 30 --warmup 3");
        let (ended, run) = conditions("operations", &format!("lat --loopback {words}"));
        ended.expect(0, &["3 endpoints per side, which take turns"]);
        assert_eq!(run["endpoints"], 3);
    }
    // Not every endpoint has a message.
    let words = "-q 9 -n 4 --warmup 0";
    let (server, port) = server_of("lat", "turns", words);
    for other in ["--loopback", &format!("-p {port} localhost")] {
        let words = format!("lat {words} {other}");
        crate::common::run(emulated("turns", &words)).expect(0, &["9 endpoints per side"]);
    }
    server.end().expect(0, &["answered 4 messages"]);
    let words = "-q 3 --rate 5k --check -n 50";
    let (server, port) = server_of("lat", "turns", words);
    let fewer = format!("lat --rate 5k --check -n 50 -p {port} localhost");
    crate::common::run(emulated("turns", &fewer)).expect(1, &["-q: here 1, there 3"]);
    let words = format!("lat {words} -p {port} localhost");
    crate::common::run(emulated("turns", &words)).expect(0, &["3 endpoints per side"]);
    server.end().expect(0, &["answered"]);
}

#[test]
fn slots_and_segments_respect_limits() {
    let words = "bw --loopback --check -s 8M -n 2 --warmup 0";
    run(emulated("checked", words)).expect(0, &["tx depth 16, rx depth 16", "8388608"]);
    let words = "bw --loopback --check -s 8M -t 128";
    let said = [
        "-t 128 needs memory",
        "more than 128 MiB",
        "give a smaller -t",
    ];
    run(emulated("checked", words)).expect(1, &said);
    let few = "max_sge=4,max_sge_rd=1";
    for (words, said) in [
        ("-s 64 --sge 5", "requests of up to 4 segments"),
        ("-s 64 -o read --sge 2", "requests of up to 1 segments"),
    ] {
        let words = format!("lat --loopback --path verbs {words}");
        run(limited("checked", few, &words)).expect(1, &[said]);
    }
    let words = "lat --loopback --path verbs -s 64 --sge 4 -n 100";
    run(limited("checked", few, words)).expect(0, &["4 segments each"]);
}
