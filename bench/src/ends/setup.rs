//! What all ends of a run have in common, cut to the device's limits.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use super::interface::Shape;
use super::payload;
use crate::options::{Operation, RunArgs};

/// Default timeout for messages of the other side.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The properties of every end.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) operation: Operation,
    /// The largest message, bytes.
    pub(crate) largest: u32,
    pub(crate) tx_depth: u32,
    /// Number of receives that are always posted.
    pub(crate) receives: u32,
    /// The largest inline message, bytes.
    pub(crate) inline: u32,
    /// The largest inline message requested, bytes.
    pub(crate) inline_requested: u32,
    /// The most RDMA reads in flight of a DAT endpoint; the engine has 16.
    pub(crate) reads: i32,
    /// Timeout for messages of the other side.
    pub(crate) timeout: Duration,
    /// The addresses on which a server listens.
    pub(crate) listen: ListenOn,
    /// Whether DAT's events are taken by waits.
    pub(crate) waits: bool,
}

impl Setup {
    /// `tx_depth` and `inline` are the command's defaults.
    pub(crate) fn new(args: &RunArgs, largest: u32, tx_depth: u32, inline: u32) -> Self {
        let inline = args.inline_bytes(inline);
        Self {
            operation: args.operation,
            largest,
            tx_depth: args.tx_depth.unwrap_or(tx_depth),
            receives: match args.operation {
                Operation::Send => args.receive_depth(),
                Operation::Write | Operation::Read => 0,
            },
            inline,
            inline_requested: inline,
            reads: 1,
            timeout: args.timeout.unwrap_or(TIMEOUT),
            listen: ListenOn::All,
            waits: false,
        }
    }

    /// Returns the properties of an end for these messages.
    pub(crate) fn shape(&self) -> Shape {
        let receives = self.receives.max(1);
        Shape {
            bytes: payload::bytes(self.largest),
            sends: self.tx_depth,
            receives,
            sent_completions: self.tx_depth,
            received_completions: receives,
            inline: self.inline,
            reads: self.reads,
            posted: self.receives,
            into: payload::incoming(self.largest),
            policy: None,
            timeout: self.timeout,
            listen: self.listen,
        }
    }
}
