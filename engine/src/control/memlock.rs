//! The limit on locked memory, the usual reason for a failed registration.
//!
//! The kernel counts pinned pages against `RLIMIT_MEMLOCK` unless the process has
//! `CAP_IPC_LOCK` (`ib_umem_get`), and returns `ENOMEM` beyond it.

use crate::error::{ControlError, ControlErrorKind};
use std::fmt;

/// How much memory this process may lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedMemory {
    /// `RLIMIT_MEMLOCK` (soft) in bytes; `None` if unlimited, or if it does not
    /// apply to this process (`CAP_IPC_LOCK`).
    pub limit: Option<u64>,
}

/// A limit below this, in bytes, is too low for a data path of useful size.
const COMFORTABLE: u64 = 64 << 20;

impl LockedMemory {
    /// Returns the present limit of this process.
    #[must_use]
    pub fn current() -> Self {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: getrlimit only writes the struct.
        let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0;
        let unlimited = failed || limit.rlim_cur == libc::RLIM_INFINITY;
        Self {
            limit: (!unlimited && !may_exceed_limits()).then_some(limit.rlim_cur),
        }
    }

    /// Warns early that the limit is low. This is not an error: the device's driver
    /// decides whether memory is pinned.
    pub(super) fn warn_if_low(self) {
        if self.limit.is_some_and(|limit| limit < COMFORTABLE) {
            tracing::warn!("{self}: registering memory may fail. {REMEDY}");
        }
    }

    /// Names the limit as the cause of an `ENOMEM` if that is plausible.
    pub(super) fn explain(self, error: ControlError, needed: u64) -> ControlError {
        match self.limit {
            // The memory that is locked already counts too, but is unknown here. So
            // the limit is named when it is low, or when this request comes near
            // it.
            Some(limit)
                if error.errno() == Some(libc::ENOMEM)
                    && (limit < COMFORTABLE || needed > limit / 2) =>
            {
                error
                    .with_kind(ControlErrorKind::LockedMemory)
                    .with_cause(format!("{} more must be locked, and {self}", Size(needed)))
                    .with_remedy(REMEDY)
            }
            _ => error,
        }
    }
}

const REMEDY: &str = "raise it: '* - memlock unlimited' in /etc/security/limits.d/rdma.conf and \
    log in again; systemd service: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1";

impl fmt::Display for LockedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => {
                write!(
                    f,
                    "this process may lock only {} (`ulimit -l`)",
                    Size(limit)
                )
            }
            None => f.write_str("this process may lock any amount of memory"),
        }
    }
}

struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 10 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => write!(f, "{} KiB", bytes.div_ceil(1 << 10)),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// Returns whether this process has `CAP_IPC_LOCK`.
fn may_exceed_limits() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| effective_capabilities(&status))
        .is_some_and(|capabilities| capabilities & (1 << CAP_IPC_LOCK) != 0)
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: LockedMemory = LockedMemory {
        limit: Some(64 << 10),
    };

    #[test]
    fn a_low_limit_is_named_with_its_size_the_need_and_three_remedies() {
        let error = LOW.explain(
            ControlError::verbs("register memory", libc::ENOMEM),
            1 << 20,
        );
        assert_eq!(error.kind(), ControlErrorKind::LockedMemory);
        let text = error.to_string();
        for part in [
            "1024 KiB",
            "64 KiB",
            "limits.d",
            "LimitMEMLOCK",
            "--ulimit memlock",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn the_limit_is_not_blamed_for_other_errors_or_when_it_is_far() {
        let other = LOW.explain(
            ControlError::verbs("register memory", libc::EFAULT),
            1 << 20,
        );
        assert_eq!(other.kind(), ControlErrorKind::Other);
        let far = LockedMemory {
            limit: Some(1 << 40),
        };
        let error = far.explain(ControlError::verbs("register memory", libc::ENOMEM), 4096);
        assert_eq!(error.kind(), ControlErrorKind::OutOfResources);
        let none = LockedMemory { limit: None };
        let error = none.explain(
            ControlError::verbs("register memory", libc::ENOMEM),
            1 << 40,
        );
        assert_eq!(error.kind(), ControlErrorKind::OutOfResources);
    }

    #[test]
    fn reads_the_effective_capabilities() {
        let status = "Name:\tx\nCapPrm:\t0\nCapEff:\t0000000000004000\n";
        assert_eq!(effective_capabilities(status), Some(1 << 14));
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }
}
