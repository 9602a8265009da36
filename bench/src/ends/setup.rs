//! What all ends of a run have in common, cut to the device's limits.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use super::interface::Shape;
use super::numbered::pieces;
use super::payload::Layout;
use crate::exchange::LARGEST_PAGE;
use crate::failure::Failure;
use crate::options::{Operation, RunArgs};

/// Default timeout for messages of the other side.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a half of an end's memory in which each message has a slot.
const MOST_FOR_SLOTS: usize = 128 << 20;

/// The properties of every end.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) operation: Operation,
    /// Where messages are in the memory.
    pub(crate) layout: Layout,
    /// Whether every message is compared with what was sent.
    pub(crate) checks: bool,
    /// Slots for messages that are compared after their receives are posted again.
    pub(crate) spare_slots: u32,
    /// Whether endpoints take turns, each with numbers of its own.
    pub(crate) takes_turns: bool,
    /// The segments of a message.
    pub(crate) segments: u32,
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
    /// Whether the other side sends the bytes that this one compares its memory with.
    pub(crate) verifies: bool,
    /// Whether DAT's events are taken by waits.
    pub(crate) waits: bool,
}

impl Setup {
    /// `tx_depth` and `inline` are the command's defaults.
    pub(crate) fn new(args: &RunArgs, largest: u32, tx_depth: u32, inline: u32) -> Self {
        let inline = args.inline_bytes(inline);
        Self {
            operation: args.operation,
            layout: Layout {
                largest: match args.is_with_perftest() {
                    true => largest.max(LARGEST_PAGE),
                    false => largest,
                },
                slots: 1,
            },
            checks: args.check,
            spare_slots: 0,
            takes_turns: false,
            segments: args.sge,
            tx_depth: args.tx_depth.unwrap_or(tx_depth),
            receives: match args.operation.takes_receives() {
                true => args.receive_depth(),
                false => 0,
            },
            inline,
            inline_requested: inline,
            reads: 1,
            timeout: args.timeout.unwrap_or(TIMEOUT),
            listen: ListenOn::All,
            verifies: !args.is_with_perftest(),
            waits: false,
        }
    }

    /// Gives each message that can be in flight a slot, if messages are compared by their numbers. Cuts the default depths to the memory that there is
    /// for it.
    pub(crate) fn reserve_slots(&mut self, args: &RunArgs) -> Result<(), Failure> {
        if !self.checks && !self.operation.is_atomic() {
            return Ok(());
        }
        let (largest, spare) = (self.layout.largest, self.spare_slots);
        let of = |in_flight: u32| Layout {
            largest,
            slots: in_flight.saturating_add(spare).next_power_of_two(),
        };
        let fits = |in_flight: u32| of(in_flight).area() <= MOST_FOR_SLOTS;
        for (option, given, depth) in [
            ("-t", args.tx_depth, &mut self.tx_depth),
            ("-r", args.rx_depth, &mut self.receives),
        ] {
            while given.is_none() && *depth > 1 && !fits(*depth) {
                *depth /= 2;
            }
            if !fits(*depth) {
                return Err(Failure::usage(format!(
                    "{option} {depth} needs memory for as many messages of {largest} bytes, which --check compares: more than {} MiB; give a smaller {option} or -s",
                    MOST_FOR_SLOTS >> 20
                )));
            }
        }
        self.layout = of(self.tx_depth.max(self.receives));
        Ok(())
    }

    /// Returns whether the run needs the number of each message: for its slot, its values, or
    /// its pieces.
    pub(crate) fn is_numbered(&self) -> bool {
        self.checks || self.takes_turns || self.segments > 1 || self.operation.is_numbered()
    }

    /// Returns the properties of an end for these messages.
    pub(crate) fn shape(&self) -> Shape {
        let receives = self.receives.max(1);
        let into = |number: u32| pieces(self.layout.incoming(number.into()), self.segments);
        Shape {
            bytes: self.layout.bytes(),
            sends: self.tx_depth,
            receives,
            sent_completions: self.tx_depth,
            received_completions: receives,
            inline: self.inline,
            reads: self.reads,
            segments: self.segments.cast_signed(),
            into: (0..self.receives).map(into).collect(),
            policy: None,
            timeout: self.timeout,
            listen: self.listen,
        }
    }
}
