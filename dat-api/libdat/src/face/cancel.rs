//! Blocking calls as cancellation points (pthreads(7)).
//!
//! A thread that is cancelled while it sleeps unwinds its stack from the sleep to
//! its start function. Rust frames survive that only if they hold nothing that
//! needs a drop and catch no panic. Therefore a wait runs in steps
//! ([`dat_api::object::steps`]). Each step runs with cancellation disabled and
//! returns. Between steps the exported function, which holds nothing, sleeps in C
//! (`c/cancel.c`). The state of the wait lies in a [`Parked`], which no destructor
//! drops. If the thread is cancelled in the sleep, C calls [`gone`], which drops
//! the wait; the wait then releases its EVD or CNO with all events still queued.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::CancellationDisabled;
use dat_api::object::steps::{Next, Slept, Steps};

/// Storage for a wait while its thread sleeps.
pub(crate) type Parked<W> = MaybeUninit<W>;

unsafe extern "C-unwind" {
    fn libdat_sleep(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: *const u64,
        state: c_int,
        gone: extern "C" fn(*mut c_void),
        wait: *mut c_void,
    ) -> c_int;
    fn libdat_pause(state: c_int, gone: extern "C" fn(*mut c_void), wait: *mut c_void);
}

/// Runs a wait to its end and returns its result, or `None` if it panicked.
/// Cancellation is disabled; `state` is the cancellation state from before. The
/// thread may be cancelled in here, so the caller must hold nothing that needs a
/// drop.
///
/// # Safety
/// The place holds a wait. It is dropped on return.
pub(crate) unsafe fn finish<W: Steps<Answer: Copy>>(
    place: &mut Parked<W>,
    state: c_int,
) -> Option<W::Answer> {
    let mut slept = None;
    loop {
        // SAFETY: the caller has stored a wait; a step that goes on leaves it in
        // place.
        match unsafe { step(place, &slept) } {
            Next::Over(answer) => return answer,
            Next::Pause => {
                // SAFETY: `gone` drops the wait that is in the place.
                unsafe { libdat_pause(state, gone::<W>, place.as_mut_ptr().cast()) };
                slept = None;
            }
            Next::Sleep(mut sleep) => {
                let (fds, timeout, mask) = sleep.arguments();
                // SAFETY: the arguments outlive the call; `gone` drops the wait that
                // is in the place.
                let found = unsafe {
                    libdat_sleep(
                        fds.as_mut_ptr(),
                        fds.len() as libc::nfds_t,
                        timeout.map_or(ptr::null(), ptr::from_ref),
                        mask,
                        state,
                        gone::<W>,
                        place.as_mut_ptr().cast(),
                    )
                };
                slept = Some(sleep.slept(found));
            }
        }
    }
}

/// Runs one step. Drops the wait if it has ended or panicked.
///
/// # Safety
/// The place holds a wait.
unsafe fn step<W: Steps>(place: &mut Parked<W>, slept: &Option<Slept>) -> Next<Option<W::Answer>> {
    // SAFETY: the place holds a wait.
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

/// Drops the wait in a place. C calls this function when the thread is cancelled.
extern "C" fn gone<W>(place: *mut c_void) {
    // A thread that is ending is not cancelled again; for a thread that goes on,
    // cancellation is disabled here.
    let _held = CancellationDisabled::new();
    // SAFETY: only `finish` passes this function on, with the place of a wait,
    // and C calls it once.
    let dropped = catch_unwind(|| unsafe { place.cast::<W>().drop_in_place() });
    // What a panic has leaked stays leaked; its message has been printed.
    drop(dropped);
}
