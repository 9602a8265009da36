//! Errors that return what a call has taken.

use core::fmt;

use crate::error::DatError;

/// The error of a call that takes a value, with the value, for another attempt.
pub struct GivenBack<T> {
    /// Why the call was refused.
    pub error: DatError,
    /// The value.
    pub value: T,
}

impl<T> From<GivenBack<T>> for DatError {
    /// Drops the value.
    fn from(refused: GivenBack<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Display for GivenBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Debug for GivenBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("GivenBack");
        shown.field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for GivenBack<T> {}
