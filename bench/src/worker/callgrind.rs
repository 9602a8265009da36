//! Counting instructions: the worker process runs under valgrind's callgrind,
//! which counts inside the measured function only, and writes a file each time
//! that this function returns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::section::MEASURED;
use crate::failure::Failure;

const VALGRIND: &str = "valgrind";
/// Options for a simulated data cache, which is large enough to evict nothing during a section.
pub(crate) const WITH_CACHE: [&str; 3] = [
    "--cache-sim=yes",
    "--D1=16777216,16,64",
    "--LL=33554432,16,64",
];
/// The option with which instrumentation is off until the program switches it on, with an empty
/// cache.
pub(crate) const SWITCHED: &str = "--instr-atstart=no";

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

    /// Returns the command that runs a program under callgrind with these options.
    pub(crate) fn command(&self, options: &[&str], program: &Path) -> Command {
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

#[cfg(test)]
mod tests {
    use super::*;

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
