//! What a result file tells beside its cases, in sentences.

use serde_json::Value;

/// Returns the sentences.
pub(super) fn of(file: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    if file["complete"] == false {
        notes.push(
            "The run ended early: not all cases were measured in all of their rounds.".to_owned(),
        );
    }
    match file["run"]["reported"].as_str() {
        _ if file["run"]["closed_loop"] == false => notes.push(
            "Open loop: a response time counts from the moment at which a message was due, a service time from the moment at which it was sent; both are full round trips.".to_owned(),
        ),
        Some("half_round_trip") => notes.push(
            "Latency is half of a round trip, with one message in flight (closed loop).".to_owned(),
        ),
        Some("full_round_trip") => notes.push(
            "Latency is a full round trip, with one message in flight (closed loop).".to_owned(),
        ),
        _ => {}
    }
    if let Some(definition) = file["latency_is"].as_str() {
        notes.push(format!("Wake-up latency: {definition}."));
    }
    let layers = file["layers"].as_array();
    notes.extend(layers.into_iter().flatten().filter_map(layer));
    notes.extend(ratio(file));
    notes
}

/// Returns what an interface of `lat` adds to the one before it.
fn layer(added: &Value) -> Option<String> {
    let rate = added["rate_per_second"]
        .as_f64()
        .map_or(String::new(), |rate| format!(", {rate}/s"));
    let verdict = match added["measurable"].as_bool() {
        Some(true) => "",
        Some(false) => ": no difference measurable",
        None => ": too few rounds to tell",
    };
    let interval = &added["interval_nanoseconds"];
    let range = match (interval["low"].as_f64(), interval["high"].as_f64()) {
        (Some(low), Some(high)) => format!(" ({low:+.0} to {high:+.0} ns with 95 % confidence)"),
        _ => String::new(),
    };
    Some(format!(
        "{} bytes{rate}: {} adds {:+.0} ns to {}{range}{verdict}.",
        added["bytes"],
        added["api"].as_str()?,
        added["typical_nanoseconds"].as_f64()?,
        added["over"].as_str()?,
    ))
}

/// Returns the ratio of `compare`.
fn ratio(file: &Value) -> Option<String> {
    let ratio = file["ratio"].as_f64()?;
    let interval = &file["ratio_interval"];
    let range = match (interval["low"].as_f64(), interval["high"].as_f64()) {
        (Some(low), Some(high)) => format!(" ({low:.3} to {high:.3} with 95 % confidence)"),
        _ => " (six pairs or more have a confidence interval)".to_owned(),
    };
    let verdict = match file["measurable"] == false {
        true => ": no difference measurable",
        false => "",
    };
    Some(format!(
        "dat-bench relative to perftest, median of the pairs' ratios: {ratio:.3}{range}{verdict}."
    ))
}
