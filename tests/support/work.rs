//! Requests as owned values, and strategies that generate them.

use std::ops::Range;

use dat_engine::{Access, AtomicOp, RecvRequest, Segment, SendFlags, SendOp, SendRequest};
use proptest::collection::vec;
use proptest::prelude::*;

use super::operations::any_op;

/// A send request that owns its segments.
#[derive(Clone, Debug)]
pub struct SendWork {
    pub wr_id: u64,
    pub op: SendOp,
    pub flags: SendFlags,
    pub segments: Vec<Segment>,
}

impl SendWork {
    pub fn request(&self) -> SendRequest<'_> {
        let SendWork {
            wr_id,
            op,
            flags,
            ref segments,
        } = *self;
        SendRequest {
            wr_id,
            op,
            flags,
            segments,
        }
    }

    pub fn signaled(&self) -> bool {
        self.flags.contains(SendFlags::SIGNALED)
    }

    /// Returns the number of 64-byte blocks (WQEBBs) of the WQE, by the rules of
    /// the format.
    pub fn wqebbs(&self) -> u32 {
        let remote = !matches!(self.op, SendOp::Send | SendOp::SendImm(_));
        let operands = matches!(self.op, SendOp::Atomic { .. });
        let bytes: u32 = self.segments.iter().map(|segment| segment.length).sum();
        let data = if !self.flags.contains(SendFlags::INLINE) {
            self.segments
                .iter()
                .filter(|segment| segment.length != 0)
                .count() as u32
        } else if bytes == 0 {
            0
        } else {
            (4 + bytes).div_ceil(16)
        };
        (1 + u32::from(remote) + u32::from(operands) + data).div_ceil(4)
    }
}

/// A bind of a side's memory window, in numbers that both sides use.
#[derive(Clone, Copy, Debug)]
pub struct BindWork {
    pub wr_id: u64,
    pub flags: SendFlags,
    /// The window's key before the bind, and the region's key and address.
    pub keys: WindowKeys,
    /// Offset in the region, length in bytes, and rights; `None` unbinds.
    pub to: Option<(u64, u64, Access)>,
}

/// The keys and addresses of a side's window and region.
#[derive(Clone, Copy, Debug)]
pub struct WindowKeys {
    pub rkey: u32,
    pub lkey: u32,
    pub addr: u64,
}

/// A receive request that owns its segments.
#[derive(Clone, Debug)]
pub struct RecvWork {
    pub wr_id: u64,
    pub segments: Vec<Segment>,
}

impl RecvWork {
    pub fn request(&self) -> RecvRequest<'_> {
        RecvRequest {
            wr_id: self.wr_id,
            segments: &self.segments,
        }
    }
}

/// Bounds of generated requests.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub max_segments: usize,
    pub max_inline: u32,
    /// Readable memory for inline data.
    pub memory: (u64, u32),
}

/// Generates any send request within the bounds. Only inline data must exist:
/// addresses, lengths and keys are numbers until a device uses them.
pub fn any_send(bounds: Bounds) -> impl Strategy<Value = SendWork> {
    let flags = any::<u8>().prop_map(SendFlags::from_bits_truncate);
    (any::<u64>(), any_op(), flags).prop_flat_map(move |(wr_id, op, mut flags)| {
        if op.fills_segments() {
            flags.remove(SendFlags::INLINE);
        }
        let segments = if flags.contains(SendFlags::INLINE) {
            inline_segments(bounds).boxed()
        } else if matches!(op, SendOp::Atomic { .. }) {
            let eight = |(addr, lkey)| Segment {
                addr,
                length: AtomicOp::BYTES,
                lkey,
            };
            vec((any::<u64>(), any::<u32>()).prop_map(eight), 1).boxed()
        } else {
            vec(any_segment(), 0..=bounds.max_segments).boxed()
        };
        segments.prop_map(move |segments| SendWork {
            wr_id,
            op,
            flags,
            segments,
        })
    })
}

/// Generates any receive request with at most this many segments.
pub fn any_recv(max_segments: usize) -> impl Strategy<Value = RecvWork> {
    (any::<u64>(), vec(any_segment(), 0..=max_segments))
        .prop_map(|(wr_id, segments)| RecvWork { wr_id, segments })
}

/// Generates lists of requests, each posted by one call.
pub fn lists<W: std::fmt::Debug>(
    work: impl Strategy<Value = W>,
    count: Range<usize>,
) -> impl Strategy<Value = Vec<Vec<W>>> {
    // A single request rings the doorbell in another way than a list, so half of
    // all posts are single.
    let work = std::sync::Arc::new(work);
    let list = prop_oneof![vec(std::sync::Arc::clone(&work), 1), vec(work, 1..=8)];
    vec(list, count)
}

fn any_segment() -> impl Strategy<Value = Segment> {
    let length = prop_oneof![1 => Just(0u32), 4 => 1..100_000u32, 1 => (1u32 << 20)..(1 << 24)];
    (any::<u64>(), length, any::<u32>()).prop_map(|(addr, length, lkey)| Segment {
        addr,
        length,
        lkey,
    })
}

/// Generates segments of the readable memory that together fit inline.
fn inline_segments(bounds: Bounds) -> impl Strategy<Value = Vec<Segment>> {
    let length = prop_oneof![1 => Just(0u32), 4 => 1..=bounds.max_inline];
    vec(
        (length, any::<u32>(), any::<u32>()),
        0..=bounds.max_segments,
    )
    .prop_map(move |wanted| {
        let mut left = bounds.max_inline;
        let segment = |(length, at, lkey): (u32, u32, u32)| {
            let length = length.min(left);
            left -= length;
            let offset = at % (bounds.memory.1 - length + 1);
            Segment {
                addr: bounds.memory.0 + u64::from(offset),
                length,
                lkey,
            }
        };
        wanted.into_iter().map(segment).collect()
    })
}
