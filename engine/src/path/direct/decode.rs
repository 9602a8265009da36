//! From an entry of a completion ring to what the application sees, taking the
//! request's place in its queue back on the way.

use super::record::{Receives, Record};
use crate::completion::{Completion, CompletionFlags, CompletionOp, Status};
use crate::ring::complete::{CompletionRing, Slot};
use crate::ring::receive::RecvConsumer;
use crate::ring::scatter::{Units, scatter};
use crate::ring::send::Retired;
use crate::ring::shared::SharedRecvConsumer;
use crate::wire::{CqeOpcode, CqeTail, InlineScatter, OwnOp, RequestQpn, WqeOpcode};

/// What a request of the send queue was, by the opcode of its WQE.
#[inline(always)]
pub(super) fn requester_op(opcode: u8) -> Option<CompletionOp> {
    Some(match WqeOpcode::from_bits(opcode)? {
        WqeOpcode::Send | WqeOpcode::SendImm => CompletionOp::Send,
        WqeOpcode::RdmaWrite | WqeOpcode::RdmaWriteImm => CompletionOp::Write,
        WqeOpcode::RdmaRead => CompletionOp::Read,
        WqeOpcode::Nop => CompletionOp::Nop,
        WqeOpcode::Umr => CompletionOp::Bind,
    })
}

/// The last byte of an entry, but for the owner and solicited bits, for a
/// message without immediate data whose payload is where it should be.
pub(super) const RECEIVED: u8 = CqeOpcode::RESPONDER_SEND.0 << 4;
/// The same for a request that is done.
pub(super) const DONE: u8 = CqeOpcode::REQUESTER.0 << 4;

/// The completion in a [`RECEIVED`] entry, or `None`, with nothing done, if it
/// takes a closer look after all. Calls nothing out of line.
#[inline(always)]
pub(super) fn received(
    slot: Slot,
    form: u8,
    whose: RequestQpn,
    record: &Record,
) -> Option<Completion> {
    Some(Completion {
        cookie: receive(slot, record)?,
        context: record.context,
        byte_len: slot.byte_count(),
        imm: 0,
        qpn: whose.qpn(),
        status: Status::Success,
        op: CompletionOp::Recv,
        flags: solicited(OwnOp(form)),
        vendor_syndrome: 0,
    })
}

/// Takes the receive of a [`RECEIVED`] entry off its queue: its cookie.
#[inline(always)]
pub(super) fn receive(slot: Slot, record: &Record) -> Option<u64> {
    match &record.receives {
        Receives::Own(ring) => {
            let cookie = ring.cookie(slot.wqe_counter());
            ring.retire(1);
            Some(cookie)
        }
        Receives::Shared(shared) => shared.ring.take_next(slot.wqe_counter()),
        Receives::None => None,
    }
}

/// As [`received`], for a [`DONE`] entry.
#[inline(always)]
pub(super) fn done(slot: Slot, whose: RequestQpn, record: &Record) -> Option<Completion> {
    let op = requester_op(whose.request_opcode())?;
    let byte_len = if op == CompletionOp::Read {
        slot.byte_count()
    } else {
        0
    };
    let Retired { cookie, note } = record.sends.retire(slot.wqe_counter());
    Some(Completion {
        cookie,
        context: record.context,
        byte_len,
        imm: note,
        qpn: whose.qpn(),
        status: Status::Success,
        op,
        flags: CompletionFlags::empty(),
        vendor_syndrome: 0,
    })
}

#[inline(always)]
pub(super) fn solicited(own_op: OwnOp) -> CompletionFlags {
    // Both are bit 1.
    const _: () = assert!(OwnOp::SOLICITED == CompletionFlags::SOLICITED.bits());
    CompletionFlags::from_bits_retain(own_op.0 & OwnOp::SOLICITED)
}

/// Any completion of a queue pair. `None` if it cannot be one: an opcode that
/// nothing of ours leads to, or a receive on a queue pair that has none.
pub(super) fn decode(
    ring: &CompletionRing,
    slot: Slot,
    tail: CqeTail,
    record: &Record,
) -> Option<Completion> {
    let opcode = tail.own_op().opcode();
    match opcode {
        CqeOpcode::REQUESTER => requester(ring, slot, tail, record),
        CqeOpcode::REQUESTER_ERROR => {
            let op = failed_op(tail, record);
            let Retired { cookie, note } = record.sends.retire(tail.wqe_counter());
            Some(Completion {
                cookie,
                imm: note,
                ..failed(slot, record, op)
            })
        }
        CqeOpcode::RESPONDER_ERROR => {
            let receive = Receive::of(record, tail)?;
            let cookie = receive.cookie();
            receive.retire();
            Some(Completion {
                cookie,
                ..failed(slot, record, CompletionOp::Recv)
            })
        }
        CqeOpcode::RESPONDER_WRITE_IMM
        | CqeOpcode::RESPONDER_SEND
        | CqeOpcode::RESPONDER_SEND_IMM
        | CqeOpcode::RESPONDER_SEND_INVALIDATE => responder(ring, slot, tail, record),
        _ => None,
    }
}

/// What a failed request of the send queue was.
fn failed_op(tail: CqeTail, record: &Record) -> CompletionOp {
    let opcode = match tail.request_opcode() {
        // A flushed request may not say what it was, and 0 is also a marker;
        // the WQE is still there.
        0 => record.sends.opcode(tail.wqe_counter()),
        opcode => opcode,
    };
    requester_op(opcode).unwrap_or(CompletionOp::Send)
}

/// An error completion, but for its cookie.
fn failed(slot: Slot, record: &Record, op: CompletionOp) -> Completion {
    let cqe = slot.copy();
    Completion {
        cookie: 0,
        context: record.context,
        byte_len: 0,
        imm: 0,
        qpn: cqe.tail().qpn(),
        status: cqe.syndrome().status(),
        op,
        flags: CompletionFlags::empty(),
        vendor_syndrome: cqe.vendor_syndrome(),
    }
}

fn requester(
    ring: &CompletionRing,
    slot: Slot,
    tail: CqeTail,
    record: &Record,
) -> Option<Completion> {
    let op = requester_op(tail.request_opcode())?;
    let byte_len = if op == CompletionOp::Read {
        slot.byte_count()
    } else {
        0
    };
    let status = match tail.own_op().inline_scatter() {
        InlineScatter::None => Status::Success,
        format => match record.sends.read_units(tail.wqe_counter(), byte_len) {
            Some(units) => place(ring, slot, format, byte_len, &units, record),
            // What libmlx5 makes of a payload for a request that takes none.
            None => Status::RemoteInvalidRequest,
        },
    };
    let Retired { cookie, note } = record.sends.retire(tail.wqe_counter());
    Some(Completion {
        cookie,
        context: record.context,
        byte_len: if status.is_success() { byte_len } else { 0 },
        imm: note,
        qpn: tail.qpn(),
        status,
        op,
        flags: CompletionFlags::empty(),
        vendor_syndrome: 0,
    })
}

fn responder(
    ring: &CompletionRing,
    slot: Slot,
    tail: CqeTail,
    record: &Record,
) -> Option<Completion> {
    let own_op = tail.own_op();
    let receive = Receive::of(record, tail)?;
    let byte_len = slot.byte_count();
    let status = match own_op.inline_scatter() {
        InlineScatter::None => Status::Success,
        format => place(
            ring,
            slot,
            format,
            byte_len,
            receive.units(byte_len, &mut Units::new()),
            record,
        ),
    };
    let mut completion = Completion {
        cookie: receive.cookie(),
        context: record.context,
        byte_len,
        imm: 0,
        qpn: tail.qpn(),
        status,
        op: CompletionOp::Recv,
        flags: solicited(own_op),
        vendor_syndrome: 0,
    };
    receive.retire();
    if !status.is_success() {
        completion.byte_len = 0;
        return Some(completion);
    }
    match own_op.opcode() {
        CqeOpcode::RESPONDER_WRITE_IMM => completion.op = CompletionOp::RecvWriteImm,
        CqeOpcode::RESPONDER_SEND_IMM => {}
        _ => return Some(completion),
    }
    completion.imm = slot.imm();
    completion.flags |= CompletionFlags::WITH_IMM;
    Some(completion)
}

/// Copies a payload that came in the CQE to where it belongs.
fn place(
    ring: &CompletionRing,
    slot: Slot,
    format: InlineScatter,
    length: u32,
    units: &Units,
    record: &Record,
) -> Status {
    let Some(payload) = ring.payload(slot, format) else {
        return Status::General;
    };
    // A reset on another thread may have let new requests into the ring while
    // the segments were read; then they are not this completion's.
    if !record.was_live_until_now() {
        return Status::WrFlush;
    }
    // SAFETY: the segments are those of an outstanding request, and whoever
    // posted it promised that their memory stays until it completes, which it
    // does not before this returns.
    if unsafe { scatter(&payload, length, units) } {
        Status::Success
    } else {
        Status::LocalLength
    }
}

/// The receive that a completion names.
struct Receive<'a> {
    ring: ReceiveRing<'a>,
    wqe_counter: u16,
}

/// The queue that it was posted to.
enum ReceiveRing<'a> {
    Own(&'a RecvConsumer),
    Shared(&'a SharedRecvConsumer),
}

impl<'a> Receive<'a> {
    fn of(record: &'a Record, tail: CqeTail) -> Option<Self> {
        let ring = match &record.receives {
            Receives::Own(ring) => ReceiveRing::Own(ring),
            Receives::Shared(shared) => ReceiveRing::Shared(&shared.ring),
            Receives::None => return None,
        };
        Some(Self {
            ring,
            wqe_counter: tail.wqe_counter(),
        })
    }

    fn cookie(&self) -> u64 {
        match self.ring {
            ReceiveRing::Own(ring) => ring.cookie(self.wqe_counter),
            ReceiveRing::Shared(ring) => ring.cookie(self.wqe_counter),
        }
    }

    fn units<'u>(&self, length: u32, units: &'u mut Units) -> &'u Units {
        match self.ring {
            ReceiveRing::Own(ring) => ring.units(self.wqe_counter, length, units),
            ReceiveRing::Shared(ring) => ring.units(self.wqe_counter, length, units),
        }
        units
    }

    fn retire(self) {
        match self.ring {
            ReceiveRing::Own(ring) => ring.retire(1),
            ReceiveRing::Shared(ring) => ring.free(self.wqe_counter),
        }
    }
}
