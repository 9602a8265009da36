//! The decoder: makes a [`Completion`] of a CQE and the record of its queue pair.
//!
//! [`received`] and [`request`] make the completion of a receive and of a request
//! of the send queue. The fast path (`cqe_ref.rs`), the runs of a batch (`run.rs`)
//! and the slow path ([`decode`]) use them. The slow path adds the rare cases:
//! errors, immediate data, payload in the CQE.

use super::record::Record;
use crate::completion::{Completion, CompletionFlags, CompletionOp, Status};
use mlx5_rings::complete::{CompletionRing, Slot};
use mlx5_rings::request::AtomicOp;
use mlx5_rings::scatter::{Units, scatter};
use mlx5_rings::send::Retired;
use mlx5_rings::wire::{CqeOpcode, CqeTail, InlineScatter, OwnOp, WqeOpcode};

/// Returns the operation of a request of the send queue, from the opcode of its
/// WQE.
#[inline(always)]
pub(super) fn requester_op(opcode: u8) -> Option<CompletionOp> {
    WqeOpcode::from_bits(opcode).map(CompletionOp::of)
}

/// Returns the operation of a request as [`requester_op`] does, if the fast path
/// decodes its completion: atomic operations are left to the slow path.
#[inline(always)]
pub(super) fn common_op(opcode: u8) -> Option<CompletionOp> {
    COMMON_OPS[usize::from(opcode)]
}

/// [`common_op`] of every opcode: one load, where LLVM compiles a `match` to three tests and a load.
static COMMON_OPS: [Option<CompletionOp>; 256] = {
    let mut table = [None; 256];
    let mut at = 0;
    while at < table.len() {
        if let Some(opcode) = WqeOpcode::from_bits(at as u8)
            && !opcode.is_atomic()
        {
            table[at] = Some(CompletionOp::of(opcode));
        }
        at += 1;
    }
    table
};

/// Returns the completion of a receive without immediate data.
#[inline(always)]
pub(super) fn received(
    context: u64,
    qpn: u32,
    own_op: OwnOp,
    wr_id: u64,
    byte_len: u32,
) -> Completion {
    Completion {
        wr_id,
        context,
        byte_len,
        imm: 0,
        qpn,
        status: Status::Success,
        op: CompletionOp::Recv,
        flags: solicited(own_op),
        vendor_syndrome: 0,
    }
}

/// Returns the completion of a successful request of the send queue.
#[inline(always)]
pub(super) fn request(
    context: u64,
    qpn: u32,
    op: CompletionOp,
    Retired { wr_id, wr_data }: Retired,
    byte_len: u32,
) -> Completion {
    Completion {
        wr_id,
        context,
        byte_len,
        imm: wr_data,
        qpn,
        status: Status::Success,
        op,
        flags: CompletionFlags::empty(),
        vendor_syndrome: 0,
    }
}

/// Returns the number of bytes that a request has read: only CQEs of reads have a
/// length.
#[inline(always)]
pub(super) fn read_length(slot: Slot, op: CompletionOp) -> u32 {
    if op == CompletionOp::Read {
        slot.byte_count()
    } else {
        0
    }
}

#[inline(always)]
pub(super) fn solicited(own_op: OwnOp) -> CompletionFlags {
    // Both flags are bit 1.
    const _: () = assert!(OwnOp::SOLICITED == CompletionFlags::SOLICITED.bits());
    CompletionFlags::from_bits_retain(own_op.0 & OwnOp::SOLICITED)
}

/// Decodes any CQE of a queue pair: the slow path. Releases its receive or request
/// to the producer. Returns `None` if the CQE cannot be a completion of this queue
/// pair: the opcode is of no request of the engine, or it is a receive and the
/// queue pair has no receives.
///
/// # Safety
/// The CQE is the next one of `ring` and has been written, `slot` and `tail` are
/// those of the CQE, and the caller advances past it.
pub(super) unsafe fn decode(
    ring: &CompletionRing,
    slot: Slot,
    tail: CqeTail,
    record: &Record,
) -> Option<Completion> {
    match tail.own_op().opcode() {
        // SAFETY: slot and tail are those of the next CQE, which was written.
        CqeOpcode::REQUESTER => unsafe { requester(ring, slot, tail, record) },
        CqeOpcode::REQUESTER_ERROR => {
            let op = failed_op(tail, record);
            // SAFETY: a completion that names the request was read.
            let retired = unsafe { record.sends.retire(tail.wqe_counter()) };
            Some(failed(
                slot,
                request(record.context, tail.qpn(), op, retired, 0),
            ))
        }
        CqeOpcode::RESPONDER_ERROR => {
            // SAFETY: a completion that names the request was read.
            let wr_id = unsafe { record.receives.take(tail.wqe_counter()) }?;
            let completion = received(record.context, tail.qpn(), OwnOp(0), wr_id, 0);
            Some(failed(slot, completion))
        }
        CqeOpcode::RESPONDER_WRITE_IMM
        | CqeOpcode::RESPONDER_SEND
        | CqeOpcode::RESPONDER_SEND_IMM
        | CqeOpcode::RESPONDER_SEND_INVALIDATE => {
            // SAFETY: slot and tail are those of the next CQE, which was written.
            unsafe { responder(ring, slot, tail, record) }
        }
        _ => None,
    }
}

/// Returns the operation of a failed request of the send queue.
fn failed_op(tail: CqeTail, record: &Record) -> CompletionOp {
    let opcode = match tail.request_opcode() {
        // A flush error may have opcode 0, which is also that of a marker. The WQE
        // still has the opcode.
        0 => record.sends.opcode(tail.wqe_counter()),
        opcode => opcode,
    };
    requester_op(opcode).unwrap_or(CompletionOp::Send)
}

/// Adds the status of an error CQE to a completion.
fn failed(slot: Slot, completion: Completion) -> Completion {
    let cqe = slot.copy();
    Completion {
        status: cqe.syndrome().status(),
        vendor_syndrome: cqe.vendor_syndrome(),
        ..completion
    }
}

/// Decodes the CQE of a request of the send queue, which may have its payload in
/// the CQE.
///
/// # Safety
/// As for [`decode`].
unsafe fn requester(
    ring: &CompletionRing,
    slot: Slot,
    tail: CqeTail,
    record: &Record,
) -> Option<Completion> {
    let op = requester_op(tail.request_opcode())?;
    let byte_len = match op.is_atomic() {
        // As libmlx5 does: the CQE need not have the length.
        true => AtomicOp::BYTES,
        false => read_length(slot, op),
    };
    let status = match tail.own_op().inline_scatter() {
        InlineScatter::None => Status::Success,
        format => match record.sends.read_units(tail.wqe_counter(), byte_len) {
            Some(units) => place(ring, format, byte_len, &units, record),
            // libmlx5 reports the same for a payload in the CQE of a request that
            // takes none.
            None => Status::RemoteInvalidRequest,
        },
    };
    // SAFETY: a completion that names the request was read.
    let retired = unsafe { record.sends.retire(tail.wqe_counter()) };
    let completion = request(record.context, tail.qpn(), op, retired, byte_len);
    Some(with_status(completion, status))
}

/// Decodes the CQE of a receive, which may have immediate data, and its payload in
/// the CQE.
///
/// # Safety
/// As for [`decode`].
unsafe fn responder(
    ring: &CompletionRing,
    slot: Slot,
    tail: CqeTail,
    record: &Record,
) -> Option<Completion> {
    let own_op = tail.own_op();
    let byte_len = slot.byte_count();
    let status = match own_op.inline_scatter() {
        InlineScatter::None => Status::Success,
        format => {
            let mut units = Units::new();
            let receives = &record.receives;
            receives.units(tail.wqe_counter(), byte_len, &mut units)?;
            place(ring, format, byte_len, &units, record)
        }
    };
    // SAFETY: a completion that names the request was read.
    let wr_id = unsafe { record.receives.take(tail.wqe_counter()) }?;
    let mut completion = received(record.context, tail.qpn(), own_op, wr_id, byte_len);
    if status.is_success() {
        match own_op.opcode() {
            CqeOpcode::RESPONDER_WRITE_IMM => completion.op = CompletionOp::RecvWriteImm,
            CqeOpcode::RESPONDER_SEND_IMM => {}
            _ => return Some(completion),
        }
        completion.imm = slot.imm();
        completion.flags |= CompletionFlags::WITH_IMM;
    }
    Some(with_status(completion, status))
}

/// Adds the result of copying its payload to a completion.
fn with_status(completion: Completion, status: Status) -> Completion {
    let byte_len = if status.is_success() {
        completion.byte_len
    } else {
        0
    };
    Completion {
        status,
        byte_len,
        ..completion
    }
}

/// Copies the payload in the next CQE to the memory of its request.
fn place(
    ring: &CompletionRing,
    format: InlineScatter,
    length: u32,
    units: &Units,
    record: &Record,
) -> Status {
    let Some(payload) = ring.payload(format) else {
        return Status::General;
    };
    // A reset on another thread may have let new requests into the ring while the
    // segments were read. The segments then belong to another request.
    if !record.was_live_until_now() {
        return Status::WrFlush;
    }
    // SAFETY: the segments are those of an outstanding request. Its poster promised
    // that their memory stays valid until it completes, which is after this call.
    if unsafe { scatter(&payload, length, units) } {
        Status::Success
    } else {
        Status::LocalLength
    }
}
