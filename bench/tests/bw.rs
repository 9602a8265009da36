//! `dat-bench bw` and `rate` on the emulated device. No test asserts a time.

use std::fs;
use std::path::Path;

use crate::common::{Ended, Running, bench, emulated, file, libdat, limited, run, server_of};
use serde_json::Value;

const OPERATIONS: [&str; 3] = ["send", "write", "read"];
/// Those that uDAPL 1.2 does not have.
const EXTENDED: [&str; 3] = ["write-imm", "fetch-add", "compare-swap"];

/// Checks that the table has a row for a size with this many messages, and that the
/// average, and the peak if there is one, are in proportion to the message rate.
#[track_caller]
fn check_row(ended: &Ended, size: u32, messages: u64, has_peak: bool) {
    let wanted = size.to_string();
    let lines = ended.stdout.lines();
    let mut rows = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let cells = rows
        .find(|cells| cells.len() >= 6 && cells[0] == wanted)
        .unwrap_or_else(|| panic!("no row for {size} in:\n{}", ended.text()));
    assert_eq!(cells[1], messages.to_string(), "{cells:?}");
    let figure = |cell: &str| cell.parse::<f64>().expect("a number");
    let (average, rate) = (figure(cells[3]), figure(cells[4]));
    assert!(average >= 0.0 && rate > 0.0, "{cells:?}");
    let bytes = rate * 1e6 * f64::from(size) / 1_048_576.0;
    // Both are rounded.
    assert!(
        (average - bytes).abs() <= 0.01 + 0.001 * bytes + f64::from(size),
        "{cells:?}"
    );
    match has_peak {
        true => assert!(figure(cells[2]) >= average * 0.99, "{cells:?}"),
        false => assert_eq!(cells[2], "-"),
    }
}

/// Reads a result file and checks it against its schema.
#[track_caller]
fn results(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("the results");
    let value = serde_json::from_str(&text).expect("JSON");
    crate::common::schema::check(&value);
    value
}

#[test]
fn loopback_measures_every_operation_through_every_interface() {
    libdat();
    for operation in OPERATIONS {
        let json = file(&format!("bw-{operation}.json"));
        let words = format!(
            "bw --loopback --api engine,rust,c -o {operation} -s 4096 -n 200 --json {}",
            json.display()
        );
        let said = [
            "EMULATED",
            "BW average[MiB/sec]",
            "MsgRate[Mpps]",
            "2^20 bytes",
        ];
        let ended = run(emulated("bw-loopback", &words)).expect(0, &said);
        check_row(&ended, 4096, 200, true);
        let value = results(&json);
        assert_eq!(value["run"]["command"], "bw");
        assert_eq!(value["run"]["tx_depth"], 128);
        let all = value["results"].as_array().unwrap();
        assert_eq!(all.len(), 3);
        for (result, api) in all.iter().zip(["engine", "rust", "c"]) {
            assert_eq!(result["api"], api);
            assert_eq!(result["iterations"], 200);
            assert_eq!(result["sides"].as_array().unwrap().len(), 1);
            assert_eq!(
                result["round_bytes_per_second"].as_array().unwrap().len(),
                10
            );
            let figure = |name: &str| result[name].as_f64().unwrap();
            let ratio = figure("bw_average_bytes_per_second") / figure("messages_per_second");
            assert!((ratio - 4096.0).abs() < 0.1, "{result}");
            let side = |name: &str| result["sides"][0][name].as_f64().unwrap();
            let cpu = side("cpu_nanoseconds_per_message");
            assert!(cpu > 0.0 && side("busy_nanoseconds_per_message") <= cpu);
            // The thread cannot have run longer than the messages took.
            assert!(cpu <= 1.01e9 * side("seconds") / 200.0 + 1000.0, "{result}");
        }
    }
}

#[test]
fn rate_measures_lists_endpoints_and_both_directions() {
    for operation in OPERATIONS {
        let json = file(&format!("rate-{operation}.json"));
        let words = format!(
            "rate --loopback -o {operation} -l 8 -q 3 -b -t 16 -n 100 --json {}",
            json.display()
        );
        let said = ["both ways at once", "3 endpoints per side", "lists of 8"];
        let ended = run(emulated("rate-loopback", &words)).expect(0, &said);
        // 100 of 3 endpoints in both directions.
        check_row(&ended, 2, 600, false);
        let value = results(&json);
        assert_eq!(value["run"]["command"], "rate");
        assert_eq!(value["run"]["post_list"], 8);
        assert_eq!(value["run"]["cq_moderation"], 8);
        let result = &value["results"][0];
        assert!(result["bw_peak_bytes_per_second"].is_null());
        let sides = result["sides"].as_array().unwrap();
        assert_eq!(sides.len(), 2);
        assert!(sides.iter().all(|side| side["messages"] == 300), "{result}");
        let sum: f64 = sides
            .iter()
            .map(|it| it["messages_per_second"].as_f64().unwrap())
            .sum();
        let all = result["messages_per_second"].as_f64().unwrap();
        assert!((sum / all - 1.0).abs() < 1e-9, "{result}");
    }
}

/// The loop tests require a receive for every message; here, grants cross a device.
#[test]
fn sends_with_small_and_uneven_depths_are_all_taken() {
    libdat();
    for words in [
        "-t 64 -r 1 -n 300",
        "-t 3 -r 2 -b -q 2 -n 200",
        "-t 16 -r 4 -l 4 -Q 2 -b -n 200",
        "-t 1 -r 3 -n 100 --api rust,c",
        "-t 7 -r 2 -b -n 100 --api c",
    ] {
        let words = format!("bw --loopback -s 64 {words}");
        run(emulated("bw-depths", &words)).expect(0, &["EMULATED"]);
    }
}

#[test]
fn two_processes_measure_every_operation() {
    libdat();
    for (operation, api) in OPERATIONS.iter().zip(["engine", "rust", "c"]) {
        for (more, sent) in [("-q 2", 440), ("-b", 220)] {
            let words = format!("-o {operation} --api {api} -s 2000 -n 200 --warmup 20 {more}");
            let (server, port) = server_of("bw", "bw-pair", &words);
            let words = format!("bw {words} -p {port} localhost");
            let client = run(emulated("bw-pair", &words)).expect(0, &["EMULATED"]);
            check_row(&client, 2000, 400, true);
            let said = format!("finished {sent} messages of 2000 bytes through api {api}");
            server.end().expect(0, &[&said]);
        }
    }
    // Small depths, where each side waits for the other's receives.
    let words = "-r 2 -t 4 -b -s 64 -n 300 --rounds 3";
    let (server, port) = server_of("bw", "bw-pair", words);
    let words = format!("bw {words} -p {port} localhost");
    let client = run(emulated("bw-pair", &words)).expect(0, &[]);
    check_row(&client, 64, 600, true);
    server.end().expect(0, &[]);
}

#[test]
fn extended_operations_are_measured_on_both_paths_in_one_process_and_in_two() {
    for operation in EXTENDED {
        let json = file(&format!("bw-{operation}.json"));
        for path in ["direct", "verbs"] {
            let words = format!(
                "rate --loopback --path {path} --api engine,rust -o {operation} -s 8 -q 2 -b -n 100 --json {}",
                json.display()
            );
            let ended = run(emulated("bw-extended", &words)).expect(0, &[operation]);
            check_row(&ended, 8, 400, false);
            let value = results(&json);
            assert_eq!(value["run"]["operation"], operation);
        }
        for api in ["engine", "rust"] {
            let words = format!("-o {operation} --api {api} -n 200 --warmup 20 -r 8");
            let words = match operation {
                "write-imm" => words,
                _ => words.replace(" -r 8", ""),
            };
            let (server, port) = server_of("bw", "bw-extended", &words);
            let words = format!("bw {words} -p {port} localhost");
            run(emulated("bw-extended", &words)).expect(0, &["EMULATED"]);
            server.end().expect(0, &["finished 220 messages"]);
        }
    }
}

/// Returns the threads of the sides of a result.
fn threads(result: &Value) -> Vec<(u64, &str)> {
    let sides = result["sides"].as_array().unwrap().iter();
    let of = |side: &'_ Value| side["thread"].as_u64().unwrap();
    sides
        .map(|side| (of(side), side["side"].as_str().unwrap()))
        .collect()
}

#[test]
fn threads_are_measured_at_the_same_time_and_reported_each() {
    libdat();
    let json = file("bw-threads.json");
    for api in ["engine", "rust", "c"] {
        let words =
            format!("--threads 3 -q 2 --api {api} -s 64 -n 100 --warmup 10 --rounds 2 --cpu 0,0,0");
        let loopback = format!("bw --loopback {words} --json {}", json.display());
        let ended = run(emulated("bw-threads", &loopback));
        let ended = ended.expect(0, &["3 per side", "on CPUs 0, 0, 0", "thread 2"]);
        check_row(&ended, 64, 600, false);
        let value = results(&json);
        assert_eq!(value["run"]["threads"], 3);
        assert_eq!(threads(&value["results"][0])[2], (2, "client"));
        let (server, port) = server_of("bw", "bw-threads", &format!("{words} -b"));
        let two = format!(
            "bw {words} -b -p {port} --json {} localhost",
            json.display()
        );
        let ended = run(emulated("bw-threads", &two)).expect(0, &["thread 2"]);
        check_row(&ended, 64, 1200, false);
        let value = results(&json);
        let all = threads(&value["results"][0]);
        assert_eq!((all.len(), all[5]), (6, (2, "server")));
        server.end().expect(0, &["finished 220 messages"]);
    }
}

#[test]
fn a_killed_side_with_threads_ends_the_other_and_other_numbers_are_refused() {
    for kills_server in [true, false] {
        let (mut server, port) = server_of("bw", "bw-thread", "--threads 2 -D 50 --timeout 5");
        let words = format!("bw --threads 3 -D 50 -p {port} localhost");
        run(emulated("bw-thread", &words)).expect(1, &["--threads: here 3, there 2"]);
        let words = format!("bw --threads 2 -D 50 --timeout 5 -p {port} localhost");
        let mut client = Running::start(&mut emulated("bw-thread", &words));
        client.wait_for("BW average");
        if kills_server {
            server.kill();
            client.end().expect(3, &[]);
        } else {
            client.kill();
            server.end().expect(3, &[]);
        }
    }
}

#[test]
fn all_sizes_are_in_the_table_and_in_csv() {
    let ended = run(emulated(
        "bw-all",
        "bw --loopback -a -n 4 --warmup 1 --csv -",
    ))
    .expect(0, &[]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    let columns = "size_bytes,api,samples,reliable,bw_peak_MiB_per_s,bw_avg_MiB_per_s,msg_rate_Mpps,cpu_ns,busy_ns";
    assert_eq!((lines[0], lines.len()), (columns, 24));
    assert!(lines[23].starts_with("8388608,engine,4,"), "{}", lines[23]);
    let words = "bw --loopback -a -n 4 --warmup 1 --report_gbits";
    run(emulated("bw-all", words)).expect(0, &["BW average[Gb/sec]", "8388608"]);
}

#[test]
fn a_run_by_duration_counts_all_messages_and_has_no_peak() {
    let json = file("bw-duration.json");
    for more in ["", "-b", "-o read -q 2", "-Q 7"] {
        let words = format!("bw --loopback -D 0.05 {more} --json {}", json.display());
        run(emulated("bw-duration", &words)).expect(0, &["0.05 s"]);
        let value = results(&json);
        let result = &value["results"][0];
        assert!(result["iterations"].as_u64() > Some(0), "{result}");
        assert!(result["bw_peak_bytes_per_second"].is_null(), "{result}");
        // The rounds together take at least the time.
        let seconds = result["sides"][0]["seconds"].as_f64().unwrap();
        assert!(seconds >= 0.049, "{result}");
    }
    let (server, port) = server_of("bw", "bw-time", "-D 0.05 -b");
    let words = format!("bw -D 0.05 -b -p {port} localhost");
    run(emulated("bw-time", &words)).expect(0, &["0.05 s"]);
    server.end().expect(0, &[]);
}

#[test]
fn conditions_and_diff_use_the_columns() {
    let (one, two) = (file("bw-one.json"), file("bw-two.json"));
    for path in [&one, &two] {
        let words = format!("bw --loopback -n 600 --json {}", path.display());
        run(emulated("bw-diff", &words)).expect(0, &["wrote"]);
    }
    let words = format!("diff {} {}", one.display(), two.display());
    let said = [
        "bw_avg[MiB/s]",
        "msg_rate[Mpps]",
        "average: ",
        "MiB/s, 95 % confidence",
    ];
    run(bench(&words)).expect(0, &said);
    for (condition, status, said) in [
        ("bw_avg<1000000000MiB/s", 3, "bw_avg is"),
        ("bw_avg<100000000Gb/s", 3, "bw_avg is"),
        ("bw_peak<0", 0, ""),
        ("msg_rate<1000000Mpps", 3, "msg_rate is"),
        (
            "bw_avg>5us",
            1,
            "bw_avg is a bandwidth: give a limit with MiB/s or Gb/s",
        ),
        ("bw_avg>5Mpps", 1, "bw_avg is a bandwidth"),
        (
            "p99>5us",
            1,
            "bw measures no percentiles; it has bw_peak, bw_avg, msg_rate, cpu, busy",
        ),
        ("max>5us", 1, "bw measures no figure 'max'; it has bw_peak"),
        (
            "bw_peak>5 -N",
            1,
            "this run has no bw_peak: -N switches it off",
        ),
        (
            "bw_peak>5 -q 300",
            1,
            "no bw_peak: it is looked for in up to 20000 messages",
        ),
        ("cpu>0", 3, "cpu is"),
        ("busy>1s", 0, ""),
    ] {
        let words = format!("bw --loopback -n 100 --fail-if {condition}");
        run(emulated("bw-diff", &words)).expect(status, &[said]);
    }
}

#[test]
fn a_client_of_another_command_or_with_other_options_is_refused() {
    let (mut server, port) = server_of("bw", "bw-differ", "-n 100 -q 2");
    for (words, named) in [
        ("bw -n 100", "-q: here 1, there 2"),
        ("bw -n 100 -q 2 -b", "-b: here given, there not given"),
        ("bw -n 100 -q 2 -r 100", "-r: here 100, there 512"),
        ("bw -n 100 -q 2 -l 4", "-l: here 4, there 1"),
        ("rate -n 100 -q 2", "command: here rate, there bw"),
        ("lat -n 100", "command: here lat, there bw"),
    ] {
        let words = format!("{words} -p {port} localhost");
        run(emulated("bw-differ", &words)).expect(1, &[named]);
    }
    server.wait_for("command: here bw, there lat");
    let words = format!("bw -n 100 -q 2 -p {port} localhost");
    run(emulated("bw-differ", &words)).expect(0, &["BW average"]);
    server.end().expect(0, &[]);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let json = file("bw-interrupted.json");
    let _ = fs::remove_file(&json);
    let words = format!("bw --loopback -a -D 0.5 --json {}", json.display());
    let mut running = Running::start(&mut emulated("bw-interrupted", &words));
    // The row of the first size.
    running.wait_for("          2 ");
    running.interrupt();
    running
        .end()
        .expect(3, &["interrupted by Ctrl-C", "wrote", "2^20 bytes"]);
    let value = results(&json);
    assert_eq!(value["complete"], false);
    let count = value["results"].as_array().unwrap().len();
    assert!((1..23).contains(&count), "{count}");
}

#[test]
fn a_killed_side_ends_the_other_with_an_error() {
    for words in ["-o send", "-o write", "-o send -b", "-o read -b"] {
        for kills_server in [true, false] {
            let words = format!("{words} -D 50 --timeout 5");
            let (mut server, port) = server_of("bw", "bw-killed", &words);
            let words = format!("bw {words} -p {port} localhost");
            let mut client = Running::start(&mut emulated("bw-killed", &words));
            client.wait_for("BW average");
            if kills_server {
                server.kill();
                client.end().expect(3, &[]);
            } else {
                client.kill();
                server.end().expect(3, &[]);
            }
        }
    }
}

#[test]
fn options_without_sense_are_refused_by_name() {
    for (words, named) in [
        ("bw -l 0", "--post_list"),
        ("bw -l 65", "--post_list"),
        ("bw -q 0", "--qp"),
        ("bw -Q 0", "--cq-mod"),
        ("bw --threads 0", "--threads"),
        ("bw --threads 2 --cpu 0", "--cpu names 1 CPU for 2 threads"),
        ("bw --cpu 0,1", "--cpu names 2 CPUs for 1 thread"),
        ("bw -s 0", "--size"),
        ("bw -a -s 4", "--size"),
        ("bw -n 5 -D 1", "--iters"),
        ("bw -o read -I 8", "-I has no meaning"),
        ("bw -o write -r 8", "-r has no meaning"),
        ("bw -o fetch-add -s 4", "-o fetch-add is always of 8 bytes"),
        ("bw -o compare-swap -a", "always of 8 bytes"),
        ("bw -o fetch-add -I 8", "-I has no meaning"),
        ("bw -o write-imm -l 4", "-l does not go with -o write-imm"),
        ("bw --check -l 4", "-l does not go with --check"),
        ("bw --check -o write", "use -o write-imm or -o send"),
        ("bw --sge 0", "--sge"),
        ("bw --sge 33", "--sge"),
        (
            "rate --sge 3",
            "messages of 2 bytes have no 3 segments: give -s 3",
        ),
        ("bw --sge 2 -a", "-a does not go with --sge"),
        ("bw --sge 2 -o fetch-add", "--sge has no meaning"),
        ("bw --api engine,c -o write-imm", "--api c has no write-imm"),
        ("bw --api c -o fetch-add", "use --api engine or --api rust"),
        ("bw --api rust -l 2", "DAT has no post lists"),
        ("bw -l 8 -Q 3", "-Q 3 does not divide -l 8"),
        ("bw --fail-if bw_avg<1", "--fail-if has no effect"),
        ("bw --json x", "--json has no effect"),
        ("bw --wait block", "--wait"),
        ("rate --loopback host", "--loopback"),
    ] {
        run(bench(words)).expect(1, &[named]);
    }
    for (words, named) in [
        ("bw --loopback -t 4 -l 8", "give -t 8 or more"),
        ("bw --loopback -r 4 -l 8", "give -r 8 or more"),
        ("bw --loopback -t 4 -Q 8", "give -t 8 or more"),
        ("bw --loopback -t 1000000", "-t 1000000 is too deep"),
    ] {
        run(emulated("bw-refused", words)).expect(1, &[named]);
    }
    let few = "max_qp_wr=100";
    let said = ["tx depth 100", "rx depth 100"];
    run(limited("bw-refused", few, "bw --loopback -n 50")).expect(0, &said);
    run(bench("bw --help")).expect(0, &["2^20 bytes per second", "Examples:"]);
    run(bench("rate --help")).expect(0, &["100000 messages", "Examples:"]);
}
