//! The frame around each control call: panics, cancellation, missing memory, and
//! conversion of errors to return codes.
//!
//! Decision: `docs/decisions/079-refuse-a-call-without-memory.md`

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::{CancellationDisabled, DatError, DatReturn, Result, ReturnType, Subtype, memory};

use super::debug;
use super::subject::Subject;
use crate::abi::DAT_RETURN;

/// Runs the control call named `call` on `subject`, and returns its code. A failure
/// is printed with its cause if `DAT_DBG_TYPE` enables that. Panics end here.
/// Cancellation of the thread is disabled during the call.
pub(crate) fn control(
    call: &'static str,
    subject: Subject<'_>,
    body: impl FnOnce() -> Result<()>,
) -> DAT_RETURN {
    forwarding(call, subject, || body().map(|()| DatReturn::SUCCESS.bits()))
}

/// Like [`control`], for a call that frees or ends something: it is not refused if
/// memory is missing.
pub(crate) fn ending(
    call: &'static str,
    subject: Subject<'_>,
    body: impl FnOnce() -> Result<()>,
) -> DAT_RETURN {
    let _held = CancellationDisabled::new();
    let _call = memory::Call::ending();
    run(call, subject, || body().map(|()| DatReturn::SUCCESS.bits()))
}

/// Like [`control`], for a body whose return code may come from another provider.
pub(crate) fn forwarding(
    call: &'static str,
    subject: Subject<'_>,
    body: impl FnOnce() -> Result<DAT_RETURN>,
) -> DAT_RETURN {
    let _held = CancellationDisabled::new();
    let _call = memory::Call::refusable();
    run(call, subject, || {
        let code = body()?;
        // Refuses queries; a call with an effect has committed, or undone it.
        memory::commit()?;
        Ok(code)
    })
}

/// Like [`control`], for a call that posts. Such a call reaches no cancellation
/// point (pthreads(7)), so it does not pay for disabling cancellation.
pub(crate) fn posting(
    call: &'static str,
    subject: Subject<'_>,
    body: impl FnOnce() -> Result<()>,
) -> DAT_RETURN {
    run(call, subject, || body().map(|()| DatReturn::SUCCESS.bits()))
}

#[inline]
fn run(
    call: &'static str,
    subject: Subject<'_>,
    body: impl FnOnce() -> Result<DAT_RETURN>,
) -> DAT_RETURN {
    // State that a panicking call leaves half done is behind locks that ignore
    // poison, or in objects whose handles were not returned yet.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            debug::failed(call, subject, error.code(), &|| error.cause().into_owned())
        }
        Err(_) => {
            // The panic message has already been printed to standard error.
            let code = DatReturn::error(ReturnType::InternalError, Subtype::NoSubtype);
            debug::failed(call, subject, code, &|| {
                "the library panicked; please report it".into()
            })
        }
    }
}

/// Returns `DAT_INVALID_PARAMETER` for an argument, with its cause.
pub(crate) fn bad_argument(
    argument: Subtype,
    cause: impl Into<std::borrow::Cow<'static, str>>,
) -> DatError {
    DatError::new(ReturnType::InvalidParameter, argument, cause)
}

/// Fails with [`bad_argument`] unless a condition holds; `cause` says which value
/// was wrong.
pub(crate) fn require_with(
    holds: bool,
    argument: Subtype,
    cause: impl FnOnce() -> String,
) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(bad_argument(argument, cause()))
    }
}

/// As [`require_with`], for causes without a value.
pub(crate) fn require(holds: bool, argument: Subtype, cause: &'static str) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(bad_argument(argument, cause))
    }
}
