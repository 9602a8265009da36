//! `mlx5-emu run`: the environment a program finds the devices in.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use mlx5emu::config::{Config, MAX_DEVICES, MAX_PORTS};
use mlx5emu::fabric::attachment::Attachment;
use mlx5emu::fabric::name::FabricName;
use mlx5emu::faults::FaultSpec;
use mlx5emu::limits::Limits;
use mlx5emu::sysfs::Sysfs;

use super::Failure;
use super::supervise::supervise;

#[derive(Args)]
pub(super) struct Arguments {
    /// Name of the fabric: programs on the same fabric reach each other
    /// [default: "default"].
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Number of devices, mlx5_0, mlx5_1, … [default: 1].
    #[arg(long, value_name = "N", value_parser = number_up_to::<MAX_DEVICES>)]
    devices: Option<u8>,
    /// Number of ports of each device, 1 or 2 [default: 1].
    #[arg(long, value_name = "N", value_parser = number_up_to::<MAX_PORTS>)]
    ports: Option<u8>,
    /// Link layer of the ports [default: ib].
    #[arg(long)]
    link: Option<LinkName>,
    /// How the kernel takes commands from libibverbs [default: ioctl].
    #[arg(long)]
    face: Option<FaceName>,
    /// Let doorbell records alone start work. Hardware would not: programs
    /// that need this hang on a real ConnectX.
    #[arg(long)]
    lenient: bool,
    /// Count registered memory against the limit of the process (`ulimit -l`),
    /// as the kernel does unless a program has CAP_IPC_LOCK.
    #[arg(long)]
    memlock: bool,
    /// Append work requests and completions as text to FILE, which several
    /// programs can share, or write them to standard error if it is "-".
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Faults to inject, as "seed=7,drop=0.01,delay=0.05:100us,kill-qp@500".
    #[arg(long, value_name = "SPEC", long_help = faults_help())]
    faults: Option<String>,
    /// Limits of the devices, as "max_inline=0,max_sge=1,no_srq" or "profile:siw".
    #[arg(long, value_name = "LIST", long_help = limits_help())]
    limits: Option<String>,
    /// The command and its arguments, after "--".
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LinkName {
    /// InfiniBand.
    Ib,
    /// RoCE v2.
    Roce,
}

#[derive(Clone, Copy, ValueEnum)]
enum FaceName {
    /// By ioctl, as a kernel of today does.
    Ioctl,
    /// By write() only: every ioctl is refused, and doorbell registers are
    /// handed out by the kernel, as before Linux 4.20.
    Write,
}

/// What the dynamic linker calls the list of libraries to load first.
const LD_PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libmlx5emu.so";

pub(super) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let chosen = chosen_variables(&arguments)?;
    let lookup = |name: &'static str| {
        let chosen = chosen.iter().find(|(chosen, _)| *chosen == name);
        chosen
            .map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(name))
    };
    let config = Config::from_lookup(lookup).map_err(|error| Failure::usage(error.to_string()))?;
    let preload = preload_list(&find_library()?)?;
    Attachment::sweep();
    let sysfs = Sysfs::create(&config).map_err(|error| {
        Failure::environment(format!(
            "cannot write the devices' sysfs tree: {error}; set TMPDIR"
        ))
    })?;
    let (program, rest) = arguments
        .command
        .split_first()
        .expect("clap demands a command");
    let mut command = Command::new(program);
    command.args(rest);
    command
        .envs(chosen)
        .env(Config::FABRIC, config.fabric.as_str());
    command
        .env(LD_PRELOAD, preload)
        .env("SYSFS_PATH", sysfs.root())
        .envs(Config::listen_default());
    let clean_up = || {
        let _ = std::fs::remove_dir_all(sysfs.root());
        Attachment::sweep();
    };
    let status = supervise(&mut command, clean_up);
    let status = status.map_err(|error| {
        Failure::environment(format!("cannot start a process for the command: {error}"))
    })?;
    // A program that a signal ended has not left its fabric.
    Attachment::sweep();
    Ok(ExitCode::from(status))
}

/// The options as environment variables; what is not given stays as it is
/// in the environment.
fn chosen_variables(arguments: &Arguments) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut chosen: Vec<(&'static str, OsString)> = Vec::new();
    if let Some(fabric) = &arguments.fabric {
        if FabricName::new(fabric).is_err() {
            let rule = FabricName::RULE;
            return Err(Failure::usage(format!("--fabric {fabric:?}: {rule}")));
        }
        chosen.push((Config::FABRIC, fabric.into()));
    }
    if let Some(devices) = arguments.devices {
        chosen.push((Config::DEVICES, devices.to_string().into()));
    }
    if let Some(ports) = arguments.ports {
        chosen.push((Config::PORTS, ports.to_string().into()));
    }
    if let Some(link) = arguments.link {
        let name = match link {
            LinkName::Ib => "ib",
            LinkName::Roce => "roce",
        };
        chosen.push((Config::LINK, name.into()));
    }
    if let Some(face) = arguments.face {
        let name = match face {
            FaceName::Ioctl => "ioctl",
            FaceName::Write => "write",
        };
        chosen.push((Config::FACE, name.into()));
    }
    if arguments.lenient {
        chosen.push((Config::LENIENT, "1".into()));
    }
    if arguments.memlock {
        chosen.push((Config::MEMLOCK, "1".into()));
    }
    if let Some(faults) = &arguments.faults {
        let spec: Result<FaultSpec, _> = faults.parse();
        spec.map_err(|error| Failure::usage(format!("--faults {error}\n\n{}", FaultSpec::help())))?;
        chosen.push((Config::FAULTS, faults.into()));
    }
    if let Some(list) = &arguments.limits {
        let limits: Result<Limits, _> = list.parse();
        limits.map_err(|error| Failure::usage(format!("--limits {error}")))?;
        chosen.push((Config::LIMITS, list.into()));
    }
    if let Some(trace) = &arguments.trace {
        chosen.push((Config::TRACE, trace_file(trace)?.into()));
    }
    Ok(chosen)
}

fn faults_help() -> String {
    format!(
        "Faults to inject, as \"seed=7,drop=0.01,delay=0.05:100us,kill-qp@500\".\n{}",
        FaultSpec::help()
    )
}

fn limits_help() -> String {
    format!(
        "Limits of the devices, as \"max_inline=0,max_sge=1,no_srq\" or \"profile:siw\": the devices \
         can do less, and refuse the rest as a kernel's driver would.\n{}",
        Limits::help()
    )
}

/// The trace file under a path that holds wherever the program goes.
fn trace_file(trace: &Path) -> Result<PathBuf, Failure> {
    if trace == "-" {
        return Ok("/dev/stderr".into());
    }
    let failure = |error| Failure::usage(format!("--trace {}: {error}", trace.display()));
    // The program opens it only when it opens a device. A pipe is left alone:
    // its reader takes the first end of file for the last.
    if trace.metadata().map_or(true, |data| data.is_file()) {
        let opened = std::fs::File::options()
            .create(true)
            .append(true)
            .open(trace);
        opened.map_err(failure)?;
    }
    std::path::absolute(trace).map_err(failure)
}

/// A number from 1 to `MOST`.
fn number_up_to<const MOST: u8>(text: &str) -> Result<u8, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MOST).contains(number))
        .ok_or_else(|| format!("expected a number from 1 to {MOST}"))
}

/// The library beside this program, as cargo builds and as it is installed.
fn find_library() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::environment(format!("cannot tell where I am: {error}")))?;
    let here = program.parent().unwrap_or(Path::new("/"));
    // In a build tree `deps` holds the newest: `cargo test` builds the library
    // there without linking it beside the program.
    let places = [
        here.join("deps"),
        here.to_owned(),
        here.join("../lib"),
        here.join("../lib/mlx5-emu"),
    ];
    let found = places
        .iter()
        .map(|place| place.join(LIBRARY))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::environment(format!(
            "{LIBRARY} is neither beside {} nor in ../lib; build it with \
             `cargo build -p mlx5-emulator` or install both together",
            program.display()
        ))
    })
}

/// Our library, before whatever is preloaded already.
fn preload_list(library: &Path) -> Result<OsString, Failure> {
    let separates = |byte: &u8| matches!(byte, b' ' | b':' | b'\t' | b'\n');
    if library.as_os_str().as_encoded_bytes().iter().any(separates) {
        return Err(Failure::environment(format!(
            "{} cannot be preloaded: LD_PRELOAD takes no path with spaces or colons; \
             install it elsewhere",
            library.display()
        )));
    }
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os(LD_PRELOAD).filter(|before| !before.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    Ok(list)
}
