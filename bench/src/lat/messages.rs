//! The messages of each kind of pass: how they are posted, and how their arrival is noticed. The
//! loops are compiled for each kind.

use super::side::{Side, Turn};
use crate::ends::{End, Stop, Watchdog};

/// Messages, numbered from 1, and their answers, which have the same numbers.
pub(super) trait Messages {
    /// Whether they are numbered ([`Link`](crate::ends::Link)), so that they can be checked.
    const NUMBERED: bool;
    /// Whether a thread of the other side answers.
    const ARE_ANSWERED: bool = true;
    /// The most messages in flight, whatever the depth of the send queue.
    const MOST_IN_FLIGHT: usize = usize::MAX;

    /// Returns the turn of the next message. Only numbered ones have several endpoints.
    #[inline(always)]
    fn next(turn: Turn, endpoints: usize) -> Turn {
        match Self::NUMBERED && turn.endpoint + 1 < endpoints {
            true => Turn {
                endpoint: turn.endpoint + 1,
                ..turn
            },
            false => Turn {
                endpoint: 0,
                number: turn.number + 1,
            },
        }
    }

    /// Posts a message or an answer.
    fn post<E: End>(side: &mut Side<E>, number: u64) -> Result<(), Stop>;

    /// Takes a message or an answer, if it has arrived.
    fn has_arrived<E: End>(side: &mut Side<E>, number: u64) -> Result<bool, Stop>;

    /// Called if nothing has arrived: checks the timeout once in many calls.
    #[inline(always)]
    fn after_empty_poll<E: End>(
        side: &mut Side<E>,
        watchdog: &mut Watchdog<'_>,
    ) -> Result<(), Stop> {
        side.after_empty_poll(watchdog)
    }
}

/// Sends into posted receives, answered by sends; or writes with immediate data, which take
/// receives, too.
pub(super) struct Sends<const NUMBERED: bool>;

impl<const NUMBERED: bool> Messages for Sends<NUMBERED> {
    const NUMBERED: bool = NUMBERED;

    #[inline(always)]
    fn post<E: End>(side: &mut Side<E>, number: u64) -> Result<(), Stop> {
        side.post::<NUMBERED>(number)
    }

    #[inline(always)]
    fn has_arrived<E: End>(side: &mut Side<E>, number: u64) -> Result<bool, Stop> {
        side.receive::<NUMBERED>(number)
    }
}

/// RDMA writes, answered by RDMA writes. The last byte of each is a sequence number, the low byte
/// of its number; it is 0 in the memory of both sides at first. The receiver polls that byte in
/// its memory, or (`BEHIND`) polls for the receive of an empty send that follows each write.
///
/// Only some devices promise that the last byte arrives last (see [`Arrival`](super::arrival::Arrival)).
/// The send behind a write is received after it on every device, and through every interface:
/// uDAPL 1.2 and iWARP have no writes with immediate data.
pub(super) struct Writes<const BEHIND: bool, const NUMBERED: bool>;

impl<const BEHIND: bool, const NUMBERED: bool> Messages for Writes<BEHIND, NUMBERED> {
    const NUMBERED: bool = NUMBERED;
    // One byte of memory shows the last answer only.
    const MOST_IN_FLIGHT: usize = 1;

    #[inline(always)]
    fn post<E: End>(side: &mut Side<E>, number: u64) -> Result<(), Stop> {
        side.link.write_sequence::<NUMBERED>(number);
        match BEHIND {
            true => side.post_with_send::<NUMBERED>(number),
            false => side.post::<NUMBERED>(number),
        }
    }

    #[inline(always)]
    fn has_arrived<E: End>(side: &mut Side<E>, number: u64) -> Result<bool, Stop> {
        if BEHIND && !side.receive_empty()? {
            return Ok(false);
        }
        match side.link.has_sequence::<NUMBERED>(number) {
            false if BEHIND => Err(Stop::Overtaken),
            has_arrived => Ok(has_arrived),
        }
    }
}

/// RDMA reads and atomic operations on the other side's memory, without its processor.
pub(super) struct Fetches<const NUMBERED: bool>;

impl<const NUMBERED: bool> Messages for Fetches<NUMBERED> {
    const NUMBERED: bool = NUMBERED;
    const ARE_ANSWERED: bool = false;

    #[inline(always)]
    fn post<E: End>(side: &mut Side<E>, number: u64) -> Result<(), Stop> {
        Ok(side.link.post::<NUMBERED>(number, true)?)
    }

    #[inline(always)]
    fn has_arrived<E: End>(side: &mut Side<E>, _: u64) -> Result<bool, Stop> {
        match side.link.await_sent() {
            Some(done) => side.expect_size(done).map(|()| true),
            None => Ok(false),
        }
    }

    /// Completions are answers here, which [`Side::after_empty_poll`] would take.
    #[inline(always)]
    fn after_empty_poll<E: End>(_: &mut Side<E>, watchdog: &mut Watchdog<'_>) -> Result<(), Stop> {
        match watchdog.tick() {
            true => watchdog.check(),
            false => Ok(()),
        }
    }
}

/// Evaluates an expression for the messages of a kind, numbered or not, whose type has the given
/// name in it.
macro_rules! with_messages {
    ($kind:expr, $is_numbered:expr, $messages:ident => $work:expr) => {
        match $is_numbered {
            true => $crate::lat::messages::with_messages!(@true, $kind, $messages => $work),
            false => $crate::lat::messages::with_messages!(@false, $kind, $messages => $work),
        }
    };
    (@$numbered:literal, $kind:expr, $messages:ident => $work:expr) => {{
        use $crate::lat::arrival::Method;
        use $crate::lat::messages::{Fetches, Sends, Writes};
        use $crate::lat::pass::Kind;
        match $kind {
            Kind::Receive => {
                type $messages = Sends<$numbered>;
                $work
            }
            Kind::Write(Method::LastByte) => {
                type $messages = Writes<false, $numbered>;
                $work
            }
            Kind::Write(Method::SendBehind) => {
                type $messages = Writes<true, $numbered>;
                $work
            }
            Kind::Fetch => {
                type $messages = Fetches<$numbered>;
                $work
            }
        }
    }};
}
pub(super) use with_messages;
