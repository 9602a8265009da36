//! Options and help of `dat-bench bw` and `dat-bench rate`.

use clap::Args;

use crate::ends::LONGEST_LIST;
use crate::failure::Failure;
use crate::options::{MAX_WARMUP, Operation, RunArgs, choices, default_inline, size};
use crate::output::counted;
use crate::results::{self, Offer, Percentiles, Unit};

pub(crate) const ABOUT: &str = "\
Measure bandwidth: how many bytes per second one side can send, write or read.

The client keeps up to -t requests of each endpoint in the queue. With -o send,
write and write-imm the messages go to the server, with -o read and the atomic
operations they come from it. With -b
both sides send at the same time, and the figures are the sums of both. Without a
host, this side is the server; with --loopback, one thread is both sides, and its
time for both is in the figures.

BW average is all bytes divided by all time, from the first post of a round to
its last completion. BW peak is that of the fastest part of a round, from some
post to some completion; it is looked for in up to 20000 messages per size, not
with -D or -N, and never by 'rate'. MsgRate is millions of messages per second.
These are perftest's columns and definitions.

CPU is the processor time of the client's thread, system calls included, for each
message that it has sent. A thread that polls is never idle, so its CPU time is all
the time. 'busy' leaves out the polls that found nothing: their number by the time of
the shortest of those that were timed, which are one in 1024. So the thread was busy
for at most this time. The last column is the 95 % confidence
interval of the median of the rounds; an average outside of it is that of disturbed
rounds.

MiB/sec is 2^20 bytes per second. perftest means the same by MB/sec, as versions
before 2024 call it, and by MiB/sec. With --report_gbits the unit is Gb/sec,
10^9 bits per second: 1 Gb/sec is 119.2 MiB/sec. #iterations is the number of
messages of all endpoints; -n is that of each one.

Each of the -q endpoints has a connection, memory and completion queues of its own;
those of perftest share their completion queues.

A receiver of sends, and of writes with immediate data, tells the sender how many receives it has posted again, by an
RDMA write after half of them. So no message meets an empty receive queue,
whatever -r is; a small -r makes the sender wait. perftest does so on iWARP
only, and elsewhere relies on the device to send again.

With --threads, each thread of a side has the device open for itself, with -q
endpoints, completion queues and memory of its own, and a control connection, for
which the server opens a further TCP port. The threads begin each round together;
the figures are sums of the threads', whose times need not be the same, and the
lines below say what each has done. --cpu has a CPU for each thread.

With --check, each message has bytes of its own, and every byte is compared with
what was sent: a changed, lost or repeated message ends the run. Writing and
comparing are within the measured time, so the figures are not those of the device
alone; the head of the table and the JSON file say so. -o write has no --check:
nothing tells the receiver when a write has arrived.

A result is UNRELIABLE for the reasons that 'dat-bench lat --help' lists. Both
sides need the same -o, -s, -a, -n, -D, --rounds, --api, -q, -b, --threads, --check
and --sge, with -o send and -o write-imm the same -l and -r, and with --check the same -t. Nothing is authenticated or encrypted; see
'dat-bench lat --help' for servers.

Ctrl-C ends the run after the current round; what was measured until then is
printed and written. A failure keeps it, too.";

pub(crate) const RATE_ABOUT: &str = "\
Measure the rate of small messages: how many per second one side can send, write
or read.

'rate' is 'bw' with other defaults: 2 bytes, 100000 messages, inline data as in
'lat', and no peak, for which the clock would be read at every post. -l posts
several requests with one doorbell, -q uses several endpoints in turns, -Q says
how many requests share one completion, and -b sends both ways at once.

See 'dat-bench bw --help' for what the columns and options mean.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench bw --loopback -d emu               no hardware needed
  dat-bench bw -d mlx5_0 -o write              server: waits on TCP port 18515
  dat-bench bw -d mlx5_0 -o write server-host  client: measures and prints
  dat-bench bw -a -b server-host               all sizes, both ways at once; the server needs both, too
  dat-bench bw -D 10 --json bw.json --strict --fail-if 'bw_avg<10000' server-host
  dat-bench rate -o write -l 16 -q 4 server-host
  dat-bench rate --loopback --api engine,rust,c
  dat-bench bw --peer perftest -s 4K server-host    where ib_send_bw -s 4096 runs

Exit status: 0 good, 1 usage, 2 environment (no device, no locked memory, no server, ...), 3 the run failed.";

/// The help of `--fail-if`.
const FIGURES: &str = "\
Fail with status 3 if this holds for a result, such as bw_avg<10000 or msg_rate<1.5; the
figures are bw_peak and bw_avg (MiB/s, or with a unit MiB/s or Gb/s), msg_rate (Mpps), cpu and
busy (ns)";

#[derive(Clone, Debug, Args)]
#[command(mut_arg("fail_if", |it| it.help(FIGURES)))]
pub(crate) struct BwArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Message size in bytes, 1 to 1 GiB; suffixes K, M and G are powers of 1024 [default: bw 64K, rate 2;
    /// atomics have 8]
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    pub(crate) size: Option<u32>,
    /// Messages per size and endpoint [default: bw 1000, for write 5000; rate 100000; with -a 1000]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iters: Option<u64>,
    /// Endpoints of each side
    #[arg(short = 'q', long = "qp", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) endpoints: u32,
    /// Measuring threads of each side, which share nothing: each has -q endpoints of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Both sides send at the same time
    #[arg(short = 'b', long = "bidirectional")]
    pub(crate) both: bool,
    /// Requests that are posted with one doorbell (engine only)
    #[arg(short = 'l', long = "post_list", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=LONGEST_LIST as i64))]
    pub(crate) list: u32,
    /// Requests that share one completion; with -l, it divides the list
    /// [default: -l, else 100 or -t; 1 above 8192 bytes without -a]
    #[arg(short = 'Q', long = "cq-mod", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) moderation: Option<u32>,
    /// Do not look for the peak, for which the clock is read at every post and completion
    #[arg(short = 'N', long = "noPeak")]
    pub(crate) no_peak: bool,
    /// Print Gb/sec (10^9 bits per second) instead of MiB/sec
    #[arg(long = "report_gbits")]
    pub(crate) gigabits: bool,
    /// Messages before the measured ones, per size and endpoint, at most 1000000000
    /// [default: a tenth of -n, at most 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_WARMUP))]
    pub(crate) warmup: Option<u64>,
}

choices! {
    /// Which of the two commands measures.
    pub(crate) enum Throughput {
        /// Bandwidth
        Bw = "bw",
        /// Message rate
        Rate = "rate",
    }
}

/// The most messages of a size among which the peak is looked for, as in perftest.
const MOST_FOR_PEAK: u64 = 20_000;
impl Throughput {
    /// Returns the bytes of a message, unless the options say something else.
    fn size(self) -> u32 {
        match self {
            Self::Bw => 65536,
            Self::Rate => 2,
        }
    }
}

/// Up to this size, requests share completions by default, as in perftest.
const MOST_MODERATED: u32 = 8192;

impl BwArgs {
    /// Returns the message sizes in bytes, smallest first.
    pub(crate) fn sizes(&self, what: Throughput) -> Vec<u32> {
        self.run.sizes(self.size, what.size())
    }

    pub(crate) fn iterations(&self, what: Throughput) -> u64 {
        self.iters.unwrap_or(match what {
            _ if self.run.all => 1000,
            Throughput::Rate => 100_000,
            Throughput::Bw if self.run.operation == Operation::Write => 5000,
            Throughput::Bw => 1000,
        })
    }

    /// Returns the default of the largest inline message, as in perftest.
    pub(crate) fn default_inline(&self, what: Throughput) -> u32 {
        match what {
            Throughput::Bw => 0,
            Throughput::Rate => default_inline(self.run.operation),
        }
    }

    /// Returns how many requests of this size share one completion.
    pub(crate) fn moderation(&self, size: u32) -> u32 {
        self.moderation.unwrap_or(match self.list {
            1 if size > MOST_MODERATED && !self.run.all => 1,
            1 => 100,
            list => list,
        })
    }

    /// Returns why the run does not look for the peak, if it does not.
    pub(crate) fn no_peak(&self, what: Throughput) -> Option<&'static str> {
        let all = self.iterations(what).saturating_mul(self.endpoints.into());
        match what {
            Throughput::Rate => Some("only 'bw' looks for it"),
            _ if self.no_peak => Some("-N switches it off"),
            _ if self.threads > 1 => Some("with --threads, it is not looked for"),
            _ if self.run.duration.is_some() => Some("with -D, it is not looked for"),
            _ if all > MOST_FOR_PEAK => Some("it is looked for in up to 20000 messages per size"),
            Throughput::Bw => None,
        }
    }

    /// Refuses conditions that this run cannot judge.
    fn check_conditions(&self, what: Throughput) -> Result<(), Failure> {
        let absent = self.no_peak(what).map(|reason| ("bw_peak", reason));
        let offer = Offer {
            command: what.name(),
            figures: &[
                ("bw_peak", Unit::Mebibytes),
                ("bw_avg", Unit::Mebibytes),
                ("msg_rate", Unit::Megamessages),
                ("cpu", Unit::Nanoseconds),
                ("busy", Unit::Nanoseconds),
            ],
            absent: absent.as_slice(),
            percentiles: Percentiles::None,
        };
        results::check(&self.run.results.fail_if, &offer)
    }

    /// Refuses options without effect in this run, which clap does not check.
    pub(crate) fn check(&self, what: Throughput) -> Result<(), Failure> {
        self.run.check(&[])?;
        self.check_conditions(what)?;
        self.run.check_peer(&[
            (self.warmup.is_some(), "--warmup"),
            (self.both, "-b"),
            (self.threads > 1, "--threads"),
        ])?;
        if self.run.perftest.report_unsorted {
            return Err(Failure::usage(
                "-U: bw and rate measure no single messages; 'lat -U' prints the latency of each",
            ));
        }
        if self.run.perftest.events {
            return Err(Failure::usage(
                "-e: bw and rate poll for completions, which is what a full queue needs; 'lat -e' measures latency with threads that sleep, 'wake' what it takes to wake them",
            ));
        }
        self.run.check_size(self.size, what.size())?;
        if self.run.check && self.run.operation == Operation::Write {
            return Err(Failure::usage(
                "--check has no meaning with -o write: nothing tells the receiver when a write has arrived, and the next one would overwrite it; use -o write-imm or -o send",
            ));
        }
        if !matches!(self.run.cpu.len(), 0) && self.run.cpu.len() != self.threads as usize {
            return Err(Failure::usage(format!(
                "--cpu names {} for {}: give one for each, such as --cpu 2,3",
                counted(self.run.cpu.len() as u32, "CPU"),
                counted(self.threads, "thread")
            )));
        }
        if self.list > 1 && self.run.measures_dat() {
            return Err(Failure::usage(
                "-l is for --api engine alone: DAT has no post lists, each of its calls posts one request; leave it out",
            ));
        }
        if self.list > 1 && (self.run.check || self.run.operation.is_numbered()) {
            return Err(Failure::usage(format!(
                "-l does not go with {}: a list posts one request several times, and there each message has a number; leave it out",
                match self.run.check {
                    true => "--check".to_owned(),
                    false => format!("-o {}", self.run.operation.name()),
                }
            )));
        }
        match self.moderation {
            Some(moderation) if self.list > 1 && !self.list.is_multiple_of(moderation) => {
                Err(Failure::usage(format!(
                    "-Q {moderation} does not divide -l {}: give a -Q that does, so that the last request of each list is signalled",
                    self.list
                )))
            }
            _ => Ok(()),
        }
    }
}
