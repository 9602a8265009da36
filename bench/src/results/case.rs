//! A measured case, with named figures.

use serde_json::Value;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    #[default]
    Microseconds,
    Nanoseconds,
    Percent,
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
            Self::Percent => "%",
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

impl Figure {
    /// Returns its name in the tables of a command, with its unit.
    pub(crate) fn column(&self, command: &str) -> String {
        let name = self.name.as_str();
        let (name, unit) = match (command, name) {
            ("lat" | "compare", "p50") => ("t_typical".to_owned(), "usec"),
            ("lat" | "compare", "min" | "max" | "avg" | "stdev") => (format!("t_{name}"), "usec"),
            ("bw", "bw_avg") => ("BW average".to_owned(), "MiB/sec"),
            ("bw", "bw_peak") => ("BW peak".to_owned(), "MiB/sec"),
            ("bw", "msg_rate") => ("MsgRate".to_owned(), "Mpps"),
            _ => match name.strip_prefix('p') {
                Some(percent) if percent.starts_with(|c: char| c.is_ascii_digit()) => (
                    format!("{percent}%"),
                    if command == "lat" { "usec" } else { "us" },
                ),
                _ => (name.to_owned(), self.unit.name()),
            },
        };
        match unit {
            "" => name,
            unit => format!("{name} [{unit}]"),
        }
    }
}

/// One of the values that distinguish a case from others: its message size, rate,
/// interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// The value, if it is a number.
    pub(crate) number: Option<f64>,
}

/// The latencies of a part of a case's time, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    pub(crate) begin: f64,
    /// When the next slot begins, or the round ends.
    pub(crate) end: f64,
    pub(crate) samples: u64,
    pub(crate) typical: f64,
    pub(crate) p99: Option<f64>,
    pub(crate) max: f64,
}

/// What disturbed a part of a case's time, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Disturbance {
    pub(crate) begin: f64,
    pub(crate) end: f64,
    /// In words.
    pub(crate) what: String,
}

/// One measured case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Case {
    /// What distinguishes it from the other cases of the file.
    pub(crate) name: String,
    /// The same, in parts.
    pub(crate) keys: Vec<Key>,
    pub(crate) figures: Vec<Figure>,
    /// Number of samples; none if the file does not tell.
    pub(crate) samples: Option<u64>,
    /// The median of each round, microseconds; of `bw`, the average, MiB per second.
    pub(crate) rounds: Vec<f64>,
    /// Upper end in nanoseconds and count of the buckets with samples, in ascending order.
    pub(crate) histogram: Vec<(u64, u64)>,
    pub(crate) rounds_unit: Unit,
    /// Latencies over the time of the case, in ascending order.
    pub(crate) series: Vec<Slot>,
    pub(crate) disturbances: Vec<Disturbance>,
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

    pub(crate) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Adds what distinguishes the case from others; `unit` follows a number.
    pub(super) fn tell_apart(&mut self, name: &'static str, value: &Value, unit: &str) {
        let number = value.as_f64();
        let text = match (value, number) {
            (Value::Null, _) => return,
            (Value::String(text), _) => text.clone(),
            (_, Some(1.0)) => format!("1{}", unit.strip_suffix('s').unwrap_or(unit)),
            (_, Some(number)) => format!("{number}{unit}"),
            (other, None) => other.to_string(),
        };
        self.keys.push(Key { name, text, number });
    }

    /// Adds a figure, unless it is absent, null or known.
    pub(super) fn add(&mut self, name: &str, value: &Value, unit: Unit) {
        if let (Some(value), None) = (value.as_f64(), self.figure(name)) {
            let name = name.to_owned();
            self.figures.push(Figure { name, value, unit });
        }
    }
}
