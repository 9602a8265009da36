//! Result files as they are read: cases with named figures, whatever command and
//! version wrote them. A module names only those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `read` | the JSON of each command → cases |
//! | `series` | latencies over time |
//! | `notes` | what a file tells beside its cases |
//! | `condition` | `--fail-if` |
//! | `case` | a measured case |

mod case;
mod condition;
mod notes;
mod read;
mod series;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

pub(crate) use case::{Case, Figure, Key, Slot, Unit};
pub(crate) use condition::{Condition, Offer, Percentiles};

use crate::failure::Failure;

/// The newest version of each schema that this program reads and writes.
const SCHEMAS: [(&str, u32); 6] = [
    ("lat", 5),
    ("bw", 2),
    ("wake", 2),
    ("cost", 2),
    ("scale", 4),
    ("compare", 2),
];

/// The maximum length of a result file, in bytes. A long one has under 1 MiB.
const LONGEST: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) struct ResultFile {
    /// The command that wrote it.
    pub(crate) command: &'static str,
    /// The version of dat-bench that wrote it.
    pub(crate) version: String,
    /// Seconds since 1970, UTC; none if the file does not tell.
    pub(crate) finished_at: Option<u64>,
    /// Whether the device was emulated, so that no figure is a NIC's.
    pub(crate) emulated: bool,
    /// Host, device and options, by name.
    pub(crate) conditions: BTreeMap<String, String>,
    pub(crate) cases: Vec<Case>,
    /// What else the file tells, in sentences.
    pub(crate) notes: Vec<String>,
}

impl ResultFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let mut text = String::new();
        // One byte more shows that the file is longer.
        let read =
            File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
        let cause = match read {
            Ok(length) if length as u64 <= LONGEST => None,
            Ok(_) => Some(format!("it is longer than {} MiB", LONGEST >> 20)),
            Err(error) => Some(error.to_string()),
        };
        if let Some(cause) = cause {
            return Err(Failure::usage(format!(
                "cannot read {}: {cause}; name a file that --json has written",
                path.display()
            )));
        }
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
                "its schema is '{schema}'; expected a result of lat, bw, rate, wake, cost, scale or compare"
            ));
        };
        if version > newest {
            return Err(format!(
                "a newer dat-bench has written it: its schema is '{schema}', this dat-bench reads {command} up to version {newest}"
            ));
        }
        let (list, read): (_, fn(&Value) -> Vec<Case>) = match command {
            "lat" => ("results", read::lat),
            "bw" => ("results", read::bw),
            "wake" => ("results", read::wake),
            "cost" => ("results", read::cost),
            "scale" => ("results", read::scale),
            _ => ("pairs", |_| Vec::new()),
        };
        let entries = value[list]
            .as_array()
            .ok_or_else(|| format!("it has no list '{list}'; it is incomplete"))?;
        let mut cases: Vec<Case> = entries.iter().flat_map(read).collect();
        if command == "compare" {
            cases = read::compare(entries);
        }
        let mut conditions = BTreeMap::new();
        for part in ["host", "device", "run", "conditions"] {
            flatten(part, &value[part], &mut conditions);
        }
        Ok(Self {
            command,
            version: value["dat_bench"].as_str().unwrap_or("?").to_owned(),
            finished_at: value["finished_at"].as_u64(),
            emulated: value["emulated"] == true,
            conditions,
            cases,
            notes: notes::of(&value),
        })
    }

    /// Returns the command, and the device that it measured.
    pub(crate) fn heading(&self) -> String {
        let name = self.condition("device.name").unwrap_or("an unknown device");
        let emulated = if self.emulated { " (emulated)" } else { "" };
        format!("dat-bench {} on {name}{emulated}", self.command)
    }

    /// Returns a condition, whatever part of the file it is in.
    pub(crate) fn condition(&self, name: &str) -> Option<&str> {
        let found = self.conditions.get(name);
        let found = found.or_else(|| self.conditions.get(&format!("conditions.{name}")));
        found.map(String::as_str)
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

/// Fails if a run cannot tell whether a condition holds. Called before it.
pub(crate) fn check(conditions: &[Condition], offer: &Offer<'_>) -> Result<(), Failure> {
    conditions.iter().try_for_each(|it| it.check(offer))
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
