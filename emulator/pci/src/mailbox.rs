//! The queue of commands: entries of 64 bytes in the guest's memory, with chains of mailboxes
//! for what does not fit into them.

use crate::memory::GuestMemory;

/// log2 of the number of entries, and of their distance in bytes.
pub const LOG_ENTRIES: u32 = 5;
pub const LOG_STRIDE: u32 = 6;
/// What an entry and a mailbox contain of a command, in bytes.
const INLINE: usize = 16;
/// The shortest room for a result, its status: drivers give 12 bytes for ENABLE_HCA's.
const RESULT: usize = 8;
const MAILBOX: usize = 512;
/// Offset of the address of the next mailbox.
const NEXT: u64 = 560;
/// The longest command and result that are accepted. The longest ones have the pages of a
/// memory region: 8 bytes for each, so this is for 32 GiB.
const LONGEST: usize = 64 << 20;

/// How the delivery of a command ended (`enum mlx5_cmd_status`, delivery).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Done = 0x0,
    OutputPointer = 0x4,
    InputPointer = 0x5,
    InputLength = 0x7,
    OutputLength = 0x8,
}

/// A command as the guest has written it.
#[derive(Debug)]
pub struct Request {
    pub input: Vec<u8>,
    pub output_length: usize,
    entry: u64,
    output: u64,
}

/// Reads the command of a slot. Returns how the delivery failed, if it did; `None` if not even
/// the entry is in the guest's memory.
pub fn read(memory: &GuestMemory, queue: u64, slot: u32) -> Option<Result<Request, Delivery>> {
    let entry = queue.checked_add(u64::from(slot) << LOG_STRIDE)?;
    let mut bytes = [0; 64];
    if !memory.read(entry, &mut bytes) {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    let double = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    let (length, output_length) = (word(0x04) as usize, word(0x38) as usize);
    let request = if !(INLINE..=LONGEST).contains(&length) {
        Err(Delivery::InputLength)
    } else if !(RESULT..=LONGEST).contains(&output_length) {
        Err(Delivery::OutputLength)
    } else {
        let mut input = bytes[16..32].to_vec();
        match read_chain(memory, double(0x08), length - INLINE, &mut input) {
            true => Ok(Request {
                input,
                output_length,
                entry,
                output: double(0x30),
            }),
            false => Err(Delivery::InputPointer),
        }
    };
    Some(request)
}

fn read_chain(memory: &GuestMemory, mut mailbox: u64, mut left: usize, into: &mut Vec<u8>) -> bool {
    while left > 0 {
        let piece = left.min(MAILBOX);
        let filled = into.len();
        into.resize(filled + piece, 0);
        if !memory.read(mailbox, &mut into[filled..]) {
            return false;
        }
        left -= piece;
        match next(memory, mailbox) {
            Some(following) => mailbox = following,
            None => return left == 0,
        }
    }
    true
}

fn next(memory: &GuestMemory, mailbox: u64) -> Option<u64> {
    let mut address = [0; 8];
    let read = memory.read(mailbox.checked_add(NEXT)?, &mut address);
    read.then_some(u64::from_be_bytes(address))
}

/// Writes the result of a command, and passes its entry back to the guest.
pub fn answer(memory: &GuestMemory, request: &Request, output: &[u8]) {
    let mut first = [0; INLINE];
    let inline = output.len().min(INLINE);
    first[..inline].copy_from_slice(&output[..inline]);
    let mut delivery = Delivery::Done;
    let mut mailbox = request.output;
    for piece in output[inline..].chunks(MAILBOX) {
        if !memory.write(mailbox, piece) {
            delivery = Delivery::OutputPointer;
            break;
        }
        mailbox = next(memory, mailbox).unwrap_or(u64::MAX);
    }
    let _written = memory.write(request.entry + 0x20, &first);
    finish(memory, request.entry, delivery);
}

/// Passes the entry of a command that cannot be read back to the guest.
pub fn refuse(memory: &GuestMemory, queue: u64, slot: u32, why: Delivery) {
    finish(memory, queue + (u64::from(slot) << LOG_STRIDE), why);
}

fn finish(memory: &GuestMemory, entry: u64, delivery: Delivery) {
    // The owner bit, 0 for the guest, is below the status.
    let _written = memory.write(entry + 0x3f, &[(delivery as u8) << 1]);
}
