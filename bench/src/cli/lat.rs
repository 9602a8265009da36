//! Options and help of `dat-bench lat`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dat_engine::cm::ListenOn;

use super::{
    Api, DeviceArgs, LISTEN, Operation, PORT, ResultArgs, Wait, absolute, cpu, per_second, seconds,
};
use crate::failure::Failure;
use crate::results::Condition;

/// The largest message of an mlx5 device, bytes.
const MAX_MESSAGE: u32 = 1 << 30;
/// The largest size of `-a`, bytes, as in perftest.
const MAX_SIZE_OF_ALL: u32 = 1 << 23;
/// The longest warm-up, in round trips; it takes more than ten minutes on any device.
const MAX_WARMUP: u64 = 1_000_000_000;

pub(super) const ABOUT: &str = "\
Measure ping-pong latency, in microseconds.

Without a host, this side is the server: it waits for a client and answers its
messages. With a host, it is the client: it measures and prints. With
--loopback, one thread of this process is both sides, over two queue pairs of
one device.

The server ends after one client, with --persist not before Ctrl-C. It reports
connections from other programs and from clients with other options, and
continues to wait. Nothing is authenticated or encrypted: any host that reaches
the server's port can get a run, and access to the memory of that run. Without
--listen, the server listens on the address in DAT_LISTEN, else on all addresses
of the host. Emulated devices set DAT_LISTEN to loopback.

Send and write report HALF of the round trip, as perftest does: one message
goes to the server and one comes back, and both ways are assumed to take equally
long. Read reports the FULL round trip, because the data come back within one
operation. One message is in flight at a time (closed loop): the figures are
those of an idle device, not of a loaded one.

With --rate (open loop) messages are sent on schedule, and up to -t of them are
in flight (with -o write one). Two FULL times are reported: the response time,
from the moment at which a message was DUE until its answer, and the service
time, from the moment at which it was sent. A stall delays all messages that
become due meanwhile, and the response times show it. If the sender cannot keep
the rate, the table says so and the result is unreliable. Several rates give the
latency over the load. Both sides need the same --rate.

A result is UNRELIABLE if its thread ran less than 95 % of the time (of the time
in which it was ready, if it sleeps), if the server's thread did, if the
hypervisor took more than 1 % of the processor (steal), if something else took
more than 2 % of the core in the milliseconds before the rounds, or if the speed
of the core changed by more than 20 %. The reasons and what to do are printed
below the table and stored in the JSON file.

Ctrl-C ends the run after the current round; what was measured until then is
printed and written. A failure keeps it, too.";

pub(super) const EXAMPLES: &str = "\
Examples:
  dat-bench lat --loopback                     one process, the best device of this host
  dat-bench lat --loopback -d emu -o write     on the emulated ConnectX, no hardware needed
  dat-bench lat -d mlx5_0                      server: waits on TCP port 18515
  dat-bench lat -d mlx5_0 --listen 10.0.0.5 --persist   server on one address, for many clients
  dat-bench lat -d mlx5_0 server-host          client: measures and prints
  dat-bench lat -a --json r.json server-host   all sizes; the server needs -a too
  dat-bench lat --loopback --api engine,rust,c what each layer of DAT adds to the engine
  dat-bench lat --loopback --path verbs        through libibverbs, on any RDMA device
  dat-bench lat --rate 1k,10k,100k server-host open loop; the server needs --rate too
  dat-bench lat -D 10 --cpu 2 --hgrm r.hgrm server-host
  dat-bench lat -n 100000 --strict --fail-if 'p99>5us' server-host   for CI

How to get a good number:
  * Pin with --cpu to an isolated core (isolcpus, nohz_full) of the device's NUMA node.
  * Set the governor 'performance' and switch deep C-states off
    (cpupower frequency-set -g performance; cpupower idle-set -D 0).
  * Take enough samples: a percentile is printed if ten samples are above it, so 99.99 %
    needs 100,000. Use -n 1000000 or -D 10.
  * Compare medians of several runs, and read the histogram before you trust an average.
    The 95 % interval of the median comes from the rounds of one run; it does not show
    what differs between runs.
  * Have a core for each spinning thread (client, server, emulated NICs), or you measure the scheduler.

Exit status: 0 good, 1 usage, 2 environment (no device, no locked memory, no server, ...), 3 the run failed.";

#[derive(Clone, Debug, Args)]
pub(crate) struct LatArgs {
    /// Host name or address of the server; if absent, this side is the server
    pub(crate) host: Option<String>,
    /// Run both sides in one thread of this process
    #[arg(long, conflicts_with_all = ["host", "port"])]
    pub(crate) loopback: bool,
    #[command(flatten)]
    pub(crate) on: DeviceArgs,
    /// Index in the port's GID table (engine only) [default: the one that 'dat-bench devices' shows]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(crate) gid_index: Option<u8>,
    /// Measured operation
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "send")]
    pub(crate) operation: Operation,
    /// Measured interfaces, comma-separated; several take turns, and the table says what each adds
    #[arg(
        long,
        value_name = "LIST",
        default_value = "engine",
        value_delimiter = ','
    )]
    pub(crate) api: Vec<Api>,
    /// Wait for events with this policy instead of polling (rust and c) [default: dequeue in a loop]
    #[arg(long, value_name = "HOW")]
    pub(crate) wait: Option<Wait>,
    /// Message size in bytes, 1 to 1 GiB; suffixes K, M and G are powers of 1024
    #[arg(short, long, value_name = "BYTES", default_value = "2", value_parser = size)]
    pub(crate) size: u32,
    /// Measure all powers of two from 2 bytes to 8 MiB
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Samples per size [default: 10000; with -a 1000]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iters: Option<u64>,
    /// Measuring time per size, instead of a number of samples
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Open loop: send this many messages per second, comma-separated, with suffixes k and M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = per_second)]
    pub(crate) rate: Vec<f64>,
    /// Rounds per size, among which the samples are divided; the medians of six rounds or more have
    /// a confidence interval [default: 10, or less for short runs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Round trips before the first sample, per size, at most 1000000000 [default: a tenth of -n, at most 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_WARMUP))]
    pub(crate) warmup: Option<u64>,
    /// Send queue depth; from 2 on, only every (N/2)-th message is signalled. With --rate, also the
    /// most messages in flight [default: 1; with --rate 64]
    #[arg(short = 't', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tx_depth: Option<u32>,
    /// Receive queue depth (send only) [default: 512, or the device's limit]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: Option<u32>,
    /// Largest inline message, 0 for none (engine only, not for read)
    /// [default: send 236, write 220, or the device's limit; DAT's size if --api has rust or c]
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES")]
    pub(crate) inline: Option<u32>,
    /// Server: where to listen, for the control connection and for DAT's: all addresses of this
    /// host, loopback, or one IP address [default: DAT_LISTEN, else all]
    #[arg(long, value_name = "all|loopback|ADDRESS", conflicts_with_all = ["host", "loopback"])]
    pub(crate) listen: Option<ListenOn>,
    /// Server: serve one client after another, until Ctrl-C
    #[arg(long, conflicts_with_all = ["host", "loopback"])]
    pub(crate) persist: bool,
    /// TCP port of the control connection; with 0, a server takes any free port
    #[arg(short, long, value_name = "PORT", default_value_t = PORT)]
    pub(crate) port: u16,
    /// Longest wait for the other side [default: 10; a server waits for a client without limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Pin the measuring thread to this CPU
    #[arg(long, value_name = "LIST", value_parser = cpu)]
    pub(crate) cpu: Option<usize>,
    /// Fail with status 3 if a result is unreliable; the result files are written before
    #[arg(long)]
    pub(crate) strict: bool,
    /// Fail with status 3 if this holds for a result, such as p99>5us or max>1ms; the figures are
    /// min, p50, p90, p99, p99.9, p99.99, p99.999, max, avg and stdev
    #[arg(long, value_name = "CONDITION", value_parser = absolute)]
    pub(crate) fail_if: Vec<Condition>,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// Write the percentiles as HdrHistogram's text; with -a, one file per size, with the size in its name
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
}

/// Parses bytes, with the suffixes K, M and G (also KiB, MiB, GiB) as powers of 1024.
pub(super) fn size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        other => return Err(format!("unknown unit '{other}': expected none, K, M or G")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| (1..=MAX_MESSAGE).contains(bytes))
        .ok_or_else(|| format!("expected 1 to {MAX_MESSAGE} bytes (1 GiB)"))
}

impl LatArgs {
    /// Returns the message sizes in bytes, smallest first.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        if self.all {
            (1..=MAX_SIZE_OF_ALL.ilog2()).map(|log| 1 << log).collect()
        } else {
            vec![self.size]
        }
    }

    pub(crate) fn is_server(&self) -> bool {
        !self.loopback && self.host.is_none()
    }

    /// Returns the rates of the open loop; a single `None` is the closed loop.
    pub(crate) fn rates(&self) -> Vec<Option<f64>> {
        match self.rate.is_empty() {
            true => vec![None],
            false => self.rate.iter().copied().map(Some).collect(),
        }
    }

    pub(crate) fn send_depth(&self) -> u32 {
        self.tx_depth
            .unwrap_or(if self.rate.is_empty() { 1 } else { 64 })
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

    /// Returns the largest inline message: the option's, else perftest's. If DAT
    /// is measured, DAT's fixed size, also for the engine beside it.
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

    /// Returns where a server listens: the option, else DAT_LISTEN, else everywhere.
    pub(crate) fn listen(&self) -> Result<ListenOn, Failure> {
        if let Some(listen) = self.listen {
            return Ok(listen);
        }
        match std::env::var(LISTEN) {
            Ok(text) if !text.is_empty() => text
                .parse()
                .map_err(|error| Failure::usage(format!("{LISTEN}: {error}"))),
            _ => Ok(ListenOn::All),
        }
    }

    /// Refuses options without effect in this run, which clap does not check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.operation != Operation::Send && self.rx_depth.is_some() {
            return Err(Failure::usage(format!(
                "-r has no meaning with -o {}: only send uses receives; leave it out",
                self.operation.name()
            )));
        }
        if self.operation == Operation::Read && self.inline.is_some_and(|bytes| bytes > 0) {
            return Err(Failure::usage(
                "-I has no meaning with -o read: a read request carries no data; leave it out",
            ));
        }
        self.check_api()?;
        self.check_rates()?;
        if self.is_server() {
            for (given, option) in [
                (self.results.json.is_some(), "--json"),
                (self.results.csv.is_some(), "--csv"),
                (self.results.svg.is_some(), "--svg"),
                (self.hgrm.is_some(), "--hgrm"),
                (self.strict, "--strict"),
                (!self.fail_if.is_empty(), "--fail-if"),
            ] {
                if given {
                    return Err(Failure::usage(format!(
                        "{option} has no effect on a server, which measures nothing: give it to the client, or use --loopback"
                    )));
                }
            }
        } else if self.port == 0 {
            return Err(Failure::usage(
                "-p 0 is for servers, which take any free port: give the client the port that the server printed",
            ));
        }
        Ok(())
    }

    /// Refuses rates that are given twice, and a thread that sleeps instead of
    /// keeping a schedule.
    fn check_rates(&self) -> Result<(), Failure> {
        let repeated = |(at, rate)| self.rate[..at].contains(rate);
        if self.rate.iter().enumerate().any(repeated) {
            return Err(Failure::usage("--rate names a rate twice"));
        }
        if !self.rate.is_empty() && self.wait.is_some() {
            return Err(Failure::usage(
                "--wait has no meaning with --rate: the thread that sends on schedule cannot sleep; 'dat-bench wake' measures waits at a rate",
            ));
        }
        Ok(())
    }

    /// Refuses duplicate interfaces, and options that some of them do not have.
    fn check_api(&self) -> Result<(), Failure> {
        let repeated = |(at, api)| self.api[..at].contains(api);
        if self.api.iter().enumerate().any(repeated) {
            return Err(Failure::usage("--api names an interface twice"));
        }
        if self.measures_dat() {
            for (given, option, cause) in [
                (self.inline.is_some(), "-I", "DAT has a fixed inline size"),
                (
                    self.gid_index.is_some(),
                    "-x",
                    "DAT takes the GID index from dat.conf (key gid)",
                ),
            ] {
                if given {
                    return Err(Failure::usage(format!(
                        "{option} is for --api engine alone: {cause}; leave it out"
                    )));
                }
            }
        }
        if self.wait.is_none() {
            return Ok(());
        }
        let cause = if self.api.contains(&Api::Engine) {
            "the engine is always polled: use --api rust or --api c"
        } else if self.operation == Operation::Write {
            "an RDMA write raises no event at the receiver, which polls its memory: leave it out, or use -o send"
        } else if self.loopback && self.operation == Operation::Send {
            "with --loopback one thread is both sides and would wait for itself: use two processes"
        } else {
            return Ok(());
        };
        Err(Failure::usage(format!("--wait: {cause}")))
    }
}
