//! `dat-bench lat` on the emulated device: in one process, in two, and with
//! failures of one of the two. Each run has a time limit.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::common::{
    Ended, Running, bench, check_row, emulated, file, launcher, libdat, limited, row, run, server,
};

#[test]
fn loopback_measures_every_operation() {
    for operation in ["send", "write", "read"] {
        let words = format!("lat --loopback -o {operation} -s 64 -n 2000");
        let ended = run(emulated("loopback", &words)).expect(0, &["EMULATED", "max ="]);
        check_row(&ended, 64, 2000);
    }
}

#[test]
fn dat_bench_starts_the_emulated_device_itself() {
    launcher();
    run(bench("lat --loopback -d emu -n 100")).expect(0, &["EMULATED by mlx5-emu", "t_typical"]);
    run(bench("devices -d emu")).expect(0, &["mlx5_0", "direct", "active"]);
}

#[test]
fn path_verbs_applies_to_every_interface() {
    for operation in ["send", "write", "read"] {
        let words = format!("lat --loopback --path verbs -o {operation} -s 64 -n 500");
        let ended = run(emulated("verbs", &words)).expect(0, &["verbs path (it was requested)"]);
        check_row(&ended, 64, 500);
    }
    let words = "lat --loopback --path verbs --api engine,rust -n 300";
    run(emulated("verbs", words)).expect(0, &["verbs path", "rust"]);
    run(bench("devices -d emu --path verbs")).expect(0, &["mlx5_0", "verbs (it was requested)"]);
}

#[test]
fn queues_of_any_depth_and_messages_that_are_not_inline_are_measured() {
    for words in [
        "lat --loopback -t 64 -r 1 -n 1000 -I 0",
        "lat --loopback -o write -t 7 -s 4097 -n 1000",
        "lat --loopback -o send -s 1 -n 1 --warmup 0",
    ] {
        run(emulated("depths", words)).expect(0, &["EMULATED"]);
    }
}

#[test]
fn all_sizes_are_in_the_table_and_in_the_files() {
    let (json, hgrm, hlog) = (file("all.json"), file("all.hgrm"), file("all.hlog"));
    let words = format!(
        "lat --loopback -a -n 10 --warmup 2 --json {} --hgrm {} --hlog {}",
        json.display(),
        hgrm.display(),
        hlog.display()
    );
    let ended = run(emulated("all", &words)).expect(0, &[]);
    for log in 1..=23 {
        check_row(&ended, 1 << log, 10);
        assert!(file(&format!("all.{}.hgrm", 1 << log)).is_file());
    }
    let log = fs::read_to_string(&hlog).unwrap();
    let tags = log.lines().filter_map(|line| line.strip_prefix("Tag="));
    let sizes: Vec<_> = tags.map(|line| line.split(',').next().unwrap()).collect();
    let expected: Vec<_> = (1..=23).map(|log| (1 << log).to_string()).collect();
    assert_eq!(sizes, expected);
    let value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["schema"], "dat-bench/lat/5");
    crate::common::schema::check(&value);
    assert_eq!(value["emulated"], true);
    assert_eq!(value["run"]["reported"], "half_round_trip");
    let results = value["results"].as_array().unwrap();
    assert_eq!(results.len(), 23);
    for result in results {
        let buckets = result["histogram"]["nanoseconds_and_count"]
            .as_array()
            .unwrap();
        let counted: u64 = buckets
            .iter()
            .map(|bucket| bucket[1].as_u64().unwrap())
            .sum();
        assert_eq!(counted, 10);
        assert!(
            result["p99"].is_null(),
            "10 samples have no such percentile"
        );
        assert!(result["max"].as_f64() >= result["t_typical"].as_f64());
    }
}

#[test]
fn extended_operations_are_measured_on_both_paths_in_one_process_and_in_two() {
    for (operation, size, part) in [
        ("write-imm", 2, "HALF of the round trip"),
        ("fetch-add", 8, "the FULL round trip"),
        ("compare-swap", 8, "the FULL round trip"),
    ] {
        let json = file(&format!("lat-{operation}.json"));
        for (path, more) in [("direct", ""), ("verbs", ""), ("direct", "--rate 2k -t 8")] {
            let words = format!(
                "lat --loopback --path {path} --api engine,rust -o {operation} -n 300 --warmup 20 {more} --json {}",
                json.display()
            );
            run(emulated("extended", &words)).expect(0, &[operation]);
            let text = fs::read_to_string(&json).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            crate::common::schema::check(&value);
            assert_eq!(value["run"]["operation"], operation);
            let results = value["results"].as_array().unwrap();
            assert!(
                results.iter().all(|it| it["iterations"] == 300),
                "{results:?}"
            );
        }
        let words = format!("-o {operation} --api engine,rust -n 300 --warmup 20");
        let (server, port) = server("extended", &words);
        let words = format!("lat {words} -p {port} localhost");
        run(emulated("extended", &words)).expect(0, &[part]);
        let said = format!("answered 320 messages of {size} bytes through api rust");
        server.end().expect(0, &[&said]);
    }
    let words = "lat --api c -o write-imm";
    run(bench(words)).expect(1, &["--api c has no write-imm", "--api rust"]);
    let words = "compare -d emu -o write-imm";
    run(bench(words)).expect(1, &["compare has no write-imm"]);
}

#[test]
fn a_run_by_duration_has_percentiles() {
    let ended = run(emulated("duration", "lat --loopback -D 0.2")).expect(0, &["0.2 s"]);
    let samples = row(&ended, 2)[1];
    assert!(samples > 100.0, "{samples}");
    check_row(&ended, 2, samples as u64);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let json = file("interrupted.json");
    let _ = fs::remove_file(&json);
    let words = format!("lat --loopback -a -D 0.5 --json {}", json.display());
    let mut running = Running::start(&mut emulated("interrupted", &words));
    // The row of the first size.
    running.wait_for("          2 ");
    running.interrupt();
    running
        .end()
        .expect(3, &["interrupted by Ctrl-C", "wrote", "t_max: the largest"]);
    let text = fs::read_to_string(&json).expect("the results");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    crate::common::schema::check(&value);
    assert_eq!(value["complete"], false);
    let results = value["results"].as_array().unwrap();
    assert!((1..23).contains(&results.len()), "{}", results.len());
}

#[test]
fn a_result_file_named_dash_is_standard_output() {
    let ended = run(emulated("dash", "lat --loopback -n 100 --json -")).expect(0, &[]);
    let value: serde_json::Value = serde_json::from_str(&ended.stdout).expect("only JSON");
    assert_eq!(value["complete"], true);
    assert!(ended.stderr.contains("t_typical"), "{}", ended.stderr);
    let ended = run(emulated("dash", "lat --loopback -a -n 10 --csv -")).expect(0, &[]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    let columns = "size_bytes,api,samples,reliable,min_us,p50_us,avg_us,stdev_us,max_us";
    assert_eq!((lines[0], lines.len()), (columns, 24));
    assert!(lines[23].starts_with("8388608,engine,10,"), "{}", lines[23]);
    for (words, named) in [
        ("lat --loopback -n 10 --json - --csv -", "only one"),
        ("lat --loopback -a -n 10 --hgrm -", "this run has 23"),
    ] {
        run(emulated("dash", words)).expect(1, &[named]);
    }
}

#[test]
fn options_beyond_the_device_are_refused_by_name() {
    for (words, status, named) in [
        ("lat --loopback -d mlx5_77", 1, "mlx5_0"),
        ("lat --loopback -t 1000000", 1, "-t 1000000"),
        ("lat --loopback -i 9", 2, "port"),
        ("lat --loopback --cpu 4000", 1, "--cpu"),
        ("lat --loopback -x 200", 1, "-x"),
        ("lat --loopback -I 100000", 1, "100000 inline bytes"),
        ("lat --loopback -p 1 -D 0.1", 1, "--port"),
    ] {
        run(emulated("refused", words)).expect(status, &[named]);
    }
}

#[test]
fn the_default_inline_size_is_cut_to_the_devices_limit() {
    for (limits, path, inline) in [
        ("max_inline=64", "verbs", 64),
        ("max_inline=0", "verbs", 0),
        ("max_inline=100", "direct", 100),
    ] {
        let json = file("inline.json");
        let words = format!(
            "lat --loopback --path {path} -s 32 -n 200 --json {}",
            json.display()
        );
        let said = format!("inline up to {inline} bytes (the device's limit)");
        run(limited("inline", limits, &words)).expect(0, &[&said]);
        let text = fs::read_to_string(&json).expect("the results");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["run"]["inline_bytes"], inline, "{limits}");
        assert_eq!(value["run"]["inline_bytes_wanted"], 236, "{limits}");
        // An explicit size is refused with the device's limit.
        let words = format!("lat --loopback --path {path} -I 236 -n 10");
        let told = format!("the device supports at most {inline} bytes inline");
        run(limited("inline", limits, &words)).expect(1, &[&told]);
    }
    // The limit is not mentioned if the default is below it.
    let ended = run(emulated("inline", "lat --loopback -n 10"));
    assert!(
        !ended
            .expect(0, &["inline up to 236 bytes"])
            .text()
            .contains("device's limit")
    );
}

#[test]
fn queue_depths_and_reads_respect_the_devices_limits() {
    let few = "max_qp_wr=100";
    run(limited("fit", few, "lat --loopback -n 10")).expect(0, &["rx depth 100"]);
    let words = "lat --loopback -r 512 -n 10";
    run(limited("fit", few, words)).expect(1, &["up to 100 requests; -r 512"]);
    let none = "max_qp_rd_atom=0,max_qp_init_rd_atom=0";
    run(limited("fit", none, "lat --loopback -n 10")).expect(0, &["EMULATED"]);
    let words = "lat --loopback -o read -n 10";
    run(limited("fit", none, words)).expect(1, &["max_qp_init_rd_atom = 0", "-o send"]);
    let words = "lat --loopback -o compare-swap -n 10";
    run(limited("fit", "no_atomics", words)).expect(1, &["has no atomic operations", "-o send"]);
    let words = "lat --loopback --api rust -n 10";
    run(limited("fit", none, words)).expect(0, &["EMULATED"]);
}

#[test]
fn devices_shows_transport_limits_and_dats_offer() {
    let limits = "max_inline=64,max_sge=4,max_sge_rd=1,no_srq,max_mw=0,no_atomics";
    run(limited("shown", limits, "devices --path verbs")).expect(
        0,
        &[
            "transport: InfiniBand",
            "of 4 segments (1 of an RDMA read), inline up to 64 bytes",
            "no shared receive queues; no memory windows; no atomics",
            "no SRQs, no RMRs",
        ],
    );
    let ours = "inline up to 972 bytes";
    run(emulated("shown", "devices")).expect(0, &["path     : direct", ours]);
    let json = file("devices.json");
    let words = format!("devices --json {}", json.display());
    run(limited("shown", limits, &words)).expect(0, &[]);
    let text = fs::read_to_string(&json).expect("the list");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let device = &value["devices"][0];
    assert_eq!(device["transport"], "InfiniBand");
    assert_eq!(device["limits"]["inline_bytes"], 64);
    assert_eq!(device["limits"]["srqs"], 0);
    assert_eq!(device["dat"]["max_iov_segments_per_dto"], 4);
    assert_eq!(device["dat"]["max_iov_segments_per_rdma_read"], 1);
    assert_eq!(device["dat"]["max_rmrs"], 0);
}

#[test]
fn two_processes_measure_every_operation() {
    for operation in ["send", "write", "read"] {
        let words = format!("-o {operation} -s 100 -n 300 --warmup 20");
        let (server, port) = server("pair", &words);
        let client = run(emulated(
            "pair",
            &format!("lat {words} -p {port} localhost"),
        ));
        check_row(&client.expect(0, &["EMULATED"]), 100, 300);
        server
            .end()
            .expect(0, &["answered 320 messages of 100 bytes"]);
    }
}

#[test]
fn a_client_with_other_options_is_refused_and_the_server_keeps_waiting() {
    let (mut server, port) = server("differ", "-s 64 -n 100 --warmup 10");
    for (words, named) in [
        ("-s 128 -n 100", "-s: here 128"),
        ("-s 64 -n 200", "-n: here 200"),
    ] {
        let words = format!("lat {words} -p {port} localhost");
        run(emulated("differ", &words)).expect(1, &[named]);
    }
    server.wait_for("-s: here 64, there 128; still waiting");
    server.wait_for("-n: here 100, there 200; still waiting");
    let words = format!("lat -s 64 -n 100 --warmup 10 -p {port} localhost");
    run(emulated("differ", &words)).expect(0, &["t_typical"]);
    server.end().expect(0, &["answered 110 messages"]);
}

#[test]
fn other_programs_on_the_control_port_neither_end_nor_block_the_server() {
    let (mut server, port) = server("others", "-n 100 --warmup 10");
    let other_program = || TcpStream::connect(("localhost", port.parse().unwrap())).unwrap();
    let _silent = other_program();
    let mut web = other_program();
    web.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    server.wait_for("--peer perftest speaks that of perftest; still waiting");
    drop(other_program());
    server.wait_for("closed the control connection; still waiting");
    let words = format!("lat -n 100 --warmup 10 -p {port} localhost");
    run(emulated("others", &words)).expect(0, &["t_typical"]);
    server.end().expect(0, &["answered 110 messages"]);
}

#[test]
fn a_persistent_server_serves_one_client_after_another() {
    for api in ["engine", "rust"] {
        let words = format!("--api {api} -n 100 --warmup 10");
        let (mut server, port) = server("persist", &format!("{words} --persist --timeout 20"));
        let words = format!("lat {words} -p {port} localhost");
        run(emulated("persist", &words)).expect(0, &["t_typical"]);
        server.wait_for("waiting for the next client");
        // A killed client ends only its own run.
        let long = words.replace("-n 100", "-n 100 --timeout 20");
        let mut killed = Running::start(&mut emulated("persist", &long));
        killed.kill();
        run(emulated("persist", &words)).expect(0, &["t_typical"]);
        server.wait_for("waiting for the next client");
        server.kill();
    }
}

#[test]
fn a_server_listens_on_the_given_address_only() {
    let (mut server, port) = server("listen", "--listen 127.0.0.3 -n 100 --warmup 10");
    let words = format!("lat -n 100 --warmup 10 -p {port} 127.0.0.1");
    run(emulated("listen", &words)).expect(2, &["no server listens"]);
    let words = words.replace("127.0.0.1", "127.0.0.3");
    run(emulated("listen", &words)).expect(0, &["t_typical"]);
    server.wait_for("answered 110 messages");
}

#[test]
fn dat_listen_selects_the_addresses_of_a_server() {
    for (place, said) in [
        ("all", "on every address"),
        ("loopback", "loopback addresses only"),
        ("127.0.0.4", "on 127.0.0.4 only"),
    ] {
        let mut command = emulated("variable", "lat -p 0");
        command.env("DAT_LISTEN", place);
        let mut server = Running::start(&mut command);
        server.wait_for(said);
        server.kill();
    }
}

#[test]
fn dats_service_points_listen_on_the_servers_address() {
    libdat();
    for api in ["rust", "c"] {
        let words = format!("--api {api} -n 100 --warmup 10");
        let (server, port) = server("listen-dat", &format!("{words} --listen 127.0.0.1"));
        let words = format!("lat {words} -p {port} 127.0.0.1");
        run(emulated("listen-dat", &words)).expect(0, &["t_typical"]);
        server.end().expect(0, &["answered 110 messages"]);
    }
}

#[test]
fn an_emulated_server_listens_on_loopback_and_prints_so() {
    let mut server = Running::start(&mut emulated("place", "lat -p 0"));
    server.wait_for("loopback addresses only; no client is authenticated");
    server.kill();
}

#[test]
fn a_killed_server_ends_the_client_with_an_error() {
    for operation in ["send", "write", "read"] {
        let words = format!("-o {operation} -D 50");
        let (mut server, port) = server("kill-server", &words);
        let words = format!("lat {words} -p {port} localhost");
        let mut client = Running::start(&mut emulated("kill-server", &words));
        client.wait_for("t_typical");
        server.kill();
        client.end().expect(3, &[]);
    }
}

#[test]
fn a_killed_client_ends_the_server_with_an_error() {
    for operation in ["send", "write", "read"] {
        let words = format!("-o {operation} -D 50");
        let (server, port) = server("kill-client", &words);
        let words = format!("lat {words} -p {port} localhost");
        let mut client = Running::start(&mut emulated("kill-client", &words));
        client.wait_for("t_typical");
        client.kill();
        server.end().expect(3, &[]);
    }
}

#[test]
fn a_server_without_a_client_ends_after_its_timeout() {
    run(emulated("alone", "lat -p 0 --timeout 1")).expect(3, &["no client came"]);
}

/// Runs a command with standard output on a full disk.
fn to_a_full_disk(mut command: Command) -> Ended {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = command
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    Ended {
        status: output.status.code(),
        stdout: String::new(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_full_disk_under_standard_output_is_an_error_with_its_cause() {
    let cause = ["standard output", "No space left"];
    for words in [
        "lat --loopback -n 100",
        "lat --loopback -a -n 2",
        "lat -p 0",
        "devices",
        "devices --json",
        "wake -D 0.01 --rounds 1 --wait poll --rate 100",
    ] {
        to_a_full_disk(emulated("full", words)).expect(2, &cause);
    }
    for words in ["--help", "lat --help", "--version"] {
        to_a_full_disk(bench(words)).expect(2, &cause);
    }
}

#[test]
fn a_full_disk_under_a_result_file_is_an_error_with_file_and_cause() {
    let cause = ["/dev/full", "No space left"];
    for words in [
        "lat --loopback -n 100 --json /dev/full",
        "lat --loopback -n 100 --hgrm /dev/full",
        "devices --json /dev/full",
        "cost -n 1 --turns 1 --api engine --json /dev/full",
        "wake -D 0.01 --rounds 1 --wait poll --rate 100 --json /dev/full",
        "wake -D 0.01 --rounds 1 --wait poll --rate 100 --svg /dev/full",
        "scale -q 1 -n 1 --json /dev/full",
        "scale -q 1 -n 1 --svg /dev/full",
    ] {
        run(emulated("full", words)).expect(2, &cause);
    }
}

#[test]
fn result_files_are_written_although_standard_output_is_full() {
    let json = file("kept.json");
    let _ = fs::remove_file(&json);
    let words = format!("cost -n 1 --turns 1 --api engine --json {}", json.display());
    to_a_full_disk(emulated("kept", &words)).expect(2, &["standard output"]);
    let text = fs::read_to_string(&json).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
}

#[test]
fn a_full_disk_under_standard_error_changes_no_status() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = bench("lat no-such-host.invalid").stderr(full).status();
    assert_eq!(status.unwrap().code(), Some(2));
}

#[test]
fn a_closed_pipe_ends_the_program_by_sigpipe_without_a_message() {
    let mut child = emulated("pipe", "lat --loopback -a -n 1000")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("EMULATED"), "{line}");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !said.contains("panicked") && !said.contains("dat-bench:"),
        "{said}"
    );
    // The status with which a shell reports SIGPIPE.
    assert_eq!(output.status.code(), Some(128 + libc::SIGPIPE), "{said}");
}

#[test]
fn rust_log_shows_the_steps_of_a_run_and_only_the_modules_that_it_names() {
    let log = |value: &str| {
        let mut command = emulated("rust-log", "lat --loopback -s 2 -n 100");
        command.env("RUST_LOG", value);
        run(command).expect(0, &["#bytes"]).text()
    };
    let everything = log("debug");
    for step in [
        "dat_engine",
        "opened",
        "measured device",
        "measured size=2 round=0",
    ] {
        assert!(everything.contains(step), "{step}: {everything}");
    }
    let engine = log("dat_engine=info,off");
    assert!(
        engine.contains("opened") && !engine.contains("dat_bench"),
        "{engine}"
    );
    assert!(!log("").contains("opened"));
}
