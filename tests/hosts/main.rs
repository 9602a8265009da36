//! Traffic between two hosts that checks itself, for `perf-scripts/lib/vm-pair`.
//! Messages must come back unchanged and in order. Every posted transfer must get
//! exactly one completion, and every end of a connection must get an event within
//! a given time, whatever happens to the other host and to the link.

mod drive;
mod flow;
mod serve;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use dat_api::ReturnType;
use dat_api::safe::{Adapter, EventDispatcher, WaitPolicy};
use dat_api::types::{EvdFlags, Event};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Traffic between two hosts that checks itself
#[derive(Parser)]
#[command(after_help = "Exit status: 0 good, 1 a check failed or no event came, 2 usage.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    role: Role,
}

/// Options of both sides.
#[derive(Args)]
struct Common {
    /// Adapter
    #[arg(short = 'd', long, default_value = "rxe0", global = true)]
    adapter: String,
    /// Connection qualifier: a port
    #[arg(short = 'p', long, default_value_t = 4900, global = true)]
    port: u64,
    /// Bytes of the longest message, RDMA write and RDMA read
    #[arg(long, default_value_t = 20_000, global = true, value_parser = clap::value_parser!(u32).range(64..=20_000))]
    length: u32,
    /// Longest time in seconds from a connection's last progress to the event of
    /// its end
    #[arg(long, default_value_t = 60, global = true)]
    limit: u64,
}

impl Common {
    fn length(&self) -> usize {
        self.length as usize
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

#[derive(Subcommand)]
enum Role {
    /// Accept connections, and send every message back
    Serve(serve::Serve),
    /// Connect, and send messages
    Drive(drive::Drive),
    /// Connect to a host that does not answer: the event must come within the time
    Knock(drive::Knock),
}

fn main() -> ExitCode {
    let Options { common, role } = Options::parse();
    let done = match role {
        Role::Serve(serve) => serve.run(&common),
        Role::Drive(drive) => drive.run(&common),
        Role::Knock(knock) => knock.run(&common),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the adapter, with one dispatcher for all events.
fn open(common: &Common) -> Outcome<(Adapter, EventDispatcher)> {
    let adapter = Adapter::open(&common.adapter)?;
    // Blocks without spinning, because the emulated hosts share the machine's
    // processors.
    let events = adapter.create_dispatcher_with_policy(
        1024,
        EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR,
        WaitPolicy::Block,
    )?;
    Ok((adapter, events))
}

/// Returns the next event, or `None` if there is none within that time.
fn next(events: &EventDispatcher, within: Duration) -> Outcome<Option<Event>> {
    match events.wait(Some(within)) {
        Ok(event) => Ok(Some(event)),
        Err(code) if code.is(ReturnType::TimeoutExpired) => Ok(None),
        Err(code) if code.is(ReturnType::InterruptedCall) => Ok(None),
        Err(code) => Err(code.into()),
    }
}
