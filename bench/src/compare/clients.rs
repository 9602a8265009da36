//! Server and client of a program that prints its result on the client.

use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::process::Process;
use crate::failure::Failure;

/// Attempts to connect to a server that does not listen yet, and the time between two.
const ATTEMPTS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(50);

/// Runs both on this host; `arguments` adds what both have. Returns what the client printed.
pub(super) fn run(
    program: &str,
    of_client: &[&str],
    timeout: Duration,
    arguments: impl Fn(&mut Command, u16),
) -> Result<String, Failure> {
    let port = free_port()?;
    let command = || {
        let mut command = Command::new(program);
        arguments(&mut command, port);
        command
    };
    let server = Process::start(command(), timeout)?;
    let mut attempt = 0;
    loop {
        let mut client = command();
        client.args(of_client).arg("127.0.0.1");
        let ended = Process::start(client, timeout)?.end()?;
        if ended.success {
            server.end()?;
            return Ok(ended.stdout);
        }
        attempt += 1;
        let printed = format!("{}\n{}", ended.stdout, ended.stderr);
        if attempt == ATTEMPTS || !printed.contains("connect") {
            return Err(Failure::run(format!(
                "{program} failed: {}",
                last_line(&printed)
            )));
        }
        thread::sleep(BETWEEN);
    }
}

/// Returns the failure for output without the expected figures.
pub(super) fn unreadable(program: &str, text: &str) -> Failure {
    Failure::run(format!(
        "cannot read the output of {program}; its last line is: {}",
        last_line(text)
    ))
}

fn last_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty()).unwrap_or("nothing")
}

/// Returns a TCP port that was free just now.
fn free_port() -> Result<u16, Failure> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::environment(format!("no free TCP port: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_is_not_empty_is_shown() {
        assert_eq!(last_line("one\n\n two \n\n"), "two");
        assert!(unreadable("it", "").to_string().ends_with("nothing"));
    }
}
