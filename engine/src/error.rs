//! Errors of the control path: the operation, the cause, and the remedy.
//!
//! Posting and polling return small `Copy` values instead.

use std::borrow::Cow;
use std::{fmt, io};

/// A failed operation of the control path. `Display` prints the operation and the
/// cause on one line and, if a remedy is known, the remedy on a second line.
#[derive(Clone, Debug)]
pub struct ControlError {
    kind: ControlErrorKind,
    operation: Cow<'static, str>,
    errno: Option<i32>,
    cause: Cow<'static, str>,
    remedy: Cow<'static, str>,
}

/// The kind of a [`ControlError`], for code that has to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlErrorKind {
    /// This host has no RDMA device, or libibverbs does not find one.
    NoDevice,
    /// There are devices, but none of the given name.
    UnknownDevice,
    /// The process may not open the device.
    Permission,
    /// The limit on locked memory (`RLIMIT_MEMLOCK`) is too low.
    LockedMemory,
    /// The device has no memory or no objects left.
    OutOfResources,
    /// An argument is zero or beyond a limit of the device.
    Limit,
    /// An argument is invalid for another reason, or an object is in the wrong
    /// state.
    Invalid,
    /// The port is not active.
    PortDown,
    /// The port has no usable GID.
    NoGid,
    /// There is no route to the peer.
    Unreachable,
    /// The device or its driver lacks the function.
    Unsupported,
    /// The device was removed, or failed.
    DeviceLost,
    /// The object belongs to the parent of this forked process.
    Forked,
    /// Any other failure; see the error number.
    Other,
}

impl ControlError {
    /// Returns an error that the engine detected without a call into libibverbs.
    pub(crate) fn new(
        kind: ControlErrorKind,
        operation: impl Into<Cow<'static, str>>,
        cause: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            kind,
            operation: operation.into(),
            errno: None,
            cause: cause.into(),
            remedy: Cow::Borrowed(""),
        }
    }

    /// Returns the error for an error number of libibverbs, with its usual meaning
    /// and remedy.
    pub(crate) fn verbs(operation: impl Into<Cow<'static, str>>, errno: i32) -> Self {
        let (kind, remedy) = usual_meaning(errno);
        Self {
            kind,
            operation: operation.into(),
            errno: Some(errno),
            cause: Cow::Borrowed(""),
            remedy: Cow::Borrowed(remedy),
        }
    }

    /// Returns the error for the calling thread's `errno`.
    pub(crate) fn last(operation: impl Into<Cow<'static, str>>) -> Self {
        Self::verbs(operation, last_errno())
    }

    #[must_use]
    pub(crate) fn with_kind(mut self, kind: ControlErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Replaces the text of the cause. An error number is still displayed after it.
    #[must_use]
    pub(crate) fn with_cause(mut self, cause: impl Into<Cow<'static, str>>) -> Self {
        self.cause = cause.into();
        self
    }

    /// Replaces the remedy.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Returns the kind of the failure.
    #[must_use]
    pub fn kind(&self) -> ControlErrorKind {
        self.kind
    }

    /// Returns the operation that failed, as words that follow "cannot".
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// Returns the error number of libibverbs or the system, if there was one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns the remedy; empty if none is known.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: ", self.operation)?;
        match (self.cause.as_ref(), self.errno) {
            ("", Some(errno)) => write!(f, "{}", io::Error::from_raw_os_error(errno))?,
            (cause, Some(errno)) => {
                write!(f, "{cause}: {}", io::Error::from_raw_os_error(errno))?;
            }
            (cause, None) => f.write_str(cause)?,
        }
        if !self.remedy.is_empty() {
            write!(f, "\n{}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for ControlError {}

/// Sets the calling thread's `errno` to 0. Some calls fail without setting `errno`;
/// libibverbs does so after reading a file to its end.
pub(crate) fn clear_errno() {
    // SAFETY: the C library returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = 0 };
}

/// Returns the calling thread's `errno`, or `EIO` if a call failed without setting
/// it.
pub(crate) fn last_errno() -> i32 {
    match io::Error::last_os_error().raw_os_error() {
        Some(0) | None => libc::EIO,
        Some(errno) => errno,
    }
}

fn usual_meaning(errno: i32) -> (ControlErrorKind, &'static str) {
    use ControlErrorKind as Kind;
    match errno {
        libc::EACCES | libc::EPERM => (
            Kind::Permission,
            "give this user read and write access to /dev/infiniband/uverbs* (udev rule, group \
             'rdma'; in a container: --device=/dev/infiniband)",
        ),
        libc::ENOMEM => (
            Kind::OutOfResources,
            "close unused objects, or create smaller ones",
        ),
        libc::ENOSPC | libc::EMFILE | libc::ENFILE => (
            Kind::OutOfResources,
            "close unused objects or files; see also `ulimit -n`",
        ),
        libc::EINVAL => (Kind::Invalid, ""),
        libc::EBUSY => (
            Kind::Invalid,
            "another object still uses it: drop the other object first",
        ),
        libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOTTY => (
            Kind::Unsupported,
            "the device or its kernel driver lacks this; a newer kernel or firmware may have it",
        ),
        libc::ENODEV | libc::EIO => (
            Kind::DeviceLost,
            "the device was removed or has failed: see the kernel log (dmesg), then open the device again",
        ),
        _ => (Kind::Other, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_fails_without_errno_does_not_report_an_older_errno() {
        // SAFETY: -1 is not a descriptor, so the call fails.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!(last_errno(), libc::EBADF);
        clear_errno();
        assert_eq!(last_errno(), libc::EIO);
    }

    #[test]
    fn operation_cause_number_and_remedy_are_displayed_on_two_lines() {
        let error = ControlError::verbs("open mlx5_0", libc::EACCES);
        let text = error.to_string();
        let (first, second) = text.split_once('\n').expect("two lines");
        assert_eq!(first, "cannot open mlx5_0: Permission denied (os error 13)");
        assert!(second.contains("/dev/infiniband/uverbs*"), "{second}");
        assert_eq!(error.kind(), ControlErrorKind::Permission);
        assert_eq!(error.errno(), Some(libc::EACCES));
    }

    #[test]
    fn an_error_without_remedy_is_one_line() {
        let text = ControlError::verbs("reset the QP", libc::EINVAL).to_string();
        assert_eq!(text, "cannot reset the QP: Invalid argument (os error 22)");
    }

    #[test]
    fn a_given_cause_precedes_the_error_number() {
        let text = ControlError::verbs("do it", libc::EINVAL)
            .with_cause("because")
            .to_string();
        assert_eq!(
            text,
            "cannot do it: because: Invalid argument (os error 22)"
        );
    }
}
