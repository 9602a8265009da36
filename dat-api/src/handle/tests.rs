use super::*;
use crate::object::counters::Counters;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

struct Thing(AtomicU32);

// SAFETY: nothing in these tests looks for a real object of the kind.
unsafe impl Object for Thing {
    const KIND: Kind = Kind::Pz;
}

struct Other;

// SAFETY: as above.
unsafe impl Object for Other {
    const KIND: Kind = Kind::Lmr;
}

/// Has a function that objects below call.
struct Counted(u64);

// SAFETY: as above.
unsafe impl Object for Counted {
    const KIND: Kind = Kind::Psp;
    const UPCALLS: &'static Upcalls = &Upcalls {
        counters: |handle| Some(Counters::of_posts(pin::<Self>(handle)?.0)),
        ..Upcalls::NONE
    };
}

fn thing(value: u32) -> Handle {
    let place = Reservation::new().expect("a slot");
    place.publish(Arc::new(Thing(AtomicU32::new(value))))
}

#[test]
fn a_handle_finds_its_object_and_no_other_kind() {
    let handle = thing(7);
    assert_eq!(handle.kind(), Some(Kind::Pz));
    assert_eq!(
        pin::<Thing>(handle)
            .expect("live")
            .0
            .load(Ordering::Relaxed),
        7
    );
    assert!(pin::<Other>(handle).is_none());
    assert_eq!(own::<Other>(handle).err(), Some(NotOwned::Stale));
    // SAFETY: nobody frees it.
    assert!(unsafe { peek::<Other>(handle) }.is_none());
    assert!(retire::<Other>(handle, |_| ()).is_none());
    assert!(retire::<Thing>(handle, |_| ()).is_some());
}

#[test]
fn a_stale_handle_is_told_and_stays_so_for_long() {
    let handle = thing(1);
    retire::<Thing>(handle, |_| ()).expect("live");
    for value in 0..10_000 {
        let other = thing(value);
        assert_ne!(other, handle, "the slot came back after {value} others");
        assert!(pin::<Thing>(handle).is_none());
        assert_eq!(own::<Thing>(handle).err(), Some(NotOwned::Stale));
        retire::<Thing>(other, |_| ()).expect("live");
    }
    assert!(retire::<Thing>(handle, |_| ()).is_none());
    assert_eq!(handle.context(), None);
    assert!(!handle.set_context(1));
}

#[test]
fn garbage_is_not_a_handle() {
    let handle = thing(1);
    let near = |offset: usize| Handle::from_bits(handle.bits().wrapping_add(offset));
    let far = size_of::<Slot>() << 20;
    for bad in [
        Handle::from_bits(0),
        Handle::from_bits(1),
        Handle::from_bits(usize::MAX),
        near(1),
        near(8),
        near(63),
        near(far),
        near(far.wrapping_neg()),
    ] {
        assert!(bad.and_then(pin::<Thing>).is_none(), "{bad:?}");
    }
    retire::<Thing>(handle, |_| ()).expect("live");
}

#[test]
fn the_context_is_zero_at_first_and_the_callers_then() {
    let handle = thing(1);
    assert_eq!(handle.context(), Some(0));
    assert!(handle.set_context(u64::MAX));
    assert_eq!(handle.context(), Some(u64::MAX));
    retire::<Thing>(handle, |_| ()).expect("live");
}

#[test]
fn one_owner_at_a_time() {
    let handle = thing(1);
    let owned = own::<Thing>(handle).expect("free");
    assert_eq!(own::<Thing>(handle).err(), Some(NotOwned::Busy));
    assert!(pin::<Thing>(handle).is_some(), "control calls go on");
    drop(owned);
    assert!(own::<Thing>(handle).is_ok());
    retire::<Thing>(handle, |_| ()).expect("live");
}

#[test]
fn freeing_waits_for_the_owner_and_hurries_it() {
    let handle = thing(0);
    let (started, left) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let owned = own::<Thing>(handle).expect("free");
            started.store(true, Ordering::Release);
            while owned.0.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            assert!(owned.is_dying());
            left.store(true, Ordering::Release);
        });
        while !started.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let object = retire::<Thing>(handle, |thing| thing.0.store(1, Ordering::Relaxed));
        assert!(left.load(Ordering::Acquire));
        assert_eq!(Arc::strong_count(&object.expect("live")), 1);
    });
}

#[test]
fn calls_race_with_freeing_and_never_touch_what_is_gone() {
    for _ in 0..200 {
        let handle = thing(3);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(pinned) = pin::<Thing>(handle) {
                        assert_eq!(pinned.0.load(Ordering::Relaxed), 3);
                    }
                });
            }
            scope.spawn(|| {
                loop {
                    match own::<Thing>(handle) {
                        Ok(owned) => assert_eq!(owned.0.load(Ordering::Relaxed), 3),
                        Err(NotOwned::Busy) => {}
                        Err(NotOwned::Stale) => break,
                    }
                }
            });
            let object = retire::<Thing>(handle, |_| ()).expect("live");
            object.0.store(4, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_pinned_object_can_outlive_its_handle() {
    let handle = thing(9);
    let kept = pin::<Thing>(handle).expect("live").to_arc();
    let object = retire::<Thing>(handle, |_| ()).expect("live");
    drop(object);
    assert_eq!(kept.0.load(Ordering::Relaxed), 9);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn an_unused_reservation_gives_its_slot_back() {
    let place = Reservation::new().expect("a slot");
    let handle = place.handle();
    assert_eq!(handle.kind(), None);
    drop(place);
    assert!(pin::<Thing>(handle).is_none());
}

/// What a child of a fork answers; 255 if it hangs or dies.
fn in_child(answer: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child touches what is under test, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs, and one that is done.
        unsafe {
            libc::alarm(20);
            libc::_exit(answer().into())
        }
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => 255,
    }
}

#[test]
fn a_child_has_none_of_its_parents_handles_and_may_make_its_own() {
    let handle = thing(5);
    let owned = own::<Thing>(handle).expect("nobody else has it");
    let place = Reservation::new().expect("a slot");
    let answer = in_child(|| {
        let stale = pin::<Thing>(handle).is_none()
            && own::<Thing>(handle).err() == Some(NotOwned::Stale)
            // SAFETY: nobody frees it.
            && unsafe { peek::<Thing>(handle) }.is_none()
            && retire::<Thing>(handle, |_| ()).is_none()
            && handle.kind().is_none();
        let own = thing(6);
        let live = own != handle && pin::<Thing>(own).is_some();
        u8::from(stale) + 2 * u8::from(live)
    });
    assert_eq!(answer, 3);
    drop((owned, place));
    assert!(pin::<Thing>(handle).is_some(), "the parent's is as before");
    retire::<Thing>(handle, |_| ()).expect("live");
}

/// What a child answers that makes an object.
fn made_in_child() -> i32 {
    in_child(|| match Reservation::new() {
        Some(_) => 7,
        None => 8,
    })
}

#[test]
fn a_child_is_born_while_others_make_and_free_objects() {
    let stop = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    retire::<Thing>(thing(1), |_| ()).expect("live");
                }
            });
        }
        let answers = core::array::from_fn(|_| made_in_child());
        stop.store(true, Ordering::Relaxed);
        answers
    });
    assert_eq!(answers, [7; 50]);
}

/// Of the first objects of a process too: here none has been made before, if the
/// test has a process to itself.
#[test]
fn a_child_is_born_while_another_thread_has_the_arena() {
    let taken = AtomicBool::new(false);
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            let arena = ARENA.lock();
            taken.store(true, Ordering::Release);
            // The fork waits for this, or comes in the middle of it.
            thread::sleep(std::time::Duration::from_millis(50));
            drop(arena);
        });
        while !taken.load(Ordering::Acquire) {
            thread::yield_now();
        }
        made_in_child()
    });
    assert_eq!(answer, 7);
}

#[test]
fn calls_from_below_reach_the_object_while_it_lives() {
    let place = Reservation::new().expect("a slot");
    let handle = place.handle();
    assert_eq!(Counters::of(handle), None, "not published yet");
    place.publish(Arc::new(Counted(7)));
    let counters = Counters::of(handle).expect("live");
    assert_eq!(counters.refused_posts, 7);
    let other = thing(7);
    assert_eq!(Counters::of(other), None, "of a kind without the function");
    retire::<Counted>(handle, |_| ()).expect("live");
    assert_eq!(Counters::of(handle), None, "gone");
    retire::<Thing>(other, |_| ()).expect("live");
    assert_eq!(Counters::of(Handle::from_bits(64).expect("not null")), None);
}
