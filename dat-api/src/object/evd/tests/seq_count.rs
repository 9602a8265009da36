//! Reading two counts while completions move between them.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::object::evd::pending::SeqCount;

#[test]
fn a_read_sees_no_move_half_done() {
    let moves = if cfg!(miri) { 100 } else { 200_000 };
    let (queued, staged) = (AtomicU32::new(moves), AtomicU32::new(0));
    let (count, done) = (SeqCount::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=moves {
                drop(count.begin());
                let moving = count.begin();
                queued.store(moves - number, Ordering::Relaxed);
                moving.has_moved();
                staged.store(number, Ordering::Relaxed);
            }
            done.store(true, Ordering::Release);
        });
        let sum = || queued.load(Ordering::Relaxed) + staged.load(Ordering::Relaxed);
        while !done.load(Ordering::Acquire) {
            assert!(count.read(sum).is_none_or(|sum| sum == moves));
        }
        assert_eq!(count.read(sum), Some(moves));
    });
}

#[test]
fn only_moves_change_the_number_also_within_others() {
    let count = SeqCount::default();
    let read = || count.read(|| count.0.load(Ordering::Relaxed));
    let first = read();
    assert!(first.is_some());
    {
        let _outer = count.begin();
        drop(count.begin());
        assert_eq!(read(), None);
    }
    assert_eq!(read(), first, "nothing has moved");
    {
        let _outer = count.begin();
        count.begin().has_moved();
        assert_eq!(read(), None, "the outer one goes on");
    }
    assert!(read().is_some() && read() != first);
}
