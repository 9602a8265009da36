//! Where the NIC thread sleeps: on the core it is rung from.
//!
//! With all cores busy a thread wakes on the core it ran on last. If that is
//! the ringing thread's, the wake-up is a switch on that core; if it is
//! another, it is an interrupt to a core that runs something else, which in a
//! virtual machine costs several times as much. So a thread that is rung from
//! elsewhere again and again moves there once. It is not bound: where cores
//! are idle the scheduler knows better, and each move that did not last makes
//! the next one rarer.

/// Calls in a row from elsewhere before a move: at first, and at most.
const PATIENCE: (u32, u32) = (4, 64);
/// Calls in a row from the own core after which all moves are forgotten.
const SETTLED: u32 = 256;

/// Follows those who ring.
#[derive(Debug)]
pub(super) struct Placement {
    patience: u32,
    from_elsewhere: u32,
    from_here: u32,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            patience: PATIENCE.0,
            from_elsewhere: 0,
            from_here: 0,
        }
    }
}

impl Placement {
    /// The thread runs on core `here` and was rung from `there`; answers
    /// whether it is to move.
    fn rung(&mut self, here: u32, there: u32) -> bool {
        if here == there {
            self.from_elsewhere = 0;
            self.from_here += 1;
            if self.from_here == SETTLED {
                self.patience = PATIENCE.0;
            }
            return false;
        }
        self.from_here = 0;
        self.from_elsewhere += 1;
        if self.from_elsewhere < self.patience {
            return false;
        }
        self.from_elsewhere = 0;
        self.patience = (self.patience * 2).min(PATIENCE.1);
        true
    }

    /// The calling thread was rung from core `there`.
    pub(super) fn follow(&mut self, there: u32) {
        // SAFETY: sched_getcpu has no demands.
        let here = unsafe { libc::sched_getcpu() };
        if let Ok(here) = u32::try_from(here)
            && self.rung(here, there)
        {
            move_to(there as usize);
        }
    }
}

/// Moves the calling thread, and leaves it free to be moved again.
fn move_to(core: usize) {
    // SAFETY: cpu_set_t is plain memory, for which zeros are valid; the calls
    // read and write sets of the size that they are told.
    unsafe {
        let (mut before, mut only): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        let size = size_of_val(&before);
        if core >= 8 * size || libc::sched_getaffinity(0, size, &raw mut before) != 0 {
            return;
        }
        libc::CPU_SET(core, &mut only);
        // A core that this process may not use is refused, and that is all.
        if libc::sched_setaffinity(0, size, &raw const only) == 0 {
            libc::sched_setaffinity(0, size, &raw const before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_rung_from_elsewhere_again_and_again_moves_there() {
        let mut placement = Placement::default();
        let moves: Vec<_> = (0..4).map(|_| placement.rung(1, 0)).collect();
        assert_eq!(moves, [false, false, false, true]);
        assert!(!placement.rung(0, 0));
    }

    #[test]
    fn callers_from_everywhere_do_not_move_it() {
        let mut placement = Placement::default();
        assert!((0..1000).all(|n| !placement.rung(1, n % 2)));
    }

    #[test]
    fn moves_that_do_not_last_become_rare_until_one_does() {
        let mut placement = Placement::default();
        let moves = |placement: &mut Placement, calls: u32| {
            (0..calls).filter(|_| placement.rung(1, 0)).count()
        };
        assert!(moves(&mut placement, 100_000) < 100_000 / 60);
        assert_eq!(moves(&mut placement, 4), 0);
        (0..SETTLED).for_each(|_| assert!(!placement.rung(0, 0)));
        assert_eq!(moves(&mut placement, 4), 1);
    }

    #[test]
    fn a_thread_that_was_moved_is_free_again() {
        let allowed = || {
            // SAFETY: as in `move_to`.
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
