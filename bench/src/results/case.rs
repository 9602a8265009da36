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

/// One of the values that distinguish a case from others: its message size, rate,
/// interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// The value, if it is a number.
    pub(crate) number: Option<f64>,
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
