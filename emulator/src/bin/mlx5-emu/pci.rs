//! `mlx5-emu pci`: serves a device to a virtual machine, by a program of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use mlx5emu::config::Config;
use mlx5emu::limits::MAX_DEVICES;

use super::Failure;

#[derive(Args)]
pub(super) struct Arguments {
    /// The Unix socket to listen on.
    socket: PathBuf,
    /// Name of the fabric. Virtual machines and programs on the same fabric reach each
    /// other [default: "default"].
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Number of the device on the fabric, which its addresses follow from. Give each
    /// virtual machine its own.
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u8).range(..i64::from(MAX_DEVICES)))]
    index: u8,
    /// Append every WQE and CQE as text to FILE.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Append the firmware commands of the guest's driver, and their status, to FILE.
    #[arg(long, value_name = "FILE")]
    commands: Option<PathBuf>,
    /// Append every packet on the wire to FILE (pcap).
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write one sentence to standard error for each failure of a queue, a port or the
    /// device, and for each doorbell that is not valid.
    #[arg(long)]
    explain: bool,
    /// Faults to inject, as for `mlx5-emu run`.
    #[arg(long, value_name = "SPEC")]
    faults: Option<String>,
}

/// The program that serves the device.
const PROGRAM: &str = "mlx5-emu-pci";

pub(super) fn pci(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let program = find()?;
    let mut command = Command::new(&program);
    command
        .arg(&arguments.socket)
        .arg(arguments.index.to_string());
    let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
    let text = |text: &Option<String>| text.clone().map(OsString::from);
    for (variable, value) in [
        (Config::FABRIC, text(&arguments.fabric)),
        (Config::TRACE, path(&arguments.trace)),
        (Config::TRACE_COMMANDS, path(&arguments.commands)),
        (Config::PCAP, path(&arguments.pcap)),
        (Config::EXPLAIN, arguments.explain.then(|| "1".into())),
        (Config::FAULTS, text(&arguments.faults)),
    ] {
        command.envs(value.map(|value| (variable, value)));
    }
    let error = command.exec();
    Err(Failure::environment(format!(
        "cannot start {}: {error}",
        program.display()
    )))
}

/// Returns the path of the program: beside this one, or where the library is installed.
fn find() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| {
        Failure::environment(format!("cannot find the path of mlx5-emu: {error}"))
    })?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let mut places = ["", "../lib/mlx5-emu", "../lib64/mlx5-emu"]
        .iter()
        .map(|place| directory.join(place).join(PROGRAM));
    places.find(|path| path.is_file()).ok_or_else(|| {
        Failure::environment(format!(
            "{PROGRAM} not found beside {}, nor in ../lib/mlx5-emu or ../lib64/mlx5-emu from there: \
             build it with `cargo build --release -p mlx5-pci`",
            own.display()
        ))
    })
}
