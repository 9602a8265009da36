//! Result files as they are read: cases with named figures, whatever command and
//! version wrote them.
//!
//! ```text
//! lat wake cost scale   one function each: the command's JSON → cases
//! condition             --fail-if
//! ```

mod condition;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

pub(crate) use condition::Condition;

use crate::failure::Failure;

/// The newest version of each schema that this program reads and writes.
const SCHEMAS: [(&str, u32); 5] = [
    ("lat", 3),
    ("bw", 1),
    ("wake", 2),
    ("cost", 1),
    ("scale", 1),
];

/// The unit of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    #[default]
    Microseconds,
    Nanoseconds,
    /// 2^20 bytes per second.
    Mebibytes,
    /// 10^6 messages per second.
    Megamessages,
    /// Anything else: a count, bytes.
    None,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::Mebibytes => "MiB/s",
            Self::Megamessages => "Mpps",
            Self::None => "",
        }
    }
}

/// One figure of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

/// One measured case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Case {
    /// What distinguishes it from the other cases of the file.
    pub(crate) name: String,
    pub(crate) figures: Vec<Figure>,
    /// Number of samples; none if the file does not tell.
    pub(crate) samples: Option<u64>,
    /// The median of each round, microseconds; of `bw`, the average, MiB per second.
    pub(crate) rounds: Vec<f64>,
    /// The unit of the rounds.
    pub(crate) rounds_unit: Unit,
    /// Whether these are other times of the case before it: conditions on figures that
    /// only that one has are not judged.
    pub(crate) is_part: bool,
    /// Why the case is unreliable.
    pub(crate) unreliable: Vec<String>,
}

impl Case {
    pub(crate) fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Adds a figure, unless it is absent, null or known.
    fn add(&mut self, name: &str, value: &Value, unit: Unit) {
        if let (Some(value), None) = (value.as_f64(), self.figure(name)) {
            let name = name.to_owned();
            self.figures.push(Figure { name, value, unit });
        }
    }
}

/// A result file.
#[derive(Clone, Debug)]
pub(crate) struct ResultFile {
    /// The command that wrote it.
    pub(crate) command: &'static str,
    /// Host, device and options, by name.
    pub(crate) conditions: BTreeMap<String, String>,
    pub(crate) cases: Vec<Case>,
}

impl ResultFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!(
                "cannot read {}: {error}; name a file that --json has written",
                path.display()
            ))
        })?;
        Self::parse(&text)
            .map_err(|cause| Failure::usage(format!("cannot use {}: {cause}", path.display())))
    }

    /// Parses a file's text. The error is the cause and what is accepted.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            format!("it is not JSON ({error}); name a file that --json has written")
        })?;
        let schema = value["schema"].as_str().unwrap_or_default();
        let of_ours = schema
            .strip_prefix("dat-bench/")
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(command, version)| {
                let known = SCHEMAS.into_iter().find(|(name, _)| *name == command)?;
                Some((known, version.parse::<u32>().ok()?))
            });
        let Some(((command, newest), version)) = of_ours else {
            return Err(format!(
                "its schema is '{schema}'; expected a result of lat, bw, rate, wake, cost or scale"
            ));
        };
        if version > newest {
            return Err(format!(
                "a newer dat-bench has written it: its schema is '{schema}', this dat-bench reads {command} up to version {newest}"
            ));
        }
        let entries = value["results"]
            .as_array()
            .ok_or("it has no list 'results'; it is incomplete")?;
        let read = match command {
            "lat" => lat,
            "bw" => bw,
            "wake" => wake,
            "cost" => cost,
            _ => scale,
        };
        let mut conditions = BTreeMap::new();
        for part in ["host", "device", "run", "conditions"] {
            flatten(part, &value[part], &mut conditions);
        }
        Ok(Self {
            command,
            conditions,
            cases: entries.iter().flat_map(read).collect(),
        })
    }

    /// Fails if a condition holds for a case, and if no case can tell.
    pub(crate) fn require(&self, conditions: &[Condition]) -> Result<(), Failure> {
        let none = Self {
            cases: Vec::new(),
            ..self.clone()
        };
        self.require_since(&none, conditions)
    }

    /// As [`ResultFile::require`]; conditions may be changes since another file.
    pub(crate) fn require_since(
        &self,
        before: &Self,
        conditions: &[Condition],
    ) -> Result<(), Failure> {
        let mut held = Vec::new();
        for condition in conditions {
            for case in &self.cases {
                let earlier = before.cases.iter().find(|it| it.name == case.name);
                held.extend(condition.judge(case, earlier)?);
            }
        }
        match held.is_empty() {
            true => Ok(()),
            false => Err(Failure::run(format!("--fail-if: {}", held.join("\n  ")))),
        }
    }
}

/// Fails if a condition holds for a result of this run, whose file is `json`.
pub(crate) fn require(json: &str, conditions: &[Condition]) -> Result<(), Failure> {
    if conditions.is_empty() {
        return Ok(());
    }
    let file = ResultFile::parse(json)
        .map_err(|cause| Failure::run(format!("cannot read the results of this run: {cause}")))?;
    file.require(conditions)
}

/// Values of a clock that differ between all runs.
const NOT_CONDITIONS: [&str; 2] = ["nanoseconds_per_tick", "clock_reading_nanoseconds"];

/// Collects the values of an object, with their path as name.
fn flatten(name: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if !NOT_CONDITIONS.contains(&key.as_str()) {
                    flatten(&format!("{name}.{key}"), value, into);
                }
            }
        }
        Value::Null => {}
        Value::String(text) => {
            into.insert(name.to_owned(), text.clone());
        }
        other => {
            into.insert(name.to_owned(), other.to_string());
        }
    }
}

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
fn lat(entry: &Value) -> Vec<Case> {
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

/// `bw` and `rate`.
fn bw(entry: &Value) -> Vec<Case> {
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
    vec![case]
}

fn wake(entry: &Value) -> Vec<Case> {
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

fn cost(entry: &Value) -> Vec<Case> {
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

fn scale(entry: &Value) -> Vec<Case> {
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

#[cfg(test)]
mod tests;
