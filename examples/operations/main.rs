//! Every operation, both ways: two sides send, write and read data of several sizes, and compare
//! every byte. `dat-check --listen` and `--connect` run the same code (`side.rs`, `rounds.rs`).
//!
//! Worth copying:
//! - Each side announces its memory in the private data of the connection, with a word that
//!   identifies the program. Private data of other programs are refused.
//! - All waits have one time limit, and say what they waited for.
//! - Data that were written are complete in memory when a send that was posted behind the write is
//!   received. Memory that the peer reads is not changed until the peer says that it has read it.
//! - Memory of a request belongs to the device until the request completes.

#[path = "../common/mod.rs"]
mod common;
mod rounds;
mod side;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use common::{Common, Outcome};
use dat_api::safe::Adapter;

use self::side::{Failure, Side};

/// Moves data by every operation, both ways, and compares every byte
///
/// Without HOST it is the server of one client; with HOST it is the client.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Time limit in seconds
    #[arg(short = 't', long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The server's host
    host: Option<String>,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(options: Options) -> Outcome<()> {
    let Common { adapter, port } = &options.common;
    let adapter = Adapter::open(adapter)?;
    let deadline = Instant::now() + Duration::from_secs(options.timeout);
    let mut side = Side::new(&adapter, deadline)?;
    let mut done = Vec::new();
    let ended = match &options.host {
        Some(host) => rounds::active(&mut side, common::address_of(host)?, *port, &mut done),
        None => {
            let point = adapter.listen(*port, side.connections())?;
            println!("listening on {port}");
            rounds::passive(&mut side, point, &mut done)
        }
    };
    for round in done {
        let (name, bytes) = (round.operation.name(), round.bytes);
        println!("{name}: {bytes} bytes, both ways, every byte compared");
    }
    ended.map_err(|failure| match (failure, &options.host) {
        (Failure::Refused(error), _) => error.into(),
        (Failure::Connection(kind), Some(host)) => common::refused(kind, host, *port).into(),
        (failure, _) => failure.into(),
    })
}
