//! The transfers, and the messages that steer them.
//!
//! For each operation and size, the active side gives data and the passive side takes them; then
//! the other way round:
//!
//! ```text
//!  giving side                                    taking side
//!  send        the data ────────────────────────► compares
//!  rdma_write  writes the data, then "ready" ───► compares
//!  rdma_read   "ready" ─────────────────────────► reads the data, compares
//!              ◄──────────────────────────────── verdict
//! ```

use crate::problem::Problem;
use crate::report::Transfer;

use super::Result;
use super::failure::{Failure, Sides};
use super::side::{Area, LARGEST, Peer, Request, Side};

/// The sizes in bytes: inline, one packet, many packets.
const SIZES: [usize; 3] = [8, 1024, LARGEST];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Send,
    Write,
    Read,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "rdma_write",
            Self::Read => "rdma_read",
        }
    }
}

/// A transfer in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    operation: Operation,
    bytes: usize,
    /// Whether the active side gives.
    from_active: bool,
}

impl Step {
    /// Returns the data: different in each step, without a short period.
    fn data(self) -> Vec<u8> {
        let size = self.bytes.trailing_zeros() as usize;
        let seed = size * 13 + self.operation as usize * 37 + usize::from(self.from_active) * 101;
        let byte = |at: usize| (at.wrapping_mul(167) + (at >> 8) * 59 + seed) as u8;
        (0..self.bytes).map(byte).collect()
    }
}

/// A message that steers the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// The data are there, or can be read.
    Ready,
    /// The data were as expected.
    Good,
    /// The first wrong byte.
    Bad(Mismatch),
}

/// The first wrong byte of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mismatch {
    at: u32,
    found: u8,
    expected: u8,
}

impl Control {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(b"ctrl");
        match self {
            Self::Ready => bytes[4] = 1,
            Self::Good => bytes[4] = 2,
            Self::Bad(Mismatch {
                at,
                found,
                expected,
            }) => {
                bytes[4] = 3;
                bytes[5] = found;
                bytes[6] = expected;
                bytes[8..12].copy_from_slice(&at.to_le_bytes());
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

impl Side {
    /// Moves data both ways, and adds each verified transfer to a list.
    pub(super) fn move_data(
        &mut self,
        peer: &Peer,
        active: bool,
        transfers: &mut Vec<Transfer>,
    ) -> Result<()> {
        for operation in [Operation::Send, Operation::Write, Operation::Read] {
            if operation == Operation::Read && !self.both_read(peer) {
                continue;
            }
            for bytes in SIZES {
                for from_active in [true, false] {
                    let step = Step {
                        operation,
                        bytes,
                        from_active,
                    };
                    match from_active == active {
                        true => self.give(peer, step)?,
                        false => self.take(peer, step)?,
                    }
                }
                let operation = operation.name();
                transfers.push(Transfer { operation, bytes });
            }
        }
        Ok(())
    }

    fn give(&mut self, peer: &Peer, step: Step) -> Result<()> {
        let (data, bytes) = (step.data(), step.bytes);
        match step.operation {
            Operation::Send => {
                self.memory.write(Area::Out.range(bytes).start, &data);
                self.complete("post a send", Request::Send { bytes })?;
            }
            Operation::Write => {
                self.memory.write(Area::Out.range(bytes).start, &data);
                let remote = peer.area(Area::Written, bytes);
                self.complete("post an RDMA write", Request::Write { bytes, remote })?;
                self.say(Control::Ready)?;
            }
            Operation::Read => {
                self.memory.write(Area::Read.range(bytes).start, &data);
                self.say(Control::Ready)?;
            }
        }
        match self.hear()? {
            Control::Good => Ok(()),
            Control::Bad(mismatch) => {
                let whose = match self.sides {
                    Sides::OneProcess => "received",
                    Sides::TwoProcesses => "the other side received",
                };
                Err(wrong(self.sides, step, mismatch, whose))
            }
            Control::Ready => Err(confused(self.sides)),
        }
    }

    fn take(&mut self, peer: &Peer, step: Step) -> Result<()> {
        let bytes = step.bytes;
        let found = match step.operation {
            Operation::Send => self.await_message()?,
            Operation::Write => {
                self.hear_ready()?;
                self.content(Area::Written, bytes)
            }
            Operation::Read => {
                self.hear_ready()?;
                let remote = peer.area(Area::Read, bytes);
                self.complete("post an RDMA read", Request::Read { bytes, remote })?;
                self.content(Area::Sink, bytes)
            }
        };
        match compare(&found, &step.data()) {
            None => self.say(Control::Good),
            Some(mismatch) => {
                self.say(Control::Bad(mismatch))?;
                Err(wrong(self.sides, step, mismatch, "received"))
            }
        }
    }

    fn content(&self, area: Area, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.memory.read(area.range(bytes).start, &mut content);
        content
    }

    fn say(&mut self, control: Control) -> Result<()> {
        let bytes = control.to_bytes();
        self.memory
            .write(Area::Out.range(bytes.len()).start, &bytes);
        self.complete("post a send", Request::Send { bytes: bytes.len() })
    }

    fn hear(&mut self) -> Result<Control> {
        Control::of_bytes(&self.await_message()?).ok_or_else(|| confused(self.sides))
    }

    fn hear_ready(&mut self) -> Result<()> {
        match self.hear()? {
            Control::Ready => Ok(()),
            _ => Err(confused(self.sides)),
        }
    }
}

fn wrong(sides: Sides, step: Step, mismatch: Mismatch, whose: &str) -> Failure {
    let Mismatch {
        at,
        found,
        expected,
    } = mismatch;
    Problem::new(
        format!(
            "{} of {} bytes: {whose} WRONG DATA: byte {at} is {found:#04x}, expected {expected:#04x}",
            step.operation.name(),
            step.bytes
        ),
        format!(
            "run {} with DAT_PATH=verbs: if the data are right then, report a defect of the direct path; \
             if not, suspect the hardware or its firmware",
            match sides {
                Sides::OneProcess => "it",
                Sides::TwoProcesses => "both sides",
            }
        ),
    )
    .into()
}

fn confused(sides: Sides) -> Failure {
    match sides {
        Sides::OneProcess => Problem::new(
            "a message arrived that was not sent",
            "run it with DAT_PATH=verbs: if that works, report a defect of the direct path",
        ),
        Sides::TwoProcesses => Problem::new(
            "the other side has sent an unexpected message",
            "use the same version of dat-check on both sides",
        ),
    }
    .into()
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
    fn every_step_has_data_of_its_own_and_no_control_message_among_them() {
        let mut all = Vec::new();
        for operation in [Operation::Send, Operation::Write, Operation::Read] {
            for bytes in SIZES {
                for from_active in [true, false] {
                    let step = Step {
                        operation,
                        bytes,
                        from_active,
                    };
                    let data = step.data();
                    assert_eq!(data.len(), bytes);
                    assert!(Control::of_bytes(&data).is_none());
                    assert!(!all.contains(&data), "{step:?}");
                    all.push(data);
                }
            }
        }
    }
}
