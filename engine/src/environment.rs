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
}
