//! The rounds, and the messages that steer them.
//!
//! In each round of an operation and a size, both sides give data and take those of the other; then
//! each tells the other whether they were right:
//!
//! ```text
//!              giving                             taking
//!  send        the data ────────────────────────► compares
//!  rdma_write  writes the data, then "ready" ───► compares
//!  rdma_read   "ready" ─────────────────────────► reads the data, compares
//!              ◄──────────────────────────────── verdict
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::slice;

use dat_api::safe::ServicePoint;

use super::side::{Area, Failure, LARGEST, Request, Result, Side};

/// The sizes in bytes: inline, one packet, many packets.
const SIZES: [usize; 3] = [8, 1024, LARGEST];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send,
    Write,
    Read,
}

impl Operation {
    pub(crate) const ALL: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "rdma_write",
            Self::Read => "rdma_read",
        }
    }
}

/// What each round moves, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) operation: Operation,
    pub(crate) bytes: usize,
}

impl Round {
    /// Returns the data of one side: different in each round, without a short period.
    fn data(self, from_active: bool) -> Vec<u8> {
        let size = self.bytes.trailing_zeros() as usize;
        let seed = size * 13 + self.operation as usize * 37 + usize::from(from_active) * 101;
        let byte = |at: usize| (at.wrapping_mul(167) + (at >> 8) * 59 + seed) as u8;
        (0..self.bytes).map(byte).collect()
    }
}

/// The first wrong byte of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    at: u32,
    found: u8,
    expected: u8,
}

/// Wrong data, which this side or the other has received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrong {
    pub(crate) round: Round,
    pub(crate) here: bool,
    pub(crate) mismatch: Mismatch,
}

impl Wrong {
    /// Returns the text; `whose` says which side has received the data.
    pub(crate) fn text(&self, whose: &str) -> String {
        let Round { operation, bytes } = self.round;
        let Mismatch {
            at,
            found,
            expected,
        } = self.mismatch;
        format!(
            "{} of {bytes} bytes: {whose} WRONG DATA: byte {at} is {found:#04x}, expected {expected:#04x}",
            operation.name()
        )
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = ["the other side received", "received"][usize::from(self.here)];
        f.write_str(&self.text(whose))
    }
}

/// A message that steers the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// The data are there, or can be read.
    Ready,
    /// The data were as expected.
    Good,
    Bad(Mismatch),
}

impl Control {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(b"ctrl");
        match self {
            Self::Ready => bytes[4] = 1,
            Self::Good => bytes[4] = 2,
            Self::Bad(mismatch) => {
                bytes[4..7].copy_from_slice(&[3, mismatch.found, mismatch.expected]);
                bytes[8..12].copy_from_slice(&mismatch.at.to_le_bytes());
            }
        }
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let rest = bytes.strip_prefix(b"ctrl")?;
        match rest[0] {
            1 => Some(Self::Ready),
            2 => Some(Self::Good),
            3 => Some(Self::Bad(Mismatch {
                at: u32::from_le_bytes(*rest[4..].first_chunk()?),
                found: rest[1],
                expected: rest[2],
            })),
            _ => None,
        }
    }
}

/// Compares what arrived with what was expected.
fn compare(found: &[u8], expected: &[u8]) -> Option<Mismatch> {
    let longest = found.len().max(expected.len());
    let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
    let differ = |&at: &usize| found.get(at) != expected.get(at);
    (0..longest).find(differ).map(|at| Mismatch {
        at: u32::try_from(at).unwrap_or(u32::MAX),
        found: byte(found, at),
        expected: byte(expected, at),
    })
}

/// Requests a connection, moves data and disconnects. Adds each finished round to the list.
pub(crate) fn active(
    side: &mut Side,
    address: SocketAddr,
    qualifier: u64,
    done: &mut Vec<Round>,
) -> Result<()> {
    side.request(address, qualifier)?;
    side.establish()?;
    move_data(slice::from_mut(side), done)?;
    side.disconnect();
    Ok(())
}

/// Accepts a connection at a service point, and moves data until the peer disconnects.
pub(crate) fn passive(side: &mut Side, point: ServicePoint, done: &mut Vec<Round>) -> Result<()> {
    side.accept()?;
    drop(point);
    side.establish()?;
    move_data(slice::from_mut(side), done)?;
    side.await_disconnect();
    Ok(())
}

/// Moves data in all rounds: of one side whose peer is elsewhere, or of both sides in turn.
pub(crate) fn move_data(sides: &mut [Side], done: &mut Vec<Round>) -> Result<()> {
    for operation in Operation::ALL {
        if operation == Operation::Read && !sides[0].both_read() {
            continue;
        }
        for bytes in SIZES {
            let round = Round { operation, bytes };
            for side in &mut *sides {
                side.give(round)?;
            }
            let mut mismatches = Vec::with_capacity(sides.len());
            for side in &mut *sides {
                mismatches.push(side.take(round)?);
            }
            for (side, mismatch) in sides.iter_mut().zip(&mismatches) {
                side.say(mismatch.map_or(Control::Good, Control::Bad))?;
            }
            // Heard also by a side with wrong data, whose peer could not send it otherwise.
            for (side, mismatch) in sides.iter_mut().zip(mismatches) {
                let (here, mismatch) = match (mismatch, side.hear()?) {
                    (Some(mismatch), _) => (true, mismatch),
                    (None, Control::Bad(mismatch)) => (false, mismatch),
                    (None, Control::Good) => continue,
                    (None, Control::Ready) => return Err(Failure::Unexpected),
                };
                return Err(Failure::Wrong(Wrong {
                    round,
                    here,
                    mismatch,
                }));
            }
            done.push(round);
        }
    }
    Ok(())
}

impl Side {
    fn give(&mut self, round: Round) -> Result<()> {
        let Round { operation, bytes } = round;
        let data = round.data(self.is_active());
        match operation {
            Operation::Send => {
                self.fill(Area::Out, &data);
                self.complete(Request::Send, bytes)
            }
            Operation::Write => {
                self.fill(Area::Out, &data);
                self.complete(Request::Write, bytes)?;
                self.say(Control::Ready)
            }
            Operation::Read => {
                self.fill(Area::Read, &data);
                self.say(Control::Ready)
            }
        }
    }

    /// Takes the data of the other side. Returns the first wrong byte.
    fn take(&mut self, round: Round) -> Result<Option<Mismatch>> {
        let Round { operation, bytes } = round;
        if operation != Operation::Send && self.hear()? != Control::Ready {
            return Err(Failure::Unexpected);
        }
        let found = match operation {
            Operation::Send => self.message()?,
            Operation::Write => self.content(Area::Written, bytes),
            Operation::Read => {
                self.complete(Request::Read, bytes)?;
                self.content(Area::Sink, bytes)
            }
        };
        Ok(compare(&found, &round.data(!self.is_active())))
    }

    fn say(&mut self, control: Control) -> Result<()> {
        self.fill(Area::Out, &control.to_bytes());
        self.complete(Request::Send, Control::BYTES)
    }

    fn hear(&mut self) -> Result<Control> {
        Control::of_bytes(&self.message()?).ok_or(Failure::Unexpected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_parsed_and_data_are_not_taken_for_one() {
        let bad = Control::Bad(Mismatch {
            at: 65535,
            found: 0xff,
            expected: 1,
        });
        for control in [Control::Ready, Control::Good, bad] {
            assert_eq!(Control::of_bytes(&control.to_bytes()), Some(control));
        }
        for other in [&b""[..], b"ctrl", &[0; Control::BYTES], &[0; 64]] {
            assert_eq!(Control::of_bytes(other), None);
        }
    }

    #[test]
    fn the_first_wrong_byte_is_found_also_in_data_of_another_length() {
        assert_eq!(compare(b"abc", b"abc"), None);
        let mismatch = compare(b"abx", b"abc").expect("the third differs");
        assert_eq!(
            (mismatch.at, mismatch.found, mismatch.expected),
            (2, b'x', b'c')
        );
        assert_eq!(compare(b"ab", b"abc").map(|one| one.at), Some(2));
        assert_eq!(compare(b"abcd", b"abc").map(|one| one.at), Some(3));
    }

    #[test]
    fn every_round_has_data_of_its_own_and_no_control_message_among_them() {
        let mut all = Vec::new();
        for operation in Operation::ALL {
            for bytes in SIZES {
                for from_active in [true, false] {
                    let data = Round { operation, bytes }.data(from_active);
                    assert_eq!(data.len(), bytes);
                    assert!(Control::of_bytes(&data).is_none());
                    assert!(!all.contains(&data), "{operation:?} of {bytes}");
                    all.push(data);
                }
            }
        }
    }
}
