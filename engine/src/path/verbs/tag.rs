//! What a work request carries as its `wr_id`.
//!
//! ```text
//!  63 62 | 61            32 | 31           0
//!  side  | name             | slot
//! ```

/// Which queue a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The send queue of a queue pair.
    Send,
    /// The receive queue of a queue pair.
    Recv,
    /// A shared receive queue.
    Shared,
}

/// The name of a queue pair between two resets, at one completion queue; or
/// that of a shared queue. 30 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

/// The bits of a name.
const NAME_BITS: u32 = 30;

impl Name {
    /// The lowest 30 bits of a number.
    pub(super) const fn new(number: u32) -> Self {
        Self(number & ((1 << NAME_BITS) - 1))
    }

    pub(super) const fn get(self) -> u32 {
        self.0
    }
}

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) side: Side,
    pub(super) name: Name,
    /// Of a send or a receive, the count of those posted before it; of a shared
    /// receive, its place.
    pub(super) slot: u32,
}

impl Tag {
    #[inline]
    pub(super) const fn to_bits(self) -> u64 {
        let side: u64 = match self.side {
            Side::Send => 0,
            Side::Recv => 1,
            Side::Shared => 2,
        };
        side << 62 | (self.name.0 as u64) << 32 | self.slot as u64
    }

    /// `None` if it is no tag of ours.
    #[inline]
    pub(super) const fn from_bits(bits: u64) -> Option<Self> {
        let side = match bits >> 62 {
            0 => Side::Send,
            1 => Side::Recv,
            2 => Side::Shared,
            _ => return None,
        };
        Some(Self {
            side,
            name: Name::new((bits >> 32) as u32),
            slot: bits as u32,
        })
    }
}

impl Tag {
    /// [`Self::from_bits`] of a tag that names a queue pair; `None` of others.
    #[inline(always)]
    pub(super) const fn of_queue_pair(bits: u64) -> Option<Self> {
        if bits >> 63 != 0 {
            return None;
        }
        Some(Self {
            side: if bits >> 62 == 0 {
                Side::Send
            } else {
                Side::Recv
            },
            name: Name::new((bits >> 32) as u32),
            slot: bits as u32,
        })
    }
}

/// The tags of one queue, which differ in their slots only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series(u64);

impl Series {
    pub(super) const fn new(side: Side, name: Name) -> Self {
        let first = Tag {
            side,
            name,
            slot: 0,
        };
        Self(first.to_bits())
    }

    /// The bits of one of them.
    #[inline(always)]
    pub(super) const fn tag(self, slot: u32) -> u64 {
        self.0 | slot as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tags_survive_the_device(side in 0..3u8, name in any::<u32>(), slot in any::<u32>()) {
            let side = [Side::Send, Side::Recv, Side::Shared][usize::from(side)];
            let tag = Tag { side, name: Name::new(name), slot };
            prop_assert_eq!(Tag::from_bits(tag.to_bits()), Some(tag));
            let own = (side != Side::Shared).then_some(tag);
            prop_assert_eq!(Tag::of_queue_pair(tag.to_bits()), own);
            prop_assert_eq!(Series::new(side, tag.name).tag(slot), tag.to_bits());
        }

        #[test]
        fn different_tags_have_different_bits(a in any::<u64>(), b in any::<u64>()) {
            match (Tag::from_bits(a), Tag::from_bits(b)) {
                (Some(x), Some(y)) => prop_assert_eq!(x == y, a == b),
                (None, _) => prop_assert_eq!(a >> 62, 3),
                (_, None) => prop_assert_eq!(b >> 62, 3),
            }
        }
    }
}
