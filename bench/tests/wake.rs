//! `dat-bench wake` on the emulated device: messages and counters of each wait
//! policy. No test asserts a time.

use std::fs;

use crate::common::{bench, emulated, file, run};
use serde_json::Value;

/// Runs it with these arguments. Returns the text and the results of the JSON
/// file.
fn results(name: &str, words: &str) -> (String, Vec<Value>) {
    let path = file(&format!("{name}.json"));
    let words = format!("wake --rounds 2 {words} --json {}", path.display());
    let table = run(emulated(name, &words)).expect(0, &["EMULATED"]).stdout;
    let text = fs::read_to_string(path).expect("the results");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["schema"], "dat-bench/wake/2");
    assert_eq!(document["emulated"], true);
    crate::common::schema::check(&document);
    let results = document["results"].as_array().expect("results").clone();
    (table, results)
}

fn check(results: &[Value], expected: usize) {
    assert_eq!(results.len(), expected);
    for result in results {
        let counters = &result["counters"];
        let number = |of: &Value| of.as_u64().unwrap_or_else(|| panic!("{result}"));
        let count = |name: &str| number(&counters[name]);
        let real = |of: &Value| of.as_f64().unwrap_or_else(|| panic!("{result}"));
        let messages = number(&result["messages"]);
        let seen: u64 = result["histogram"]["nanoseconds_and_count"]
            .as_array()
            .expect("buckets")
            .iter()
            .map(|bucket| number(&bucket[1]))
            .sum();
        // With a rate, each round has the requested number, unless messages were late.
        assert!(messages >= 40 && messages == seen, "{result}");
        if result["rate"] == 1000.0 && number(&result["late"]) == 0 {
            assert_eq!(messages, 2 * 100, "{result}");
        }
        let above = |share: f64| messages as f64 * (1.0 - share) >= 9.999_999;
        for (time, share) in [("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            let found = &result["latency_microseconds"][time];
            assert_eq!(found.is_f64(), above(share), "{time} of {result}");
        }
        let response = &result["response_microseconds"];
        assert_eq!(response.is_object(), result["rate"].is_f64(), "{result}");
        if response.is_object() {
            // A message is sent after it was due.
            let mean = |of: &Value| real(&of["mean"]);
            assert!(
                mean(response) >= mean(&result["latency_microseconds"]),
                "{result}"
            );
        }
        for time in ["median", "min", "max", "mean"] {
            assert!(
                real(&result["latency_microseconds"][time]) > 0.0,
                "{result}"
            );
        }
        assert!(
            real(&result["cpu_microseconds_per_message"]) > 0.0,
            "{result}"
        );
        assert!(real(&result["cpu_share"]) <= 1.01, "{result}");
        assert!(count("hits") <= count("spins"), "{result}");
        assert_eq!(count("refused_posts"), 0, "{result}");
        match result["policy"].as_str().expect("a policy") {
            "poll" => assert_eq!((count("blocks"), count("spurious")), (0, 0), "{result}"),
            "block" => assert_eq!((count("spins"), count("hits")), (0, 0), "{result}"),
            "adaptive:1000000:inf" => assert_eq!(count("blocks"), 0, "{result}"),
            _ => {}
        }
        // Wake-ups in a loop without events would exceed this.
        let waits = count("spins").max(count("blocks"));
        assert!(waits <= 2 * messages + 100, "{result}");
    }
}

#[test]
fn every_message_is_received_with_every_policy_and_rate() {
    let words = "-D 0.1 --wait poll,adaptive,adaptive:1000000:inf,block --rate 1000,max";
    let (table, results) = results("wake-all", words);
    check(&results, 8);
    for word in [
        "poll",
        "adaptive:0:200",
        "block",
        "max",
        "CPU [%]",
        "poll's is 1",
    ] {
        assert!(table.contains(word), "'{word}' is missing in:\n{table}");
    }
}

#[test]
fn the_verbs_path_is_measured_too() {
    let words = "--path verbs -D 0.1 --wait poll,block --rate 1000";
    let (_, results) = results("wake-verbs", words);
    check(&results, 2);
}

#[test]
fn hgrm_files_and_a_plot_are_written() {
    let (hgrm, hlog, svg) = (file("wake.hgrm"), file("wake.hlog"), file("wake.svg"));
    let words = format!(
        "wake -D 0.02 --rounds 1 --wait block --rate 500,1000 --hgrm {} --hlog {} --svg {}",
        hgrm.display(),
        hlog.display(),
        svg.display()
    );
    run(emulated("wake-files", &words)).expect(0, &["wrote"]);
    let log = fs::read_to_string(hlog).expect("a log");
    for rate in [500, 1000] {
        assert!(log.contains(&format!("Tag=block-{rate},0.000,")), "{log}");
        let text = fs::read_to_string(file(&format!("wake.block.{rate}.hgrm"))).expect("a file");
        assert!(text.contains("Total count"), "{text}");
    }
    let text = fs::read_to_string(svg).expect("a plot");
    assert!(text.contains("<svg") && text.contains("500/s"));
}

#[test]
fn wrong_options_are_refused_by_name_and_help_explains_the_method() {
    for (words, status, named) in [
        ("wake --wait sleep", 1, "such as adaptive:0:200"),
        ("wake --wait poll,poll", 1, "--wait names poll twice"),
        ("wake --rate 0", 1, "or max"),
        ("wake --rate 5,5.0", 1, "--rate names 5 twice"),
        ("wake --cpu 1", 1, "two CPUs"),
        ("wake --rounds 0", 1, "--rounds"),
        ("wake -d mlx4_7", 1, "mlx4_7"),
        (
            "wake -d emu --json /nonexistent/r.json",
            1,
            "name another file",
        ),
    ] {
        crate::common::launcher();
        run(bench(words)).expect(status, &[named]);
    }
    run(bench("wake --help")).expect(0, &["step by step", "CLOCK_THREAD_CPUTIME_ID", "max"]);
}
