//! 'dat-bench lat' as two processes, as perftest runs.

use std::process::Command;

use serde::Serialize;

use super::process::Process;
use crate::compare::options::CompareArgs;
use crate::failure::Failure;
use crate::launcher::own_executable;
use crate::options::Operation;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ours {
    /// Microseconds.
    #[serde(rename = "t_typical")]
    pub(super) typical: f64,
    max: f64,
    #[serde(rename = "t_stdev")]
    stdev: f64,
    /// Why the run is unreliable.
    pub(super) unreliable: Vec<String>,
}

/// Runs server and client.
pub(super) fn run(device: &str, args: &CompareArgs) -> Result<Ours, Failure> {
    let program = own_executable()?;
    let command = |port: &str| {
        let mut command = Command::new(&program);
        command.args(["lat", "-d", device, "-i", &args.on.ib_port.to_string()]);
        command.args(["-o", args.operation.name(), "-s", &args.size.to_string()]);
        if args.operation == Operation::Write {
            // As perftest, which polls memory without asking.
            command.args(["--last-byte", "force"]);
        }
        command.args(["-n", &args.iters.to_string(), "-p", port]);
        command
    };
    let mut first = command("0");
    first.args(["--listen", "loopback"]);
    let mut server = Process::start(first, args.timeout)?;
    let line = server.line_with("waiting on TCP port")?;
    let port = line.split_whitespace().nth(4).unwrap_or_default();
    let mut client = command(port);
    client.args(["--json", "-", "127.0.0.1"]);
    let ended = Process::start(client, args.timeout)?.end()?;
    if !ended.success {
        return Err(Failure::run(format!(
            "dat-bench lat failed: {}",
            ended.stderr.trim()
        )));
    }
    server.end()?;
    parse(&ended.stdout)
        .ok_or_else(|| Failure::run("cannot read the JSON of dat-bench lat; is it this build?"))
}

fn parse(json: &str) -> Option<Ours> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let result = &value["results"][0];
    let reasons = result["unreliable"].as_array()?.iter();
    Some(Ours {
        typical: result["t_typical"].as_f64()?,
        max: result["max"].as_f64()?,
        stdev: result["t_stdev"].as_f64()?,
        unreliable: reasons
            .filter_map(|problem| problem["reason"].as_str().map(str::to_owned))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_reasons_are_read_from_json() {
        let json = r#"{"results": [{"t_typical": 1.5, "max": 9.0, "t_stdev": 0.25,
            "unreliable": [{"kind": "starved", "reason": "it ran 29 % of the time"}]}]}"#;
        let run = parse(json).unwrap();
        assert_eq!((run.typical, run.max, run.stdev), (1.5, 9.0, 0.25));
        assert_eq!(run.unreliable, ["it ran 29 % of the time"]);
        assert_eq!(parse("{}"), None);
        assert_eq!(parse(""), None);
    }
}
