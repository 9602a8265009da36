//! What messages a run exchanges. How the receiver of a write notices it is chosen once,
//! after the sides are connected: the loops are compiled for each method.

use dat_engine::DataInOrder;

use super::Sides;
use super::interface::RemoteSide;
use super::plan::Plan;
use crate::exchange::Peer;
use crate::failure::Failure;
use crate::lat::options::LatArgs;
use crate::options::Operation;
use crate::report::{Arrival, Method};

/// What messages a pass exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write(Method),
    Read,
}

impl Kind {
    /// Returns the kind of an operation; `arrival` is that of a write.
    pub(super) fn of(operation: Operation, arrival: Option<Arrival>) -> Self {
        match operation {
            Operation::Send => Self::Send,
            // Without a method, the one that needs no promise.
            Operation::Write => Self::Write(arrival.map_or(Method::SendBehind, |it| it.method)),
            Operation::Read => Self::Read,
        }
    }
}

/// Chooses how the receivers of writes notice them, as the client or with both sides in
/// this process; none for other operations.
pub(super) fn arrival(
    sides: &mut Sides,
    plan: &Plan,
    args: &LatArgs,
) -> Result<Option<Arrival>, Failure> {
    if plan.setup.operation != Operation::Write {
        return Ok(None);
    }
    let in_order = match sides {
        Sides::Local(pairs) => all(pairs.iter().map(|pair| pair.data_in_order())),
        Sides::Remote(connection) => connection.run(|sides, peer| agree(sides, peer))?,
    };
    Ok(Some(Arrival::choose(args.last_byte(), in_order)))
}

/// Exchanges what the queue pairs say with the other process. Returns what holds for all.
pub(super) fn agree(
    sides: &[Box<dyn RemoteSide>],
    peer: &mut Peer,
) -> Result<DataInOrder, Failure> {
    peer.exchange_order(all(sides.iter().map(|side| side.data_in_order())))
}

fn all(answers: impl Iterator<Item = DataInOrder>) -> DataInOrder {
    answers.fold(DataInOrder::Yes, DataInOrder::and)
}
