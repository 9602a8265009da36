//! ucx_perftest: its command line, and what it prints.
//!
//! It measures UCT, the layer of UCX that corresponds to verbs. `am_lat` sends to a handler of
//! the peer, `put_lat` writes, `get` reads.

use std::process::Command;

use serde::Serialize;

use super::clients;
use crate::compare::options::CompareArgs;
use crate::failure::Failure;
use crate::options::Operation;

const PROGRAM: &str = "ucx_perftest";
/// The transports, best first. `rc_mlx5` writes the rings itself, `rc_verbs` uses libibverbs.
const TRANSPORTS: [&str; 2] = ["rc_mlx5", "rc_verbs"];

/// How it ends if the device has not the transport, or the layout does not carry the size.
const REFUSALS: [&str; 2] = ["No such device", "Unsupported operation"];

/// One run. Times in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Run {
    /// The median of its last 2,048 samples.
    #[serde(rename = "t_typical")]
    pub(super) typical: f64,
    /// The mean of all.
    #[serde(rename = "t_avg")]
    average: f64,
}

/// The program with the arguments for an operation.
#[derive(Debug)]
pub(super) struct Ucx {
    test: &'static str,
    /// Transports and data layouts that were not refused.
    choices: Vec<(&'static str, &'static str)>,
}

impl Ucx {
    /// Returns the program, which must be installed.
    pub(super) fn find(operation: Operation) -> Result<Self, Failure> {
        if let Err(error) = Command::new(PROGRAM).arg("-h").output() {
            return Err(Failure::environment(format!(
                "cannot start {PROGRAM}: {error}; install UCX (apt-get install ucx-utils)"
            )));
        }
        // Short messages are inline, bcopy copies to a registered buffer, zcopy does not copy. Each
        // has limits that depend on the device.
        let (test, layouts): (_, &[_]) = match operation {
            Operation::Send => ("am_lat", &["short", "bcopy", "zcopy"]),
            Operation::Write => ("put_lat", &["short", "bcopy", "zcopy"]),
            _ => ("get", &["bcopy", "zcopy"]),
        };
        let of = |transport| layouts.iter().map(move |layout| (transport, *layout));
        Ok(Self {
            test,
            choices: TRANSPORTS.into_iter().flat_map(of).collect(),
        })
    }

    /// Returns the command line, as far as it is the same on both sides.
    pub(super) fn name(&self) -> String {
        let (transport, layout) = self.choices[0];
        format!("{PROGRAM} -t {} -x {transport} -D {layout}", self.test)
    }

    /// Runs server and client, the first time with each transport and layout until one works.
    pub(super) fn run(&mut self, device: &str, args: &CompareArgs) -> Result<Run, Failure> {
        loop {
            let failure = match self.run_first(device, args) {
                Ok(run) => {
                    self.choices.truncate(1);
                    return Ok(run);
                }
                Err(failure) => failure,
            };
            let text = failure.to_string();
            if self.choices.len() == 1 || !REFUSALS.iter().any(|it| text.contains(it)) {
                return Err(failure);
            }
            tracing::debug!(refused = self.name(), %failure, "tries the next");
            self.choices.remove(0);
        }
    }

    fn run_first(&self, device: &str, args: &CompareArgs) -> Result<Run, Failure> {
        let (transport, layout) = self.choices[0];
        let text = clients::run(PROGRAM, &[], args.timeout, |command, port| {
            let iterations = args.iters.to_string();
            command.args(["-t", self.test, "-x", transport, "-D", layout]);
            command.args(["-d", &format!("{device}:{}", args.on.ib_port)]);
            command.args(["-s", &args.size.to_string(), "-n", &iterations]);
            command.args(["-w", &args.iters.min(1000).to_string(), "-f", "-v"]);
            command.args(["-p", &port.to_string()]);
        })?;
        parse(&text).ok_or_else(|| clients::unreadable(PROGRAM, &text))
    }
}

/// Parses the line of names and the line of figures below it, separated by commas.
fn parse(text: &str) -> Option<Run> {
    let mut lines = text.lines().map(str::trim);
    let names = lines.find(|line| line.starts_with("iterations,"))?;
    let figures: Vec<f64> = lines.next()?.split(',').flat_map(str::parse).collect();
    let figure = |ending: &str| {
        let at = names.split(',').position(|name| name.ends_with(ending))?;
        figures.get(at).copied()
    };
    Some(Run {
        typical: figure("percentile_lat")?,
        average: figure("overall_lat")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_found_by_their_names() {
        let text = "\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
2000,19.605,149.861,150.5,0.41,0.41,6673,6673
";
        let run = Run {
            typical: 19.605,
            average: 150.5,
        };
        assert_eq!(parse(text), Some(run));
        assert_eq!(parse("iterations,avg_lat,overall_lat\n1,2,3"), None);
        assert_eq!(parse("2000,19.605,149.861,149.861"), None);
        assert_eq!(parse(""), None);
    }
}
