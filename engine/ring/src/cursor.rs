//! The arithmetic of rings: free-running counters, indices, laps and credits.
//! Accesses neither memory nor a device.

/// The size of a ring: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// The number of entries less one.
    mask: u32,
}

impl RingSize {
    /// One entry.
    pub const ONE: Self = Self { mask: 0 };

    /// Returns the size of a ring of `count` entries, if that is a power of two.
    pub const fn new(count: u32) -> Option<Self> {
        if count.is_power_of_two() {
            Some(Self { mask: count - 1 })
        } else {
            None
        }
    }

    /// Returns the number of entries.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.mask + 1
    }

    /// Returns the index of the entry of a counter.
    #[inline(always)]
    pub const fn index(self, counter: u32) -> usize {
        (counter & self.mask) as usize
    }

    /// Returns the owner bit that the device writes on the lap of this counter.
    #[inline(always)]
    pub const fn owner(self, counter: u32) -> bool {
        counter & self.count() != 0
    }
}

/// How many more requests may be posted.
///
/// `posted` counts all requests; `limit` is the value of `posted` at which the
/// queue counts as full. The producer reads the consumer's counter only when
/// `posted` reaches `limit`.
#[derive(Clone, Copy, Debug)]
pub struct Credits {
    posted: u32,
    limit: u32,
    capacity: u32,
    open: bool,
}

impl Credits {
    /// Returns the credits of a queue that may have `capacity` requests outstanding.
    /// It is closed until [`Self::open`], and its counters start at `start`.
    pub const fn new(capacity: u32, start: u32) -> Self {
        Self {
            posted: start,
            limit: start,
            capacity,
            open: false,
        }
    }

    /// Allows posts; `retired` is the number of retired requests.
    pub const fn open(&mut self, retired: u32) {
        self.open = true;
        self.count_from(retired);
    }

    /// Sets the limit for this count of retired requests. The capacity is at
    /// least the number of outstanding requests: a limit below `posted` would
    /// never be reached.
    const fn count_from(&mut self, retired: u32) {
        let outstanding = self.posted.wrapping_sub(retired);
        if self.capacity < outstanding {
            self.capacity = outstanding;
        }
        self.limit = retired.wrapping_add(self.capacity);
    }

    /// Sets how many requests may be outstanding, but not below the number that is outstanding.
    pub const fn set_capacity(&mut self, capacity: u32) {
        // The count of retired requests stays the same.
        let retired = self.limit.wrapping_sub(self.capacity);
        self.capacity = capacity;
        if self.open {
            self.count_from(retired);
        }
    }

    /// Refuses posts from now on.
    #[cfg(test)]
    pub const fn close(&mut self) {
        self.open = false;
        self.limit = self.posted;
    }

    /// Returns whether posts are allowed.
    #[inline(always)]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether the next request must wait for [`Self::refresh`].
    #[inline(always)]
    pub const fn exhausted(&self) -> bool {
        self.posted == self.limit
    }

    /// Updates the limit from the consumer's count. Returns whether there is room now.
    #[inline(always)]
    pub const fn refresh(&mut self, retired: u32) -> bool {
        if self.open {
            self.limit = retired.wrapping_add(self.capacity);
        }
        !self.exhausted()
    }

    /// Makes the next request wait for [`Self::refresh`], whatever room there is.
    #[inline]
    pub const fn hold(&mut self) {
        self.limit = self.posted;
    }

    /// Returns how many requests may be posted before the next [`Self::refresh`].
    #[inline(always)]
    pub const fn room(&self) -> usize {
        self.limit.wrapping_sub(self.posted) as usize
    }

    /// Counts `count` more requests as posted. Returns the new count.
    #[inline(always)]
    pub const fn take(&mut self, requests: u32) -> u32 {
        self.posted = self.posted.wrapping_add(requests);
        self.posted
    }

    /// Undoes [`Self::take`] for requests that are not posted after all.
    #[inline]
    pub const fn give_back(&mut self, requests: u32) {
        self.posted = self.posted.wrapping_sub(requests);
    }

    /// Returns the number of requests posted so far, modulo 2^32.
    #[inline(always)]
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// Returns how many requests may be outstanding.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// Returns how far the 24-bit counter `to` is ahead of `from`; negative if behind.
pub(crate) const fn distance24(from: u32, to: u32) -> i32 {
    (to.wrapping_sub(from) << 8) as i32 >> 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(RingSize::new(0), None);
        assert_eq!(RingSize::new(3), None);
        for log in 0..32 {
            assert!(RingSize::new(1 << log).is_some());
        }
    }

    #[test]
    fn a_closed_queue_takes_nothing_whatever_is_retired() {
        let mut credits = Credits::new(4, 7);
        assert!(credits.exhausted() && !credits.refresh(7) && !credits.refresh(9));
        credits.open(7);
        assert!(!credits.exhausted());
        credits.take(1);
        credits.close();
        assert!(credits.exhausted() && !credits.refresh(8));
    }

    #[test]
    fn no_limit_is_below_what_is_outstanding() {
        let mut credits = Credits::new(8, 7);
        credits.open(7);
        credits.take(5);
        credits.set_capacity(2);
        assert_eq!((credits.capacity(), credits.room()), (5, 0));
        assert!(!credits.refresh(7) && credits.refresh(8));
        credits.take(1);
        credits.close();
        credits.set_capacity(1);
        credits.open(8);
        assert_eq!((credits.capacity(), credits.room()), (5, 0));
        credits.set_capacity(6);
        assert_eq!(credits.room(), 1);
    }

    proptest! {
        #[test]
        fn index_and_owner_are_those_of_a_counter_that_never_wraps(
            log in 0u32..24, start in any::<u32>(), steps in 0u64..5000,
        ) {
            let size = RingSize::new(1 << log).unwrap();
            let wide = u64::from(start) + steps;
            let counter = start.wrapping_add(steps as u32);
            prop_assert_eq!(size.index(counter) as u64, wide % (1 << log));
            prop_assert_eq!(size.owner(counter), (wide >> log) & 1 == 1);
        }

        #[test]
        fn credits_are_those_of_a_trivial_queue(
            log in 0u32..6, start in prop_oneof![Just(0u32), Just(0xfff0), Just(u32::MAX - 3)],
            ops in prop::collection::vec(any::<bool>(), 0..400),
        ) {
            let capacity = 1 << log;
            let mut credits = Credits::new(capacity, start);
            credits.open(start);
            let (mut outstanding, mut retired) = (0u32, start);
            for post in ops {
                if post {
                    prop_assert_eq!(credits.room() == 0, credits.exhausted());
                    let room = !credits.exhausted() || credits.refresh(retired);
                    prop_assert_eq!(room, outstanding < capacity);
                    if room {
                        credits.take(1);
                        outstanding += 1;
                    }
                } else if outstanding > 0 {
                    outstanding -= 1;
                    retired = retired.wrapping_add(1);
                }
            }
        }

        #[test]
        fn distance24_is_the_signed_difference(from in any::<u32>(), by in -0x7f_ffffi32..0x7f_ffff) {
            let to = from.wrapping_add(by as u32) & 0xff_ffff;
            prop_assert_eq!(distance24(from & 0xff_ffff, to), by);
            prop_assert_eq!(distance24(from, to), by);
        }
    }
}
