//! Options and help of `dat-bench lat`.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::options::{
    Api, HistogramArgs, LastByte, MAX_WARMUP, Operation, RunArgs, Wait, default_inline, per_second,
    require_once, size,
};
use crate::results::{self, Offer, Percentiles, Unit};

pub(crate) const ABOUT: &str = "\
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
operation. A write with immediate data (write-imm) takes a receive of the other
side, whose completion notices it. The atomic operations fetch-add and
compare-swap change 8 bytes of the other side's memory and bring back what was
there: the FULL round trip, as for read. Each adds 1, and the values that come
back are checked. uDAPL 1.2, so --api c, has none of the three.

One message is in flight at a time (closed loop): the figures are those of an
idle device, not of a loaded one. With -t 2 or more, only every (N/2)-th message
is signalled. With several interfaces (--api), the table says what each adds to
the one before it.

With -q, each message goes by the next of several endpoints, which have a
connection, memory and completion queues of their own; still one message is in
flight. The latency shows what the device needs to have a queue pair at hand that
it has not used for a while. perftest has no -q in its latency tests.

A write raises no event at the receiver, which polls the last byte of its
memory. That is correct only if the device writes the bytes of one message in
ascending order, so the connected queue pairs of both sides are asked
(ibv_query_qp_data_in_order; an mlx5 device answers on x86). If one of them does
not say yes, an empty send follows each write, and the receiver polls for its
receive: two requests for each message, which take longer. The head of the table
and the JSON file name the method. --last-byte force polls memory in any case,
as perftest's ib_write_lat does; both sides need the same --last-byte. A device
promises the order within one message only, not between two, and only to the
processor.

With --check, each message has bytes of its own, and every byte is compared with
what was sent, so that a changed, lost or repeated message ends the run. A message
is written before its time begins, and compared when its time is over; the other
side does both after it has answered, while the client does the same. With --rate,
both are within the measured time. Both sides need the same --check, --sge, -t and
-r. Without --check, the bytes of all messages are the same, and are compared
after each round.

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

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench lat --loopback                     one process, the best device of this host
  dat-bench lat --loopback -d emu -o write     on the emulated ConnectX, no hardware needed
  dat-bench lat -o write --last-byte force server-host   poll memory whatever the device says
  dat-bench lat -d mlx5_0                      server: waits on TCP port 18515
  dat-bench lat -d mlx5_0 --listen 10.0.0.5 --persist   server on one address, for many clients
  dat-bench lat -d mlx5_0 server-host          client: measures and prints
  dat-bench lat -a --json r.json server-host   all sizes; the server needs -a too
  dat-bench lat --loopback --api engine,rust,c what each layer of DAT adds to the engine
  dat-bench lat --loopback --path verbs        through libibverbs, on any RDMA device
  dat-bench lat --rate 1k,10k,100k server-host open loop; the server needs --rate too
  dat-bench lat -D 10 --cpu 2 --hgrm r.hgrm --hlog r.hlog server-host
  dat-bench lat --peer perftest -o write -s 64 -n 10000 server-host   where ib_write_lat -s 64 -n 10000 runs
  dat-bench lat -D 10 --samples s.csv --json r.json server-host   when did the spikes come?
  dat-bench lat -n 100000 --strict --fail-if 'p99.9>5us' server-host   for CI

How to get a good number:
  * Pin with --cpu to an isolated core (isolcpus, nohz_full) of the device's NUMA node.
  * Set the governor 'performance' and switch deep C-states off
    (cpupower frequency-set -g performance; cpupower idle-set -D 10).
  * Take enough samples: a percentile is printed if ten samples are above it, so 99.99 %
    needs 100,000. Use -n 1000000 or -D 10.
  * Compare medians of several runs, and read the histogram before you trust an average.
    The 95 % interval of the median comes from the rounds of one run; it does not show
    what differs between runs.
  * Have a core for each spinning thread (client, server, emulated NICs), or you measure the scheduler.

Exit status: 0 good, 1 usage, 2 environment (no device, no locked memory, no server, ...), 3 the run failed.";

/// Bytes of a message, unless the options say something else.
const SIZE: u32 = 2;

/// The help of `--fail-if`.
const FIGURES: &str = "\
Fail with status 3 if this holds for a result, such as p99>5us or max>1ms; the figures are
min, max, avg, stdev and any percentile, such as p50 or p99.99, for which there are ten samples above it";

#[derive(Clone, Debug, Args)]
#[command(mut_arg("fail_if", |it| it.help(FIGURES)))]
pub(crate) struct LatArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Message size in bytes, 1 to 1 GiB; suffixes K, M and G are powers of 1024 [default: 2; atomics
    /// have 8]
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    pub(crate) size: Option<u32>,
    /// Samples per size [default: 10000; with -a, or perftest on the other side, 1000]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iters: Option<u64>,
    /// Endpoints of each side; messages go by each of them in turn
    #[arg(short = 'q', long = "qp", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) endpoints: u32,
    /// Wait for events with this policy instead of polling (rust and c) [default: dequeue in a loop]
    #[arg(long, value_name = "HOW", conflicts_with = "events")]
    wait: Option<Wait>,
    /// With -o write: whether the receiver polls the last byte of its memory [default: auto]
    #[arg(long, value_name = "WHEN")]
    pub(crate) last_byte: Option<LastByte>,
    /// Open loop: send this many messages per second, comma-separated, with suffixes k and M; up to -t
    /// of them are in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = per_second)]
    pub(crate) rate: Vec<f64>,
    /// Round trips before the first sample, per size, at most 1000000000 [default: a tenth of -n, at most 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_WARMUP))]
    pub(crate) warmup: Option<u64>,
    #[command(flatten)]
    pub(crate) histograms: HistogramArgs,
    /// Write each measured message as a row of CSV: when it was sent, size, interface and latency;
    /// of more than 1000000 messages in a run, the first of each round
    #[arg(long, value_name = "FILE", conflicts_with = "report_unsorted")]
    samples: Option<PathBuf>,
    /// Say of an unreliable result what it means for a first look (for perf-scripts/quickstart)
    #[arg(long, hide = true)]
    pub(crate) first_look: bool,
}

impl LatArgs {
    /// Returns the message sizes in bytes, smallest first.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        self.run.sizes(self.size, SIZE)
    }

    /// Returns the rates of the open loop; a single `None` is the closed loop.
    pub(crate) fn rates(&self) -> Vec<Option<f64>> {
        match self.rate.is_empty() {
            true => vec![None],
            false => self.rate.iter().copied().map(Some).collect(),
        }
    }

    /// Returns the send queue depth: from 2 on, only every (N/2)-th message is
    /// signalled.
    pub(crate) fn send_depth(&self) -> u32 {
        self.run
            .tx_depth
            .unwrap_or(if self.rate.is_empty() { 1 } else { 64 })
    }

    /// Returns the number of samples per size.
    pub(crate) fn iterations(&self) -> u64 {
        match self.run.is_with_perftest() {
            // perftest counts every message.
            true => self.messages().saturating_sub(self.warmup()),
            false => self.messages(),
        }
    }

    fn messages(&self) -> u64 {
        let is_short = self.run.all || self.run.is_with_perftest();
        self.iters.unwrap_or(if is_short { 1000 } else { 10_000 })
    }

    pub(crate) fn warmup(&self) -> u64 {
        match self.run.is_with_perftest() {
            // During the first round trip perftest measures the frequency of its clock.
            true => self.warmup.unwrap_or(1),
            false => self.run.warmup(self.warmup, self.messages()),
        }
    }

    /// Returns perftest's largest inline message of the operation.
    pub(crate) fn default_inline(&self) -> u32 {
        default_inline(self.run.operation)
    }

    /// Refuses options without effect in this run, which clap does not check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.run.check(&[
            (self.histograms.hgrm.is_some(), "--hgrm"),
            (self.histograms.hlog.is_some(), "--hlog"),
            (self.samples.is_some(), "--samples"),
            (self.run.perftest.report_unsorted, "-U"),
        ])?;
        self.run.check_size(self.size, SIZE)?;
        if self.run.cpu.len() > 1 {
            return Err(Failure::usage(
                "--cpu names several CPUs, but lat has one measuring thread; 'bw' and 'rate' have --threads",
            ));
        }
        if self.last_byte.is_some() && self.run.operation != Operation::Write {
            return Err(Failure::usage(format!(
                "--last-byte has no meaning with -o {}: only the receiver of a write polls memory; leave it out",
                self.run.operation.name()
            )));
        }
        self.run.check_peer(&[
            (!self.rate.is_empty(), "--rate"),
            (self.endpoints > 1, "-q"),
            (
                self.last_byte.is_some_and(|it| it != LastByte::Force),
                "--last-byte auto or never",
            ),
        ])?;
        if self.run.is_with_perftest() && self.iterations() == 0 {
            return Err(Failure::usage(format!(
                "-n {} leaves no sample after the warm-up of {}, which it includes with --peer perftest; give a larger -n to both sides",
                self.messages(),
                self.warmup()
            )));
        }
        self.check_wait()?;
        self.check_rates()?;
        self.check_conditions()
    }

    /// Refuses conditions that this run cannot judge.
    fn check_conditions(&self) -> Result<(), Failure> {
        // The median needs no samples above it.
        let figures = ["min", "p50", "max", "avg", "stdev"].map(|it| (it, Unit::Microseconds));
        let samples = self.run.duration.is_none().then(|| self.iterations());
        let offer = Offer {
            command: "lat",
            figures: &figures,
            absent: &[],
            percentiles: Percentiles::Of(samples),
        };
        results::check(&self.run.results.fail_if, &offer)
    }

    /// Returns the file of `--samples`; `-U` is standard output.
    pub(crate) fn samples(&self) -> Option<PathBuf> {
        let unsorted = self.run.perftest.report_unsorted;
        self.samples.clone().or(unsorted.then(|| "-".into()))
    }

    /// Returns the wait policy of `--wait` or `-e`.
    pub(crate) fn wait(&self) -> Option<Wait> {
        let sleeps = self.run.perftest.events;
        self.wait.or(sleeps.then_some(Wait::Block))
    }

    pub(crate) fn last_byte(&self) -> LastByte {
        match self.run.is_with_perftest() {
            // As perftest does.
            true => LastByte::Force,
            false => self.last_byte.unwrap_or_default(),
        }
    }

    /// Refuses rates that are given twice, and a thread that sleeps instead of
    /// keeping a schedule.
    fn check_rates(&self) -> Result<(), Failure> {
        require_once("--rate", &self.rate)?;
        if !self.rate.is_empty() && self.wait().is_some() {
            return Err(Failure::usage(
                "--wait has no meaning with --rate: the thread that sends on schedule cannot sleep; 'dat-bench wake' measures waits at a rate",
            ));
        }
        Ok(())
    }

    /// Refuses a wait policy where nothing can wait.
    fn check_wait(&self) -> Result<(), Failure> {
        if self.wait().is_none() {
            return Ok(());
        }
        let run = &self.run;
        let option = match run.perftest.events {
            true => "-e",
            false => "--wait",
        };
        let cause = if run.api.contains(&Api::Engine) {
            "the engine is always polled: use --api rust or --api c"
        } else if run.operation == Operation::Write {
            "an RDMA write raises no event at the receiver, which polls: leave it out, or use -o send"
        } else if run.operation.is_numbered() {
            "events of immediate data and atomic operations are dequeued in a loop: leave it out, or use -o send"
        } else if run.loopback && run.operation == Operation::Send {
            "with --loopback one thread is both sides and would wait for itself: use two processes"
        } else {
            return Ok(());
        };
        Err(Failure::usage(format!("{option}: {cause}")))
    }
}
