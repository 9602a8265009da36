//! perftest's options: what each does, or says; and perftest as the other side.

use std::fs;
use std::process::Command;

use crate::common::{
    Ended, Running, bench, check_row, emulated, file, libdat, run, server, server_of,
};

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
    let json = file("perftest-options.json");
    for path in ["direct", "verbs"] {
        for command in ["lat", "bw", "rate"] {
            let words = format!(
                "{command} --loopback --path {path} -s 64 -n 20 -m 512 -S 3 -u 15 -T 96 -c RC -F --json {}",
                json.display()
            );
            let said = [
                "path_mtu: 2",
                " sl: 3,",
                " timeout: 15,",
                "traffic_class: 96,",
                "-m 512, -S 3, -u 15, -T 96",
            ];
            traced(&words).expect(0, &said);
            let text = fs::read_to_string(&json).expect("the results");
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            crate::common::schema::check(&value);
            let said = r#"{"mtu_bytes":512,"service_level":3,"ack_timeout":15,"traffic_class":96,"rdma_cm":false}"#;
            let expected: serde_json::Value = serde_json::from_str(said).expect("JSON");
            assert_eq!(value["run"]["network"], expected);
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
fn unsorted_samples_are_printed() {
    let ended = run(emulated("perftest-unsorted", "lat --loopback -n 7 -U"));
    let ended = ended.expect(0, &["7 messages in standard output"]);
    let rows = ended
        .stdout
        .lines()
        .filter(|line| line.contains(",2,engine,"));
    assert_eq!(rows.count(), 7, "{}", ended.text());
}

#[test]
fn what_is_not_here_is_refused_with_what_to_use_in_its_place() {
    for (words, named) in [
        ("lat -H", "--hgrm FILE and --hlog FILE"),
        ("bw -H", "--hgrm FILE and --hlog FILE"),
        ("lat -U", "-U has no effect on a server"),
        ("lat -U --samples x.csv host", "--samples"),
        (
            "rate --report-unsorted",
            "'lat -U' prints the latency of each",
        ),
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

/// Returns perftest's program under the launcher; none if it is not installed.
fn program(fabric: &str, tool: &str, words: &str) -> Option<Command> {
    if Command::new(tool).arg("--version").output().is_err() {
        println!("SKIPPED: perftest is not installed ({tool})");
        return None;
    }
    let mut command = emulated(fabric, "");
    let launcher: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = Command::new(command.get_program());
    // All but dat-bench.
    command.args(&launcher[..launcher.len() - 1]).arg(tool);
    command.arg("-F").args(words.split_whitespace());
    Some(command)
}

/// Runs a client until its server listens, which perftest does not report.
#[track_caller]
fn connected(client: impl Fn() -> Command) -> Ended {
    let tries = std::iter::repeat_with(|| run(client())).take(200);
    let mut answered = tries.skip_while(|ended| ended.text().contains("no server listens"));
    answered.next().expect("perftest listens")
}

/// Runs dat-bench as the client of perftest's server. Both get `words`.
#[track_caller]
fn as_client(fabric: &str, tool: &str, ours: &str, words: &str) -> Option<Ended> {
    let port = free_port();
    let mut server = program(fabric, tool, &format!("{words} -p {port}"))?;
    let server = Running::start(&mut server);
    let words = format!("{ours} --peer perftest {words} -p {port} localhost");
    let ended = connected(|| emulated(fabric, &words));
    if ended.status == Some(0) {
        server.end().expect(0, &[]);
    }
    Some(ended)
}

/// Runs dat-bench as the server of perftest's client. Both get `words`.
#[track_caller]
fn as_server(fabric: &str, tool: &str, ours: &str, words: &str) -> Option<Ended> {
    let (command, rest) = ours.split_once(' ').expect("a command and its options");
    program(fabric, tool, "")?;
    let (server, port) = server_of(command, fabric, &format!("{rest} --peer perftest {words}"));
    let words = format!("{words} -p {port} localhost");
    let client = program(fabric, tool, &words)?;
    run(client).expect(0, &["#bytes"]);
    Some(server.end())
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

const TESTS: [(&str, &str); 6] = [
    ("ib_send_lat", "lat -o send"),
    ("ib_write_lat", "lat -o write"),
    ("ib_read_lat", "lat -o read"),
    // Fewer receives than messages: perftest gives and needs no grants.
    ("ib_send_bw", "bw -o send -r 16"),
    ("ib_write_bw", "bw -o write"),
    ("ib_read_bw", "bw -o read"),
];

#[test]
fn perftest_serves_every_test_of_dat_bench() {
    for (tool, ours) in TESTS {
        // The verbs path has queues of its own, of both kinds.
        let path = match ours {
            "lat -o send" | "bw -o write" => "verbs",
            _ => "direct",
        };
        let ours = format!("{ours} --path {path}");
        let Some(ended) = as_client("peer-serves", tool, &ours, "-s 3000 -n 40") else {
            return;
        };
        let ended = ended.expect(0, &["with perftest on localhost", "3000"]);
        if ours.starts_with("lat") {
            // The first message is the warm-up.
            check_row(&ended, 3000, 39);
        }
    }
}

#[test]
fn dat_bench_serves_every_test_of_perftest() {
    for (tool, ours) in TESTS {
        let Some(ended) = as_server("peer-served", tool, ours, "-s 3000 -n 40") else {
            return;
        };
        ended.expect(0, &["40 messages of 3000 bytes through api engine"]);
    }
}

#[test]
fn perftest_on_roce_and_with_several_queue_pairs_is_the_other_side() {
    let fabric = "peer-roce";
    let on_roce = |mut command: Command| {
        command.env("MLX5EMU_LINK", "roce");
        command
    };
    let port = free_port();
    let Some(server) = program(fabric, "ib_send_bw", &format!("-n 100 -q 3 -p {port}")) else {
        return;
    };
    let server = Running::start(&mut on_roce(server));
    let words = format!("bw -q 3 --peer perftest -n 100 -p {port} localhost");
    let ended = connected(|| on_roce(emulated(fabric, &words)));
    ended.expect(0, &["Ethernet", "300"]);
    let ended = server.end().expect(0, &["GID"]);
    let remote = ended
        .stdout
        .lines()
        .filter(|it| it.contains("remote address"));
    let numbers: Vec<_> = remote
        .filter_map(|line| line.split_once("QPN "))
        .map(|(_, number)| &number[..8])
        .collect();
    // In the order in which they were created.
    assert!(numbers.len() == 3 && numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn figures_of_a_client_are_in_the_report_of_perftest_s_server() {
    let port = free_port();
    let words = format!("-s 4096 -n 100 -p {port}");
    let Some(mut server) = program("peer-report", "ib_write_bw", &words) else {
        return;
    };
    let server = Running::start(&mut server);
    let json = file("peer-report.json");
    let words = format!(
        "bw -o write --peer perftest {words} --json {} localhost",
        json.display()
    );
    connected(|| emulated("peer-report", &words)).expect(0, &[]);
    let text = fs::read_to_string(&json).expect("the results");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    crate::common::schema::check(&value);
    let bytes = value["results"][0]["bw_average_bytes_per_second"].as_f64();
    let average = format!("{:.2}", bytes.expect("a figure") / 1_048_576.0);
    server.end().expect(0, &[&average]);
    assert_eq!(value["results"][0]["payload_verified"], false);
}

#[test]
fn numbers_and_sizes_that_differ_from_perftest_s_are_named() {
    let fabric = "peer-differs";
    for (ours, tool, words, named) in [
        (
            "lat -n 90",
            "ib_send_lat",
            "-n 100",
            "exchanged 100 messages, but this side expects 90",
        ),
        (
            "lat -n 100 -s 4",
            "ib_send_lat",
            "-n 100",
            "a message of 2 bytes, but this side expects 4",
        ),
        (
            "bw -n 200",
            "ib_send_bw",
            "-n 100",
            "exchanged 100 messages, but this side expects 200",
        ),
        (
            "bw -o write -n 100 -s 4",
            "ib_write_bw",
            "-n 100",
            "messages of 65536 bytes, but this side expects 4",
        ),
    ] {
        let (command, rest) = ours.split_once(' ').expect("a command and its options");
        let Some(_) = program(fabric, tool, "") else {
            return;
        };
        let (server, port) = server_of(command, fabric, &format!("{rest} --peer perftest"));
        let client = program(fabric, tool, &format!("{words} -p {port} localhost"));
        let client = Running::start(&mut client.expect("it is installed"));
        server.end().expect(3, &[named]);
        drop(client);
    }
}

#[test]
fn a_server_for_perftest_reports_other_connections_and_waits_on() {
    let fabric = "peer-other";
    let words = "--peer perftest -n 100 --timeout 5";
    let (mut server, port) = server(fabric, words);
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    std::io::Write::write_all(&mut connect(), &[b'x'; 300]).unwrap();
    server.wait_for("something else than a version of perftest; still waiting");
    drop(connect());
    server.wait_for("closed the connection");
    let ended = run(emulated(fabric, &format!("lat -n 100 -p {port} localhost")));
    ended.expect(3, &["--peer perftest speaks that of perftest"]);
    server.wait_for("is dat-bench, not perftest: leave out --peer perftest; still waiting");
    let words = format!("-n 100 -p {port} localhost");
    let Some(client) = program(fabric, "ib_send_lat", &words) else {
        return;
    };
    run(client).expect(0, &[]);
    server.end().expect(0, &["answered 100 messages"]);
}

#[test]
fn options_that_perftest_cannot_agree_on_are_refused() {
    for (words, named) in [
        ("lat --peer perftest --loopback", "--loopback"),
        (
            "lat --peer perftest -a host",
            "-a is not for --peer perftest",
        ),
        (
            "lat --peer perftest -o write-imm host",
            "-o with immediate data",
        ),
        ("bw --peer perftest -o fetch-add", "-o with immediate data"),
        ("lat --peer perftest -D 1 host", "-D is not"),
        ("lat --peer perftest --rounds 5 host", "--rounds is not"),
        ("lat --peer perftest -R host", "-R is not"),
        ("lat --peer perftest --rate 1k host", "--rate is not"),
        (
            "lat --peer perftest --api rust host",
            "--api rust or c is not",
        ),
        (
            "lat --peer perftest -o write --last-byte never host",
            "--last-byte auto or never is not",
        ),
        ("lat --peer perftest -n 1 host", "leaves no sample"),
        ("bw --peer perftest -b host", "-b is not"),
        ("bw --peer perftest --check host", "--check is not"),
        ("lat --peer perftest -s 64 --sge 2 host", "--sge is not"),
        ("rate --peer perftest --warmup 5 host", "--warmup is not"),
        ("lat --peer netperf host", "perftest"),
    ] {
        run(bench(words)).expect(1, &[named]);
    }
}
