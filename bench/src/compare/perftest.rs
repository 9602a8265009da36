//! perftest: its command line, and what it prints.

use std::process::Command;

use serde::Serialize;

use super::clients;
use crate::compare::options::CompareArgs;
use crate::failure::Failure;
use crate::options::Operation;

/// The figures of a run, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Run {
    /// Of perftest's table.
    #[serde(rename = "t_typical")]
    pub(super) typical: f64,
    #[serde(rename = "t_max")]
    pub(super) max: f64,
    #[serde(rename = "t_stdev")]
    pub(super) stdev: f64,
    /// The number of samples that it printed, the largest, and their standard deviation.
    samples: usize,
    pub(super) true_max: f64,
    pub(super) true_stdev: f64,
}

impl Run {
    /// Returns whether the figures are numbers. perftest divides by the processor's frequency,
    /// which it measures first; on a busy host it finds none, and prints `inf`.
    pub(super) fn is_measured(&self) -> bool {
        let mut all = [self.typical, self.max, self.stdev, self.true_max].into_iter();
        all.all(f64::is_finite) && self.true_stdev.is_finite()
    }
}

/// Returns the standard deviation of these values.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt()
}

/// Returns the program for an operation, which must be installed.
pub(super) fn find(operation: Operation) -> Result<String, Failure> {
    let program = format!("ib_{}_lat", operation.name());
    match Command::new(&program).arg("--version").output() {
        Ok(_) => Ok(program),
        Err(error) => Err(Failure::environment(format!(
            "cannot start {program}: {error}; install perftest (apt-get install perftest)"
        ))),
    }
}

/// Runs server and client.
pub(super) fn run(program: &str, device: &str, args: &CompareArgs) -> Result<Run, Failure> {
    let text = clients::run(program, &["-U"], args.timeout, |command, port| {
        command.args(["-F", "-d", device, "-i", &args.on.ib_port.to_string()]);
        command.args(["-s", &args.size.to_string(), "-n", &args.iters.to_string()]);
        command.args(["-p", &port.to_string()]);
    })?;
    parse(&text).ok_or_else(|| clients::unreadable(program, &text))
}

/// Parses the table and the list of samples.
fn parse(text: &str) -> Option<Run> {
    let sample = |line: &str| {
        let (number, value) = line.split_once(", ")?;
        number.trim().parse::<u64>().ok()?;
        value.trim().parse::<f64>().ok()
    };
    let samples: Vec<f64> = text.lines().filter_map(sample).collect();
    let row = text.lines().find_map(|line| {
        let cells: Option<Vec<f64>> = line.split_whitespace().map(|it| it.parse().ok()).collect();
        // #bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%
        cells.filter(|cells| cells.len() == 9)
    })?;
    (!samples.is_empty()).then_some(Run {
        max: row[3],
        typical: row[4],
        stdev: row[6],
        samples: samples.len(),
        true_max: samples.iter().copied().fold(0.0, f64::max),
        true_stdev: deviation(&samples),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
---------------------------------------------------------------------------------------
 Dual-port       : OFF\t\tDevice         : mlx5_0
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
#, usec
1, 1.5
2, 40.25
3, 1.75
4, 30
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      5           1.50           1.75      1.62  \t       18.37     \t0.00\t\t1.75 \t\t1.75
---------------------------------------------------------------------------------------
";

    #[test]
    fn table_and_samples_are_read() {
        let run = parse(OUTPUT).unwrap();
        assert_eq!((run.typical, run.max, run.stdev), (1.62, 1.75, 0.0));
        assert_eq!((run.samples, run.true_max), (4, 40.25));
        assert!((run.true_stdev - 17.138).abs() < 0.001, "{run:?}");
    }

    #[test]
    fn a_run_without_the_processor_s_frequency_is_not_measured() {
        assert!(parse(OUTPUT).unwrap().is_measured());
        let samples = OUTPUT.replace("40.25", "inf");
        assert!(!parse(&samples).unwrap().is_measured());
        let row = "64 5 inf inf inf inf -nan inf inf";
        let table = OUTPUT.replace(OUTPUT.lines().nth(9).unwrap(), row);
        assert!(!parse(&table).unwrap().is_measured());
    }

    #[test]
    fn output_without_table_or_samples_is_refused() {
        assert_eq!(parse(""), None);
        let without_samples: String = OUTPUT.lines().filter(|line| !line.contains(", ")).collect();
        assert_eq!(parse(&without_samples), None);
    }
}
