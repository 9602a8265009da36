//! Conditions that fail a run: `p99>5us`, or in `diff` also `p99>+10%`.

use std::fmt;
use std::str::FromStr;

use super::case::{Case, Figure, Unit};
use crate::failure::Failure;

/// A condition of `--fail-if`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    /// The name of the figure.
    figure: String,
    /// Whether the figure must be above the limit for the condition to hold, else below.
    above: bool,
    limit: Limit,
    /// As it was given.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Nanoseconds.
    Time(f64),
    /// Without a unit.
    Number(f64),
    /// In the unit of the figure: a bandwidth or a message rate.
    Of(Unit, f64),
    /// A change since the first file, as a share.
    Change(f64),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parsed(text).ok_or_else(|| {
            "expected FIGURE>LIMIT or FIGURE<LIMIT, such as p99>5us, max>1ms, bw_avg<10000MiB/s, instructions>200 or, in diff, p50>+10%".to_owned()
        })
    }
}

impl Condition {
    fn parsed(text: &str) -> Option<Self> {
        let at = text.find(['>', '<'])?;
        let (figure, limit) = (text[..at].trim(), text[at + 1..].trim());
        let digits = limit.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number: f64 = digits.parse().ok()?;
        let limit = match limit[digits.len()..].trim() {
            "" => Limit::Number(number),
            "ns" => Limit::Time(number),
            "us" | "µs" => Limit::Time(number * 1e3),
            "ms" => Limit::Time(number * 1e6),
            "s" => Limit::Time(number * 1e9),
            // With a sign, so that it is not mistaken for a share of something.
            "MiB/s" | "MiB/sec" => Limit::Of(Unit::Mebibytes, number),
            // 10^9 bits.
            "Gb/s" | "Gb/sec" => Limit::Of(Unit::Mebibytes, number * 1e9 / 8.0 / 1_048_576.0),
            "Mpps" => Limit::Of(Unit::Megamessages, number),
            "%" if digits.starts_with(['+', '-']) => Limit::Change(number / 100.0),
            _ => return None,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let figure = match figure {
            "typical" | "median" => "p50",
            "mean" => "avg",
            other => other,
        };
        (!figure.is_empty() && figure.chars().all(is_name)).then(|| Self {
            figure: figure.to_owned(),
            above: text[at..].starts_with('>'),
            limit,
            text: text.trim().to_owned(),
        })
    }

    /// Returns whether the condition is a change between two files.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self.limit, Limit::Change(_))
    }

    /// Returns the text of a condition that holds for a case; fails if the case
    /// cannot tell. A case that the first file does not have has not changed.
    pub(super) fn judge(
        &self,
        case: &Case,
        before: Option<&Case>,
    ) -> Result<Option<String>, Failure> {
        if case.is_part && case.figure(&self.figure).is_none() {
            return Ok(None);
        }
        let figure = self.find(case)?;
        let (value, limit) = match self.limit {
            Limit::Change(limit) => {
                let Some(before) = before else {
                    return Ok(None);
                };
                let before = self.find(before)?.value;
                (figure.value / before - 1.0, limit)
            }
            Limit::Number(limit) => (figure.value, limit),
            Limit::Of(unit, limit) if unit == figure.unit => (figure.value, limit),
            Limit::Of(unit, _) => {
                return Err(Failure::usage(format!(
                    "--fail-if {self}: {} is not in {}: give a number without a unit",
                    self.figure,
                    unit.name()
                )));
            }
            Limit::Time(limit) => match figure.unit {
                Unit::Nanoseconds => (figure.value, limit),
                Unit::Microseconds => (figure.value, limit / 1e3),
                Unit::Percent | Unit::Mebibytes | Unit::Megamessages | Unit::None => {
                    return Err(Failure::usage(format!(
                        "--fail-if {self}: {} is not a time: give a number without a unit",
                        self.figure
                    )));
                }
            },
        };
        let holds = if self.above {
            value > limit
        } else {
            value < limit
        };
        Ok(holds.then(|| {
            let told = match self.limit {
                Limit::Change(_) => format!("changed by {:+.1} %", value * 100.0),
                _ => format!("is {:.3} {}", figure.value, figure.unit.name()),
            };
            format!("{self}: {}: {} {}", case.name, self.figure, told.trim_end())
        }))
    }

    fn find<'a>(&self, case: &'a Case) -> Result<&'a Figure, Failure> {
        case.figure(&self.figure).ok_or_else(|| {
            let names: Vec<_> = case.figures.iter().map(|it| it.name.as_str()).collect();
            let samples = case.samples.map_or_else(String::new, |count| {
                format!(" (a percentile needs ten samples above it; there are {count} samples)")
            });
            Failure::usage(format!(
                "--fail-if {self}: {} has no figure '{}'{samples}; it has {}",
                case.name,
                self.figure,
                names.join(", ")
            ))
        })
    }
}
