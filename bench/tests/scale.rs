//! `dat-bench scale` on the emulated device: instructions per message, memory, refusals.

use std::fs;

use crate::common::{bench, emulated, file, limited, run};
use serde_json::Value;

/// Runs it with these arguments. Returns the text and the results of the JSON
/// file.
fn results(name: &str, words: &str) -> (String, Vec<Value>) {
    let (json, svg) = (file(&format!("{name}.json")), file(&format!("{name}.svg")));
    let words = format!(
        "scale {words} --json {} --svg {}",
        json.display(),
        svg.display()
    );
    let table = run(emulated(name, &words)).expect(0, &["EMULATED"]).stdout;
    let text = fs::read_to_string(json).expect("the results");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["schema"], "dat-bench/scale/4");
    crate::common::schema::check(&document);
    let picture = fs::read_to_string(svg).expect("the picture");
    assert!(picture.contains("resident memory per endpoint"));
    let results = document["results"].as_array().expect("results").clone();
    (table, results)
}

/// With 300 and 600 the engine looks ahead, which takes some instructions more.
#[test]
fn instructions_per_message_are_the_same_for_1_and_100_and_for_300_and_600_endpoints() {
    let counted = std::process::Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok();
    if !counted {
        eprintln!("SKIPPED the counts of scale: valgrind is not installed");
    }
    let words = format!(
        "-q 1,100,300,600 -n 3 {}",
        if counted { "--instructions" } else { "" }
    );
    let (table, results) = results("scale-flat", &words);
    assert!(table.contains("endpoints"), "{table}");
    let of = |at: usize, name: &str| {
        results[at][name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name} of {}", results[at]))
    };
    for (at, endpoints) in [1.0, 100.0, 300.0, 600.0].into_iter().enumerate() {
        assert_eq!(of(at, "endpoints"), endpoints);
        assert!(results[at]["nanoseconds"]["median"].as_f64() > Some(0.0));
        let faults = &results[at]["page_faults"];
        assert!(faults["minor"].is_u64() && faults["major"].is_u64());
        let (misses, reason) = (&results[at]["tlb_misses"], &results[at]["tlb_reason"]);
        assert!(misses.is_null() != reason.is_null(), "{misses}, {reason}");
        // Long lines are wrapped.
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(misses.is_number() || words.contains(reason.as_str().expect("why")));
        if counted {
            let (first, this) = (of(at & !1, "instructions"), of(at, "instructions"));
            assert!((first - this).abs() <= 0.02 * first, "{first}, {this}");
            // perf-scripts/lib/cost-counts compares the two, in the release build.
            let libmlx5 = &results[at]["libmlx5"];
            assert!(libmlx5["instructions"].as_f64() > Some(1.0));
            assert!(libmlx5["cache_lines"].as_f64() > Some(1.0));
        }
        assert!(results[at]["libmlx5"]["nanoseconds"]["median"].as_f64() > Some(0.0));
    }
}

#[test]
fn both_interfaces_run_on_a_device_without_inline_messages() {
    run(limited("scale-inline", "max_inline=0", "scale -q 2 -n 1"))
        .expect(0, &["2 engine", "2 libmlx5"]);
}

#[test]
fn ten_thousand_endpoints_need_less_than_half_a_gibibyte() {
    // EVDs grow by doubling: 10,000 / 8 is at the same place between two
    // doublings as 10,000, while 512 is just after one.
    let (_, results) = results("scale-memory", "-q 1250 -n 1");
    // Includes rings of 128 requests and the state of the emulated device.
    let memory = |kind: &str| results[0]["memory"][kind].as_f64().expect("bytes") / 1250.0;
    let (libmlx5, engine, dat) = (memory("libmlx5"), memory("engine"), memory("dat"));
    assert!(libmlx5 > 4096.0, "{libmlx5}");
    // ibv_create_qp reserves room in each request for all operations.
    assert!(engine > 8192.0 && engine < libmlx5, "{engine}, {libmlx5}");
    let most = f64::from(512 << 20) / 10_000.0;
    assert!(engine < most && dat < most, "{engine}, {dat}");
}

#[test]
fn the_verbs_path_is_measured_too() {
    let (_, results) = results(
        "scale-verbs",
        "-q 1,32 -n 2 --path verbs --fail-if time>1000s",
    );
    assert_eq!(results.len(), 2);
    let words = "scale -q 1 -n 2 --fail-if memory.dat>1";
    run(emulated("scale-fails", words)).expect(3, &["endpoints", "--fail-if: memory.dat>1"]);
}

#[test]
fn wrong_options_are_refused_by_name_and_help_has_an_example() {
    for (words, named) in [
        ("scale -q 0", "--endpoints"),
        ("scale -q 4,4", "-q names 4 twice"),
        ("scale -n 0", "--iters"),
        ("scale -d mlx4_7", "mlx4_7"),
    ] {
        run(bench(words)).expect(1, &[named]);
    }
    run(bench("scale --help")).expect(0, &["resident", "callgrind", "-q 1,64,512"]);
}
