//! Child processes that end with this one, or after a time limit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Time between two checks whether a process has ended.
const CHECK: Duration = Duration::from_millis(2);

/// A child process; killed when dropped.
pub(super) struct Process {
    child: Child,
    name: String,
    stdout: Option<BufReader<ChildStdout>>,
    deadline: Instant,
    limit: Duration,
}

/// How a process ended.
pub(super) struct Ended {
    pub(super) success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Process {
    pub(super) fn start(mut command: Command, limit: Duration) -> Result<Self, Failure> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::environment(format!("cannot start {name}: {error}")))?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Self {
            child,
            name,
            stdout,
            deadline: Instant::now() + limit,
            limit,
        })
    }

    /// Reads up to the line that contains these words, and returns it.
    pub(super) fn line_with(&mut self, words: &str) -> Result<String, Failure> {
        let stdout = self.stdout.as_mut().expect("read before the end only");
        loop {
            let mut line = String::new();
            let length = stdout.read_line(&mut line).unwrap_or(0);
            if length == 0 {
                return Err(Failure::run(format!(
                    "{} ended before it printed '{words}'",
                    self.name
                )));
            }
            if line.contains(words) {
                return Ok(line);
            }
        }
    }

    /// Waits for the end of the process, and returns what it printed.
    pub(super) fn end(mut self) -> Result<Ended, Failure> {
        let stdout = reader(self.stdout.take());
        let stderr = reader(self.child.stderr.take());
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < self.deadline => thread::sleep(CHECK),
                Ok(None) => {
                    return Err(Failure::run(format!(
                        "{} did not end within {} s (--timeout): is the port active, and is there a processor for each process?",
                        self.name,
                        self.limit.as_secs_f64()
                    )));
                }
                Err(error) => {
                    return Err(Failure::run(format!(
                        "cannot wait for {}: {error}",
                        self.name
                    )));
                }
            }
        };
        Ok(Ended {
            success: status.success(),
            stdout: stdout.recv().unwrap_or_default(),
            stderr: stderr.recv().unwrap_or_default(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended is only reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end in another thread, so that its writer is never blocked.
fn reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (done, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is kept.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = done.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, limit).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_and_status_are_returned() {
        let mut process = shell("echo one; echo two; echo bad >&2; exit 3", LONG);
        assert_eq!(process.line_with("one").unwrap(), "one\n");
        let ended = process.end().unwrap();
        assert!(!ended.success);
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("two\n", "bad\n")
        );
    }

    #[test]
    fn a_process_that_does_not_end_is_a_failure_and_killed() {
        let failure = shell("exec sleep 1000", Duration::ZERO)
            .end()
            .err()
            .unwrap();
        assert_eq!(failure.status(), 3);
        assert!(
            failure.to_string().contains("did not end within"),
            "{failure}"
        );
    }

    #[test]
    fn a_missing_program_is_an_environment_failure() {
        let command = Command::new("/nonexistent/program");
        let failure = Process::start(command, LONG).err().unwrap();
        assert_eq!(failure.status(), 2);
        let failure = shell("exit 0", LONG).line_with("word").unwrap_err();
        assert_eq!(failure.status(), 3);
    }
}
