//! The command line: perftest's letters, and help that teaches.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dat_engine::cm::ListenOn;

use crate::stats::Reported;

mod cost;
mod scale;
mod wake;

pub(crate) use cost::CostArgs;
pub(crate) use scale::ScaleArgs;
pub(crate) use wake::{Rate, WakeArgs};

/// perftest's TCP port.
pub(crate) const PORT: u16 = 18515;
/// The largest message that mlx5 devices take.
const LARGEST: u32 = 1 << 30;
/// The largest size of `-a`, as in perftest.
const LARGEST_OF_ALL: u32 = 1 << 23;
/// The longest warm-up, in round trips: more than half an hour on any device.
const MOST_WARMUP: u64 = 1_000_000_000;
/// DAT's variable for the address on which service points listen.
pub(crate) const LISTEN: &str = "DAT_LISTEN";

/// Latency over our own mlx5 rings (or libibverbs), with histograms, what operations cost, and what waiting costs.
#[derive(Debug, Parser)]
#[command(name = "dat-bench", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every RDMA device, the data path it would get, and why
    Devices(DevicesArgs),
    /// Measure ping-pong latency, in one process (--loopback) or between two
    #[command(long_about = LAT_ABOUT, after_long_help = LAT_EXAMPLES, after_help = "See --help for examples and for how to get good numbers.")]
    Lat(LatArgs),
    /// Measure what each hot operation costs the processor, beside libmlx5
    #[command(long_about = cost::ABOUT, after_long_help = cost::EXAMPLES, after_help = "See --help for what the figures are, and what they are not.")]
    Cost(CostArgs),
    /// Measure how soon a waiting thread has an event, and what waiting costs it
    #[command(long_about = wake::ABOUT, after_long_help = wake::EXAMPLES, after_help = "See --help for what the figures are, and what they are not.")]
    Wake(WakeArgs),
    /// Measure what a message costs by the number of endpoints, and their memory
    #[command(long_about = scale::ABOUT, after_long_help = scale::EXAMPLES, after_help = "See --help for what the figures are.")]
    Scale(ScaleArgs),
}

const LAT_ABOUT: &str = "\
Measure ping-pong latency.

Without a host this side is the server: it waits for a client and answers it.
With a host it is the client: it measures and prints. With --loopback both
sides are in this process and thread, over two queue pairs of one device.

The server ends after one client; --persist makes it answer one after another.
It reports a connection that is no dat-bench, or that asks for another run, and
waits on. Nothing is authenticated or encrypted: whatever reaches the server's
port can have itself answered, and reach the memory that is measured. Without
--listen a server listens where DAT_LISTEN says, else on all addresses of the
host. Emulated devices set DAT_LISTEN to loopback.

What is reported: for send and write HALF of the round trip, as perftest does.
One message goes there, one comes back, and both ways are taken as equal. For
read the FULL round trip, since the data come back within the one operation.
One message is in flight at a time (closed loop): the figures are those of an
idle device, not of one under load.";

const LAT_EXAMPLES: &str = "\
Examples:
  dat-bench lat --loopback                     one process, the best device here
  dat-bench lat --loopback -d emu -o write     on the emulated ConnectX, no hardware needed
  dat-bench lat -d mlx5_0                      server: waits on TCP port 18515
  dat-bench lat -d mlx5_0 --listen 10.0.0.5 --persist   server on one address, for many clients
  dat-bench lat -d mlx5_0 server-host          client: measures and prints
  dat-bench lat -a --json r.json server-host   all sizes; start the server with -a, too
  dat-bench lat --loopback --api engine,rust,c what DAT's layers add to the engine
  dat-bench lat --loopback --path verbs        through libibverbs, on any RDMA device
  dat-bench lat -D 10 --cpu 2 --hgrm r.hgrm server-host

How to get a good number:
  * Pin with --cpu to a core of the device's NUMA node, one that nothing else uses (isolcpus, nohz_full).
  * Keep the core awake and fast: governor 'performance', deep C-states off
    (cpupower frequency-set -g performance; cpupower idle-set -D 0).
  * Take enough samples: 99.99 % of 10 000 samples is one sample. -n 1000000 or -D 10 says more.
  * Compare medians of several runs, and look at the histogram before believing an average.
  * On fewer cores than spinning threads (two sides and, emulated, their devices) the scheduler is measured.

Exit status: 0 good, 1 usage, 2 environment (no device, no memory lock, no server, ...), 3 the run failed.";

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Device: a name, or 'emu' for the emulated one [default: all]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How devices would be driven [default: as DAT_PATH says, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Print JSON, to FILE or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[expect(
        clippy::option_option,
        reason = "absent, given without and with a file are three things"
    )]
    pub(crate) json: Option<Option<PathBuf>>,
}

/// How a device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// Directly where that can be, else through libibverbs
    Auto,
    /// By writing to its rings
    Direct,
    /// Through libibverbs
    Verbs,
}

impl Path {
    /// As DAT_PATH has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Verbs => "verbs",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Two-sided: a send there meets a posted receive, a send comes back
    Send,
    /// One-sided: an RDMA write there is seen in memory, an RDMA write comes back
    Write,
    /// One-sided: an RDMA read fetches the other side's memory
    Read,
}

impl Operation {
    /// perftest's convention for the operation.
    pub(crate) fn reported(self) -> Reported {
        match self {
            Self::Send | Self::Write => Reported::HalfRoundTrip,
            Self::Read => Reported::FullRoundTrip,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Through which interface messages go; all end in the same engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Api {
    /// The engine itself, without DAT
    Engine,
    /// DAT's Rust types (dat_api::safe)
    Rust,
    /// DAT's C calls (libdat.so, loaded at run time)
    C,
}

impl Api {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Rust => "rust",
            Self::C => "c",
        }
    }
}

/// What a wait of DAT does until an event comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Spins
    Poll,
    /// Spins for a while that it learns, then sleeps
    Adaptive,
    /// Sleeps at once
    Block,
}

impl Wait {
    /// As DAT_WAIT has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Adaptive => "adaptive",
            Self::Block => "block",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LatArgs {
    /// The server's host name or address; without it, this side is the server
    pub(crate) host: Option<String>,
    /// Both sides in this process, one thread
    #[arg(long, conflicts_with_all = ["host", "port"])]
    pub(crate) loopback: bool,
    /// Device: a name, or 'emu' for the emulated one [default: the best real one, else emulated]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How the device is driven [default: as DAT_PATH says, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Port of the device
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ib_port: u8,
    /// Index in the port's GID table [default: chosen by link, see 'dat-bench devices']
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(crate) gid_index: Option<u8>,
    /// Operation
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "send")]
    pub(crate) operation: Operation,
    /// Interfaces measured, comma-separated; of several, in turn, and what each adds
    #[arg(
        long,
        value_name = "LIST",
        default_value = "engine",
        value_delimiter = ','
    )]
    pub(crate) api: Vec<Api>,
    /// Take events by DAT's wait, which does this, not by polling (rust and c) [default: poll by dequeue]
    #[arg(long, value_name = "HOW")]
    pub(crate) wait: Option<Wait>,
    /// Message size in bytes, 1 to 1 GiB; K and M count in 1024
    #[arg(short, long, value_name = "BYTES", default_value = "2", value_parser = size)]
    pub(crate) size: u32,
    /// All sizes, 2 bytes to 8 MiB by powers of two
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Samples per size [default: 10000; with -a 1000]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iters: Option<u64>,
    /// Measure for this long per size instead of a number of samples
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Round trips before the first sample, per size, at most 1000000000 [default: a tenth of -n, at most 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_WARMUP))]
    pub(crate) warmup: Option<u64>,
    /// Send queue depth; from 2 on only every (N/2)-th message asks for a completion
    #[arg(short = 't', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tx_depth: u32,
    /// Receive queue depth (send only) [default: 512, or as deep as the device has]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: Option<u32>,
    /// Messages up to this size go inline, 0 for none (engine only, not for read)
    /// [default: send 236, write 220, or as many as the device takes; as DAT does where DAT is measured]
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES")]
    pub(crate) inline: Option<u32>,
    /// Server: listen on all addresses of this host, on loopback, or on one IP address, also for
    /// DAT's connections [default: as DAT_LISTEN says, else all; emulated devices set it to loopback]
    #[arg(long, value_name = "all|loopback|ADDRESS", conflicts_with_all = ["host", "loopback"])]
    pub(crate) listen: Option<ListenOn>,
    /// Server: answer one client after another, until Ctrl-C
    #[arg(long, conflicts_with_all = ["host", "loopback"])]
    pub(crate) persist: bool,
    /// TCP port on which the two sides find each other; 0 lets a server choose
    #[arg(short, long, value_name = "PORT", default_value_t = PORT)]
    pub(crate) port: u16,
    /// How long to wait for the other side [default: a server waits for ever for a client; after that 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Pin the measuring thread to this CPU
    #[arg(long, value_name = "LIST", value_parser = cpu)]
    pub(crate) cpu: Option<usize>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the percentiles in HdrHistogram's text format; with -a the size goes into the name
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
}

/// Bytes, with K or M (also KiB, MiB) counting in 1024.
fn size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        other => return Err(format!("unknown unit '{other}'; use none, K, M or G")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| (1..=LARGEST).contains(bytes))
        .ok_or_else(|| format!("a message has 1 to {LARGEST} bytes (1 GiB)"))
}

/// A positive time in seconds, with fractions.
fn seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 1e6;
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("give seconds above 0 and up to {LONGEST}")),
    }
}

/// The one CPU of a list; whether it exists is seen when the thread is pinned.
fn cpu(text: &str) -> Result<usize, String> {
    if text.contains([',', '-']) {
        return Err("there is one measuring thread in this version: give one CPU number".into());
    }
    text.parse()
        .map_err(|_| "give a CPU number as in /proc/cpuinfo".into())
}

impl LatArgs {
    /// The sizes measured, smallest first.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        if self.all {
            (1..=LARGEST_OF_ALL.ilog2()).map(|log| 1 << log).collect()
        } else {
            vec![self.size]
        }
    }

    pub(crate) fn is_server(&self) -> bool {
        !self.loopback && self.host.is_none()
    }

    pub(crate) fn iterations(&self) -> u64 {
        self.iters.unwrap_or(if self.all { 1000 } else { 10_000 })
    }

    pub(crate) fn warmup(&self) -> u64 {
        const MOST: u64 = 1000;
        self.warmup.unwrap_or(match self.duration {
            Some(_) => MOST,
            None => self.iterations().div_ceil(10).min(MOST),
        })
    }

    pub(crate) fn receive_depth(&self) -> u32 {
        self.rx_depth.unwrap_or(512)
    }

    /// perftest's thresholds, unless told; where DAT is measured, DAT's, which
    /// nobody can change, for the engine beside it as well.
    pub(crate) fn inline_bytes(&self) -> u32 {
        self.inline.unwrap_or(match self.operation {
            Operation::Read => 0,
            _ if self.measures_dat() => dat_api::object::ep::INLINE_BYTES,
            Operation::Send => 236,
            Operation::Write => 220,
        })
    }

    pub(crate) fn measures_dat(&self) -> bool {
        self.api.iter().any(|&api| api != Api::Engine)
    }

    /// Returns where a server listens: as the option says, else as DAT_LISTEN
    /// says, else on all addresses.
    pub(crate) fn listen(&self) -> Result<ListenOn, crate::failure::Failure> {
        if let Some(listen) = self.listen {
            return Ok(listen);
        }
        match std::env::var(LISTEN) {
            Ok(text) if !text.is_empty() => text
                .parse()
                .map_err(|error| crate::failure::Failure::usage(format!("{LISTEN}: {error}"))),
            _ => Ok(ListenOn::All),
        }
    }

    /// What clap cannot see: options that mean nothing for this run are
    /// refused rather than ignored.
    pub(crate) fn check(&self) -> Result<(), crate::failure::Failure> {
        use crate::failure::Failure;
        if self.operation != Operation::Send && self.rx_depth.is_some() {
            return Err(Failure::usage(format!(
                "-r has no meaning with -o {}: only send uses receives; leave it out",
                self.operation.name()
            )));
        }
        if self.operation == Operation::Read && self.inline.is_some_and(|bytes| bytes > 0) {
            return Err(Failure::usage(
                "-I has no meaning with -o read: a read carries no data out; leave it out",
            ));
        }
        self.check_api()?;
        if self.is_server() {
            for (given, option) in [
                (self.json.is_some(), "--json"),
                (self.hgrm.is_some(), "--hgrm"),
            ] {
                if given {
                    return Err(Failure::usage(format!(
                        "{option} belongs to the side that measures: give it to the client, or use --loopback"
                    )));
                }
            }
        } else if self.port == 0 {
            return Err(Failure::usage(
                "-p 0 lets a server choose a port; give a client the one that the server printed",
            ));
        }
        Ok(())
    }

    /// The interfaces, and what only some of them have.
    fn check_api(&self) -> Result<(), crate::failure::Failure> {
        use crate::failure::Failure;
        let repeated = |(at, api)| self.api[..at].contains(api);
        if self.api.iter().enumerate().any(repeated) {
            return Err(Failure::usage("--api names an interface twice"));
        }
        if self.measures_dat() {
            for (given, option, who) in [
                (
                    self.inline.is_some(),
                    "-I",
                    "DAT chooses itself what goes inline",
                ),
                (
                    self.gid_index.is_some(),
                    "-x",
                    "DAT takes the GID index from dat.conf (key gid)",
                ),
            ] {
                if given {
                    return Err(Failure::usage(format!(
                        "{option} is for --api engine alone: {who}; leave it out"
                    )));
                }
            }
        }
        if self.wait.is_none() {
            return Ok(());
        }
        let cause = if self.api.contains(&Api::Engine) {
            "the engine is polled; give --api rust or --api c with it"
        } else if self.operation == Operation::Write {
            "a write is seen in memory, and nothing wakes whoever waits for it; leave it out"
        } else if self.loopback && self.operation == Operation::Send {
            "with --loopback one thread is both sides, and cannot wait for itself; use two processes"
        } else {
            return Ok(());
        };
        Err(Failure::usage(format!("--wait: {cause}")))
    }
}

#[cfg(test)]
mod tests;
