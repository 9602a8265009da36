//! Conditions that fail a run: `p99>5us`, or in `diff` also `p99>+10%`.

use std::fmt;
use std::str::FromStr;

use super::case::{Case, Figure, Unit};
use crate::failure::Failure;
use crate::stats::supports;

/// What a run will measure, so that conditions are checked before it.
pub(crate) struct Offer<'a> {
    /// The command.
    pub(crate) command: &'a str,
    pub(crate) figures: &'a [(&'a str, Unit)],
    /// Figures that this run does not have, each with the reason.
    pub(crate) absent: &'a [(&'a str, &'a str)],
    pub(crate) percentiles: Percentiles,
}

/// The percentiles of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Percentiles {
    /// Those that the samples of a case support: this number, if it is known.
    Of(Option<u64>),
    None,
}

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
    /// In the unit of the figure: a bandwidth, a message rate or a share.
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
        let number: f64 = digits.parse().ok().filter(|it: &f64| it.is_finite())?;
        let limit = match limit[digits.len()..].trim() {
            "%" if digits.starts_with(['+', '-']) => Limit::Change(number / 100.0),
            // No figure can be negative.
            _ if number < 0.0 => return None,
            "" => Limit::Number(number),
            "ns" => Limit::Time(number),
            "us" | "µs" => Limit::Time(number * 1e3),
            "ms" => Limit::Time(number * 1e6),
            "s" => Limit::Time(number * 1e9),
            "MiB/s" | "MiB/sec" => Limit::Of(Unit::Mebibytes, number),
            // 10^9 bits.
            "Gb/s" | "Gb/sec" => Limit::Of(Unit::Mebibytes, number * 1e9 / 8.0 / 1_048_576.0),
            "Mpps" => Limit::Of(Unit::Megamessages, number),
            "%" => Limit::Of(Unit::Percent, number),
            _ => return None,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let figure = match figure.strip_prefix("t_").unwrap_or(figure) {
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

    /// Fails if a run cannot tell whether the condition holds.
    pub(crate) fn check(&self, offer: &Offer<'_>) -> Result<(), Failure> {
        let refuse = |cause: String| Err(self.refusal(cause));
        if let Some((_, reason)) = offer.absent.iter().find(|(name, _)| *name == self.figure) {
            return refuse(format!("this run has no {}: {reason}", self.figure));
        }
        let known = offer.figures.iter().find(|(name, _)| *name == self.figure);
        if let Some(&(_, unit)) = known {
            return self.limit_in(unit).map(drop);
        }
        let mut names: Vec<&str> = offer.figures.iter().map(|(name, _)| *name).collect();
        let Percentiles::Of(samples) = offer.percentiles else {
            let names = names.join(", ");
            let what = match share(&self.figure) {
                Some(_) => "no percentiles".to_owned(),
                None => format!("no figure '{}'", self.figure),
            };
            return refuse(format!("{} measures {what}; it has {names}", offer.command));
        };
        let Some(share) = share(&self.figure) else {
            names.push("any percentile above p0 and below p100, such as p99.9");
            let (command, names) = (offer.command, names.join(", "));
            let figure = &self.figure;
            return refuse(format!(
                "{command} has no figure '{figure}'; it has {names}"
            ));
        };
        match samples {
            Some(count) if !supports(count, share) => refuse(format!(
                "{}, and each result of this run will have {count}: take more with -n, or a lower percentile",
                self.needs(share)
            )),
            _ => self.limit_in(Unit::Microseconds).map(drop),
        }
    }

    /// Returns how many samples the percentile needs, in words.
    fn needs(&self, share: f64) -> String {
        let least = (10.0 / (1.0 - share) - 1e-4).ceil();
        format!(
            "{} needs {least} samples, so that ten are above it",
            self.figure
        )
    }

    fn refusal(&self, cause: String) -> Failure {
        Failure::usage(format!("--fail-if {self}: {cause}"))
    }

    /// Returns the limit in the unit of the figure; fails if it is in another one.
    fn limit_in(&self, unit: Unit) -> Result<f64, Failure> {
        let (is, give) = match unit {
            Unit::Microseconds | Unit::Nanoseconds => ("a time", "ns, us, ms or s"),
            Unit::Percent => ("a share", "%"),
            Unit::Mebibytes => ("a bandwidth", "MiB/s or Gb/s"),
            Unit::Megamessages => ("a message rate", "Mpps"),
            Unit::None => ("a number", "no unit"),
        };
        match (self.limit, unit) {
            (Limit::Change(limit) | Limit::Number(limit), _) => Ok(limit),
            (Limit::Time(limit), Unit::Nanoseconds) => Ok(limit),
            (Limit::Time(limit), Unit::Microseconds) => Ok(limit / 1e3),
            (Limit::Of(of, limit), _) if of == unit => Ok(limit),
            _ => Err(self.refusal(format!("{} is {is}: give a limit with {give}", self.figure))),
        }
    }

    /// Returns the text of a condition that holds for a case; fails if the case
    /// cannot tell. A case that the first file does not have has not changed.
    pub(super) fn judge(
        &self,
        case: &Case,
        before: Option<&Case>,
    ) -> Result<Option<String>, Failure> {
        if case.is_part && share(&self.figure).is_none() && case.figure(&self.figure).is_none() {
            return Ok(None);
        }
        let figure = self.find(case)?;
        let limit = self.limit_in(figure.unit)?;
        let value = match (self.is_change(), before) {
            (false, _) => figure.value,
            (true, None) => return Ok(None),
            (true, Some(before)) => figure.value / self.find(before)?.value - 1.0,
        };
        let holds = match self.above {
            true => value > limit,
            false => value < limit,
        };
        Ok(holds.then(|| {
            let told = match self.is_change() {
                true => format!("changed by {:+.1} %", value * 100.0),
                false => format!("is {:.3} {}", figure.value, figure.unit.name()),
            };
            format!("{self}: {}: {} {}", case.name, self.figure, told.trim_end())
        }))
    }

    /// Returns the figure of a case; a percentile that the file does not have is computed from the
    /// histogram.
    fn find(&self, case: &Case) -> Result<Figure, Failure> {
        if let Some(figure) = case.figure(&self.figure) {
            return Ok(figure.clone());
        }
        let refuse = |cause: String| Err(self.refusal(format!("{}: {cause}", case.name)));
        let names: Vec<_> = case.figures.iter().map(|it| it.name.as_str()).collect();
        let names = names.join(", ");
        let Some(share) = share(&self.figure) else {
            return refuse(format!("no figure '{}'; it has {names}", self.figure));
        };
        let all = case.histogram.iter().map(|&(_, count)| count);
        let total = all.fold(0, u64::saturating_add);
        match case.samples.unwrap_or(total) {
            count if count > 0 && !supports(count, share) => {
                return refuse(format!(
                    "{}, and there are {count}; it has {names}",
                    self.needs(share)
                ));
            }
            _ if total == 0 => {
                return refuse(format!(
                    "there is no histogram to compute {} from; it has {names}",
                    self.figure
                ));
            }
            _ => {}
        }
        let rank = ((share * total as f64 - 1e-6).ceil() as u64).max(1);
        let mut below = 0u64;
        let reached = case.histogram.iter().find(|&&(_, count)| {
            below = below.saturating_add(count);
            below >= rank
        });
        Ok(Figure {
            name: self.figure.clone(),
            value: reached.map_or(0.0, |&(nanoseconds, _)| nanoseconds as f64 / 1e3),
            unit: Unit::Microseconds,
        })
    }
}

/// Returns the share (0 to 1) that a percentile such as `p99.9` names.
fn share(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p')?;
    let is_number = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let percent: f64 = digits.parse().ok().filter(|_| is_number)?;
    (percent > 0.0 && percent < 100.0).then(|| percent / 100.0)
}
