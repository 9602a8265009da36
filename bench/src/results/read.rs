//! The results of each command, as cases.

use serde_json::Value;

use super::case::{Case, Unit};
use super::series;
use crate::output::counted;
use crate::stats::rounds::median;

const MEBIBYTE: f64 = (1 << 20) as f64;

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_f64).collect()
}

fn reasons(entry: &Value) -> Vec<String> {
    let list = entry["unreliable"].as_array().map(Vec::as_slice);
    list.unwrap_or_default()
        .iter()
        .filter_map(|problem| problem["reason"].as_str().map(str::to_owned))
        .collect()
}

/// Returns the buckets of a histogram; version 1 of wake had another form, which is
/// not read.
fn buckets(entry: &Value) -> Vec<(u64, u64)> {
    let list = entry["histogram"]["nanoseconds_and_count"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?)))
        .collect()
}

/// Returns a case without figures. `keys` have the values that distinguish it from others: their
/// names, their keys, and the units behind numbers.
fn case(entry: &Value, keys: &[(&'static str, &str, &str)]) -> Case {
    let mut case = Case {
        unreliable: reasons(entry),
        ..Case::default()
    };
    for &(name, key, unit) in keys {
        case.tell_apart(name, &entry[key], unit);
    }
    let words: Vec<&str> = case.keys.iter().map(|key| key.text.as_str()).collect();
    case.name = words.join(", ");
    case
}

/// Adds figures in this unit: their names, and where they are (JSON pointers).
fn add(case: &mut Case, entry: &Value, unit: Unit, figures: &[(&str, &str)]) {
    for &(name, pointer) in figures {
        let value = entry.pointer(pointer).unwrap_or(&Value::Null);
        case.add(name, value, unit);
    }
}

/// Adds a distribution: its histogram, the medians of its rounds, and the percentiles for which it
/// has enough samples.
fn add_distribution(case: &mut Case, entry: &Value) {
    case.rounds = numbers(&entry["round_medians"]);
    case.histogram = buckets(entry);
    let list = entry["percentiles"].as_array().map(Vec::as_slice);
    for percentile in list.unwrap_or_default() {
        if let Some(share) = percentile["share"].as_f64() {
            // Rounded, because 0.999 * 100 is not 99.9.
            let name = format!("p{}", (share * 1e7).round() / 1e5);
            case.add(&name, &percentile["usec"], Unit::Microseconds);
        }
    }
}

/// Returns other times of the case before it.
fn part(case: Case, time: &str) -> Case {
    Case {
        name: format!("{}, {time}", case.name),
        is_part: true,
        ..case
    }
}

/// The times of an open loop have two cases: response and service.
pub(super) fn lat(entry: &Value) -> Vec<Case> {
    let keys = [
        ("size", "bytes", " bytes"),
        ("api", "api", ""),
        ("rate", "rate_per_second", "/s"),
    ];
    let times = |mut case: Case, entry: &Value, time: &Value| {
        case.tell_apart("time", time, "");
        case.samples = entry["iterations"].as_u64();
        let first = [
            ("min", "/t_min"),
            ("p50", "/t_typical"),
            ("avg", "/t_avg"),
            ("stdev", "/t_stdev"),
        ];
        add(&mut case, entry, Unit::Microseconds, &first);
        add_distribution(&mut case, entry);
        for name in ["p99", "p99.9", "p99.99", "max"] {
            case.add(name, &entry[name], Unit::Microseconds);
        }
        // Service times have none.
        series::add(&mut case, &entry["series"]);
        case
    };
    let (service, case) = (&entry["service"], case(entry, &keys));
    if !service.is_object() {
        return vec![times(case, entry, &Value::Null)];
    }
    let response = times(case.clone(), entry, &"response time".into());
    let service = times(part(case, "service time"), service, &"service time".into());
    vec![response, service]
}

/// `bw` and `rate`.
pub(super) fn bw(entry: &Value) -> Vec<Case> {
    let mut case = case(entry, &[("size", "bytes", " bytes"), ("api", "api", "")]);
    case.samples = entry["iterations"].as_u64();
    let rounds = numbers(&entry["round_bytes_per_second"]);
    case.rounds = rounds.iter().map(|bytes| bytes / MEBIBYTE).collect();
    case.rounds_unit = Unit::Mebibytes;
    for (name, key, unit, divisor) in [
        (
            "bw_peak",
            "bw_peak_bytes_per_second",
            Unit::Mebibytes,
            MEBIBYTE,
        ),
        (
            "bw_avg",
            "bw_average_bytes_per_second",
            Unit::Mebibytes,
            MEBIBYTE,
        ),
        ("msg_rate", "messages_per_second", Unit::Megamessages, 1e6),
    ] {
        let value = entry[key].as_f64().map(|it| it / divisor);
        case.add(name, &value.into(), unit);
    }
    let client = [
        ("cpu", "/cpu_nanoseconds_per_message"),
        ("busy", "/busy_nanoseconds_per_message"),
    ];
    add(&mut case, entry, Unit::Nanoseconds, &client);
    vec![case]
}

/// Latencies and, of messages on schedule, response times.
pub(super) fn wake(entry: &Value) -> Vec<Case> {
    let mut case = case(entry, &[("wait", "policy", ""), ("rate", "rate", "/s")]);
    if entry["rate"].is_null() {
        case.name += ", max";
        case.tell_apart("rate", &"one message at a time".into(), "");
    }
    case.samples = entry["messages"].as_u64();
    let times = |mut case: Case, time: &str, times: &Value, distribution: &Value| {
        case.tell_apart("time", &time.into(), "");
        let first = [("min", "/min"), ("p50", "/median"), ("avg", "/mean")];
        add(&mut case, times, Unit::Microseconds, &first);
        add_distribution(&mut case, distribution);
        for name in ["p90", "p99", "p99.9", "max"] {
            case.add(name, &times[name], Unit::Microseconds);
        }
        case
    };
    let latency = &entry["latency_microseconds"];
    let mut all = vec![times(case.clone(), "wake-up latency", latency, entry)];
    let cpu = [("cpu", "/cpu_microseconds_per_message")];
    add(&mut all[0], entry, Unit::Microseconds, &cpu);
    let share = entry["cpu_share"].as_f64().map(|share| share * 100.0);
    all[0].add("cpu-share", &share.into(), Unit::Percent);
    let response = &entry["response_microseconds"];
    if response.is_object() {
        let (time, distribution) = ("response time", &entry["response"]);
        all.push(times(part(case, time), time, response, distribution));
    }
    all
}

pub(super) fn cost(entry: &Value) -> Vec<Case> {
    let keys = [("operation", "operation", ""), ("variant", "variant", "")];
    let mut case = case(entry, &keys);
    let time = [("time", "/nanoseconds/median")];
    add(&mut case, entry, Unit::Nanoseconds, &time);
    case.add("instructions", &entry["instructions"], Unit::None);
    // A variant that has no such call has no figures.
    Vec::from_iter((!case.figures.is_empty()).then_some(case))
}

pub(super) fn scale(entry: &Value) -> Vec<Case> {
    let mut case = case(entry, &[("endpoints", "endpoints", " endpoints")]);
    for (before, cost) in [("", entry), ("libmlx5.", &entry["libmlx5"])] {
        let time = &cost["nanoseconds"]["median"];
        case.add(&format!("{before}time"), time, Unit::Nanoseconds);
        for (figure, key) in [
            ("instructions", "instructions"),
            ("cache-lines", "cache_lines"),
        ] {
            case.add(&format!("{before}{figure}"), &cost[key], Unit::None);
        }
    }
    for kind in ["libmlx5", "engine", "dat"] {
        let bytes = &entry["memory"][kind];
        case.add(&format!("memory.{kind}"), bytes, Unit::None);
    }
    vec![case]
}

/// Both programs have a case: medians over the pairs; its rounds are the pairs. A pair
/// with a run that has no median is left out, so that runs are compared with their
/// neighbours.
pub(super) fn compare(pairs: &[Value]) -> Vec<Case> {
    let is_ucx = pairs.iter().any(|pair| pair["ucx_perftest"].is_object());
    let other = if is_ucx { "ucx_perftest" } else { "perftest" };
    let has_both = |pair: &&Value| {
        let mut medians = [other, "dat_bench"]
            .into_iter()
            .map(|it| &pair[it]["t_typical"]);
        medians.all(Value::is_number)
    };
    let pairs: Vec<&Value> = pairs.iter().filter(has_both).collect();
    let program = |name: &str, key: &str, figures: &[(&str, &str)]| {
        let each = |figure: &str| -> Vec<f64> {
            let values = pairs.iter().map(|pair| pair[key][figure].as_f64());
            values.flatten().collect()
        };
        let mut case = Case {
            name: name.to_owned(),
            rounds: each("t_typical"),
            ..Case::default()
        };
        case.tell_apart("program", &name.into(), "");
        for &(figure, key) in figures {
            let values = each(key);
            let value = (!values.is_empty()).then(|| median(&values));
            case.add(figure, &value.into(), Unit::Microseconds);
        }
        let first = |pair: &&Value| pair[key]["unreliable"][0].as_str().map(str::to_owned);
        let reasons: Vec<String> = pairs.iter().filter_map(first).collect();
        case.unreliable.extend(reasons.first().map(|reason| {
            let (bad, all) = (reasons.len(), pairs.len());
            format!(
                "{bad} of {}, the first because {reason}",
                counted(all as u64, "run")
            )
        }));
        case
    };
    // Absent figures are left out.
    let theirs = [
        ("p50", "t_typical"),
        ("avg", "t_avg"),
        ("stdev", "true_stdev"),
        ("max", "true_max"),
    ];
    let ours = [("p50", "t_typical"), ("stdev", "t_stdev"), ("max", "max")];
    vec![
        program(other, other, &theirs),
        program("dat-bench", "dat_bench", &ours),
    ]
}
