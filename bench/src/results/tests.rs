//! Reading of result files of all commands and versions, and conditions.

use super::*;
use serde_json::json;

/// A file of version 2, which had no unreliable results and all percentiles.
fn old_lat() -> String {
    json!({
        "schema": "dat-bench/lat/2",
        "host": {"cpu": "AMD", "cpus": 2, "governor": null},
        "run": {"operation": "send", "nanoseconds_per_tick": 0.4},
        "results": [{
            "bytes": 64, "api": "engine", "iterations": 1000,
            "t_min": 0.8, "t_max_perftest": 30.0, "t_typical": 1.0, "t_avg": 1.1, "t_stdev": 0.2,
            "p99": 1.3, "p99.9": 20.0, "p99.99": 34.0, "max": 34.0,
            "round_medians": [1.0],
            "percentiles": [{"share": 0.9, "usec": 1.2}, {"share": 0.999, "usec": 20.0}],
        }],
    })
    .to_string()
}

fn names(case: &Case) -> Vec<&str> {
    case.figures.iter().map(|it| it.name.as_str()).collect()
}

#[test]
fn a_result_of_an_older_version_is_read() {
    let file = ResultFile::parse(&old_lat()).unwrap();
    assert_eq!(file.command, "lat");
    let case = &file.cases[0];
    assert_eq!(case.name, "64 bytes, engine");
    assert_eq!(
        names(case),
        [
            "min", "p50", "avg", "stdev", "p90", "p99.9", "p99", "p99.99", "max"
        ]
    );
    assert_eq!(case.figure("p99.9").unwrap().value, 20.0);
    assert_eq!(file.conditions["host.cpus"], "2");
    assert!(!file.conditions.contains_key("host.governor"));
    assert!(!file.conditions.contains_key("run.nanoseconds_per_tick"));
}

#[test]
fn an_open_loop_has_response_and_service_time() {
    let text = json!({
        "schema": "dat-bench/lat/3",
        "results": [{
            "bytes": 2, "api": "c", "rate_per_second": 1000.0, "t_typical": 3.0, "p99": null,
            "unreliable": [{"kind": "starved", "reason": "it ran 29 % of the time"}],
            "service": {"t_typical": 2.0},
        }],
    });
    let file = ResultFile::parse(&text.to_string()).unwrap();
    let [response, service] = &file.cases[..] else {
        panic!("{file:?}")
    };
    assert_eq!(response.name, "2 bytes, c, 1000/s");
    assert_eq!(names(response), ["p50"]);
    assert_eq!(response.unreliable, ["it ran 29 % of the time"]);
    assert_eq!(service.name, "2 bytes, c, 1000/s, service time");
    assert_eq!(service.figure("p50").unwrap().value, 2.0);
    assert_eq!(service.unreliable, response.unreliable);
}

#[test]
fn results_of_wake_cost_and_scale_are_read() {
    let of = |schema: &str, entry: Value| {
        let text = json!({"schema": schema, "results": [entry]}).to_string();
        ResultFile::parse(&text).unwrap().cases
    };
    let wake = of(
        "dat-bench/wake/1",
        json!({"policy": "poll", "rate": null, "latency_microseconds": {"median": 1.5, "p90": 2.0},
               "cpu_microseconds_per_message": 3.0}),
    );
    assert_eq!(wake[0].name, "poll, max");
    assert_eq!(names(&wake[0]), ["p50", "p90", "cpu"]);
    let paced = of(
        "dat-bench/wake/2",
        json!({"policy": "block", "rate": 100.0, "latency_microseconds": {"median": 1.5},
               "cpu_microseconds_per_message": 3.0, "response_microseconds": {"median": 2.5}}),
    );
    assert_eq!(paced[1].name, "block, 100/s, response time");
    assert_eq!(names(&paced[1]), ["p50"]);
    let nothing = r#"{"schema": "dat-bench/wake/2", "results": []}"#;
    let file = ResultFile {
        cases: paced,
        ..ResultFile::parse(nothing).unwrap()
    };
    // The response time has no CPU time, and is not judged by it.
    file.require(&[condition("cpu>3us")]).unwrap();
    file.require(&[condition("p50>2us")]).unwrap_err();
    let cost = of(
        "dat-bench/cost/1",
        json!({"operation": "post_recv", "variant": "c", "nanoseconds": {"median": 22.0}, "instructions": 80.9}),
    );
    assert_eq!(cost[0].name, "post_recv, c");
    assert_eq!(names(&cost[0]), ["time", "instructions"]);
    let absent = json!({"operation": "empty", "variant": "c", "nanoseconds": null});
    assert_eq!(of("dat-bench/cost/1", absent), []);
    let scale = of(
        "dat-bench/scale/1",
        json!({"endpoints": 10, "nanoseconds": {"median": 22.0}, "memory": {"engine": 9000}}),
    );
    assert_eq!(names(&scale[0]), ["time", "memory.engine"]);
}

#[test]
fn a_pair_of_compare_without_a_median_is_left_out_on_both_sides() {
    let pair = |theirs: Value, ours: f64| {
        json!({"perftest": {"t_typical": theirs, "true_max": 9.0},
               "dat_bench": {"t_typical": ours, "unreliable": ["it ran 9 % of the time"]}})
    };
    let pairs = [
        pair(json!(1.0), 2.0),
        pair(Value::Null, 3.0),
        pair(json!(5.0), 4.0),
    ];
    let text = json!({"schema": "dat-bench/compare/1", "pairs": pairs}).to_string();
    let cases = ResultFile::parse(&text).unwrap().cases;
    let [theirs, ours] = &cases[..] else {
        panic!("{cases:?}")
    };
    assert_eq!(
        (&theirs.rounds[..], &ours.rounds[..]),
        (&[1.0, 5.0][..], &[2.0, 4.0][..])
    );
    assert_eq!(theirs.figure("p50").unwrap().value, 3.0);
    assert!(theirs.unreliable.is_empty());
    assert_eq!(
        ours.unreliable,
        ["2 of 2 runs, the first because it ran 9 % of the time"]
    );
}

#[test]
fn the_other_program_of_compare_may_be_ucx_perftest() {
    let pair =
        json!({"ucx_perftest": {"t_typical": 2.0, "t_avg": 3.0}, "dat_bench": {"t_typical": 1.0}});
    let text = json!({"schema": "dat-bench/compare/2", "pairs": [pair]}).to_string();
    let cases = ResultFile::parse(&text).unwrap().cases;
    assert_eq!(cases[0].name, "ucx_perftest");
    assert_eq!(cases[0].figure("avg").unwrap().value, 3.0);
    assert!(cases[0].figure("max").is_none());
    assert_eq!(cases[1].rounds, [1.0]);
}

#[test]
fn files_that_cannot_be_used_are_refused_with_a_cause() {
    for (text, cause) in [
        ("", "not JSON"),
        ("[]", "expected a result of lat"),
        (r#"{"schema": "other/1"}"#, "'other/1'"),
        (r#"{"schema": "dat-bench/devices/1"}"#, "expected a result"),
        (
            r#"{"schema": "dat-bench/lat/99", "results": []}"#,
            "lat up to version 5",
        ),
        (r#"{"schema": "dat-bench/lat/2"}"#, "incomplete"),
    ] {
        let said = ResultFile::parse(text).unwrap_err();
        assert!(said.contains(cause), "{said}");
    }
    let failure = ResultFile::read(Path::new("/nonexistent/r.json")).unwrap_err();
    assert_eq!(failure.status(), 1);
}

fn condition(text: &str) -> Condition {
    text.parse().unwrap()
}

#[test]
fn a_condition_that_holds_fails_with_case_figure_and_value() {
    let file = ResultFile::parse(&old_lat()).unwrap();
    for quiet in ["p99>5us", "p50<900ns", "max>1ms", "p50 > 1.0us", "mean>2"] {
        file.require(&[condition(quiet)]).unwrap();
    }
    for loud in ["p99>1.2us", "max > 0.034ms", "typical<2us", "p90>1"] {
        let failure = file.require(&[condition(loud)]);
        // 34 us is not above 0.034 ms.
        if loud.starts_with("max") {
            failure.unwrap();
            continue;
        }
        let failure = failure.unwrap_err();
        assert_eq!(failure.status(), 3, "{loud}");
        assert!(
            failure.to_string().contains("64 bytes, engine"),
            "{failure}"
        );
    }
}

#[test]
fn a_change_is_relative_to_the_first_file() {
    let (before, mut after) = (
        ResultFile::parse(&old_lat()).unwrap(),
        ResultFile::parse(&old_lat()).unwrap(),
    );
    after.cases[0].figures[1].value = 1.08;
    after
        .require_since(&before, &[condition("p50>+10%")])
        .unwrap();
    let failure = after
        .require_since(&before, &[condition("p50>+5%")])
        .unwrap_err();
    assert!(failure.to_string().contains("+8.0 %"), "{failure}");
    // A case that was not there before has not changed.
    after.require(&[condition("p50>+5%")]).unwrap();
}

#[test]
fn a_figure_that_a_case_does_not_have_is_a_usage_failure_not_a_pass() {
    let file = ResultFile::parse(&old_lat()).unwrap();
    let failure = file.require(&[condition("p99.999>5us")]).unwrap_err();
    assert_eq!(failure.status(), 1);
    let text = failure.to_string();
    assert!(
        text.contains("p99.999 needs 1000000 samples") && text.contains("there are 1000;"),
        "{text}"
    );
    let unknown = file.require(&[condition("p100>5us")]).unwrap_err();
    assert!(
        unknown
            .to_string()
            .contains("no figure 'p100'; it has min, p50")
    );
    // 1000 samples support this one, but the file has no histogram.
    let failure = file.require(&[condition("p42>5us")]).unwrap_err();
    assert!(failure.to_string().contains("no histogram"), "{failure}");
}

#[test]
fn any_percentile_is_computed_from_the_histogram() {
    let buckets = json!([[1000, 500], [2000, 400], [3000, 89], [4000, 11]]);
    let entry = json!({"bytes": 2, "t_typical": 1.5, "iterations": 1000, "max": 3.9,
                       "histogram": {"nanoseconds_and_count": buckets}});
    let text = json!({"schema": "dat-bench/lat/5", "results": [entry]}).to_string();
    let file = ResultFile::parse(&text).unwrap();
    for (percentile, value) in [
        ("p42", 1),
        ("p75", 2),
        ("p90", 2),
        ("p90.1", 3),
        ("p98.9", 3),
    ] {
        let holds = |limit: String| file.require(&[condition(&limit)]).is_err();
        assert!(!holds(format!("{percentile}<{value}us")), "{percentile}");
        assert!(!holds(format!("{percentile}>{value}us")), "{percentile}");
    }
    // The file has a median of its own, with all digits.
    file.require(&[condition("t_typical>1.4us")]).unwrap_err();
    let failure = file.require(&[condition("p99.5>1us")]).unwrap_err();
    assert_eq!(failure.status(), 1);
    assert!(
        failure.to_string().contains("needs 2000 samples"),
        "{failure}"
    );
}

#[test]
fn a_condition_that_a_run_cannot_judge_is_refused_before_it_with_the_reason() {
    let refusal = |text: &str, percentiles| {
        let offer = Offer {
            command: "lat",
            figures: &[("max", Unit::Microseconds), ("cpu-share", Unit::Percent)],
            absent: &[("instructions", "give --instructions, too")],
            percentiles,
        };
        condition(text)
            .check(&offer)
            .map_err(|error| error.to_string())
    };
    let of = |count| Percentiles::Of(Some(count));
    for fine in [
        "max>1ms",
        "max>5",
        "cpu-share>50%",
        "cpu-share>50",
        "p99.9>1us",
        "p1<1ns",
    ] {
        assert_eq!(refusal(fine, of(10_000)), Ok(()), "{fine}");
        assert_eq!(refusal(fine, Percentiles::Of(None)), Ok(()), "{fine}");
    }
    for (text, percentiles, reason) in [
        (
            "p99.9>1us",
            of(9999),
            "needs 10000 samples, so that ten are above it, and each result of this run will have 9999",
        ),
        ("p99.97>1us", of(1), "needs 33334 samples"),
        (
            "p99>1us",
            Percentiles::None,
            "lat measures no percentiles; it has max, cpu-share",
        ),
        (
            "maximum>1us",
            of(1),
            "lat has no figure 'maximum'; it has max, cpu-share, any percentile",
        ),
        ("p100>1us", of(1), "no figure 'p100'"),
        ("pinf>1us", of(1), "no figure 'pinf'"),
        (
            "instructions>1",
            of(1),
            "this run has no instructions: give --instructions",
        ),
        (
            "max>5Mpps",
            of(1),
            "max is a time: give a limit with ns, us, ms or s",
        ),
        ("p50>5%", of(100), "p50 is a time"),
        (
            "cpu-share>5us",
            of(1),
            "cpu-share is a share: give a limit with %",
        ),
    ] {
        let said = refusal(text, percentiles).unwrap_err();
        assert!(said.contains(reason) && said.contains(text), "{said}");
    }
}

#[test]
fn conditions_without_sense_are_refused() {
    for wrong in [
        "",
        "p99",
        "p99>",
        ">5us",
        "p99>5furlongs",
        "p99>-5us",
        "p99>1e999us",
        "p99=5us",
        "p 9>5us",
        "p99>us",
    ] {
        assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
    }
}

#[test]
fn a_file_without_end_is_refused() {
    let error = ResultFile::read(Path::new("/dev/zero")).expect_err("it never ends");
    assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
}
