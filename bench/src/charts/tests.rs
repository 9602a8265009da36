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
fn a_series_has_the_same_colour_in_every_plot_and_sizes_have_dashes() {
    let entry = |bytes: u64, api: &str| merged(json!({"bytes": bytes, "api": api}), times(1.0));
    let lat = json!([
        entry(2, "c"),
        entry(2, "engine"),
        entry(64, "c"),
        entry(64, "engine")
    ]);
    let lat = file("dat-bench/lat/3", &lat);
    // In another order.
    let entry = |bytes: u64, api: &str| json!({"bytes": bytes, "api": api, "messages_per_second": 1e6, "bw_average_bytes_per_second": 1e6});
    let bw = json!([
        entry(2, "engine"),
        entry(4, "engine"),
        entry(2, "c"),
        entry(4, "c")
    ]);
    let bw = file("dat-bench/bw/1", &bw);
    let sources = [&lat, &bw].map(|file| Source { label: "", file });
    let sections = sections(&sources);
    let lines: Vec<_> = (sections.iter().flat_map(|it| &it.panels))
        .flat_map(|panel| &panel.lines)
        .collect();
    assert_eq!(lines.len(), 2 + 2 + 4 + 2 + 2);
    for line in &lines {
        let colour = usize::from(line.name.starts_with("engine") || line.name.ends_with("engine"));
        assert_eq!(line.colour, colour, "{}", line.name);
        assert_eq!(
            line.style,
            usize::from(line.name.contains("64 bytes")),
            "{}",
            line.name
        );
    }
}

#[test]
fn no_plot_has_two_lines_that_look_the_same() {
    let rates = (1..=9).map(f64::from).map(|rate| {
        let of = json!({"bytes": 2, "api": "c", "rate_per_second": rate, "service": times(1.0)});
        merged(of, times(3.0))
    });
    let sizes = (0..30).map(|log| merged(json!({"bytes": 1u64 << log, "api": "c"}), times(1.0)));
    let file = file("dat-bench/lat/3", &rates.chain(sizes).collect());
    let label = "";
    for panel in sections(&[Source { label, file: &file }])
        .iter()
        .flat_map(|it| &it.panels)
    {
        let mut looks: Vec<_> = (panel.lines.iter().map(|it| (it.colour, it.style))).collect();
        let all = looks.len();
        looks.sort_unstable();
        looks.dedup();
        assert!(all > 0 && looks.len() == all, "{}: {looks:?}", panel.title);
    }
}

/// A series of two rounds of two slots, with a pause between them.
fn series() -> Value {
    let slot = |begin: f64, max: f64| json!({"begin": begin, "samples": 5, "t_typical": 1.5, "p99": null, "t_max": max});
    let round = |begin: f64, switches: u64| {
        json!({"begin": begin, "end": begin + 20.0, "involuntary_switches": switches, "migrations": 0,
               "stolen_nanoseconds": null, "gaps": switches, "longest_gap_nanoseconds": 56_100})
    };
    json!({"slots": [slot(0.0, 2.0), slot(10.0, 90.0), slot(5000.0, 2.0), slot(5010.0, 2.0)],
           "rounds": [round(0.0, 2), round(5000.0, 0)]})
}

#[test]
fn latencies_are_shown_over_time_with_what_disturbed_a_round() {
    let entry = merged(
        json!({"bytes": 2, "api": "c", "series": series()}),
        times(1.0),
    );
    let file = file("dat-bench/lat/5", &json!([entry]));
    let label = "";
    let sections = sections(&[Source { label, file: &file }]);
    assert_eq!(titles(&sections[1]), ["Latency over time"]);
    let panel = &sections[1].panels[0];
    assert_eq!(
        (&*panel.subtitle, &*panel.x.label),
        ("2 bytes, c", "time since the first message [ms]")
    );
    let names: Vec<&str> = panel.lines.iter().map(|it| it.name.as_str()).collect();
    // No part has enough samples for its 99 %.
    assert_eq!(names, ["t_typical", "t_max"]);
    assert!(panel.lines[1].stems && panel.lines[1].points.contains(&(0.01, 90.0)));
    // The line is interrupted between the rounds.
    let typical = &panel.lines[0].points;
    assert_eq!(typical[2], (0.02, 1.5));
    assert!(
        typical[3].1.is_nan() && typical[4] == (5.0, 1.5),
        "{typical:?}"
    );
    let hover = &panel.hovers[1];
    assert_eq!((hover.from, hover.to), (0.01, 0.02));
    assert_eq!(
        hover.text,
        "from 0.01 ms: 5 messages, t_typical 1.5, t_max 90 usec"
    );
    let [event] = &panel.events[..] else {
        panic!("{:?}", panel.events)
    };
    assert_eq!((event.from, event.to), (0.0, 0.02));
    assert_eq!(
        event.text,
        "round 1: 2 involuntary switches, before it 2 gaps of the core, up to 56.1 us"
    );
}

#[test]
fn a_series_of_any_content_is_drawn_without_a_panic() {
    for series in [
        json!(null),
        json!({"slots": {}, "rounds": 5}),
        json!({"slots": [], "rounds": [{}]}),
        json!({"slots": [{"begin": 1e308, "samples": 0, "t_typical": 0, "t_max": 0}, {"begin": 1}, 7],
               "rounds": [{"begin": 1e308, "end": 0, "gaps": u64::MAX, "longest_gap_nanoseconds": u64::MAX}]}),
        json!({"slots": [{"begin": -5, "samples": 1, "t_typical": 1, "t_max": 1}]}),
        json!({"slots": [{"begin": 0, "samples": 1, "t_typical": 1e-300, "p99": 1e300, "t_max": 1e308}]}),
    ] {
        let entry = merged(
            json!({"bytes": 2, "api": "c", "series": series}),
            times(1.0),
        );
        let file = file("dat-bench/lat/5", &json!([entry]));
        let label = "";
        for panel in (sections(&[Source { label, file: &file }]).iter()).flat_map(|it| &it.panels) {
            let drawn = crate::plot::draw(panel).elements;
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }
}

#[test]
fn bandwidth_of_a_single_size_is_shown_by_round() {
    let rounds = [1u64 << 20, 2 << 20];
    let entry = json!({"bytes": 2, "api": "c", "bw_average_bytes_per_second": 1.5 * f64::from(1 << 20),
                       "round_bytes_per_second": rounds});
    let file = file("dat-bench/bw/2", &json!([entry]));
    let label = "";
    let sections = sections(&[Source { label, file: &file }]);
    assert_eq!(titles(&sections[0]), ["Bandwidth of each round"]);
    let panel = &sections[0].panels[0];
    assert_eq!(panel.lines[0].points, [(1.0, 1.0), (2.0, 2.0)]);
    assert_eq!(panel.y.label, "BW average [MiB/sec]");
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
    assert_eq!(
        (&*over.x.label, &*over.y.label),
        ("rate [/s]", "t_typical [usec]")
    );
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
                axis.label.ends_with(']') || ["operation", "#bytes"].contains(&&*axis.label),
                "{axis:?}"
            );
        }
    }
}
