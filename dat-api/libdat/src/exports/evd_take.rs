//! Taking events. The fast path of `dat_evd_dequeue` neither allocates, locks,
//! prints nor unwinds; a refusal is printed if
//! `DAT_DBG_TYPE` asks for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::handle::{self, NotOwned, Owned};
use dat_api::object::evd::{self, Evd, PeekedEvent, Timeout, Waited};
use dat_api::object::steps::Begun;
use dat_api::types::Event;
use dat_api::{CancellationDisabled, DatReturn, EvdRefusal, Kind, ReturnType, Subtype};

use crate::abi::*;
use crate::face::attributes::count;
use crate::face::cancel::{self, Parked};
use crate::face::event;
use crate::face::handles::{invalid, names, ours};
use crate::face::refused::{no_event, not_owned, null_result, wait_refused};
use crate::face::subject::{on, on_object};
use crate::providers::dispatch::{foreign, foreign_wait};
use crate::version;

const BAD_EVD: DatReturn = invalid(names(Kind::Evd).which);

/// Takes exclusive ownership of the EVD for this call.
fn own(handle: DAT_EVD_HANDLE) -> Result<Owned<Evd>, DatReturn> {
    let evd = ours(handle).ok_or(BAD_EVD)?;
    let owned = match handle::own::<Evd>(evd) {
        // A dequeuing thread leaves soon, a waiting one does not. The call may
        // sleep for a moment.
        Err(NotOwned::Busy) => {
            let _held = CancellationDisabled::new();
            evd::own_when_free(evd)
        }
        owned => owned,
    };
    owned.map_err(|error| match error {
        NotOwned::Stale => BAD_EVD,
        NotOwned::Busy => EvdRefusal::Waited.code(),
    })
}

#[unsafe(export_name = symbol!(dat_evd_dequeue))]
pub unsafe extern "C" fn dat_evd_dequeue(
    evd_handle: DAT_EVD_HANDLE,
    event: *mut DAT_EVENT,
) -> DAT_RETURN {
    let Some(owned) = handle::own_at::<Evd>(evd_handle) else {
        // SAFETY: the pointers are those of the call.
        return unsafe { dequeue_not_owned(evd_handle, event) };
    };
    if event.is_null() {
        return no_event(owned);
    }
    match evd::peek(owned) {
        // A code without a subtype is the same in every version of uDAPL.
        Ok(Err(empty)) => empty.bits(),
        // SAFETY: the event pointer is not null, so it is writable by the
        // contract of `exports`.
        Ok(Ok(found)) => unsafe { dequeue_found::<false>(found, event) },
        // SAFETY: the event pointer is writable, as above.
        Err(owned) => unsafe { dequeue_slow(owned, event) },
    }
}

/// Takes the CQE that was found; first with `EXTENDED` unset, see [`PeekedEvent::take`]. This
/// code is outlined so that a call that finds nothing saves no registers for it. The outlined
/// functions have the C ABI, which does not unwind, so that a call can end in a jump to them.
///
/// # Safety
/// `event` is writable.
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
unsafe extern "C" fn dequeue_found<const EXTENDED: bool>(
    found: PeekedEvent,
    event: *mut DAT_EVENT,
) -> DAT_RETURN {
    let taken = found.take::<EXTENDED, _>(|taken| {
        // SAFETY: `event` is writable.
        unsafe { event::write(event, &taken) };
    });
    match taken {
        Ok(()) => DatReturn::SUCCESS.bits(),
        // SAFETY: the pointers are those of the call.
        Err(found) if EXTENDED => unsafe { dequeue_slow(found.into_owned(), event) },
        // SAFETY: the pointers are those of the call.
        Err(found) => unsafe { dequeue_found::<true>(found, event) },
    }
}

/// Handles the cases in which the EVD could not be owned at once: another call
/// owns it, the handle belongs to another provider, or it is invalid.
#[cold]
#[inline(never)]
unsafe extern "C" fn dequeue_not_owned(
    evd_handle: DAT_EVD_HANDLE,
    event: *mut DAT_EVENT,
) -> DAT_RETURN {
    match own(evd_handle) {
        Ok(owned) if event.is_null() => no_event(owned),
        // SAFETY: the pointers are those of the call.
        Ok(owned) => unsafe { dequeue_slow(owned, event) },
        Err(code) => {
            foreign!(dat_evd_dequeue(evd_handle, event));
            not_owned("dat_evd_dequeue", evd_handle, version::code(code))
        }
    }
}

/// Takes an event on the slow path, from whichever stream has one.
///
/// # Safety
/// `event` is writable.
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
unsafe extern "C" fn dequeue_slow(owned: Owned<Evd>, event: *mut DAT_EVENT) -> DAT_RETURN {
    let put = |taken: Event| {
        // SAFETY: `event` is writable.
        unsafe { event::write(event, &taken) };
    };
    let handle = owned.handle();
    match evd::dequeue_slow_with(owned, put) {
        Ok(()) => DatReturn::SUCCESS.bits(),
        Err(EvdRefusal::Empty { code }) => code.bits(),
        Err(refusal) => wait_refused("dat_evd_dequeue", on_object("evd", handle), refusal),
    }
}

/// This call is a cancellation point. While it sleeps or calls another provider,
/// its frame holds nothing that needs a drop.
#[unsafe(export_name = symbol!(dat_evd_wait))]
pub unsafe extern "C-unwind" fn dat_evd_wait(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> DAT_RETURN {
    if is_rare(threshold != 1) {
        // SAFETY: the pointers are those of the call.
        return unsafe { wait_for_several(evd_handle, timeout, threshold, event, nmore) };
    }
    if !is_rare(event.is_null())
        && !is_rare(nmore.is_null())
        && let Some(owned) = handle::own_at::<Evd>(evd_handle)
        && owned.is_waitable()
    {
        match evd::peek(owned) {
            Ok(Ok(found)) => {
                // SAFETY: both pointers are not null, so they are writable by the contract of
                // `exports`.
                return unsafe { wait_found::<false>(found, event, nmore, evd_handle, timeout) };
            }
            // SAFETY: the pointer is writable, as above.
            Ok(Err(_empty)) if timeout == 0 => return unsafe { timed_out(nmore) },
            Ok(Err(_empty)) => {}
            Err(owned) => {
                // SAFETY: both pointers are writable, as above.
                return unsafe { wait_posted(owned, event, nmore, evd_handle, timeout) };
            }
        }
    }
    // SAFETY: the pointers are those of the call.
    unsafe { wait_slow(evd_handle, timeout, threshold, event, nmore) }
}

/// Waits for several events: takes the first one if that many are there already.
///
/// # Safety
/// As for `dat_evd_wait`.
#[inline(never)]
unsafe extern "C-unwind" fn wait_for_several(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> DAT_RETURN {
    if !event.is_null()
        && !nmore.is_null()
        && let Some(owned) = handle::own_at::<Evd>(evd_handle)
        && let Ok(Ok(mut found)) = evd::peek(owned)
        && let Some(count) = found.reached(threshold)
        && let Ok(()) = found.take::<false, _>(|taken| {
            // SAFETY: the pointer is not null, so it is writable by the contract of `exports`.
            unsafe { event::write(event, &taken) };
        })
    {
        // Counted before the event was taken, and not twice.
        // SAFETY: as above.
        unsafe { nmore.write_unaligned((count - 1).cast_signed()) };
        return DatReturn::SUCCESS.bits();
    }
    // SAFETY: the pointers are those of the call.
    unsafe { wait_slow(evd_handle, timeout, threshold, event, nmore) }
}

/// Returns `is`, which is rarely true: LLVM then tests it by a branch of its own, which is shorter
/// than joining several tests.
#[inline(always)]
fn is_rare(is: bool) -> bool {
    if is {
        core::hint::cold_path();
    }
    is
}

/// Takes the CQE that was found, and counts what is behind it; see [`dequeue_found`].
///
/// # Safety
/// The pointers are writable.
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
unsafe extern "C-unwind" fn wait_found<const EXTENDED: bool>(
    found: PeekedEvent,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
) -> DAT_RETURN {
    let taken = found.take_counted::<EXTENDED, _>(|taken| {
        // SAFETY: `event` is writable.
        unsafe { event::write(event, &taken) };
    });
    match taken {
        Ok(((), left)) => {
            // SAFETY: `nmore` is writable.
            unsafe { nmore.write_unaligned(left.cast_signed()) };
            return DatReturn::SUCCESS.bits();
        }
        // SAFETY: the pointers are those of the call.
        Err(found) if !EXTENDED => unsafe {
            return wait_found::<true>(found, event, nmore, evd_handle, timeout);
        },
        Err(found) => drop(found),
    }
    // SAFETY: the pointers are those of the call.
    unsafe { wait_slow(evd_handle, timeout, 1, event, nmore) }
}

/// Takes a posted event, such as one of a connection, if there are no others.
///
/// # Safety
/// The pointers are writable.
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
unsafe extern "C-unwind" fn wait_posted(
    owned: Owned<Evd>,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
) -> DAT_RETURN {
    let taken = evd::take_posted(owned, |taken| {
        // SAFETY: `event` is writable.
        unsafe { event::write(event, taken) };
    });
    match taken {
        Ok(Some(left)) => {
            // SAFETY: `nmore` is writable.
            unsafe { nmore.write_unaligned(left.cast_signed()) };
            return DatReturn::SUCCESS.bits();
        }
        // SAFETY: `nmore` is writable.
        Ok(None) if timeout == 0 => return unsafe { timed_out(nmore) },
        Ok(None) => {}
        Err(owned) => drop(owned),
    }
    // SAFETY: the pointers are those of the call.
    unsafe { wait_slow(evd_handle, timeout, 1, event, nmore) }
}

/// Returns the code for an empty EVD at the end of the timeout.
///
/// # Safety
/// `nmore` is writable.
#[inline(always)]
unsafe fn timed_out(nmore: *mut DAT_COUNT) -> DAT_RETURN {
    // SAFETY: `nmore` is writable.
    unsafe { nmore.write_unaligned(0) };
    // A code without a subtype is the same in every version of uDAPL.
    TIMED_OUT.bits()
}

/// Waits for any number of events, wherever they are.
///
/// # Safety
/// As for `dat_evd_wait`.
#[inline(never)]
unsafe extern "C-unwind" fn wait_slow(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> DAT_RETURN {
    let mut place = Parked::uninit();
    // SAFETY: the pointers are those of the call.
    match unsafe { first_poll(evd_handle, timeout, threshold, event, nmore, &mut place) } {
        FirstPoll::Over(code) => code,
        FirstPoll::Refused(refusal) => wait_refused(WAIT, on("evd", evd_handle), refusal),
        FirstPoll::NotOurs(code) => {
            foreign_wait!(dat_evd_wait(evd_handle, timeout, threshold, event, nmore));
            not_owned(WAIT, evd_handle, code)
        }
        FirstPoll::Waits => {
            let state = CancellationDisabled::begin();
            // SAFETY: `first_poll` has stored a wait in the place.
            let answer = unsafe { cancel::finish(&mut place, state) };
            let done = match answer {
                // SAFETY: `first_poll` has checked that both pointers are not
                // null.
                Some(waited) => unsafe { waited_with(&waited, event, nmore) },
                None => Err(PANICKED),
            };
            let refuse = |refusal| wait_refused(WAIT, on("evd", evd_handle), refusal);
            let code = done.unwrap_or_else(refuse);
            CancellationDisabled::end(state);
            code
        }
    }
}

const WAIT: &str = "dat_evd_wait";
const TIMED_OUT: DatReturn = DatReturn::error(ReturnType::TimeoutExpired, Subtype::NoSubtype);
const PANICKED: EvdRefusal = EvdRefusal::DeviceFailed;

/// Result of the first look of a wait.
enum FirstPoll {
    /// The call ends with this return code.
    Over(DAT_RETURN),
    /// The call is refused, or fails.
    Refused(EvdRefusal),
    /// The handle is not of this library. Holds the return code for the case that
    /// the handle belongs to no other provider either.
    NotOurs(DAT_RETURN),
    /// The wait is stored in its place and goes on.
    Waits,
}

/// Checks the arguments and looks for events once.
///
/// # Safety
/// As for `dat_evd_wait`.
#[inline]
unsafe fn first_poll(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
    place: &mut Parked<evd::Waiting<Owned<Evd>>>,
) -> FirstPoll {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let owned = match own(evd_handle) {
            Ok(owned) => owned,
            Err(code) => return FirstPoll::NotOurs(version::code(code)),
        };
        if event.is_null() {
            return FirstPoll::Refused(null_result(Subtype::InvalidArg4, "event"));
        }
        if nmore.is_null() {
            return FirstPoll::Refused(null_result(Subtype::InvalidArg5, "nmore"));
        }
        let timeout = match timeout {
            DAT_TIMEOUT_INFINITE => Timeout::Infinite,
            microseconds => Timeout::Micros(microseconds),
        };
        match evd::begin(owned, timeout, threshold) {
            // SAFETY: both pointers were checked for null.
            Begun::Over(waited) => match unsafe { waited_with(&waited, event, nmore) } {
                Ok(code) => FirstPoll::Over(code),
                Err(refusal) => FirstPoll::Refused(refusal),
            },
            Begun::Waits(waiting) => {
                place.write(waiting);
                FirstPoll::Waits
            }
        }
    }));
    polled.unwrap_or(FirstPoll::Refused(PANICKED))
}

/// Writes the results of a wait and returns its code.
///
/// # Errors
/// Why the wait was refused or failed.
///
/// # Safety
/// The pointers are not null and, by the contract of `exports`, writable.
#[inline]
pub(super) unsafe fn waited_with(
    waited: &Waited,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> Result<DAT_RETURN, EvdRefusal> {
    let code = match &waited.result {
        Ok(taken) => {
            // SAFETY: `event` is writable.
            unsafe { event::write(event, taken) };
            DatReturn::SUCCESS
        }
        Err(refusal @ (EvdRefusal::TimedOut | EvdRefusal::Interrupted)) => refusal.code(),
        &Err(refusal) => return Err(refusal),
    };
    // SAFETY: the contract of `exports`.
    unsafe { nmore.write_unaligned(count(waited.nmore)) };
    // None of these codes has a subtype.
    Ok(code.bits())
}
