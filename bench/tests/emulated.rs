//! Whole runs on the emulated device: one process, two processes, and what
//! happens when one of two misbehaves. Each has a hard time limit.

mod common;

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use common::{Running, bench, check_row, emulated, file, launcher, row, run, server};

#[test]
fn loopback_measures_every_operation() {
    for operation in ["send", "write", "read"] {
        let words = format!("lat --loopback -o {operation} -s 64 -n 2000");
        let ended = run(emulated("loopback", &words)).expect(0, &["EMULATED", "max ="]);
        check_row(&ended, 64, 2000);
    }
}

#[test]
fn emu_is_started_by_dat_bench_itself() {
    launcher();
    run(bench("lat --loopback -d emu -n 100")).expect(0, &["EMULATED by mlx5-emu", "t_typical"]);
    run(bench("devices -d emu")).expect(0, &["mlx5_0", "direct", "active"]);
}

#[test]
fn every_interface_goes_over_libibverbs_if_asked() {
    for operation in ["send", "write", "read"] {
        let words = format!("lat --loopback --path verbs -o {operation} -s 64 -n 500");
        let ended = run(emulated("verbs", &words)).expect(0, &["verbs path (it was asked for)"]);
        check_row(&ended, 64, 500);
    }
    let words = "lat --loopback --path verbs --api engine,rust -n 300";
    run(emulated("verbs", words)).expect(0, &["verbs path", "rust"]);
    run(bench("devices -d emu --path verbs")).expect(0, &["mlx5_0", "verbs (it was asked for)"]);
}

#[test]
fn deep_queues_and_plain_messages_work_as_well() {
    for words in [
        "lat --loopback -t 64 -r 1 -n 1000 -I 0",
        "lat --loopback -o write -t 7 -s 4097 -n 1000",
        "lat --loopback -o send -s 1 -n 1 --warmup 0",
    ] {
        run(emulated("depths", words)).expect(0, &["EMULATED"]);
    }
}

#[test]
fn all_sizes_make_a_table_and_files() {
    let (json, hgrm) = (file("all.json"), file("all.hgrm"));
    let words = format!(
        "lat --loopback -a -n 10 --warmup 2 --json {} --hgrm {}",
        json.display(),
        hgrm.display()
    );
    let ended = run(emulated("all", &words)).expect(0, &[]);
    for log in 1..=23 {
        check_row(&ended, 1 << log, 10);
        assert!(file(&format!("all.{}.hgrm", 1 << log)).is_file());
    }
    let value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["schema"], "dat-bench/lat/2");
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
    }
}

#[test]
fn a_duration_has_percentiles_too() {
    let ended = run(emulated("duration", "lat --loopback -D 0.2")).expect(0, &["0.2 s"]);
    let samples = row(&ended, 2)[1];
    assert!(samples > 100.0, "{samples}");
    check_row(&ended, 2, samples as u64);
}

#[test]
fn what_the_device_cannot_do_is_refused() {
    for (words, status, named) in [
        ("lat --loopback -d mlx5_77", 1, "mlx5_0"),
        ("lat --loopback -t 1000000", 1, "-t 1000000"),
        ("lat --loopback -i 9", 2, "port"),
        ("lat --loopback --cpu 4000", 1, "--cpu"),
        ("lat --loopback -x 200", 1, "-x"),
        ("lat --loopback -I 100000", 2, "100000 inline bytes"),
        ("lat --loopback -p 1 -D 0.1", 1, "--port"),
    ] {
        run(emulated("refused", words)).expect(status, &[named]);
    }
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
fn different_sizes_are_refused_by_both_by_name() {
    let (server, port) = server("differ", "-s 64");
    run(emulated(
        "differ",
        &format!("lat -s 128 -p {port} localhost"),
    ))
    .expect(1, &["-s: here 128"]);
    server.end().expect(1, &["-s: here 64, there 128"]);
}

#[test]
fn garbage_on_the_control_port_ends_the_server_with_an_error() {
    let (server, port) = server("garbage", "");
    let mut stream = TcpStream::connect(("localhost", port.parse().unwrap())).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    server.end().expect(3, &["not dat-bench's protocol"]);
}

#[test]
fn a_client_that_says_nothing_is_given_up() {
    let (server, port) = server("silent", "--timeout 1");
    let _stream = TcpStream::connect(("localhost", port.parse().unwrap())).unwrap();
    server.end().expect(3, &["said nothing"]);
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
fn a_server_that_nobody_comes_to_gives_up_if_told() {
    run(emulated("alone", "lat -p 0 --timeout 1")).expect(3, &["no client came"]);
}
