//! `mlx5-emu run`: starts a program in an environment with the emulated devices.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use mlx5emu::capture::{self, CaptureError};
use mlx5emu::config::{Config, MAX_RESOLVE_TIME_MS};
use mlx5emu::fabric::attachment::Attachment;
use mlx5emu::fabric::name::FabricName;
use mlx5emu::faults::FaultSpec;
use mlx5emu::gateway;
use mlx5emu::limits::Limits;
use mlx5emu::limits::{MAX_DEVICES, MAX_PORTS};
use mlx5emu::nasty::Nasty;
use mlx5emu::sysfs::Sysfs;

use super::Failure;
use super::program::{Program, is_sanitizer};
use super::supervise::supervise;

#[derive(Args)]
pub(super) struct Arguments {
    /// Name of the fabric. Programs on the same fabric reach each other
    /// [default: "default"].
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Number of devices: mlx5_0, mlx5_1, … [default: 1].
    #[arg(long, value_name = "N", value_parser = number_up_to::<MAX_DEVICES>)]
    devices: Option<u8>,
    /// Number of ports of each device, 1 or 2 [default: 1].
    #[arg(long, value_name = "N", value_parser = number_up_to::<MAX_PORTS>)]
    ports: Option<u8>,
    /// Link layer of all ports [default: ib].
    #[arg(long)]
    link: Option<LinkArg>,
    /// How packets travel: "local" through shared memory, or "udp" as RoCE v2 on UDP port
    /// 4791, to other hosts, containers and users, one device for each network interface;
    /// "udp=ADDRESS" uses one address of this host. ",latency=10us" and ",bandwidth=10gbit"
    /// behind it make the link slower [default: local].
    #[arg(long, value_name = "WIRE", conflicts_with_all = ["fabric", "devices", "ports", "link"])]
    wire: Option<String>,
    /// Command interface between libibverbs and the emulated kernel [default: ioctl].
    #[arg(long)]
    face: Option<FaceArg>,
    /// Start work on a doorbell record alone, without a doorbell. Hardware does
    /// not do this: programs that need it hang on a real ConnectX.
    #[arg(long)]
    lenient: bool,
    /// Count registered memory against the process limit (`ulimit -l`), as the
    /// kernel does for programs without CAP_IPC_LOCK.
    #[arg(long)]
    memlock: bool,
    /// Do not emulate /dev/infiniband/rdma_cm. Programs that connect with librdmacm
    /// (rping, perftest -R, …) then fail, and DAT programs connect by TCP.
    #[arg(long)]
    no_rdma_cm: bool,
    /// The most milliseconds that rdma_cm takes to resolve a route, as long as no process
    /// listens at the address [default: 100].
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    resolve_time: Option<u64>,
    /// Append every WQE and CQE as text to FILE, or to standard error if FILE
    /// is "-". Several programs can share one file. "commands" shows every command
    /// of libibverbs and librdmacm to the kernel instead, and "commands=FILE" appends
    /// them to a file. Can be given twice, for both.
    #[arg(long, value_name = "FILE|commands[=FILE]")]
    trace: Vec<PathBuf>,
    /// Append every packet on the wire to FILE, which tcpdump, tshark and Wireshark read
    /// (pcap): as on an InfiniBand link, or with --link roce as Ethernet frames of RoCE v1 or
    /// v2. Several programs can share one file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// For each command that the kernel refuses, and for each event of a failure, of a
    /// queue, a port or the device, write one sentence to standard error that says
    /// why.
    #[arg(long)]
    explain: bool,
    /// Faults to inject, for example "seed=7,drop=0.01,delay=0.05:100us,kill-qp@500".
    #[arg(long, value_name = "SPEC", long_help = faults_help())]
    faults: Option<String>,
    /// Limits of the devices, for example "max_inline=0,max_sge=1,no_srq" or
    /// "profile:siw".
    #[arg(long, value_name = "LIST", long_help = limits_help())]
    limits: Option<String>,
    /// Modes in which the devices do not forgive mistakes of drivers, for example
    /// "all", "srq,umr" or "random,seed=7".
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, long_help = nasty_help())]
    nasty: Option<String>,
    /// What the devices answer to ibv_query_qp_data_in_order: whether a program may poll
    /// the last byte of a message [default: yes, with --nasty parts no].
    #[arg(long, value_name = "ANSWER")]
    data_in_order: Option<DataInOrderArg>,
    /// The NUMA node of this host that the devices say they are near to, or "none"
    /// [default: 0].
    #[arg(long, value_name = "NODE")]
    numa_node: Option<String>,
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
enum LinkArg {
    /// InfiniBand.
    Ib,
    /// RoCE v1 and v2.
    Roce,
}

#[derive(Clone, Copy, ValueEnum)]
enum FaceArg {
    /// Commands by ioctl and by write(), as in current kernels.
    Ioctl,
    /// Commands by write() only, as before Linux 4.20: every ioctl fails, and
    /// the kernel assigns the UAR pages.
    Write,
}

#[derive(Clone, Copy, ValueEnum)]
enum DataInOrderArg {
    /// The bytes of one message are written in ascending order.
    Yes,
    /// They need not be.
    No,
    /// The devices have no DevX, by which libmlx5 asks; libibverbs then answers no.
    Unknown,
}

/// The environment variable that lists the libraries to preload.
const LD_PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libmlx5emu.so";

pub(super) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let chosen = environment_of_options(&arguments)?;
    let lookup = |name: &'static str| {
        let chosen = chosen.iter().find(|(chosen, _)| *chosen == name);
        match chosen {
            Some((_, value)) => Some(value.clone()),
            // Of another launcher, with another wire.
            None if name == Config::INTERFACES && arguments.wire.is_some() => None,
            None => std::env::var_os(name),
        }
    };
    let config = Config::from_lookup(lookup).map_err(|error| Failure::usage(error.to_string()))?;
    if let Some(file) = &config.pcap {
        let cannot = |cause: CaptureError| {
            Failure::usage(format!("cannot write --pcap {}: {cause}", file.display()))
        };
        // The first device opens it again.
        capture::open(file, config.link).map_err(cannot)?;
    }
    let target = Program::of(&arguments.command[0]);
    let preload = preload_list(&find_library()?, target.sanitizer)?;
    if let Some(obstacle) = target.obstacle {
        let _ = writeln!(std::io::stderr(), "mlx5-emu: {obstacle}");
    }
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
        .env(Config::FABRIC, config.fabric.as_str())
        .env(Config::INTERFACES, config.found())
        .env(LD_PRELOAD, preload)
        .env("SYSFS_PATH", sysfs.root())
        .envs(Config::listen_default().filter(|_| config.interfaces.is_empty()))
        .envs(Config::memory_hooks_default());
    let begin = || gateway::start(&config);
    let clean_up = || {
        let _ = std::fs::remove_dir_all(sysfs.root());
        Attachment::sweep();
    };
    let ended = supervise(&mut command, begin, clean_up).map_err(|error| {
        Failure::environment(format!("cannot start a process for the command: {error}"))
    })?;
    if ended.left_processes {
        std::mem::forget(sysfs);
    }
    // A program that was killed by a signal did not leave its fabric.
    Attachment::sweep();
    Ok(ExitCode::from(ended.status))
}

/// Returns the options of the command line as environment variables. An option
/// that is not given leaves its variable as it is in the environment.
fn environment_of_options(arguments: &Arguments) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut chosen: Vec<(&'static str, OsString)> = Vec::new();
    if let Some(fabric) = &arguments.fabric {
        if FabricName::new(fabric).is_err() {
            let rule = FabricName::RULE;
            return Err(Failure::usage(format!(
                "invalid --fabric {fabric:?}: expected {rule}"
            )));
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
            LinkArg::Ib => "ib",
            LinkArg::Roce => "roce",
        };
        chosen.push((Config::LINK, name.into()));
    }
    if let Some(wire) = &arguments.wire {
        chosen.push((Config::WIRE, wire.into()));
    }
    if let Some(face) = arguments.face {
        let name = match face {
            FaceArg::Ioctl => "ioctl",
            FaceArg::Write => "write",
        };
        chosen.push((Config::FACE, name.into()));
    }
    if arguments.lenient {
        chosen.push((Config::LENIENT, "1".into()));
    }
    if arguments.memlock {
        chosen.push((Config::MEMLOCK, "1".into()));
    }
    if arguments.no_rdma_cm {
        chosen.push((Config::RDMA_CM, "0".into()));
    } else if std::env::var_os(Config::RDMA_CM).is_none_or(|value| value.is_empty()) {
        chosen.push((Config::RDMA_CM, "1".into()));
    }
    if let Some(millis) = arguments.resolve_time {
        chosen.push((Config::RESOLVE_TIME, millis.to_string().into()));
    }
    if let Some(faults) = &arguments.faults {
        let spec: Result<FaultSpec, _> = faults.parse();
        spec.map_err(|error| {
            Failure::usage(format!("invalid --faults {error}\n\n{}", FaultSpec::help()))
        })?;
        chosen.push((Config::FAULTS, faults.into()));
    }
    if let Some(list) = &arguments.limits {
        let limits: Result<Limits, _> = list.parse();
        limits.map_err(|error| Failure::usage(format!("invalid --limits {error}")))?;
        chosen.push((Config::LIMITS, list.into()));
    }
    if let Some(list) = &arguments.nasty {
        let nasty: Result<Nasty, _> = list.parse();
        nasty.map_err(|error| Failure::usage(format!("invalid --nasty {error}")))?;
        chosen.push((Config::NASTY, list.into()));
    }
    if let Some(answer) = arguments.data_in_order {
        let name = match answer {
            DataInOrderArg::Yes => "yes",
            DataInOrderArg::No => "no",
            DataInOrderArg::Unknown => "unknown",
        };
        chosen.push((Config::DATA_IN_ORDER, name.into()));
    }
    if let Some(node) = &arguments.numa_node {
        if node != "none" && node.parse::<u16>().is_err() {
            return Err(Failure::usage(format!(
                "invalid --numa-node \"{node}\": expected the number of a node, or none"
            )));
        }
        chosen.push((Config::NUMA_NODE, node.into()));
    }
    for trace in &arguments.trace {
        let name = trace.as_os_str().as_bytes();
        let (variable, file) = match name.strip_prefix(b"commands=") {
            Some(file) => (Config::TRACE_COMMANDS, Path::new(OsStr::from_bytes(file))),
            None if name == b"commands" => (Config::TRACE_COMMANDS, Path::new("-")),
            None => (Config::TRACE, trace.as_path()),
        };
        chosen.push((variable, trace_file(file)?.into()));
    }
    if let Some(file) = &arguments.pcap {
        let absolute = std::path::absolute(file).map_err(|error| {
            Failure::usage(format!("cannot write --pcap {}: {error}", file.display()))
        })?;
        chosen.push((Config::PCAP, absolute.into()));
    }
    if arguments.explain {
        chosen.push((Config::EXPLAIN, "1".into()));
    }
    Ok(chosen)
}

fn faults_help() -> String {
    format!(
        "Faults to inject, for example \"seed=7,drop=0.01,delay=0.05:100us,kill-qp@500\".\n{}",
        FaultSpec::help()
    )
}

fn nasty_help() -> String {
    format!(
        "Modes in which the devices do not forgive mistakes of drivers, for example \"all\", \
         \"srq,umr\" or \"random,seed=7\". They do what a ConnectX may do and a kinder device \
         does not.\n{}",
        Nasty::help()
    )
}

fn limits_help() -> String {
    format!(
        "Limits of the devices, for example \"max_inline=0,max_sge=1,no_srq\" or \"profile:siw\". \
         The devices report these limits and refuse what exceeds them, as a kernel driver does.\n{}",
        Limits::help()
    )
}

/// Returns the absolute path of the trace file, so that it stays valid after
/// the program changes its working directory. Creates the file.
fn trace_file(trace: &Path) -> Result<PathBuf, Failure> {
    if trace == "-" {
        return Ok("/dev/stderr".into());
    }
    let failure =
        |error| Failure::usage(format!("cannot write --trace {}: {error}", trace.display()));
    // The program opens the file only with its first device. A pipe is not
    // opened here: its reader would take this close for the end of the trace.
    if trace.metadata().map_or(true, |data| data.is_file()) {
        let opened = std::fs::File::options()
            .create(true)
            .append(true)
            .open(trace);
        opened.map_err(failure)?;
    }
    std::path::absolute(trace).map_err(failure)
}

/// Parses a time to resolve a route.
fn milliseconds(text: &str) -> Result<u64, String> {
    let millis = text.parse().ok().filter(|&it| it <= MAX_RESOLVE_TIME_MS);
    millis.ok_or_else(|| format!("expected milliseconds, from 0 to {MAX_RESOLVE_TIME_MS}"))
}

/// Parses a number from 1 to `MAX`.
fn number_up_to<const MAX: u8>(text: &str) -> Result<u8, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MAX).contains(number))
        .ok_or_else(|| format!("expected a number from 1 to {MAX}"))
}

/// Finds the library beside this program, both in a cargo build and in an
/// installation.
fn find_library() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::environment(format!("cannot find the path of mlx5-emu: {error}"))
    })?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    // In a build tree the newest library is in `deps`: `cargo test` builds it
    // there without a link beside the program.
    let places = [
        directory.join("deps"),
        directory.to_owned(),
        directory.join("../lib/mlx5-emu"),
        directory.join("../lib64/mlx5-emu"),
    ];
    let found = places
        .iter()
        .map(|place| place.join(LIBRARY))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::environment(format!(
            "{LIBRARY} not found beside {}, nor in ../lib/mlx5-emu or ../lib64/mlx5-emu from \
             there: `cargo install` does not install it. Copy it to one of these folders from \
             target/release after `cargo build --release -p mlx5-emulator`, or install both with \
             dat-api/install.sh or the package mlx5-emu",
            program.display()
        ))
    })
}

/// Returns the value of `LD_PRELOAD`: the runtime of AddressSanitizer, which accepts no library
/// before it, then our library, then what was preloaded before.
fn preload_list(library: &Path, sanitizer: Option<String>) -> Result<OsString, Failure> {
    let separates = |byte: &u8| matches!(byte, b' ' | b':' | b'\t' | b'\n');
    let library = library.as_os_str().as_bytes();
    if library.iter().any(separates) {
        return Err(Failure::environment(format!(
            "cannot preload {}: LD_PRELOAD takes no path with spaces or colons; \
             install the library under another path",
            String::from_utf8_lossy(library)
        )));
    }
    let before = std::env::var_os(LD_PRELOAD).unwrap_or_default();
    let before = before.as_bytes().split(separates);
    let (mut list, others): (Vec<_>, Vec<_>) = before
        .filter(|it| !it.is_empty())
        .partition(|it| is_sanitizer(&String::from_utf8_lossy(it)));
    if list.is_empty() {
        list.extend(sanitizer.as_ref().map(String::as_bytes));
    }
    list.push(library);
    list.extend(others);
    Ok(OsString::from_vec(list.join(&b':')))
}
