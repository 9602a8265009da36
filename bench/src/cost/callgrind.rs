//! Counting instructions: the worker process runs under valgrind's callgrind,
//! which counts inside the measured function only, and writes a file each time
//! that this function returns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::meter::{MEASURED, Record};
use super::operation::Operation;
use super::worker::COUNTED;
use crate::failure::Failure;

const VALGRIND: &str = "valgrind";

/// The folder of callgrind's output files; removed when dropped.
pub(crate) struct Counts(PathBuf);

impl Counts {
    pub(crate) fn prepare(name: &str) -> Result<Self, Failure> {
        let folder =
            std::env::temp_dir().join(format!("dat-bench-cost-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| {
            Failure::environment(format!(
                "cannot create {}: {error}; set TMPDIR to a folder that can be written",
                folder.display()
            ))
        })?;
        Ok(Self(folder))
    }

    fn file(&self) -> PathBuf {
        self.0.join("counts")
    }

    /// Returns the command that runs a program under callgrind.
    pub(super) fn command(&self, program: &Path) -> Command {
        self.command_of(&[], program)
    }

    fn command_of(&self, options: &[&str], program: &Path) -> Command {
        let mut command = Command::new(VALGRIND);
        command
            .args(["--tool=callgrind", "--quiet"])
            .args(options)
            .arg(format!("--toggle-collect={MEASURED}"))
            .arg(format!("--dump-after={MEASURED}"))
            .arg(format!("--callgrind-out-file={}", self.file().display()))
            // Valgrind reports unknown system calls there.
            .arg(format!("--log-file={}", self.0.join("log").display()))
            .arg(program);
        command
    }

    /// Returns [`Self::command`] with a simulated data cache, which is large
    /// enough to evict nothing during a section.
    pub(crate) fn command_with_cache(&self, program: &Path) -> Command {
        self.command_of(
            &[
                "--cache-sim=yes",
                "--D1=16777216,16,64",
                "--LL=33554432,16,64",
            ],
            program,
        )
    }

    /// Returns [`Self::command_with_cache`] with instrumentation off until the
    /// program switches it on, with an empty cache.
    pub(crate) fn command_switched(&self, program: &Path) -> Command {
        self.command_of(
            &[
                "--cache-sim=yes",
                "--D1=16777216,16,64",
                "--LL=33554432,16,64",
                "--instr-atstart=no",
            ],
            program,
        )
    }

    /// Returns the instructions per operation, from the recorded sections.
    pub(super) fn read(&self, records: &[Record]) -> Result<Vec<(Operation, f64)>, Failure> {
        let totals: Vec<u64> = self
            .totals(records.len())?
            .iter()
            .map(|section| section.instructions)
            .collect();
        per_operation(records, &totals)
    }

    /// Reads callgrind's totals of this many sections.
    pub(crate) fn totals(&self, sections: usize) -> Result<Vec<Section>, Failure> {
        let mut totals = Vec::with_capacity(sections);
        for at in 1..=sections {
            let path = self.0.join(format!("counts.{at}"));
            let text = fs::read_to_string(&path).map_err(|error| {
                Failure::run(format!(
                    "callgrind wrote no counts of section {at}: {error}; is dat-bench stripped of its symbols ('nm' must show {MEASURED})?"
                ))
            })?;
            totals.push(total(&text).ok_or_else(|| {
                Failure::run(format!("callgrind's file {} has no totals; which valgrind is installed (valgrind --version)?", path.display()))
            })?);
        }
        Ok(totals)
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Callgrind's totals of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) instructions: u64,
    /// Misses of the data cache, if one was simulated.
    pub(crate) lines: u64,
}

/// Parses events and totals of a file of callgrind.
fn total(text: &str) -> Option<Section> {
    let words = |begin| {
        let line = text.lines().find_map(|line| line.strip_prefix(begin))?;
        Some(line.split_whitespace())
    };
    let counts: Vec<(&str, u64)> = words("events:")?
        .zip(words("totals:")?.map_while(|word| word.parse().ok()))
        .collect();
    let of = |name| {
        let found = counts.iter().find(|(event, _)| *event == name);
        found.map(|&(_, count)| count)
    };
    Some(Section {
        instructions: of("Ir")?,
        lines: of("D1mr").unwrap_or(0) + of("D1mw").unwrap_or(0),
    })
}

/// Returns the instructions per operation: the difference of the last section
/// and the shorter one before it, divided by the difference of their lengths.
/// So work that is done once per section, such as its call, cancels.
fn per_operation(records: &[Record], totals: &[u64]) -> Result<Vec<(Operation, f64)>, Failure> {
    let round = records.len() / COUNTED.len();
    let (few, many) = (round, 2 * round);
    (0..round)
        .map(|at| {
            let (less, more) = (&records[few + at], &records[many + at]);
            let operation = Operation::from_key(&more.operation)
                .filter(|_| less.operation == more.operation && more.count > less.count)
                .ok_or_else(|| Failure::run("the rounds of a worker process differ in their operations; are all programs of the same build?"))?;
            if less.nanoseconds.is_none() || more.nanoseconds.is_none() {
                return Err(Failure::run(format!(
                    "{}: a counted section had to wait for completions; run it again",
                    operation.title()
                )));
            }
            let instructions = totals[many + at] as f64 - totals[few + at] as f64;
            Ok((operation, instructions / f64::from(more.count - less.count)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: Operation, count: u32) -> Record {
        Record {
            operation: operation.key().to_owned(),
            count,
            nanoseconds: Some(1.0),
        }
    }

    #[test]
    fn work_done_once_per_section_cancels() {
        let operations = [Operation::PostRecv, Operation::Empty];
        let records: Vec<_> = COUNTED
            .iter()
            .flat_map(|&count| operations.map(|operation| record(operation, count)))
            .collect();
        let totals = [
            999_999,
            0,
            50 + 128 * 40,
            7 + 128 * 3,
            50 + 256 * 40,
            7 + 256 * 3,
        ];
        assert_eq!(
            per_operation(&records, &totals).unwrap(),
            [(Operation::PostRecv, 40.0), (Operation::Empty, 3.0)]
        );
    }

    #[test]
    fn a_section_that_had_to_wait_is_refused() {
        let mut records: Vec<_> = COUNTED
            .iter()
            .map(|&count| record(Operation::PollRecv, count))
            .collect();
        records[1].nanoseconds = None;
        let failure = per_operation(&records, &[0, 1, 2]).unwrap_err();
        assert!(failure.to_string().contains("run it again"), "{failure}");
    }

    #[test]
    fn totals_are_parsed_by_the_names_of_their_events() {
        let text = "events: Ir\nfn=(1)\n12 34\n\ntotals: 5120\n";
        let section = |instructions, lines| {
            Some(Section {
                instructions,
                lines,
            })
        };
        assert_eq!(total(text), section(5120, 0));
        assert_eq!(total("events: Ir\n"), None);
        let text = "events: Ir Dr Dw I1mr D1mr D1mw ILmr\ntotals: 50 9 8 7 6 5 4\n";
        assert_eq!(total(text), section(50, 11));
    }
}
