//! Moves the NIC thread to the core from which it is woken.
//!
//! With all cores busy, a thread wakes on the core on which it ran last. If the
//! waking thread is on that core, the wake-up is a context switch there;
//! otherwise it is an interrupt to a core that runs something else, which costs
//! several times as much in a virtual machine. So a thread that is repeatedly
//! woken from another core moves to that core once. It is not pinned there:
//! where cores are idle the scheduler decides better. After each move that did
//! not last, more wake-ups are needed for the next one.

/// Consecutive wake-ups from another core before a move: initially, and at most.
const WAKES_BEFORE_MOVE: (u32, u32) = (4, 64);
/// Consecutive wake-ups from the own core after which the threshold is reset.
const RESET_AFTER: u32 = 256;

/// Decides when the NIC thread moves to another core.
#[derive(Debug)]
pub(super) struct Placement {
    threshold: u32,
    remote_wakes: u32,
    local_wakes: u32,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            threshold: WAKES_BEFORE_MOVE.0,
            remote_wakes: 0,
            local_wakes: 0,
        }
    }
}

impl Placement {
    /// Records a wake-up on core `own_core` by a thread on core `waker_core`. Returns
    /// whether the woken thread should move.
    fn should_move(&mut self, own_core: u32, waker_core: u32) -> bool {
        if own_core == waker_core {
            self.remote_wakes = 0;
            self.local_wakes += 1;
            if self.local_wakes == RESET_AFTER {
                self.threshold = WAKES_BEFORE_MOVE.0;
            }
            return false;
        }
        self.local_wakes = 0;
        self.remote_wakes += 1;
        if self.remote_wakes < self.threshold {
            return false;
        }
        self.remote_wakes = 0;
        self.threshold = (self.threshold * 2).min(WAKES_BEFORE_MOVE.1);
        true
    }

    /// Records that the calling thread was woken from core `waker_core`, and moves
    /// it if needed.
    pub(super) fn woken_from(&mut self, waker_core: u32) {
        // SAFETY: sched_getcpu has no preconditions.
        let own_core = unsafe { libc::sched_getcpu() };
        if let Ok(own_core) = u32::try_from(own_core)
            && self.should_move(own_core, waker_core)
        {
            move_to(waker_core as usize);
        }
    }
}

/// Moves the calling thread to a core, without pinning it there.
fn move_to(core: usize) {
    // SAFETY: cpu_set_t is plain memory, for which zeros are valid; the calls
    // read and write sets of the given size.
    unsafe {
        let (mut before, mut only): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        let size = size_of_val(&before);
        if core >= 8 * size || libc::sched_getaffinity(0, size, &raw mut before) != 0 {
            return;
        }
        libc::CPU_SET(core, &mut only);
        // The kernel refuses a core that this process may not use.
        if libc::sched_setaffinity(0, size, &raw const only) == 0 {
            libc::sched_setaffinity(0, size, &raw const before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_repeatedly_woken_from_another_core_moves_there() {
        let mut placement = Placement::default();
        let moves: Vec<_> = (0..4).map(|_| placement.should_move(1, 0)).collect();
        assert_eq!(moves, [false, false, false, true]);
        assert!(!placement.should_move(0, 0));
    }

    #[test]
    fn wake_ups_from_changing_cores_do_not_move_the_thread() {
        let mut placement = Placement::default();
        assert!((0..1000).all(|n| !placement.should_move(1, n % 2)));
    }

    #[test]
    fn moves_that_do_not_last_become_rarer_until_one_lasts() {
        let mut placement = Placement::default();
        let moves = |placement: &mut Placement, calls: u32| {
            (0..calls).filter(|_| placement.should_move(1, 0)).count()
        };
        assert!(moves(&mut placement, 100_000) < 100_000 / 60);
        assert_eq!(moves(&mut placement, 4), 0);
        (0..RESET_AFTER).for_each(|_| assert!(!placement.should_move(0, 0)));
        assert_eq!(moves(&mut placement, 4), 1);
    }

    #[test]
    fn a_moved_thread_is_not_pinned() {
        let allowed = || {
            // SAFETY: as for `move_to`.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
                libc::CPU_COUNT(&set)
            }
        };
        let before = allowed();
        move_to(0);
        move_to(usize::MAX);
        assert_eq!(allowed(), before);
    }
}
