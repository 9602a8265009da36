//! The end of a control call: the answer as C wants it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::{CancellationHeld, DatError, DatReturn, Result, ReturnType, Subtype};

use super::debug;
use crate::abi::DAT_RETURN;

/// Runs a control call named `call`, and answers. A failure is printed with
/// its cause if the environment asks for that; a panic ends here. The thread is
/// not cancelled meanwhile.
pub(crate) fn control(call: &'static str, body: impl FnOnce() -> Result<()>) -> DAT_RETURN {
    answer(call, || body().map(|()| DatReturn::SUCCESS.bits()))
}

/// [`control`] of a call that somebody else may have answered.
pub(crate) fn answer(call: &'static str, body: impl FnOnce() -> Result<DAT_RETURN>) -> DAT_RETURN {
    let _held = CancellationHeld::new();
    run(call, body)
}

/// [`control`] of a call that posts: it reaches no cancellation point (pthreads(7)),
/// so it does not pay for being held.
pub(crate) fn posting(call: &'static str, body: impl FnOnce() -> Result<()>) -> DAT_RETURN {
    run(call, || body().map(|()| DatReturn::SUCCESS.bits()))
}

#[inline]
fn run(call: &'static str, body: impl FnOnce() -> Result<DAT_RETURN>) -> DAT_RETURN {
    // What a call has half done when it panics stays behind locks that
    // ignore poison or in objects that nobody can name yet.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            debug::failed(call, &error);
            error.code().bits()
        }
        Err(_) => {
            // The panic's own words have gone to the standard error output.
            let error = DatError::new(
                ReturnType::InternalError,
                Subtype::NoSubtype,
                "the library panicked; please report it",
            );
            debug::failed(call, &error);
            error.code().bits()
        }
    }
}

/// `DAT_INVALID_PARAMETER` for an argument, and why.
pub(crate) fn bad_argument(
    argument: Subtype,
    cause: impl Into<std::borrow::Cow<'static, str>>,
) -> DatError {
    DatError::new(ReturnType::InvalidParameter, argument, cause)
}

/// Fails unless a condition holds.
pub(crate) fn require(holds: bool, argument: Subtype, cause: &'static str) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(bad_argument(argument, cause))
    }
}
