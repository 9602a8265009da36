//! Result files as they are read: cases with named figures, whatever command and
//! version wrote them.
//!
//! ```text
//! read        the JSON of each command → cases
//! condition   --fail-if
//! ```

mod condition;
mod read;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

pub(crate) use condition::Condition;

use crate::failure::Failure;

/// The newest version of each schema that this program reads and writes.
const SCHEMAS: [(&str, u32); 4] = [("lat", 3), ("wake", 2), ("cost", 1), ("scale", 1)];

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Microseconds,
    Nanoseconds,
    /// Anything else: a count, bytes.
    None,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
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
    /// The median of each round, microseconds.
    pub(crate) rounds: Vec<f64>,
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
                "its schema is '{schema}'; expected a result of lat, wake, cost or scale"
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
            "lat" => read::lat,
            "wake" => read::wake,
            "cost" => read::cost,
            _ => read::scale,
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

#[cfg(test)]
mod tests;
