//! Variables of the environment.
//!
//! A program that runs with more rights than its caller (setuid, setgid, file
//! capabilities) must not be steered by the caller's environment. The kernel
//! marks such a process with `AT_SECURE` (getauxval(3)), and [`variable`] then
//! returns nothing. Every variable of this workspace's libraries is read
//! through [`variable`].
//!
//! [`driver_variable`] is the exception. libmlx5 reads its own `MLX5_*` variables in
//! every process, and some of them change the layout of its queues. The engine must
//! read them as libmlx5 does.

use std::env;
use std::ffi::OsString;

/// Returns whether the process runs with more rights than its caller.
#[must_use]
pub fn is_secure() -> bool {
    // SAFETY: takes a number and reads what the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns a variable of the environment, or nothing if it is not set or the
/// process [is secure](is_secure).
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    match is_secure() {
        true => None,
        false => env::var_os(name),
    }
}

/// Returns one of libmlx5's own variables, as libmlx5 reads it.
#[must_use]
pub fn driver_variable(name: &str) -> Option<OsString> {
    debug_assert!(
        name.starts_with("MLX5_"),
        "{name} is not a variable of libmlx5"
    );
    env::var_os(name)
}

/// Environment variables that change the endpoints of a device, as they were when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentOptions {
    /// `DAT_DEBUG_NO_BF`: never copy a WQE to the register.
    pub(crate) no_blue_flame: bool,
    /// `DAT_DEBUG_NO_INLINE`: grant no inline bytes.
    pub(crate) no_inline: bool,
    /// `MLX5_SINGLE_THREADED`, as libmlx5 understands it.
    pub(crate) single_threaded: bool,
}

impl EnvironmentOptions {
    /// Reads the variables.
    pub(crate) fn from_environment() -> Self {
        Self::read(|name| {
            let value = match name.starts_with("MLX5_") {
                true => driver_variable(name),
                false => variable(name),
            };
            value?.into_string().ok()
        })
    }

    fn read(value: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| value(name).is_some_and(|value| !value.is_empty() && value != "0");
        Self {
            no_blue_flame: set("DAT_DEBUG_NO_BF"),
            no_inline: set("DAT_DEBUG_NO_INLINE"),
            single_threaded: value("MLX5_SINGLE_THREADED").as_deref() == Some("1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `secure.rs` of libdat's tests covers a process with `AT_SECURE`.
    #[test]
    fn an_ordinary_process_reads_its_environment() {
        assert!(!is_secure());
        assert_eq!(variable("PATH"), env::var_os("PATH"));
        assert_eq!(variable("DAT_A_VARIABLE_THAT_IS_NOT_SET"), None);
        assert_eq!(driver_variable("MLX5_NOT_A_VARIABLE"), None);
    }

    #[test]
    fn options_are_off_when_unset_empty_or_zero() {
        let with = |value: Option<&str>| EnvironmentOptions::read(|_| value.map(str::to_owned));
        let off = EnvironmentOptions {
            no_blue_flame: false,
            no_inline: false,
            single_threaded: false,
        };
        assert_eq!(with(None), off);
        assert_eq!(with(Some("")), off);
        assert_eq!(with(Some("0")), off);
        let on = EnvironmentOptions {
            no_blue_flame: true,
            no_inline: true,
            single_threaded: true,
        };
        assert_eq!(with(Some("1")), on);
        assert!(!with(Some("yes")).single_threaded, "libmlx5 accepts only 1");
    }
}
