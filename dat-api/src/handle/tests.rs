use super::*;
use crate::object::counters::Counters;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

struct TestObject(AtomicU32);

// SAFETY: nothing in these tests looks for a real object of the kind.
unsafe impl Object for TestObject {
    const KIND: Kind = Kind::Pz;
}

struct Other;

// SAFETY: as above.
unsafe impl Object for Other {
    const KIND: Kind = Kind::Lmr;
}

/// A type with an upcall.
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
    place.publish(Arc::new(TestObject(AtomicU32::new(value))))
}

#[test]
fn a_handle_finds_its_object_but_not_as_another_kind() {
    let handle = thing(7);
    assert_eq!(handle.kind(), Some(Kind::Pz));
    assert_eq!(
        pin::<TestObject>(handle)
            .expect("live")
            .0
            .load(Ordering::Relaxed),
        7
    );
    assert!(pin::<Other>(handle).is_none());
    assert_eq!(own::<Other>(handle).err(), Some(NotOwned::Stale));
    // SAFETY: the object is not freed meanwhile.
    assert!(unsafe { unpinned::<Other>(handle) }.is_none());
    assert!(retire::<Other>(handle, |_| ()).is_none());
    assert!(retire::<TestObject>(handle, |_| ()).is_some());
}

#[test]
fn a_stale_handle_is_recognised_after_10000_other_objects() {
    let handle = thing(1);
    retire::<TestObject>(handle, |_| ()).expect("live");
    for value in 0..10_000 {
        let other = thing(value);
        assert_ne!(other, handle, "the slot was reused after {value} others");
        assert!(pin::<TestObject>(handle).is_none());
        assert_eq!(own::<TestObject>(handle).err(), Some(NotOwned::Stale));
        retire::<TestObject>(other, |_| ()).expect("live");
    }
    assert!(retire::<TestObject>(handle, |_| ()).is_none());
    assert_eq!(handle.context(), None);
    assert!(!handle.set_context(1));
}

#[test]
fn objects_that_were_freed_take_bounded_memory() {
    let mut slots = std::collections::HashSet::new();
    for value in 0..200_000 {
        let handle = thing(value);
        slots.insert(handle);
        retire::<TestObject>(handle, |_| ()).expect("live");
    }
    // Tests on other threads use slots too.
    assert!(slots.len() < 40_000, "{}", slots.len());
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
        assert!(bad.and_then(pin::<TestObject>).is_none(), "{bad:?}");
    }
    retire::<TestObject>(handle, |_| ()).expect("live");
}

#[test]
fn the_context_is_zero_until_it_is_set() {
    let handle = thing(1);
    assert_eq!(handle.context(), Some(0));
    assert!(handle.set_context(u64::MAX));
    assert_eq!(handle.context(), Some(u64::MAX));
    retire::<TestObject>(handle, |_| ()).expect("live");
}

#[test]
fn an_object_has_one_owner_at_a_time() {
    let handle = thing(1);
    let owned = own::<TestObject>(handle).expect("free");
    assert_eq!(own::<TestObject>(handle).err(), Some(NotOwned::Busy));
    assert!(
        pin::<TestObject>(handle).is_some(),
        "control calls can still pin it"
    );
    drop(owned);
    assert!(own::<TestObject>(handle).is_ok());
    retire::<TestObject>(handle, |_| ()).expect("live");
}

#[test]
fn freeing_calls_hurry_and_waits_for_the_owner() {
    let handle = thing(0);
    let (started, left) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let owned = own::<TestObject>(handle).expect("free");
            started.store(true, Ordering::Release);
            while owned.0.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            assert!(owned.is_being_freed());
            left.store(true, Ordering::Release);
        });
        while !started.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let object = retire::<TestObject>(handle, |thing| thing.0.store(1, Ordering::Relaxed));
        assert!(left.load(Ordering::Acquire));
        assert_eq!(Arc::strong_count(&object.expect("live")), 1);
    });
}

#[test]
fn calls_that_race_with_freeing_never_touch_a_freed_object() {
    for _ in 0..200 {
        let handle = thing(3);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(pinned) = pin::<TestObject>(handle) {
                        assert_eq!(pinned.0.load(Ordering::Relaxed), 3);
                    }
                });
            }
            scope.spawn(|| {
                loop {
                    match own::<TestObject>(handle) {
                        Ok(owned) => assert_eq!(owned.0.load(Ordering::Relaxed), 3),
                        Err(NotOwned::Busy) => {}
                        Err(NotOwned::Stale) => break,
                    }
                }
            });
            let object = retire::<TestObject>(handle, |_| ()).expect("live");
            object.0.store(4, Ordering::Relaxed);
        });
    }
}

#[test]
fn an_arc_of_a_pinned_object_outlives_its_handle() {
    let handle = thing(9);
    let kept = pin::<TestObject>(handle).expect("live").to_arc();
    let object = retire::<TestObject>(handle, |_| ()).expect("live");
    drop(object);
    assert_eq!(kept.0.load(Ordering::Relaxed), 9);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn a_dropped_reservation_releases_its_slot() {
    let place = Reservation::new().expect("a slot");
    let handle = place.handle();
    assert_eq!(handle.kind(), None);
    drop(place);
    assert!(pin::<TestObject>(handle).is_none());
}

/// Returns the exit status of a forked child; 255 if it hangs or dies.
pub(crate) fn in_child(answer: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child uses only the code under test, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `alarm` ends a child that hangs, `_exit` one that is done.
        unsafe {
            libc::alarm(20);
            libc::_exit(answer().into())
        }
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => 255,
    }
}

#[test]
fn after_fork_the_parents_handles_are_stale_and_new_ones_work() {
    let handle = thing(5);
    let owned = own::<TestObject>(handle).expect("not owned yet");
    let place = Reservation::new().expect("a slot");
    let answer = in_child(|| {
        let stale = pin::<TestObject>(handle).is_none()
            && own::<TestObject>(handle).err() == Some(NotOwned::Stale)
            // SAFETY: the object is not freed meanwhile.
            && unsafe { unpinned::<TestObject>(handle) }.is_none()
            && retire::<TestObject>(handle, |_| ()).is_none()
            && handle.kind().is_none();
        let own = thing(6);
        let live = own != handle && pin::<TestObject>(own).is_some();
        u8::from(stale) + 2 * u8::from(live)
    });
    assert_eq!(answer, 3);
    drop((owned, place));
    assert!(
        pin::<TestObject>(handle).is_some(),
        "the parent's handle is still live"
    );
    retire::<TestObject>(handle, |_| ()).expect("live");
}

/// Returns what a child reports that creates an object.
fn made_in_child() -> i32 {
    in_child(|| match Reservation::new() {
        Some(_) => 7,
        None => 8,
    })
}

#[test]
fn fork_works_while_other_threads_create_and_free_objects() {
    let stop = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    retire::<TestObject>(thing(1), |_| ()).expect("live");
                }
            });
        }
        let answers = core::array::from_fn(|_| made_in_child());
        stop.store(true, Ordering::Relaxed);
        answers
    });
    assert_eq!(answers, [7; 50]);
}

/// Also tests the first objects of a process, if the test runs in a process of its own.
#[test]
fn fork_works_while_another_thread_locks_the_arena() {
    let taken = AtomicBool::new(false);
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            let arena = ARENA.lock();
            taken.store(true, Ordering::Release);
            // The fork waits for this lock, or happens while it is held.
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
fn upcalls_reach_the_object_while_it_is_live() {
    let place = Reservation::new().expect("a slot");
    let handle = place.handle();
    assert_eq!(Counters::of(handle), None, "not published yet");
    place.publish(Arc::new(Counted(7)));
    let counters = Counters::of(handle).expect("live");
    assert_eq!(counters.refused_posts, 7);
    let other = thing(7);
    assert_eq!(Counters::of(other), None, "a kind without this upcall");
    retire::<Counted>(handle, |_| ()).expect("live");
    assert_eq!(Counters::of(handle), None, "freed");
    retire::<TestObject>(other, |_| ()).expect("live");
    assert_eq!(Counters::of(Handle::from_bits(64).expect("not null")), None);
}
