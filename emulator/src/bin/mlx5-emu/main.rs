//! `mlx5-emu`: runs programs on emulated mlx5 devices.

mod dump;
mod info;
mod run;
mod supervise;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The command line cannot be used.
const USAGE: u8 = 1;
/// The machine or the installation lacks something.
const ENVIRONMENT: u8 = 2;

/// Run unmodified RDMA programs on an emulated ConnectX.
///
/// The programs use the system's libibverbs and libmlx5; the emulator plays
/// the kernel and the device. No root, no kernel module, no hardware.
#[derive(Parser)]
#[command(name = "mlx5-emu", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mlx5-emu run -- ibv_devinfo -v
      show the emulated device

  mlx5-emu run -- ibv_rc_pingpong &
  mlx5-emu run -- ibv_rc_pingpong localhost
      two processes on one fabric

  mlx5-emu run --trace - -- ./my-program
      print every work request and completion as text

  mlx5-emu run --limits profile:siw -- ./my-program
      a device that can do no more than another; info --limits lists them

Exit status:
  run: that of the command (128 + N if signal N ended it); 127 if it was not
  found, 126 if it could not be executed. Otherwise 1 for a command line that
  cannot be used and 2 for something missing on this machine.";

#[derive(Subcommand)]
enum Command {
    /// Run a command that sees the emulated devices.
    ///
    /// Ends when the command ends, with its status; processes that the command
    /// has left in the background go on. Signals that end a program, SIGUSR1 and
    /// SIGUSR2 are handed on to the command. If mlx5-emu itself is killed
    /// (SIGKILL), the command and every process started below it are killed too.
    Run(run::Arguments),
    /// Say what is emulated, with which limits, and how it was tested.
    Info(info::Arguments),
    /// Print work requests, completions or doorbells as text.
    Dump(dump::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this fails.
            let _ = error.print();
            // Help and version are answers, not errors.
            return if error.use_stderr() {
                USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let outcome = match cli.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Info(arguments) => info::info(&arguments),
        Command::Dump(arguments) => dump::dump(&arguments),
    };
    outcome.unwrap_or_else(|failure| {
        // If standard error cannot be written either, the status is all that is left.
        let _ = writeln!(std::io::stderr(), "mlx5-emu: {}", failure.message);
        failure.status.into()
    })
}

/// Writes an answer to standard output. A reader that has closed the pipe
/// (`| head`) wants no more of it: that is no failure.
fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut output = std::io::stdout().lock();
    let written = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::environment(
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Why the launcher itself cannot go on.
struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self {
            status: USAGE,
            message: message.into(),
        }
    }

    fn environment(message: impl Into<String>) -> Self {
        Self {
            status: ENVIRONMENT,
            message: message.into(),
        }
    }
}
