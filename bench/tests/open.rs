//! `dat-bench lat --rate` on the emulated device. No test asserts a time.

use std::fs;

use crate::common::{emulated, file, run, server};

#[test]
fn an_open_loop_reports_response_and_service_times_at_every_rate() {
    for operation in ["send", "write", "read"] {
        let (json, hgrm) = (file("open.json"), file("open.hgrm"));
        let words = format!(
            "lat --loopback -o {operation} --rate 500,20k -n 200 --warmup 20 --json {} --hgrm {}",
            json.display(),
            hgrm.display()
        );
        let said = ["response time from DUE", "response", "service", "late"];
        run(emulated("open", &words)).expect(0, &said);
        let text = fs::read_to_string(&json).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        crate::common::schema::check(&value);
        assert_eq!(value["run"]["closed_loop"], false);
        assert_eq!(value["run"]["reported"], "full_round_trip");
        let results = value["results"].as_array().unwrap();
        for (result, rate) in results.iter().zip([500, 20_000]) {
            assert_eq!(result["rate_per_second"], f64::from(rate));
            assert_eq!(result["pace"]["due"], 200);
            let sent = &result["pace"]["sent"];
            assert_eq!(&result["iterations"], sent, "{operation}");
            assert_eq!(&result["service"]["iterations"], sent, "{operation}");
            let mean = |of: &serde_json::Value| of["t_avg"].as_f64().unwrap();
            assert!(mean(result) >= mean(&result["service"]), "{operation}");
            assert!(file(&format!("open.{rate}.hgrm")).is_file());
            assert!(file(&format!("open.{rate}.service.hgrm")).is_file());
        }
        assert_eq!(results.len(), 2);
    }
}

#[test]
fn an_open_loop_is_measured_between_two_processes_that_agree_on_the_rate() {
    let words = "--api engine,rust --rate 1k,5k -n 100 --warmup 20";
    let (mut server, port) = server("open-pair", words);
    let other = format!("lat --api engine,rust --rate 1k -n 100 -p {port} localhost");
    run(emulated("open-pair", &other)).expect(1, &["--rate: here 1000, there 1000,5000"]);
    server.wait_for("still waiting");
    let words = format!("lat {words} -p {port} localhost");
    run(emulated("open-pair", &words)).expect(0, &["response", "service"]);
    server
        .end()
        .expect(0, &["messages of 2 bytes through api rust"]);
}
