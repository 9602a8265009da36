//! The tag of a request: the `wr_id` that libibverbs gets.
//!
//! ```text
//!  63 62 | 61            32 | 31           0
//!  side  | name             | slot
//! ```

/// The queue that a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The send queue of a queue pair.
    Send,
    /// The receive queue of a queue pair.
    Recv,
    /// A shared receive queue.
    Shared,
}

/// The name of a queue pair between two resets, at one completion queue; or the
/// name of a shared receive queue. 30 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

/// The number of bits of a name.
const NAME_BITS: u32 = 30;

impl Name {
    /// Returns the name with the lowest 30 bits of a number.
    pub(super) const fn new(number: u32) -> Self {
        Self(number & ((1 << NAME_BITS) - 1))
    }

    pub(super) const fn get(self) -> u32 {
        self.0
    }
}

/// A tag in its parts; the layout is at the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) side: Side,
    pub(super) name: Name,
    /// For a send or a receive, the number of those posted before it; for a shared
    /// receive, its index.
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

    /// Returns the parts of a tag; `None` if the bits are no tag of the engine.
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
    /// Returns the parts of a tag that names a queue pair; `None` for any other.
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

/// The tags of one queue, which differ only in their slot.
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

    /// Returns the tag of a slot.
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
        fn tags_are_decoded_as_they_were_encoded(side in 0..3u8, name in any::<u32>(), slot in any::<u32>()) {
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
