//! Worker processes: a command that measures in processes of its own, whose instructions can
//! be counted.
//!
//! ```text
//! Worker      the command line of a worker process; runs it and reads its report
//! section     the measured section, by whose symbol callgrind finds it
//! callgrind   counts of the sections
//! valgrind    switches callgrind on for the measured section only
//! ```

pub(crate) mod callgrind;
pub(crate) mod section;
pub(crate) mod valgrind;

use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::options::WorkerArgs;

/// A worker process.
pub(crate) struct Worker<'a> {
    /// The command of dat-bench.
    pub(crate) command: &'static str,
    /// What it measures: the value of `--worker`.
    pub(crate) kind: &'static str,
    pub(crate) device: &'a str,
    pub(crate) args: &'a WorkerArgs,
    pub(crate) rounds: u32,
    /// Whether libmlx5 locks nothing; the engine and DAT have options.
    pub(crate) is_single_threaded: bool,
}

impl Worker<'_> {
    /// Adds the command line of the worker process to the program, or to a program that runs
    /// it.
    pub(crate) fn of(&self, mut command: Command) -> Command {
        command.args([self.command, "-d", self.device, "--worker", self.kind]);
        command.args(["--iters", &self.rounds.to_string()]);
        command.args(["--ib-port", &self.args.on.ib_port.to_string()]);
        if let Some(path) = self.args.on.path {
            command.args(["--path", path.name()]);
        }
        if let Some(cpu) = self.args.cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        // libmlx5 reads it when a device is opened.
        const SINGLE_THREADED: &str = "MLX5_SINGLE_THREADED";
        match self.is_single_threaded {
            true => command.env(SINGLE_THREADED, "1"),
            false => command.env_remove(SINGLE_THREADED),
        };
        command
    }

    /// Runs a worker process and returns its report.
    pub(crate) fn run<T: DeserializeOwned>(&self, mut command: Command) -> Result<T, Failure> {
        let (program, name) = (
            command.get_program().to_string_lossy().into_owned(),
            self.kind,
        );
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| {
                let remedy = if program == "valgrind" {
                    "; --instructions needs it: apt-get install valgrind"
                } else {
                    ""
                };
                Failure::environment(format!("cannot start {program}: {error}{remedy}"))
            })?;
        let ended = format!(
            "the worker process for {name} failed with {}; its message is above",
            output.status
        );
        match output.status.code() {
            Some(0) => {}
            Some(1) => return Err(Failure::usage(ended)),
            Some(2) => return Err(Failure::environment(ended)),
            _ => return Err(Failure::run(ended)),
        }
        serde_json::from_slice(&output.stdout).map_err(|error| {
            Failure::run(format!(
                "cannot parse the report of the worker process for {name}: {error}"
            ))
        })
    }
}
