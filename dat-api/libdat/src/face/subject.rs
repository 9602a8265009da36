//! What a call is about, for messages: the handle that it was given first.

use core::fmt;

use dat_api::Handle;

use crate::abi::DAT_HANDLE;

/// What a call is about.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// Nothing that has a name.
    Nothing,
    /// A handle, and what the argument is called, such as `ep`.
    Handle(&'static str, DAT_HANDLE),
    /// The name of an adapter.
    Name(&'a [u8]),
}

/// Returns the subject of a call with a handle.
#[inline(always)]
pub(crate) fn on(what: &'static str, handle: DAT_HANDLE) -> Subject<'static> {
    Subject::Handle(what, handle)
}

/// As [`on`], for a handle that was found.
pub(crate) fn on_object(what: &'static str, handle: Handle) -> Subject<'static> {
    Subject::Handle(what, super::handles::bare(handle))
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Handle(what, handle) => write!(f, "({what} {:#x})", handle.addr()),
            // Not more than a line.
            Self::Name(name) => write!(f, "({:?})", String::from_utf8_lossy(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_one_line() {
        let handle = core::ptr::without_provenance_mut(0x40);
        assert_eq!(on("ep", handle).to_string(), "(ep 0x40)");
        assert_eq!(on("ep", core::ptr::null_mut()).to_string(), "(ep 0x0)");
        assert_eq!(Subject::Nothing.to_string(), "");
        assert_eq!(Subject::Name(b"a\n\"b").to_string(), r#"("a\n\"b")"#);
    }
}
