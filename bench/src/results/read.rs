//! The results of each command, as cases.

use serde_json::Value;

use super::{Case, Unit};

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

/// Adds the percentiles that a case has enough samples for.
fn percentiles(case: &mut Case, entry: &Value) {
    let list = entry["percentiles"].as_array().map(Vec::as_slice);
    for percentile in list.unwrap_or_default() {
        if let Some(share) = percentile["share"].as_f64() {
            // Rounded, because 0.999 * 100 is not 99.9.
            let name = format!("p{}", (share * 1e7).round() / 1e5);
            case.add(&name, &percentile["usec"], Unit::Microseconds);
        }
    }
}

/// The times of an open loop have two cases: response and service.
pub(super) fn lat(entry: &Value) -> Vec<Case> {
    let mut name = format!("{} bytes", entry["bytes"]);
    if let Some(api) = entry["api"].as_str() {
        name += &format!(", {api}");
    }
    if let Some(rate) = entry["rate_per_second"].as_f64() {
        name += &format!(", {rate}/s");
    }
    let times = |name: String, entry: &Value| {
        let mut case = Case {
            name,
            samples: entry["iterations"].as_u64(),
            rounds: numbers(&entry["round_medians"]),
            ..Case::default()
        };
        for (name, key) in [
            ("min", "t_min"),
            ("p50", "t_typical"),
            ("avg", "t_avg"),
            ("stdev", "t_stdev"),
        ] {
            case.add(name, &entry[key], Unit::Microseconds);
        }
        percentiles(&mut case, entry);
        for name in ["p99", "p99.9", "p99.99", "max"] {
            case.add(name, &entry[name], Unit::Microseconds);
        }
        case
    };
    let service = entry["service"].is_object();
    let mut all = vec![times(name.clone(), entry)];
    all[0].unreliable = reasons(entry);
    if service {
        let service = times(format!("{name}, service time"), &entry["service"]);
        all.push(Case {
            is_part: true,
            unreliable: reasons(entry),
            ..service
        });
    }
    all
}

pub(super) fn wake(entry: &Value) -> Vec<Case> {
    let rate = entry["rate"]
        .as_f64()
        .map_or("max".to_owned(), |rate| format!("{rate}/s"));
    let mut case = Case {
        name: format!("{}, {rate}", entry["policy"].as_str().unwrap_or("?")),
        samples: entry["messages"].as_u64(),
        rounds: numbers(&entry["round_medians"]),
        unreliable: reasons(entry),
        ..Case::default()
    };
    let times = &entry["latency_microseconds"];
    for (name, key) in [("min", "min"), ("p50", "median"), ("avg", "mean")] {
        case.add(name, &times[key], Unit::Microseconds);
    }
    percentiles(&mut case, entry);
    for name in ["p90", "p99", "p99.9", "max"] {
        case.add(name, &times[name], Unit::Microseconds);
    }
    case.add(
        "cpu",
        &entry["cpu_microseconds_per_message"],
        Unit::Microseconds,
    );
    let mut all = vec![case];
    let response = &entry["response_microseconds"];
    if response.is_object() {
        let mut case = Case {
            name: format!("{}, response time", all[0].name),
            is_part: true,
            unreliable: reasons(entry),
            samples: all[0].samples,
            rounds: numbers(&entry["response"]["round_medians"]),
            ..Case::default()
        };
        for (name, key) in [("min", "min"), ("p50", "median"), ("avg", "mean")] {
            case.add(name, &response[key], Unit::Microseconds);
        }
        percentiles(&mut case, &entry["response"]);
        case.add("max", &response["max"], Unit::Microseconds);
        all.push(case);
    }
    all
}

pub(super) fn cost(entry: &Value) -> Vec<Case> {
    let word = |key: &str| entry[key].as_str().unwrap_or("?").to_owned();
    let mut case = Case {
        name: format!("{}, {}", word("operation"), word("variant")),
        ..Case::default()
    };
    case.add("time", &entry["nanoseconds"]["median"], Unit::Nanoseconds);
    case.add("instructions", &entry["instructions"], Unit::None);
    // A variant that has no such call has no figures.
    (!case.figures.is_empty())
        .then_some(case)
        .into_iter()
        .collect()
}

pub(super) fn scale(entry: &Value) -> Vec<Case> {
    let mut case = Case {
        name: format!("{} endpoints", entry["endpoints"]),
        ..Case::default()
    };
    case.add("time", &entry["nanoseconds"]["median"], Unit::Nanoseconds);
    case.add("instructions", &entry["instructions"], Unit::None);
    case.add("cache-lines", &entry["cache_lines"], Unit::None);
    for kind in ["libmlx5", "engine", "dat"] {
        case.add(
            &format!("memory.{kind}"),
            &entry["memory"][kind],
            Unit::None,
        );
    }
    vec![case]
}
