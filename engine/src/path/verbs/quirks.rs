//! What a device does otherwise than verbs have it, and what is done about it.
//!
//! All that is known of is siw, Linux's iWARP device in software
//! (drivers/infiniband/sw/siw; in rdma-core providers/siw/siw.c):
//!
//! * In ERR it flushes what its queues hold at that moment, and never looks at
//!   them again (`siw_qp_modify`; `siw_post_send` with a queue that is mapped).
//!   The rest is flushed here (`flush.rs`), and the completion queue's event is
//!   raised here too (`control/bell.rs`). Every request is signalled, so that one
//!   without a completion is known not to have been carried out.
//! * A send or a write is done when TCP has it, a read when the answer has come:
//!   completions overtake those of reads (`siw_qp_sq_process`). They are put in
//!   order here (`order.rs`).
//! * A fence on a read is an error (`siw_activate_tx_from_sq`); reads are
//!   answered in order anyway.
//! * A read of no segments takes the segment that its place in the queue had
//!   before, and a receive of none is refused (`push_recv_wqe`). Each gets one of
//!   no bytes.
//! * An empty segment before others of a send or a write stops the kernel:
//!   `siw_check_sgl_tx` looks up no memory for it, and `siw_tx_hdt` reads through
//!   the null pointer (siw_qp_tx.c, from Linux 5.3, where siw begins, to 6.16 at
//!   least). Such requests are posted without their empty segments. Inline bytes are
//!   copied by the library, and receives pass empty segments over: both stay as they
//!   are.
//! * A single segment of up to 32 bytes that lies in two pages is copied wrong where
//!   the kernel's own thread sends it, because the socket had no room before
//!   (`siw_try_1seg`, in the same versions). Of two segments it copies none; so such a
//!   segment is posted as two. The answer to a read is always sent by that thread: a
//!   read of up to 32 bytes from two pages brings wrong bytes, and nothing at this end
//!   can help.
//! * A read of no bytes that waits at the peer is answered with the length of the
//!   request before it (`siw_activate_tx` leaves `sge[0]` as it was), which ends the
//!   connection. Nothing at this end can help; alone, such a read is answered well.

use core::mem::MaybeUninit;

use dv_sys::verbs::{ibv_send_flags, ibv_send_wr, ibv_wr_opcode};

pub use crate::control::Quirks;
use crate::request::Segment;

/// A segment of no bytes.
static EMPTY: [Segment; 1] = [Segment {
    addr: 0,
    length: 0,
    lkey: 0,
}];

/// Segments that siw takes in one request (`SIW_MAX_SGE` in rdma-core's
/// kernel-headers/rdma/siw-abi.h).
const SIW_SEGMENTS: usize = 6;

/// Bytes of a message, at most, that siw copies beside the header
/// (`MAX_HDR_INLINE` in siw_qp_tx.c).
const COPIED: u32 = 32;
/// The least size of a page. The kernel's may be larger: then two segments do no
/// harm where one would do.
const PAGE: u64 = 4096;

/// Place for the segments of one request that the device gets, where these are not
/// all of them. Must live until the request is posted.
pub(super) type Room = [MaybeUninit<Segment>; SIW_SEGMENTS];

/// A [`Room`] with nothing in it.
pub(super) const ROOM: Room = [const { MaybeUninit::uninit() }; SIW_SEGMENTS];

impl Quirks {
    /// Whether there are any.
    #[inline(always)]
    pub(super) fn any(self) -> bool {
        self != Self::None
    }

    /// The segments of a receive as the device takes them.
    #[inline(always)]
    pub(super) fn receive(self, segments: &[Segment]) -> &[Segment] {
        match self {
            Self::Siw if segments.is_empty() => &EMPTY,
            _ => segments,
        }
    }

    /// Makes a request of the send queue, of these segments, what the device takes.
    /// It may point into `room` afterwards.
    #[inline(always)]
    pub(super) fn send(self, work: &mut ibv_send_wr, segments: &[Segment], room: &mut Room) {
        if self.any() {
            mend(work, segments, room);
        }
    }
}

#[cold]
fn mend(work: &mut ibv_send_wr, segments: &[Segment], room: &mut Room) {
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

/// Gives a send or a write segments that the kernel takes: those with bytes, and two
/// for a short one in two pages.
fn rearrange(work: &mut ibv_send_wr, segments: &[Segment], room: &mut Room) {
    let is_inline = work.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0;
    // A marker has no segments, whatever is asked for.
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
        // One segment stands before no other. More than there is room for the device
        // refuses.
        None if segments.len() > 1 && count <= room.len() => fill(work, with_bytes(), room),
        None => (),
    }
}

/// The parts of a segment in two pages, if the kernel would copy it.
fn in_two_pages(segment: &Segment) -> Option<[Segment; 2]> {
    let left = PAGE - segment.addr % PAGE;
    if segment.length > COPIED || u64::from(segment.length) <= left {
        return None;
    }
    // Below 32.
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

    /// The lengths of the segments of what `work` posts.
    fn lengths(work: &ibv_send_wr) -> Vec<u32> {
        let count = usize::try_from(work.num_sge).expect("a count");
        // SAFETY: the list of a request whose segments and room are alive.
        let segments = unsafe { core::slice::from_raw_parts(work.sg_list, count) };
        segments.iter().map(|segment| segment.length).collect()
    }

    #[test]
    fn siw_gets_no_empty_segment_beside_others() {
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
                    cookie: 0,
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
    fn siw_gets_a_short_segment_in_two_pages_as_two() {
        // Address, length, the lengths posted.
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
                cookie: 0,
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
            cookie: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            segments: &[empty, short],
        };
        let (mut work, mut room) = (send_work(&request, 9), ROOM);
        Quirks::Siw.send(&mut work, request.segments, &mut room);
        assert_eq!(lengths(&work), [1, 2]);
    }

    #[test]
    fn what_is_left_keeps_its_address_and_key() {
        let segment = |length| Segment {
            addr: 0x2000 + u64::from(length),
            length,
            lkey: 40 + length,
        };
        let segments = [segment(0), segment(2), segment(0), segment(1)];
        let request = SendRequest {
            cookie: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            segments: &segments,
        };
        let (mut work, mut room) = (send_work(&request, 9), ROOM);
        Quirks::Siw.send(&mut work, &segments, &mut room);
        // SAFETY: the list lies in `room`.
        let left = unsafe { core::slice::from_raw_parts(work.sg_list, 2) };
        let told = |at: usize| (left[at].addr, left[at].length, left[at].lkey);
        assert_eq!((told(0), told(1)), ((0x2002, 2, 42), (0x2001, 1, 41)));
        assert_eq!(work.num_sge, 2);
    }

    #[test]
    fn siw_gets_requests_that_it_takes_and_others_what_was_asked() {
        let read = SendRequest {
            cookie: 0,
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
        assert_eq!(made(Quirks::Siw, &write), (3, 0), "signalled, too");
        assert_eq!(Quirks::Siw.receive(&[]).len(), 1);
        assert!(Quirks::None.receive(&[]).is_empty());
    }
}
