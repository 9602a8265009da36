//! `dat-bench lat -o write`: how writes are noticed, for every answer of the device.

use std::fs;
use std::process::Command;

use crate::common::{check_row, emulated, file, libdat, run, server};

const POLLED: &str = "last_byte";
const BEHIND: &str = "send_behind";

/// libibverbs asks the device on x86 only.
const YES: (&str, &str) = match cfg!(target_arch = "x86_64") {
    true => (POLLED, "yes"),
    false => (BEHIND, "no"),
};
const NO: (&str, &str) = (BEHIND, "no");

fn with(command: &mut Command, settings: &[(&str, &str)]) {
    command.envs(settings.iter().copied());
}

/// Runs lat with these options on a device with these settings. Returns the method in
/// the JSON file, and the answer of the device.
#[track_caller]
fn method(settings: &[(&str, &str)], options: &str) -> (String, String) {
    let json = file("last-byte.json");
    let words = format!(
        "lat --loopback -o write -s 100 -n 300 --warmup 20 --json {} {options}",
        json.display()
    );
    let mut command = emulated("last-byte", &words);
    with(&mut command, settings);
    let ended = run(command).expect(0, &[" arrival  : "]);
    let text = fs::read_to_string(&json).expect("the results");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    crate::common::schema::check(&value);
    let arrival = &value["run"]["arrival"];
    let part = |name: &str| arrival[name].as_str().expect("a text").to_owned();
    let said = match part("method").as_str() {
        POLLED => "the last byte of memory is polled",
        _ => "an empty send follows each write",
    };
    ended.expect(0, &[said]);
    for result in value["results"].as_array().expect("results") {
        assert_eq!(result["payload_verified"], true);
    }
    (part("method"), part("data_in_order"))
}

#[track_caller]
fn expect(settings: &[(&str, &str)], options: &str, expected: (&str, &str)) {
    let (method, answer) = method(settings, options);
    let found = (method.as_str(), answer.as_str());
    assert_eq!(found, expected, "{settings:?} {options}");
}

#[test]
fn memory_is_polled_if_the_device_promises_the_order_and_by_force() {
    libdat();
    let no = [("MLX5EMU_DATA_IN_ORDER", "no")];
    let unknown = [("MLX5EMU_DATA_IN_ORDER", "unknown")];
    let parts = [("MLX5EMU_NASTY", "parts")];
    for path in ["direct", "verbs"] {
        let options = |rest: &str| format!("--path {path} --api engine,rust,c {rest}");
        expect(&[], &options(""), YES);
        expect(&no, &options(""), NO);
        expect(&unknown, &options(""), NO);
        // The last byte is written first there: only the send shows that all are there.
        expect(&parts, &options(""), NO);
        expect(&no, &options("--last-byte force"), (POLLED, "no"));
        expect(&[], &options("--last-byte never"), (BEHIND, YES.1));
    }
}

#[test]
fn sends_behind_writes_are_measured_at_any_depth_and_rate() {
    libdat();
    let no = [("MLX5EMU_DATA_IN_ORDER", "no")];
    for options in [
        "-t 1 -s 1 -n 200",
        "-t 7 -s 4097 -n 200",
        "-t 64 -s 2 -n 200",
        "-t 4 --rate 10k -s 64 -n 200",
        "-a -n 5 --warmup 1",
    ] {
        let words = format!("lat --loopback -o write --api engine,c {options}");
        let mut command = emulated("last-byte-depths", &words);
        with(&mut command, &no);
        run(command).expect(0, &["an empty send follows each write"]);
    }
}

#[test]
fn one_side_that_does_not_promise_decides_for_both() {
    let words = "-o write -s 100 -n 300 --warmup 20";
    let (server, port) = server("last-byte-pair", words);
    let mut client = emulated(
        "last-byte-pair",
        &format!("lat {words} -p {port} localhost"),
    );
    with(&mut client, &[("MLX5EMU_DATA_IN_ORDER", "no")]);
    let ended = run(client).expect(0, &["an empty send follows each write"]);
    check_row(&ended, 100, 300);
    server
        .end()
        .expect(0, &["answered 320 messages of 100 bytes"]);
}

#[test]
fn two_processes_have_the_same_option() {
    let (mut server, port) = server("last-byte-differ", "-o write");
    let words = format!("lat -o write --last-byte force -p {port} localhost");
    run(emulated("last-byte-differ", &words)).expect(1, &["--last-byte: here force, there auto"]);
    server.kill();
}

#[test]
fn the_option_is_refused_for_other_operations() {
    for operation in ["send", "read"] {
        let words = format!("lat --loopback -o {operation} --last-byte force");
        let refused = format!("--last-byte has no meaning with -o {operation}");
        run(emulated("last-byte-refused", &words)).expect(1, &[&refused]);
    }
}
