//! Options that perftest has: what each does, or says.

use crate::common::{Ended, bench, check_row, emulated, libdat, run, server};

/// Returns what the driver was asked for, in the trace of a run with these options on RoCE.
#[track_caller]
fn traced(words: &str) -> Ended {
    let mut command = emulated("perftest-options", words);
    command
        .env("MLX5EMU_TRACE_COMMANDS", "/dev/stderr")
        .env("MLX5EMU_LINK", "roce");
    run(command).expect(0, &[])
}

#[test]
fn options_of_the_network_reach_the_queue_pair_on_both_paths_and_the_head_of_the_table() {
    for path in ["direct", "verbs"] {
        for command in ["lat", "bw", "rate"] {
            let words = format!(
                "{command} --loopback --path {path} -s 64 -n 20 -m 512 -S 3 -u 15 -T 96 -c RC -F"
            );
            let said = [
                "path_mtu: 2",
                " sl: 3,",
                " timeout: 15,",
                "traffic_class: 96,",
                "-m 512, -S 3, -u 15, -T 96",
            ];
            traced(&words).expect(0, &said);
        }
    }
}

#[test]
fn the_r_option_connects_by_rdma_cm() {
    let asked = |words: &str| traced(words).text().contains("CONNECT by rdma_cm");
    assert!(!asked("lat --loopback -n 20"));
    for words in ["lat -T 96", "lat -o write --path verbs", "bw -q 2"] {
        assert!(
            asked(&format!("{words} --loopback -s 64 -n 20 -R")),
            "{words}"
        );
    }
    let (server, port) = server("perftest-cm", "-R -n 100");
    let words = format!("lat -R -n 100 -p {port} localhost");
    check_row(
        &run(emulated("perftest-cm", &words)).expect(0, &["-R"]),
        2,
        100,
    );
    server.end().expect(0, &["answered 110 messages"]);
}

#[test]
fn options_of_the_network_that_differ_are_named_on_both_sides() {
    let (mut server, port) = server("perftest-differ", "-m 512 -n 100");
    let words = format!("lat -m 1024 -R -n 100 -p {port} localhost");
    let said = ["-m: here 1024, there 512", "-R: here yes, there (unknown)"];
    run(emulated("perftest-differ", &words)).expect(1, &said);
    server.wait_for("-m: here 512, there 1024");
    server.kill();
}

#[test]
fn events_make_a_wait_that_sleeps() {
    libdat();
    let words = "lat --loopback --api rust,c -o read -n 100 -e";
    run(emulated("perftest-events", words)).expect(0, &["by wait, block"]);
}

#[test]
fn what_is_not_here_is_refused_with_what_to_use_in_its_place() {
    for (words, named) in [
        ("lat -H", "--hgrm FILE and --hlog FILE"),
        ("bw -H", "--hgrm FILE and --hlog FILE"),
        ("lat -U", "--hlog FILE"),
        ("rate --report-unsorted", "--hlog FILE"),
        ("lat -e", "-e: the engine is always polled: use --api rust"),
        ("lat -e --api rust --rate 1k host", "dat-bench wake"),
        ("lat -e --wait poll", "--events"),
        ("bw -e", "'lat -e' measures latency with threads that sleep"),
        (
            "rate --events",
            "'lat -e' measures latency with threads that sleep",
        ),
        ("lat -c UD", "perftest itself measures UC, UD"),
        ("lat -m 1000", "expected 256, 512, 1024, 2048 or 4096"),
        ("lat -S 16", "0..=15"),
        ("lat -u 32", "0..=31"),
        ("lat -T 256", "0..=255"),
        (
            "lat --api rust -m 256",
            "keys mtu, sl, timeout, traffic_class",
        ),
        ("bw --api engine,c -S 1", "-S is for --api engine alone"),
        ("lat --api c -R", "DAT_CM"),
    ] {
        run(bench(words)).expect(1, &[named]);
    }
    let words = "lat --loopback -R -x 0 -n 20";
    run(emulated("perftest-refused", words)).expect(1, &["the IP address determines the GID"]);
    let words = "bw --loopback -R -m 256 -n 20";
    run(emulated("perftest-refused", words)).expect(2, &["smaller than the one of code 5"]);
}
