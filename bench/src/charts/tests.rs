//! Every result is in a plot.

use super::*;
use crate::results::ResultFile;
use serde_json::{Value, json};

fn file(command: &str, results: &Value) -> ResultFile {
    let text = json!({"schema": command, "emulated": true, "results": results, "pairs": results});
    ResultFile::parse(&text.to_string()).unwrap()
}

fn times(median: f64) -> Value {
    json!({"t_typical": median, "round_medians": [median],
           "percentiles": [{"share": 0.99, "usec": median * 2.0}],
           "histogram": {"nanoseconds_and_count": [[1000, 90], [2000, 9], [3000, 1]]}})
}

fn merged(one: Value, other: Value) -> Value {
    let (Value::Object(mut one), Value::Object(other)) = (one, other) else {
        unreachable!("both are objects")
    };
    one.extend(other);
    Value::Object(one)
}

fn titles(section: &Section) -> Vec<&str> {
    section
        .panels
        .iter()
        .map(|panel| panel.title.as_str())
        .collect()
}

#[test]
fn bandwidth_and_message_rate_are_shown_over_size() {
    let entry = |bytes: u64| {
        json!({"bytes": bytes, "api": "engine", "messages_per_second": 2e6,
               "bw_average_bytes_per_second": f64::from(1 << 20) * bytes as f64})
    };
    let file = file("dat-bench/bw/1", &json!([entry(2), entry(64)]));
    let sections = sections(&[Source {
        label: "",
        file: &file,
    }]);
    assert_eq!(
        titles(&sections[0]),
        [
            "Bandwidth over message size",
            "Message rate over message size"
        ]
    );
    let [bandwidth, rate] = &sections[0].panels[..] else {
        unreachable!()
    };
    assert_eq!(bandwidth.lines[0].points, [(2.0, 2.0), (64.0, 64.0)]);
    assert_eq!(rate.lines[0].points, [(2.0, 2.0), (64.0, 2.0)]);
}

#[test]
fn latency_is_shown_over_size_and_by_percentile_for_every_size_and_file() {
    let sizes = [2, 64, 4096].map(|bytes| merged(json!({"bytes": bytes, "api": "c"}), times(1.0)));
    let file = file("dat-bench/lat/3", &json!(sizes));
    let sources = ["before", "after"].map(|label| Source { label, file: &file });
    let sections = sections(&sources);
    assert_eq!(sections.len(), 1);
    assert_eq!(
        titles(&sections[0]),
        [
            "Median latency over message size",
            "99 % latency over message size",
            "Latency by percentile"
        ]
    );
    let [over, _, percentiles] = &sections[0].panels[..] else {
        unreachable!()
    };
    assert_eq!(over.lines[1].name, "after");
    assert_eq!(
        over.lines[1].points,
        [(2.0, 1.0), (64.0, 1.0), (4096.0, 1.0)]
    );
    assert_eq!(over.warning, EMULATED);
    assert_eq!(percentiles.lines.len(), 6);
    assert_eq!(percentiles.lines[5].name, "after, 4096 bytes");
    // Of a single size, there is nothing to show over sizes.
    let one = file_of_one_size();
    let sources = [Source {
        label: "",
        file: &one,
    }];
    assert_eq!(
        titles(&super::sections(&sources)[0]),
        ["Latency by percentile"]
    );
}

fn file_of_one_size() -> ResultFile {
    let entry = merged(json!({"bytes": 2, "api": "c"}), times(1.0));
    let mut file = file("dat-bench/lat/3", &json!([entry]));
    file.emulated = false;
    file
}

#[test]
fn an_emulated_device_beside_a_real_one_is_named_in_the_legend() {
    let real = file_of_one_size();
    let emulated = ResultFile {
        emulated: true,
        ..real.clone()
    };
    let sources = [
        Source {
            label: "a",
            file: &real,
        },
        Source {
            label: "b",
            file: &emulated,
        },
    ];
    let panel = &sections(&sources)[0].panels[0];
    assert_eq!(panel.warning, PARTLY_EMULATED);
    assert_eq!(
        [&panel.lines[0].name, &panel.lines[1].name],
        ["a", "b, emulated NIC"]
    );
}

#[test]
fn an_open_loop_is_shown_over_its_load() {
    let entry = |rate: f64| {
        let of = json!({"bytes": 2, "api": "c", "rate_per_second": rate, "service": times(1.0)});
        merged(of, times(3.0))
    };
    let file = file("dat-bench/lat/3", &json!([entry(1000.0), entry(10_000.0)]));
    let sections = sections(&[Source {
        label: "",
        file: &file,
    }]);
    let over = &sections[0].panels[0];
    assert_eq!(sections[0].title, "Latency over load (open loop)");
    assert_eq!(over.x.label, "rate [messages/s]");
    let names: Vec<&str> = over.lines.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["response time", "service time"]);
}

#[test]
fn every_policy_operation_endpoint_count_and_program_is_shown() {
    let wake = |policy: &str, rate: f64| {
        merged(
            json!({"policy": policy, "rate": rate, "latency_microseconds": {"median": 2.0}, "cpu_share": 0.5,
                   "response": times(4.0), "response_microseconds": {"median": 4.0}}),
            times(1.0),
        )
    };
    let wake = file(
        "dat-bench/wake/2",
        &json!([
            wake("poll", 10.0),
            wake("block", 10.0),
            wake("poll", 99.0),
            wake("block", 99.0)
        ]),
    );
    let cost = |operation: &str, variant: &str| json!({"operation": operation, "variant": variant, "nanoseconds": {"median": 20.0}, "instructions": 80.0});
    let cost = file(
        "dat-bench/cost/1",
        &json!([cost("post", "c"), cost("poll", "c"), cost("post", "engine")]),
    );
    let scale = |endpoints: u32| {
        json!({"endpoints": endpoints, "nanoseconds": {"median": 20.0}, "cache_lines": 3.0,
               "libmlx5": {"nanoseconds": {"median": 90.0}},
               "memory": {"libmlx5": 100_000, "engine": 50_000, "dat": 70_000}})
    };
    let scale = file("dat-bench/scale/4", &json!([scale(1), scale(10)]));
    let pair = json!({"perftest": {"t_typical": 1.0, "true_max": 3.0}, "dat_bench": {"t_typical": 1.1, "max": 2.0}});
    let compare = file("dat-bench/compare/1", &json!([pair, pair]));
    let files = [&wake, &cost, &scale, &compare].map(|file| Source { label: "", file });
    let sections = sections(&files);
    let titles: Vec<Vec<&str>> = sections.iter().map(titles).collect();
    assert_eq!(titles[0].len(), 3 + 1 + 2 + 2, "{titles:?}");
    assert_eq!(
        titles[1],
        ["Time per operation", "Instructions per operation"]
    );
    assert_eq!(
        titles[2],
        ["Time per message", "Cache lines per message", "Memory"]
    );
    assert_eq!(titles[3], ["Median of each run"]);
    let share = sections[0]
        .panels
        .iter()
        .find(|it| it.title.contains("CPU"))
        .unwrap();
    assert_eq!(share.lines[0].points, [(10.0, 50.0), (99.0, 50.0)]);
    assert_eq!(
        sections[1].panels[0].lines[0].points,
        [(20.0, 0.0), (20.0, 1.0)]
    );
    let times: Vec<_> = sections[2].panels[0]
        .lines
        .iter()
        .map(|line| (line.name.as_str(), line.points[1]))
        .collect();
    assert_eq!(times, [("engine", (10.0, 20.0)), ("libmlx5", (10.0, 90.0))]);
    assert_eq!(
        sections[2].panels[2].lines[0].points,
        [(1.0, 100_000.0), (10.0, 10_000.0)]
    );
    let names: Vec<&str> = sections[3].panels[0]
        .lines
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["perftest", "dat-bench"]);
    // Each axis but that of operations has a unit.
    for panel in sections.iter().flat_map(|it| &it.panels) {
        for axis in [&panel.x, &panel.y] {
            assert!(
                axis.label.ends_with(']') || axis.label == "operation",
                "{axis:?}"
            );
        }
    }
}
