//! The results of each command, as cases.

use serde_json::Value;

use super::{Case, Unit};
use crate::stats::rounds::median;

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
            histogram: buckets(entry),
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
    let tell_apart = |case: &mut Case, time: &Value| {
        case.tell_apart("size", &entry["bytes"], " bytes");
        case.tell_apart("api", &entry["api"], "");
        case.tell_apart("rate", &entry["rate_per_second"], "/s");
        case.tell_apart("time", time, "");
    };
    let response = match service {
        true => "response time".into(),
        false => Value::Null,
    };
    tell_apart(&mut all[0], &response);
    if service {
        let mut service = times(format!("{name}, service time"), &entry["service"]);
        tell_apart(&mut service, &"service time".into());
        all.push(Case {
            is_part: true,
            unreliable: reasons(entry),
            ..service
        });
    }
    all
}

/// `bw` and `rate`.
pub(super) fn bw(entry: &Value) -> Vec<Case> {
    const MEBIBYTE: f64 = (1 << 20) as f64;
    let api = entry["api"].as_str().unwrap_or("?");
    let in_mebibytes = |value: &Value| value.as_f64().map(|it| it / MEBIBYTE);
    let mut case = Case {
        name: format!("{} bytes, {api}", entry["bytes"]),
        samples: entry["iterations"].as_u64(),
        rounds: numbers(&entry["round_bytes_per_second"])
            .iter()
            .map(|bytes| bytes / MEBIBYTE)
            .collect(),
        rounds_unit: Unit::Mebibytes,
        unreliable: reasons(entry),
        ..Case::default()
    };
    for (name, key) in [
        ("bw_peak", "bw_peak_bytes_per_second"),
        ("bw_avg", "bw_average_bytes_per_second"),
    ] {
        case.add(name, &in_mebibytes(&entry[key]).into(), Unit::Mebibytes);
    }
    let rate = entry["messages_per_second"].as_f64().map(|it| it / 1e6);
    case.add("msg_rate", &rate.into(), Unit::Megamessages);
    case.tell_apart("size", &entry["bytes"], " bytes");
    case.tell_apart("api", &entry["api"], "");
    vec![case]
}

pub(super) fn wake(entry: &Value) -> Vec<Case> {
    let rate = entry["rate"]
        .as_f64()
        .map_or("max".to_owned(), |rate| format!("{rate}/s"));
    let mut case = Case {
        name: format!("{}, {rate}", entry["policy"].as_str().unwrap_or("?")),
        samples: entry["messages"].as_u64(),
        rounds: numbers(&entry["round_medians"]),
        histogram: buckets(entry),
        unreliable: reasons(entry),
        ..Case::default()
    };
    let tell_apart = |case: &mut Case, time: &str| {
        case.tell_apart("wait", &entry["policy"], "");
        match entry["rate"].is_null() {
            true => case.tell_apart("rate", &"one message at a time".into(), ""),
            false => case.tell_apart("rate", &entry["rate"], "/s"),
        }
        case.tell_apart("time", &time.into(), "");
    };
    tell_apart(&mut case, "wake-up latency");
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
    let share = entry["cpu_share"].as_f64().map(|share| share * 100.0);
    case.add("cpu-share", &share.into(), Unit::Percent);
    let mut all = vec![case];
    let response = &entry["response_microseconds"];
    if response.is_object() {
        let mut case = Case {
            name: format!("{}, response time", all[0].name),
            is_part: true,
            unreliable: reasons(entry),
            samples: all[0].samples,
            rounds: numbers(&entry["response"]["round_medians"]),
            histogram: buckets(&entry["response"]),
            ..Case::default()
        };
        tell_apart(&mut case, "response time");
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
        unreliable: reasons(entry),
        ..Case::default()
    };
    case.tell_apart("operation", &entry["operation"], "");
    case.tell_apart("variant", &entry["variant"], "");
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
        unreliable: reasons(entry),
        ..Case::default()
    };
    case.tell_apart("endpoints", &entry["endpoints"], " endpoints");
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
        case.add(
            &format!("memory.{kind}"),
            &entry["memory"][kind],
            Unit::None,
        );
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
            format!("{bad} of {all} runs, the first because {reason}")
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
