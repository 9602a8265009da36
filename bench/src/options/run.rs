//! Options that the commands with a client and a server have in common.

use std::time::Duration;

use clap::Args;
use dat_engine::AtomicOp;
use dat_engine::cm::ListenOn;

use super::common::{DeviceArgs, ResultArgs, require_once};
use super::perftest::PerftestArgs;
use super::values::{Api, LISTEN, Operation, PORT, PeerProgram, cpu, seconds};
use crate::failure::Failure;

/// The largest message of an mlx5 device, bytes.
const MAX_MESSAGE: u32 = 1 << 30;
/// The largest size of `-a`, bytes, as in perftest.
const MAX_SIZE_OF_ALL: u32 = 1 << 23;
/// The most segments of a message.
const MOST_SEGMENTS: i64 = 32;
/// The longest warm-up, in messages; it takes more than ten minutes on any device.
pub(crate) const MAX_WARMUP: u64 = 1_000_000_000;

/// A run between two sides.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Host name or address of the server; if absent, this side is the server
    pub(crate) host: Option<String>,
    /// Run both sides in one thread of this process
    #[arg(long, conflicts_with_all = ["host", "port"])]
    pub(crate) loopback: bool,
    /// Program on the other side; perftest (ib_send_lat, ib_write_bw, ...; 5.70 and later, except
    /// 6.28) needs the same -s, -n and -q, and -n counts all messages
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "dat-bench",
        conflicts_with = "loopback"
    )]
    pub(crate) peer: PeerProgram,
    #[command(flatten)]
    pub(crate) on: DeviceArgs,
    /// Index in the port's GID table (engine only) [default: the one that 'dat-bench devices' shows]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(crate) gid_index: Option<u8>,
    /// Measured operation (perftest's -o, the reads in flight, is -t)
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "send")]
    pub(crate) operation: Operation,
    /// Measured interfaces, comma-separated; several take turns
    #[arg(
        long,
        value_name = "LIST",
        default_value = "engine",
        value_delimiter = ','
    )]
    pub(crate) api: Vec<Api>,
    /// Measure all powers of two from 2 bytes to 8 MiB
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Measuring time per size, instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Rounds per size, among which the messages are divided; six rounds or more have a confidence
    /// interval [default: 10, or less for short runs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Send queue depth [default: bw and rate 128, lat 1, lat --rate 64]
    #[arg(short = 't', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tx_depth: Option<u32>,
    /// Receive queue depth (send and write-imm) [default: 512, or the device's limit]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: Option<u32>,
    /// Largest inline message, 0 for none (engine only, not for read and atomics) [default: send 236, write 220,
    /// or the device's limit; bw 0; DAT's size if --api has rust or c]
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES")]
    pub(crate) inline: Option<u32>,
    /// Compare every byte of every message with what was sent, also while measuring; messages differ
    #[arg(long)]
    pub(crate) check: bool,
    /// Segments of a message: it is gathered from this many pieces of memory, and scattered into as many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MOST_SEGMENTS))]
    pub(crate) sge: u32,
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
    /// Pin the measuring thread to this CPU; with --threads, a list with one for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cpu)]
    pub(crate) cpu: Vec<usize>,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    #[command(flatten)]
    pub(crate) perftest: PerftestArgs,
}

/// Parses bytes, with the suffixes K, M and G (also KiB, MiB, GiB) as powers of 1024.
pub(crate) fn size(text: &str) -> Result<u32, String> {
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

impl RunArgs {
    /// Returns the message sizes in bytes, smallest first: `size`, else the command's default, or
    /// with `-a` all.
    pub(crate) fn sizes(&self, size: Option<u32>, default: u32) -> Vec<u32> {
        match (self.operation.is_atomic(), self.all) {
            (true, _) => vec![AtomicOp::BYTES],
            (false, true) => (1..=MAX_SIZE_OF_ALL.ilog2()).map(|log| 1 << log).collect(),
            (false, false) => vec![size.unwrap_or(default)],
        }
    }

    /// Refuses a size, the option's or the command's default, that the operation or the segments do
    /// not have.
    pub(crate) fn check_size(&self, size: Option<u32>, default: u32) -> Result<(), Failure> {
        let (operation, sge) = (self.operation.name(), self.sge);
        let is_bytes = |bytes| bytes == AtomicOp::BYTES;
        let size = match self.operation.is_atomic() {
            true if self.all || !size.is_none_or(is_bytes) => {
                return Err(Failure::usage(format!(
                    "-o {operation} is always of {} bytes: leave -s and -a out",
                    AtomicOp::BYTES
                )));
            }
            true if sge > 1 => {
                return Err(Failure::usage(format!(
                    "--sge has no meaning with -o {operation}, whose 8 bytes are one segment; leave it out"
                )));
            }
            true => AtomicOp::BYTES,
            false => size.unwrap_or(default),
        };
        if self.all && sge > 1 {
            return Err(Failure::usage(
                "-a does not go with --sge: receives are posted before the sizes are known, and cut for one; give -s",
            ));
        }
        match size < sge {
            true => Err(Failure::usage(format!(
                "messages of {size} bytes have no {sge} segments: give -s {sge} or more, or a smaller --sge"
            ))),
            false => Ok(()),
        }
    }

    pub(crate) fn is_with_perftest(&self) -> bool {
        self.peer == PeerProgram::Perftest
    }

    pub(crate) fn is_server(&self) -> bool {
        !self.loopback && self.host.is_none()
    }

    /// Returns the messages of the warm-up before `iterations` measured ones: what `asked`
    /// says, else a tenth, at most 1000.
    pub(crate) fn warmup(&self, asked: Option<u64>, iterations: u64) -> u64 {
        const MOST: u64 = 1000;
        asked.unwrap_or(match self.duration {
            _ if self.is_with_perftest() => 0,
            Some(_) => MOST,
            None => iterations.div_ceil(10).min(MOST),
        })
    }

    pub(crate) fn receive_depth(&self) -> u32 {
        self.rx_depth.unwrap_or(512)
    }

    /// Returns the largest inline message: the option's, else `default`. If DAT is
    /// measured, DAT's fixed size, also for the engine beside it.
    pub(crate) fn inline_bytes(&self, default: u32) -> u32 {
        self.inline.unwrap_or(match self.operation {
            it if it.fetches() => 0,
            _ if self.measures_dat() => dat_api::object::ep::INLINE_BYTES,
            _ => default,
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
    /// `others` are options of the command that only a measuring side has, and
    /// whether they were given.
    pub(crate) fn check(&self, others: &[(bool, &str)]) -> Result<(), Failure> {
        let operation = self.operation.name();
        if !self.operation.takes_receives() && self.rx_depth.is_some() {
            return Err(Failure::usage(format!(
                "-r has no meaning with -o {operation}: only send and write-imm use receives; leave it out"
            )));
        }
        if self.operation.fetches() && self.inline.is_some_and(|bytes| bytes > 0) {
            return Err(Failure::usage(format!(
                "-I has no meaning with -o {operation}: such a request carries no data to copy; leave it out"
            )));
        }
        self.check_api()?;
        self.perftest.check(self.measures_dat())?;
        let common = [
            (self.results.json.is_some(), "--json"),
            (self.results.svg.is_some(), "--svg"),
            (self.results.csv.is_some(), "--csv"),
            (self.results.strict, "--strict"),
            (!self.results.fail_if.is_empty(), "--fail-if"),
        ];
        if self.is_server() {
            let given = |&&(given, _): &&(bool, &str)| given;
            if let Some((_, option)) = common.iter().chain(others).find(given) {
                return Err(Failure::usage(format!(
                    "{option} has no effect on a server, which prints no results: give it to the client, or use --loopback"
                )));
            }
        } else if self.port == 0 {
            return Err(Failure::usage(
                "-p 0 is for servers, which take any free port: give the client the port that the server printed",
            ));
        }
        Ok(())
    }

    /// Refuses options that perftest's exchange cannot agree on. `others` are those of the command,
    /// and whether they were given.
    pub(crate) fn check_peer(&self, others: &[(bool, &str)]) -> Result<(), Failure> {
        if !self.is_with_perftest() {
            return Ok(());
        }
        let common = [
            (self.measures_dat(), "--api rust or c"),
            (
                self.operation.is_numbered(),
                "-o with immediate data or atomic operations",
            ),
            (self.all, "-a"),
            (self.duration.is_some(), "-D"),
            (self.rounds.is_some(), "--rounds"),
            (self.check, "--check"),
            (self.sge > 1, "--sge"),
            (self.perftest.network.rdma_cm, "-R"),
        ];
        let mut all = common.iter().chain(others);
        match all.find(|(given, _)| *given) {
            Some((_, option)) => Err(Failure::usage(format!(
                "{option} is not for --peer perftest, with which the engine measures sends, writes or reads of one size in one round; leave it out, or run dat-bench on the other side too"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses duplicate interfaces, and options that some of them do not have.
    fn check_api(&self) -> Result<(), Failure> {
        require_once("--api", &self.api)?;
        if !self.measures_dat() {
            return Ok(());
        }
        if self.operation.is_numbered() && self.api.contains(&Api::C) {
            return Err(Failure::usage(format!(
                "--api c has no {}: uDAPL 1.2 has no extended operations; use --api engine or --api rust",
                self.operation.name()
            )));
        }
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
        Ok(())
    }
}

/// Returns the largest inline message of perftest's latency tests.
pub(crate) fn default_inline(operation: Operation) -> u32 {
    match operation {
        Operation::Send => 236,
        Operation::Write | Operation::WriteImm => 220,
        Operation::Read | Operation::FetchAdd | Operation::CompareSwap => 0,
    }
}
