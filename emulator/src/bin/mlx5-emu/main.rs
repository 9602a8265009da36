//! `mlx5-emu`: runs programs on emulated mlx5 devices.

mod dump;
mod info;
mod pci;
mod port;
mod program;
mod run;
mod supervise;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Exit status for a command line that is not valid.
const USAGE: u8 = 1;
/// Exit status for a machine or an installation that lacks something.
const ENVIRONMENT: u8 = 2;

/// Run unmodified RDMA programs on an emulated ConnectX.
///
/// The programs use the system's libibverbs and libmlx5; the emulator takes
/// the place of the kernel and the device. It needs no root, kernel module or hardware.
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

  mlx5-emu run --trace commands --explain -- ./my-program
      print every command to the kernel, and why one is refused

  mlx5-emu port down
  mlx5-emu port up
      take the port of mlx5_0 down for running programs, and bring it up again

  mlx5-emu pci /tmp/nic.sock
      serve a device to a virtual machine: see mlx5-emu pci --help

  mlx5-emu run --limits profile:siw -- ./my-program
      run on a device with the limits of Soft-iWARP; info --limits lists all

Exit status:
  run: the command's own status (128 + N if signal N killed it); 127 if the
  command was not found, 126 if it could not be executed. Otherwise 1 for an
  invalid command line and 2 if this machine lacks something.";

#[derive(Subcommand)]
enum Command {
    /// Run a command on the emulated devices.
    ///
    /// Exits when the command exits, with the command's status. Processes that
    /// the command leaves in the background keep running. SIGUSR1, SIGUSR2 and
    /// the signals that end a program are forwarded to the command. If mlx5-emu
    /// itself is killed (SIGKILL), the command and every process started below
    /// it are killed too.
    ///
    /// Unless they have a value, DAT_LISTEN=loopback is set (DAT programs listen
    /// on this host only), UCX_MEM_MMAP_HOOK_MODE=none (UCX 1.15 and older
    /// otherwise overwrite the interposed mmap, and hang), and
    /// FI_MR_CACHE_MONITOR=disabled (libfabric otherwise overwrites munmap, which
    /// a thread of the emulator may be executing).
    Run(run::Arguments),
    /// Take a port of a device down, or bring it up again, for all programs of a fabric.
    ///
    /// Programs get the events of the port (IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE).
    /// While it is down, it loses all packets, those of rdma_cm too, so that requests
    /// fail once their retries are exhausted. Its state lasts until it is changed,
    /// or the last program on the fabric ends.
    Port(port::Arguments),
    /// Serve a device to a virtual machine, as a PCI device (vfio-user).
    ///
    /// Linux's own drivers mlx5_core and mlx5_ib run on it in the guest. Serves one client
    /// after another until it is killed. QEMU 10.1 or newer is a client:
    ///
    /// qemu-system-x86_64 -m 2G -object memory-backend-memfd,id=ram,size=2G,share=on
    /// -numa node,memdev=ram -device '{"driver": "vfio-user-pci",
    /// "socket": {"type": "unix", "path": "SOCKET"}, "rombar": 0}' …
    ///
    /// The virtual machine's memory must be shared (share=on), since the device accesses it.
    Pci(pci::Arguments),
    /// Show what is emulated, its limits, and the rdma-core versions it was tested with.
    Info(info::Arguments),
    /// Decode work requests, completions or doorbells to text.
    Dump(dump::Arguments),
    /// Write manual pages and shell completions below a folder, for the installer.
    #[command(hide = true)]
    Generate {
        /// The folder.
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If standard error is closed, there is no other place to report to.
            let _ = error.print();
            // Help and version are not errors.
            return if error.use_stderr() {
                USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let outcome = match cli.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Pci(arguments) => pci::pci(&arguments),
        Command::Port(arguments) => port::port(&arguments),
        Command::Info(arguments) => info::info(&arguments),
        Command::Dump(arguments) => dump::dump(&arguments),
        Command::Generate { folder } => generate(&folder),
    };
    outcome.unwrap_or_else(|failure| {
        // If standard error is closed, the exit status is the only report.
        let _ = writeln!(std::io::stderr(), "mlx5-emu: {}", failure.message);
        failure.status.into()
    })
}

/// Writes the manual pages and shell completions of this program.
fn generate(folder: &Path) -> Result<ExitCode, Failure> {
    let written = cli_docs::write(&Cli::command(), folder).map_err(|error| {
        Failure::environment(format!(
            "cannot write below {}: {error}; name another folder",
            folder.display()
        ))
    })?;
    let lines = written
        .iter()
        .map(|path| format!("wrote {}\n", path.display()));
    print(&lines.collect::<String>())
}

/// Writes `text` to standard output. A closed pipe (`| head`) is not a failure.
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

/// A reason why the launcher itself stops, with its exit status.
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
