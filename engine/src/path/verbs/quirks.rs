//! Workarounds for devices that deviate from the verbs specification.
//!
//! The only such device is siw, Linux's software iWARP device
//! (drivers/infiniband/sw/siw; in rdma-core providers/siw/siw.c):
//!
//! - In ERR it flushes what its queues hold at that moment, and never reads them
//!   again (`siw_qp_modify`; `siw_post_send` with a mapped queue). So a request that is
//!   outstanding after the move to ERR, and not among the device's completions, was posted too
//!   late. The engine stages its flush completion ([`CqState::flush`]), and raises the completion
//!   queue's event (`control/software_event.rs`). Every request is signalled, so that a request
//!   without a completion is known not to have been carried out. A poster checks after its post
//!   whether the queue pair is failing, and a thread that moves the queue pair to ERR announces
//!   this before ([`Record::is_failing`]). So one of the two sees the other.
//! - A send or a write completes when TCP has accepted it, a read when its response
//!   has arrived. So completions overtake those of reads (`siw_qp_sq_process`). The
//!   engine holds them until the reads before them have completed ([`CqState::holds`]).
//! - A fence on a read is an error (`siw_activate_tx_from_sq`). It is left out,
//!   since reads are answered in order anyway.
//! - A read without segments takes the segment that the queue entry had before, and
//!   a receive without segments is refused (`push_recv_wqe`). Each gets one segment
//!   of 0 bytes.
//! - An empty segment before other segments of a send or a write crashes the
//!   kernel: `siw_check_sgl_tx` looks up no memory for it, and `siw_tx_hdt` reads
//!   through the null pointer (siw_qp_tx.c, from Linux 5.3, where siw begins, to
//!   6.16 at least). Such requests are posted without their empty segments. Inline
//!   bytes are copied by the library, and receives skip empty segments, so both are
//!   posted unchanged.
//! - A single segment of up to 32 bytes that lies in two pages is copied wrongly
//!   when the kernel's own thread sends it, because the socket had no room before
//!   (`siw_try_1seg`, in the same versions). The kernel does not copy requests of
//!   two segments, so such a segment is posted as two. The response to a read is
//!   always sent by that thread: a read of up to 32 bytes from two pages returns
//!   wrong bytes, and this end cannot prevent it.
//! - A read of 0 bytes that has to wait at the peer is answered with the length of
//!   the request before it (`siw_activate_tx` leaves `sge[0]` as it was), which ends
//!   the connection. This end cannot prevent it; a read that does not wait is
//!   answered correctly.

use core::mem::MaybeUninit;
use std::collections::HashSet;

use dv_sys::verbs::{ibv_send_flags, ibv_send_wr, ibv_wr_opcode};

use super::cq::{CqState, End};
use super::device::{Device, Work};
use super::record::Record;
use super::shadow::Request;
use super::table::{Name, Tag};
use crate::completion::{CompletionOp, Status};
pub use crate::control::Quirks;
use crate::request::Segment;

/// A segment of 0 bytes.
static EMPTY: [Segment; 1] = [Segment {
    addr: 0,
    length: 0,
    lkey: 0,
}];

/// The most segments of one siw request (`SIW_MAX_SGE` in rdma-core's
/// kernel-headers/rdma/siw-abi.h).
const SIW_SEGMENTS: usize = 6;

/// The longest message that siw copies next to the header, in bytes
/// (`MAX_HDR_INLINE` in siw_qp_tx.c).
const COPIED: u32 = 32;
/// The smallest page size. The kernel's pages may be larger: two segments are then
/// posted where one would do, which is harmless.
const PAGE: u64 = 4096;

/// Storage for rearranged segments of one request. Must live until the request is
/// posted.
pub(super) type Room = [MaybeUninit<Segment>; SIW_SEGMENTS];

/// An uninitialised [`Room`].
pub(super) const ROOM: Room = [const { MaybeUninit::uninit() }; SIW_SEGMENTS];

impl Quirks {
    /// Returns whether the device has any quirks.
    #[inline(always)]
    pub(super) fn any(self) -> bool {
        self != Self::None
    }

    /// Returns the segments of a receive in a form that the device accepts.
    #[inline(always)]
    pub(super) fn receive(self, segments: &[Segment]) -> &[Segment] {
        match self {
            Self::Siw if segments.is_empty() => &EMPTY,
            _ => segments,
        }
    }

    /// Changes a request of the send queue with these segments to one that the
    /// device accepts. It may point into `room` afterwards.
    #[inline(always)]
    pub(super) fn send(self, work: &mut ibv_send_wr, segments: &[Segment], room: &mut Room) {
        if self.any() {
            adapt(work, segments, room);
        }
    }
}

/// Completions that arrived before those of earlier reads, in order of arrival.
#[derive(Default)]
pub(super) struct Early(Vec<Work>);

impl Early {
    /// Removes and returns those of one queue pair.
    pub(super) fn take(&mut self, name: Name) -> Vec<Work> {
        let is_its = |work: &mut Work| Tag::from_bits(work.tag).is_some_and(|tag| tag.name == name);
        self.0.extract_if(.., is_its).collect()
    }
}

impl<D: Device> CqState<D> {
    /// Holds the completion of a send until all earlier reads have completed. Returns whether
    /// it is held.
    #[cold]
    pub(super) fn holds(&mut self, work: &Work, tag: Tag, record: &Record<D>) -> bool {
        let sends = &record.sends;
        if sends.get(tag.slot).is_none() {
            return false;
        }
        if !work.status.is_success() {
            // It waits for reads that the device flushes only in ERR.
            record.has_failed();
        }
        let is_read = |slot| {
            sends
                .get(slot)
                .is_some_and(|it| it.op == CompletionOp::Read)
        };
        let held = sends
            .waiting()
            .take_while(|&slot| slot != tag.slot)
            .any(is_read);
        if held {
            self.early.0.push(*work);
        }
        held
    }

    /// Returns whether the completion of a send, which is retired, is not reported: it is good,
    /// and its request was not signalled. That of a read lets go of those after it.
    #[cold]
    pub(super) fn hides(&mut self, work: &Work, tag: Tag, request: Request) -> bool {
        if request.op == CompletionOp::Read {
            // They are looked at again, and may have to wait for the next read.
            for early in self.early.take(tag.name).into_iter().rev() {
                self.staged.push_front(early);
            }
        }
        work.status.is_success() && !request.signalled
    }

    /// Stages flush completions of the requests that the device will not flush. Everything that
    /// it has reported is staged. Returns whether there was anything to flush.
    pub(super) fn flush(&mut self, end: &End<D>, record: &Record<D>) -> bool {
        let known = self.staged.iter().chain(&self.early.0);
        let known: HashSet<u64> = known.map(|work| work.tag).collect();
        let before = self.staged.len();
        let waiting = record.shadow(end.side).waiting().map(|slot| end.tag(slot));
        let late = waiting.filter(|tag| !known.contains(tag));
        self.staged.extend(late.map(|tag| Work {
            tag,
            qpn: record.qpn,
            status: Status::WrFlush,
            ..Work::default()
        }));
        self.staged.len() > before
    }
}

#[cold]
fn adapt(work: &mut ibv_send_wr, segments: &[Segment], room: &mut Room) {
    work.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
    if work.opcode != ibv_wr_opcode::IBV_WR_RDMA_READ {
        rearrange(work, segments, room);
        return;
    }
    work.send_flags &= !ibv_send_flags::IBV_SEND_FENCE.0;
    if work.num_sge == 0 {
        work.sg_list = EMPTY.as_ptr().cast_mut().cast();
        work.num_sge = 1;
    }
}

/// Rearranges the segments of a send or a write: leaves out empty ones, and splits
/// a short one that lies in two pages.
fn rearrange(work: &mut ibv_send_wr, segments: &[Segment], room: &mut Room) {
    let is_inline = work.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0;
    // A marker has no segments, whatever the request says.
    if is_inline || work.num_sge == 0 {
        return;
    }
    let with_bytes = || segments.iter().filter(|segment| segment.length > 0);
    let count = with_bytes().count();
    let parts = match count {
        1 => with_bytes().next().and_then(in_two_pages),
        _ => None,
    };
    match parts {
        Some(parts) => fill(work, &parts, room),
        // A single segment precedes no other. More segments than `room` holds are
        // left to the device, which refuses them.
        None if segments.len() > 1 && count <= room.len() => fill(work, with_bytes(), room),
        None => (),
    }
}

/// Returns both parts of a segment that lies in two pages, if the kernel would copy
/// it.
fn in_two_pages(segment: &Segment) -> Option<[Segment; 2]> {
    let left = PAGE - segment.addr % PAGE;
    if segment.length > COPIED || u64::from(segment.length) <= left {
        return None;
    }
    // At most 32.
    let left = left as u32;
    let first = Segment {
        length: left,
        ..*segment
    };
    let second = Segment {
        addr: segment.addr.wrapping_add(u64::from(left)),
        length: segment.length - left,
        ..*segment
    };
    Some([first, second])
}

fn fill<'a>(
    work: &mut ibv_send_wr,
    segments: impl IntoIterator<Item = &'a Segment>,
    room: &mut Room,
) {
    let mut count = 0;
    for (place, segment) in room.iter_mut().zip(segments) {
        place.write(*segment);
        count += 1;
    }
    (work.sg_list, work.num_sge) = (room.as_mut_ptr().cast(), count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::verbs::chain::send_work;
    use crate::request::{SendFlags, SendOp, SendRequest};

    /// Returns the lengths of the segments that `work` posts.
    fn lengths(work: &ibv_send_wr) -> Vec<u32> {
        let count = usize::try_from(work.num_sge).expect("a count");
        // SAFETY: the list is that of a request whose segments and room are alive.
        let segments = unsafe { core::slice::from_raw_parts(work.sg_list, count) };
        segments.iter().map(|segment| segment.length).collect()
    }

    #[test]
    fn requests_to_siw_have_no_empty_segment_beside_others() {
        let (remote_addr, rkey) = (1, 2);
        let ops = [SendOp::Send, SendOp::Write { remote_addr, rkey }];
        let rows: [(&[u32], &[u32]); 6] = [
            (&[0, 5], &[5]),
            (&[3, 0, 4], &[3, 4]),
            (&[0, 0, 1, 0, 2, 0], &[1, 2]),
            (&[0, 0], &[]),
            (&[0], &[0]),
            (&[7, 8], &[7, 8]),
        ];
        for (asked, left) in rows {
            let segment = |(lkey, &length): (usize, &u32)| Segment {
                addr: 0x1000,
                length,
                lkey: lkey as u32,
            };
            let segments: Vec<Segment> = asked.iter().enumerate().map(segment).collect();
            let flags = SendFlags::SIGNALED;
            let made = |quirks: Quirks, op, flags, room: &mut Room| {
                let request = SendRequest {
                    wr_id: 0,
                    op,
                    flags,
                    segments: &segments,
                };
                let mut work = send_work(&request, 9);
                quirks.send(&mut work, &segments, room);
                work
            };
            for op in ops {
                let mut room = ROOM;
                assert_eq!(lengths(&made(Quirks::Siw, op, flags, &mut room)), left);
                let inline = flags | SendFlags::INLINE;
                assert_eq!(lengths(&made(Quirks::Siw, op, inline, &mut room)), asked);
                assert_eq!(lengths(&made(Quirks::None, op, flags, &mut room)), asked);
            }
            let mut room = ROOM;
            let marker = made(Quirks::Siw, SendOp::Nop, flags, &mut room);
            assert_eq!(marker.num_sge, 0);
        }
    }

    #[test]
    fn a_short_segment_in_two_pages_is_posted_to_siw_as_two() {
        // Address, length, expected lengths.
        let rows: [(u64, u32, &[u32]); 7] = [
            (0x1ff0, 17, &[16, 1]),
            (0x1fff, 2, &[1, 1]),
            (0x1fe1, 32, &[31, 1]),
            (0x1ff0, 16, &[16]),
            (0x2000, 32, &[32]),
            (0x1ff0, 33, &[33]),
            (0x1ff0, 0, &[0]),
        ];
        for (addr, length, expected) in rows {
            let segment = Segment {
                addr,
                length,
                lkey: 7,
            };
            let request = SendRequest {
                wr_id: 0,
                op: SendOp::Send,
                flags: SendFlags::empty(),
                segments: &[segment],
            };
            let (mut work, mut room) = (send_work(&request, 9), ROOM);
            Quirks::None.send(&mut work, request.segments, &mut room);
            assert_eq!(lengths(&work), [length]);
            Quirks::Siw.send(&mut work, request.segments, &mut room);
            assert_eq!(lengths(&work), expected, "{addr:#x}, {length}");
            if expected.len() == 2 {
                // SAFETY: the list lies in `room`.
                let second = unsafe { &*work.sg_list.add(1) };
                assert_eq!((second.addr, second.lkey), (0x2000, 7));
            }
        }
        let empty = Segment::default();
        let short = Segment {
            addr: 0x1fff,
            length: 3,
            lkey: 7,
        };
        assert_eq!(in_two_pages(&empty), None);
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            segments: &[empty, short],
        };
        let (mut work, mut room) = (send_work(&request, 9), ROOM);
        Quirks::Siw.send(&mut work, request.segments, &mut room);
        assert_eq!(lengths(&work), [1, 2]);
    }

    #[test]
    fn remaining_segments_keep_their_address_and_key() {
        let segment = |length| Segment {
            addr: 0x2000 + u64::from(length),
            length,
            lkey: 40 + length,
        };
        let segments = [segment(0), segment(2), segment(0), segment(1)];
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            segments: &segments,
        };
        let (mut work, mut room) = (send_work(&request, 9), ROOM);
        Quirks::Siw.send(&mut work, &segments, &mut room);
        // SAFETY: the list lies in `room`.
        let left = unsafe { core::slice::from_raw_parts(work.sg_list, 2) };
        let fields = |at: usize| (left[at].addr, left[at].length, left[at].lkey);
        assert_eq!((fields(0), fields(1)), ((0x2002, 2, 42), (0x2001, 1, 41)));
        assert_eq!(work.num_sge, 2);
    }

    #[test]
    fn requests_are_changed_for_siw_and_for_no_other_device() {
        let read = SendRequest {
            wr_id: 0,
            op: SendOp::Read {
                remote_addr: 1,
                rkey: 2,
            },
            flags: SendFlags::FENCE,
            segments: &[],
        };
        let made = |quirks: Quirks, request: &SendRequest<'_>| {
            let (mut work, mut room) = (send_work(request, 9), ROOM);
            quirks.send(&mut work, request.segments, &mut room);
            (work.send_flags, work.num_sge)
        };
        assert_eq!(made(Quirks::None, &read), (1, 0));
        assert_eq!(made(Quirks::Siw, &read), (2, 1));
        let write = SendRequest {
            op: SendOp::Write {
                remote_addr: 1,
                rkey: 2,
            },
            ..read
        };
        assert_eq!(made(Quirks::None, &write), (1, 0));
        assert_eq!(made(Quirks::Siw, &write), (3, 0), "also signalled");
        assert_eq!(Quirks::Siw.receive(&[]).len(), 1);
        assert!(Quirks::None.receive(&[]).is_empty());
    }
}
