//! Blocking calls as cancellation points (pthreads(7)).
//!
//! A thread that is cancelled while it sleeps unwinds its stack, from the sleep to
//! its beginning. Rust functions survive that only if they hold nothing that is to
//! be dropped and catch no panic. So a wait of ours is made in steps
//! ([`dat_api::object::steps`]): each step runs with cancellation held off and
//! returns; then the exported function, which holds nothing, sleeps in C
//! (`c/cancel.c`). What the wait has lies in a [`Place`] that nothing drops by
//! itself. If the thread ends in the sleep, C calls [`gone`], which drops the wait;
//! the wait gives its EVD or CNO back with all events.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::CancellationHeld;
use dat_api::object::steps::{Next, Sleep, Slept, Steps};

/// Where a wait lies while its thread sleeps.
pub(crate) type Place<W> = MaybeUninit<W>;

/// `struct dat_sleep` of `c/cancel.c`.
#[repr(C)]
struct CSleep {
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
    events: [libc::epoll_event; Sleep::EVENTS],
    watch: c_int,
    found: c_int,
    error: c_int,
}

unsafe extern "C-unwind" {
    fn libdat_sleep(
        sleep: *mut CSleep,
        state: c_int,
        gone: extern "C" fn(*mut c_void),
        wait: *mut c_void,
    );
    fn libdat_pause(state: c_int, gone: extern "C" fn(*mut c_void), wait: *mut c_void);
}

/// Goes on with a wait to its end, and returns its answer; nothing if it panicked.
/// Cancellation is held off, and `state` is what it was before that. The thread may
/// end in here, so the caller holds nothing that is to be dropped.
///
/// # Safety
/// The place holds a wait, which is gone afterwards.
pub(crate) unsafe fn finish<W: Steps<Answer: Copy>>(
    place: &mut Place<W>,
    state: c_int,
) -> Option<W::Answer> {
    let mut slept = None;
    loop {
        // SAFETY: the caller's promise; a wait that goes on is still there.
        match unsafe { step(place, &slept) } {
            Next::Over(answer) => return answer,
            Next::Pause => {
                // SAFETY: `gone` drops the wait that is in the place.
                unsafe { libdat_pause(state, gone::<W>, place.as_mut_ptr().cast()) };
                slept = None;
            }
            Next::Sleep(sleep) => {
                let mut place_of_c = CSleep {
                    timeout: sleep
                        .timeout()
                        .map_or(core::ptr::null(), core::ptr::from_ref),
                    mask: sleep.mask(),
                    events: [libc::epoll_event { events: 0, u64: 0 }; Sleep::EVENTS],
                    watch: sleep.descriptor(),
                    found: 0,
                    error: 0,
                };
                // SAFETY: the sleep lives through the call; `gone` as above.
                unsafe {
                    libdat_sleep(
                        &raw mut place_of_c,
                        state,
                        gone::<W>,
                        place.as_mut_ptr().cast(),
                    );
                }
                let CSleep {
                    found,
                    error,
                    events,
                    ..
                } = place_of_c;
                slept = Some(Slept::new(found, error, events));
            }
        }
    }
}

/// One step. A wait that is over, or panics, is dropped.
///
/// # Safety
/// The place holds a wait.
unsafe fn step<W: Steps>(place: &mut Place<W>, slept: &Option<Slept>) -> Next<Option<W::Answer>> {
    // SAFETY: the caller's promise.
    let wait = unsafe { place.assume_init_mut() };
    let next = catch_unwind(AssertUnwindSafe(|| wait.go_on(slept.as_ref())));
    let answer = match next {
        Ok(Next::Sleep(sleep)) => return Next::Sleep(sleep),
        Ok(Next::Pause) => return Next::Pause,
        Ok(Next::Over(answer)) => Some(answer),
        Err(_) => None,
    };
    gone::<W>(place.as_mut_ptr().cast());
    Next::Over(answer)
}

/// Drops the wait that is in a place.
extern "C" fn gone<W>(place: *mut c_void) {
    // A thread that is ending is not cancelled again; one that goes on is held.
    let _held = CancellationHeld::new();
    // SAFETY: only `finish` passes this on, with the place of a wait, once.
    let dropped = catch_unwind(|| unsafe { place.cast::<W>().drop_in_place() });
    // What a panic has left behind stays so; its words have been printed.
    drop(dropped);
}
