//! `dat-bench lat` through DAT's Rust types and C calls, on the emulated device,
//! alone and compared with the engine.

use std::fs;

use crate::common::{check_row, emulated, file, libdat, run, server};

const DAT: [(&str, &str); 2] = [("rust", "dat_api::safe"), ("c", "libdat.so")];

#[test]
fn loopback_measures_every_operation() {
    libdat();
    for (api, said) in DAT {
        for operation in ["send", "write", "read"] {
            let words = format!("lat --loopback --api {api} -o {operation} -s 64 -n 1000");
            let ended = run(emulated("api-loopback", &words));
            let ended = ended.expect(0, &["EMULATED", said, "by dequeue", "max ="]);
            check_row(&ended, 64, 1000);
        }
    }
}

#[test]
fn two_processes_measure_every_operation() {
    libdat();
    for (api, _) in DAT {
        for operation in ["send", "write", "read"] {
            let words = format!("--api {api} -o {operation} -s 100 -n 300 --warmup 20");
            let (server, port) = server("api-pair", &words);
            let words = format!("lat {words} -p {port} localhost");
            let client = run(emulated("api-pair", &words));
            check_row(&client.expect(0, &["EMULATED"]), 100, 300);
            let said = format!("answered 320 messages of 100 bytes through api {api}");
            server.end().expect(0, &[&said]);
        }
    }
}

#[test]
fn queues_of_any_depth_and_messages_that_are_not_inline_are_measured() {
    libdat();
    for (api, _) in DAT {
        for words in [
            "-t 64 -r 1 -n 500",
            "-o write -t 7 -s 4097 -n 500",
            "-o read -s 65536 -n 100",
            "-o send -s 1 -n 1 --warmup 0",
            "-a -n 5 --warmup 1",
        ] {
            let words = format!("lat --loopback --api {api} {words}");
            run(emulated("api-depths", &words)).expect(0, &["EMULATED"]);
        }
    }
}

#[test]
fn every_wait_policy_receives_all_messages() {
    libdat();
    for (api, _) in DAT {
        for wait in ["poll", "umwait", "adaptive", "block"] {
            let words = format!("--api {api} --wait {wait} -n 100 --warmup 10 -t 4");
            let (server, port) = server("api-wait", &words);
            let words = format!("lat {words} -p {port} localhost");
            let client = run(emulated("api-wait", &words));
            let said = format!("by wait, {wait}");
            check_row(&client.expect(0, &[&said]), 2, 100);
            server.end().expect(0, &["answered 110 messages"]);
        }
        let words = format!("lat --loopback --api {api} --wait block -o read -n 100");
        run(emulated("api-wait", &words)).expect(0, &["by wait, block"]);
    }
}

/// Returns the columns (api, adds) of the rows of a size.
fn layers(stdout: &str, size: &str) -> Vec<(String, String)> {
    let rows = stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|cells| cells.len() >= 14 && cells[0] == size);
    rows.map(|cells| (cells[11].to_owned(), cells[12].to_owned()))
        .collect()
}

#[test]
fn layers_are_compared_in_the_order_given() {
    libdat();
    let (json, hgrm) = (file("layers.json"), file("layers.hgrm"));
    let words = format!(
        "lat --loopback --api engine,rust,c -n 205 --warmup 20 --json {} --hgrm {}",
        json.display(),
        hgrm.display()
    );
    let ended =
        run(emulated("api-layers", &words)).expect(0, &["10 rounds each, in turns", "adds"]);
    let rows = layers(&ended.stdout, "2");
    let names: Vec<&str> = rows.iter().map(|(api, _)| api.as_str()).collect();
    assert_eq!(names, ["engine", "rust", "c"]);
    assert_eq!(rows[0].1, "-");
    let value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["run"]["apis"].to_string(), r#"["engine","rust","c"]"#);
    crate::common::schema::check(&value);
    assert_eq!(value["run"]["rounds"], 10);
    assert_eq!(value["run"]["dat_events"], "dequeue");
    assert_eq!(value["run"]["inline_bytes"], 64);
    let libdat = libdat().to_str().unwrap();
    assert_eq!(
        value["run"]["libdat"], libdat,
        "not the library of this build"
    );
    for (at, api) in names.iter().enumerate() {
        let result = &value["results"][at];
        assert_eq!(result["api"], *api);
        assert_eq!(result["iterations"], 205);
        assert_eq!(result["round_medians"].as_array().unwrap().len(), 10);
        assert!(file(&format!("layers.{api}.hgrm")).is_file());
    }
    let added = value["layers"].as_array().unwrap();
    assert_eq!(added.len(), 2);
    for (layer, (api, over)) in added.iter().zip([("rust", "engine"), ("c", "rust")]) {
        assert_eq!((&layer["api"], &layer["over"]), (&api.into(), &over.into()));
        let figure = |name: &str| layer[name].as_f64().unwrap();
        let typical = figure("typical_nanoseconds");
        assert!(figure("least_nanoseconds") <= typical);
        assert!(typical <= figure("most_nanoseconds"));
        let interval = &layer["interval_nanoseconds"];
        let (low, high) = (interval["low"].as_f64(), interval["high"].as_f64());
        assert!(low <= Some(typical) && Some(typical) <= high, "{layer}");
        let excludes_zero = low > Some(0.0) || high < Some(0.0);
        assert_eq!(layer["measurable"], excludes_zero, "{layer}");
    }
}

#[test]
fn layers_are_compared_between_two_processes() {
    libdat();
    let words = "--api c,engine,rust -o write -n 100 --warmup 10";
    let (server, port) = server("api-layers-pair", words);
    let words = format!("lat {words} -p {port} localhost");
    let ended = run(emulated("api-layers-pair", &words)).expect(0, &[]);
    let rows = layers(&ended.stdout, "2");
    let names: Vec<&str> = rows.iter().map(|(api, _)| api.as_str()).collect();
    assert_eq!(names, ["c", "engine", "rust"]);
    server.end().expect(
        0,
        &[
            "answered 110 messages of 2 bytes through api c",
            "answered 110 messages of 2 bytes through api rust",
        ],
    );
}

#[test]
fn a_client_with_another_api_is_refused_and_the_server_keeps_waiting() {
    let (mut server, port) = server("api-differ", "--api rust");
    run(emulated("api-differ", &format!("lat -p {port} localhost")))
        .expect(1, &["--api: here engine"]);
    server.wait_for("--api: here rust, there engine; still waiting");
    server.kill();
}

#[test]
fn a_killed_server_ends_the_client_with_an_error() {
    libdat();
    for (api, _) in DAT {
        let words = format!("--api {api} -D 50");
        let (mut server, port) = server("api-kill", &words);
        let words = format!("lat {words} -p {port} localhost");
        let mut client = crate::common::Running::start(&mut emulated("api-kill", &words));
        client.wait_for("t_typical");
        server.kill();
        client.end().expect(3, &[]);
    }
}

#[test]
fn an_adapter_prints_its_counters_when_it_is_closed() {
    libdat();
    let words = "lat --loopback --api c -n 20 --warmup 0";
    let with = |value| {
        let mut command = emulated("api-counters", words);
        command.env("DAT_DBG_TYPE", value);
        run(command).expect(0, &[]).stdout
    };
    let line = |text: &str| {
        text.lines()
            .find(|line| line.contains(" is closed: "))
            .map(str::to_owned)
    };
    assert_eq!(line(&with("1")), None);
    let line = line(&with("0x1000")).expect("a line");
    for word in [
        "mlx5_0",
        " spins, ",
        " hits, ",
        " blocks, ",
        " 0 refused posts",
    ] {
        assert!(line.contains(word), "'{word}' in: {line}");
    }
}
