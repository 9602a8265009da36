//! Conversion of requests to work requests of libibverbs.

use core::marker::PhantomData;
use core::mem::offset_of;

use dv_sys::verbs::{
    atomic_t, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode as Opcode,
    imm_data_invalidated_rkey_union_t, rdma_t, wr_t,
};

use crate::control::QpGrant;
use crate::request::{AtomicOp, PostError, Segment, SendFlags, SendOp, SendRequest};

/// The most requests passed to libibverbs in one call.
pub(super) const CHUNK: usize = 8;

// A [`Segment`] has the layout of an `ibv_sge`, and is passed without conversion.
const _: () = {
    assert!(size_of::<Segment>() == size_of::<ibv_sge>());
    assert!(align_of::<Segment>() == align_of::<ibv_sge>());
    assert!(offset_of!(Segment, addr) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Segment, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Segment, lkey) == offset_of!(ibv_sge, lkey));
};

/// Refuses a receive with more segments than `most`, or with one that is longer than any message,
/// by the rules of the direct path.
#[inline(always)]
pub(super) fn check_recv(segments: &[Segment], most: u32) -> Result<(), PostError> {
    if segments.len() > most as usize {
        return Err(PostError::TooManySegments);
    }
    if segments.iter().any(|segment| segment.length >> 31 != 0) {
        return Err(PostError::MessageTooLong);
    }
    Ok(())
}

/// Refuses a request of the send queue that is too large, by the rules of the direct path.
/// Returns its length in bytes.
#[inline(always)]
pub(super) fn check_send(request: &SendRequest<'_>, grant: &QpGrant) -> Result<u32, PostError> {
    let most = match request.op {
        SendOp::Read { .. } => grant.send_segments.min(grant.read_segments),
        _ => grant.send_segments,
    };
    if request.segments.len() > most as usize {
        return Err(PostError::TooManySegments);
    }
    if request.op == SendOp::Nop {
        return Ok(0);
    }
    request.check_atomic(grant.atomics)?;
    let lengths = request.segments.iter().map(|it| u64::from(it.length));
    let length = lengths.sum::<u64>();
    if request.is_inline() && length > u64::from(grant.inline_bytes) {
        return Err(PostError::InlineTooLong);
    }
    if length >> 31 != 0 {
        return Err(PostError::MessageTooLong);
    }
    Ok(length as u32)
}

/// A work request of zeros.
// SAFETY: integers, pointers and unions of them, for which zero is valid.
pub(super) const NO_SEND: ibv_send_wr = unsafe { core::mem::zeroed() };

/// Makes a work request that is not linked yet. It points to the segments.
#[inline(always)]
pub(super) fn send_work(request: &SendRequest<'_>, tag: u64) -> ibv_send_wr {
    let mut work = NO_SEND;
    let mut imm_data = 0;
    let rdma = |remote_addr, rkey| wr_t {
        rdma: rdma_t { remote_addr, rkey },
    };
    work.opcode = match request.op {
        SendOp::Send => Opcode::IBV_WR_SEND,
        SendOp::SendImm(imm) => {
            imm_data = imm;
            Opcode::IBV_WR_SEND_WITH_IMM
        }
        SendOp::Write { remote_addr, rkey } => {
            work.wr = rdma(remote_addr, rkey);
            Opcode::IBV_WR_RDMA_WRITE
        }
        #[rustfmt::skip]
        SendOp::WriteImm { remote_addr, rkey, imm } => {
            work.wr = rdma(remote_addr, rkey);
            imm_data = imm;
            Opcode::IBV_WR_RDMA_WRITE_WITH_IMM
        }
        SendOp::Read { remote_addr, rkey } => {
            work.wr = rdma(remote_addr, rkey);
            Opcode::IBV_WR_RDMA_READ
        }
        #[rustfmt::skip]
        SendOp::Atomic { remote_addr, rkey, op } => {
            let (opcode, compare_add, swap) = match op {
                AtomicOp::FetchAdd(add) => (Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, add, 0),
                AtomicOp::CompareSwap { compare, swap } => {
                    (Opcode::IBV_WR_ATOMIC_CMP_AND_SWP, compare, swap)
                }
            };
            let atomic = atomic_t { remote_addr, compare_add, swap, rkey };
            work.wr = wr_t { atomic };
            opcode
        }
        // Verbs have no NOP. A write of 0 bytes accesses no memory, and its rkey is
        // not checked.
        SendOp::Nop => Opcode::IBV_WR_RDMA_WRITE,
    };
    work.wr_id = tag;
    work.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t {
        imm_data: imm_data.to_be(),
    };
    work.send_flags = flags(match request.op {
        SendOp::Nop => request.flags & SendFlags::FENCE | SendFlags::SIGNALED,
        op if op.fills_segments() => request.flags - SendFlags::INLINE,
        _ => request.flags,
    });
    if request.op != SendOp::Nop {
        (work.sg_list, work.num_sge) = gather(request.segments);
    }
    work
}

/// Returns flags as those of libibverbs.
pub(super) fn flags(flags: SendFlags) -> u32 {
    let one = |ours, theirs: ibv_send_flags| match flags.contains(ours) {
        true => theirs.0,
        false => 0,
    };
    one(SendFlags::FENCE, ibv_send_flags::IBV_SEND_FENCE)
        | one(SendFlags::SIGNALED, ibv_send_flags::IBV_SEND_SIGNALED)
        | one(SendFlags::SOLICITED, ibv_send_flags::IBV_SEND_SOLICITED)
        | one(SendFlags::INLINE, ibv_send_flags::IBV_SEND_INLINE)
}

/// Makes a work request that is not linked yet. It points to the segments.
pub(super) fn recv_work(segments: &[Segment], tag: u64) -> ibv_recv_wr {
    let (sg_list, num_sge) = gather(segments);
    ibv_recv_wr {
        wr_id: tag,
        next: core::ptr::null_mut(),
        sg_list,
        num_sge,
    }
}

/// Returns the list of segments for libibverbs, which only reads it. Their number
/// was checked.
fn gather(segments: &[Segment]) -> (*mut ibv_sge, i32) {
    let first = segments.as_ptr().cast_mut().cast();
    (first, segments.len() as i32)
}

/// Linked work requests. They may be accessed only through the pointer by which
/// they were linked: a reference to one of them would invalidate the links (Rust's
/// aliasing rules).
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a, T> {
    /// The first work request.
    pub first: *mut T,
    /// The number of work requests.
    pub count: usize,
    _requests: PhantomData<&'a mut [T]>,
}

/// Links work requests in order. `set_next` sets the link of one.
#[inline(always)]
pub(super) fn link<T>(requests: &mut [T], set_next: impl Fn(&mut T, *mut T)) -> Chain<'_, T> {
    let count = requests.len();
    let first = requests.as_mut_ptr();
    for at in 1..count {
        // SAFETY: both are among the requests, and nothing else refers to them.
        unsafe { set_next(&mut *first.add(at - 1), first.add(at)) };
    }
    Chain {
        first,
        count,
        _requests: PhantomData,
    }
}

#[inline(always)]
pub(super) fn link_sends(requests: &mut [ibv_send_wr]) -> Chain<'_, ibv_send_wr> {
    link(requests, |work, next| work.next = next)
}

/// Links receives.
#[inline(always)]
pub(super) fn link_recvs(requests: &mut [ibv_recv_wr]) -> Chain<'_, ibv_recv_wr> {
    link(requests, |work, next| work.next = next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: QpGrant = QpGrant {
        sends: 4,
        receives: 4,
        send_segments: 2,
        read_segments: 2,
        recv_segments: 2,
        inline_bytes: 100,
        windows: true,
        atomics: true,
    };

    fn segment(length: u32) -> Segment {
        Segment {
            addr: 0x1000,
            length,
            lkey: 7,
        }
    }

    fn request(op: SendOp, flags: SendFlags, segments: &[Segment]) -> SendRequest<'_> {
        SendRequest {
            wr_id: 0,
            op,
            flags,
            segments,
        }
    }

    #[test]
    fn reads_have_a_segment_limit_of_their_own() {
        let grant = QpGrant {
            read_segments: 1,
            ..GRANT
        };
        let segments = [segment(8), segment(8)];
        let check = |op, segments| check_send(&request(op, SendFlags::empty(), segments), &grant);
        let (remote_addr, rkey) = (0, 0);
        let read = SendOp::Read { remote_addr, rkey };
        assert_eq!(check(read, &segments), Err(PostError::TooManySegments));
        assert_eq!(check(read, &segments[..1]), Ok(8));
        assert_eq!(
            check(SendOp::Write { remote_addr, rkey }, &segments),
            Ok(16)
        );
        assert_eq!(check(SendOp::Send, &segments), Ok(16));
    }

    #[test]
    fn every_operation_maps_to_its_verb() {
        let (remote_addr, rkey, imm) = (0x1234_5678_9abc, 77, 0x0102_0304);
        let rows = [
            (SendOp::Send, 2, None, None),
            (SendOp::SendImm(imm), 3, Some(imm), None),
            (
                SendOp::Write { remote_addr, rkey },
                0,
                None,
                Some((remote_addr, rkey)),
            ),
            (
                SendOp::WriteImm {
                    remote_addr,
                    rkey,
                    imm,
                },
                1,
                Some(imm),
                Some((remote_addr, rkey)),
            ),
            (
                SendOp::Read { remote_addr, rkey },
                4,
                None,
                Some((remote_addr, rkey)),
            ),
        ];
        let segments = [segment(3), segment(4)];
        for (op, opcode, imm, remote) in rows {
            let work = send_work(&request(op, SendFlags::SIGNALED, &segments), 99);
            assert_eq!((work.opcode, work.wr_id, work.send_flags), (opcode, 99, 2));
            assert_eq!(
                (work.sg_list.addr(), work.num_sge),
                (segments.as_ptr().addr(), 2)
            );
            // SAFETY: plain integers, zero where nothing was set.
            unsafe {
                let data = work.imm_data_invalidated_rkey_union.imm_data;
                assert_eq!(u32::from_be(data), imm.unwrap_or(0));
                let rdma = work.wr.rdma;
                assert_eq!((rdma.remote_addr, rdma.rkey), remote.unwrap_or((0, 0)));
            }
        }
    }

    #[test]
    fn atomic_operations_have_their_operands_and_need_8_aligned_bytes() {
        let (remote_addr, rkey) = (0x1234_5678_9ab8, 77);
        let to = |remote_addr, op| SendOp::Atomic {
            remote_addr,
            rkey,
            op,
        };
        let add = AtomicOp::FetchAdd(5);
        let (compare, swap) = (6, 7);
        let replace = AtomicOp::CompareSwap { compare, swap };
        let segments = [segment(8)];
        for (op, opcode, operands) in [(replace, 5, (6, 7)), (add, 6, (5, 0))] {
            let request = request(to(remote_addr, op), SendFlags::all(), &segments);
            let work = send_work(&request, 99);
            assert_eq!((work.opcode, work.num_sge), (opcode, 1));
            assert_eq!(work.send_flags, 1 | 2 | 4, "never inline");
            // SAFETY: plain integers, which were set.
            let atomic = unsafe { work.wr.atomic };
            assert_eq!((atomic.remote_addr, atomic.rkey), (remote_addr, rkey));
            assert_eq!((atomic.compare_add, atomic.swap), operands);
            assert_eq!(check_send(&request, &GRANT), Ok(8));
            let without = QpGrant {
                atomics: false,
                ..GRANT
            };
            assert_eq!(check_send(&request, &without), Err(PostError::NoAtomics));
        }
        let check = |op, segments: &[Segment]| {
            check_send(&request(op, SendFlags::empty(), segments), &GRANT)
        };
        let bad = Err(PostError::BadAtomic);
        assert_eq!(check(to(remote_addr, add), &[segment(4)]), bad);
        assert_eq!(check(to(remote_addr, add), &[segment(4), segment(4)]), bad);
        assert_eq!(check(to(remote_addr + 4, add), &segments), bad);
    }

    #[test]
    fn a_marker_is_a_signalled_write_of_0_bytes() {
        let all = SendFlags::INLINE | SendFlags::SOLICITED;
        let work = send_work(&request(SendOp::Nop, all, &[segment(5)]), 1);
        assert_eq!((work.opcode, work.num_sge, work.send_flags), (0, 0, 2));
        let fenced = request(SendOp::Nop, SendFlags::FENCE, &[]);
        assert_eq!(send_work(&fenced, 1).send_flags, 1 | 2);
    }

    #[test]
    fn flags_map_to_those_of_verbs_and_reads_are_never_inline() {
        let all = SendFlags::all();
        assert_eq!(flags(all), 1 | 2 | 4 | 8);
        let read = SendOp::Read {
            remote_addr: 0,
            rkey: 0,
        };
        assert_eq!(send_work(&request(read, all, &[]), 1).send_flags, 1 | 2 | 4);
        assert_eq!(flags(SendFlags::empty()), 0);
    }

    #[test]
    fn too_large_requests_are_refused_as_on_the_direct_path() {
        let send = |flags, segments: &[Segment]| {
            check_send(&request(SendOp::Send, flags, segments), &GRANT)
        };
        let (none, inline) = (SendFlags::empty(), SendFlags::INLINE);
        assert_eq!(send(none, &[segment(60), segment(41)]), Ok(101));
        assert_eq!(send(inline, &[segment(60), segment(40)]), Ok(100));
        let too_long = [segment(60), segment(41)];
        assert_eq!(send(inline, &too_long), Err(PostError::InlineTooLong));
        let three = [segment(0); 3];
        assert_eq!(send(none, &three), Err(PostError::TooManySegments));
        assert_eq!(check_recv(&three, 2), Err(PostError::TooManySegments));
        let huge = [segment(1 << 31)];
        assert_eq!(send(none, &huge), Err(PostError::MessageTooLong));
        assert_eq!(check_recv(&huge, 2), Err(PostError::MessageTooLong));
        let sum = [segment((1 << 31) - 1), segment(1)];
        assert_eq!(send(none, &sum), Err(PostError::MessageTooLong));
        assert_eq!(check_recv(&sum, 2), Ok(()), "each segment fits");
    }

    #[test]
    fn a_chain_links_all_its_requests() {
        let mut chain: [ibv_recv_wr; 3] = [1, 2, 3].map(|tag| recv_work(&[], tag));
        let chain = link_recvs(&mut chain);
        assert_eq!(chain.count, 3);
        let mut at = chain.first.cast_const();
        let mut tags = Vec::new();
        // SAFETY: the links are those of the chain above.
        while let Some(work) = unsafe { at.as_ref() } {
            tags.push(work.wr_id);
            at = work.next;
        }
        assert_eq!(tags, [1, 2, 3]);
    }
}
