//! Access rights of registered memory and of a connection's peer.

use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::ibv_access_flags;

bitflags::bitflags! {
    /// Access rights of a memory region, or of a connection's peer. Local read
    /// access is always granted. The bits are those of `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The local device may write: received messages, and the data of RDMA
        /// reads.
        const LOCAL_WRITE = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        /// Peers may write (RDMA write).
        const REMOTE_WRITE = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        /// Peers may read (RDMA read).
        const REMOTE_READ = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        /// Peers may use atomic operations.
        const REMOTE_ATOMIC = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound to the region.
        const WINDOW_BIND = ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        /// The device may reorder its writes; ignored by devices that cannot.
        const RELAXED_ORDERING = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
    }
}

impl Access {
    /// The rights that the peer of a connection needs for RDMA writes and reads.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ);

    /// Refuses combinations that verbs forbid, with a message in place of `EINVAL`.
    pub(super) fn check(self, operation: &'static str) -> Result<(), ControlError> {
        if self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC)
            && !self.contains(Self::LOCAL_WRITE)
        {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                operation,
                "remote write and atomic access require local write access",
            )
            .with_remedy("add LOCAL_WRITE"));
        }
        Ok(())
    }
}

impl Default for Access {
    /// Returns local write, remote write and remote read.
    fn default() -> Self {
        Self::LOCAL_WRITE | Self::REMOTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_needs_local_write() {
        let error = Access::REMOTE_WRITE.check("register memory").unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::Invalid);
        assert!(error.to_string().contains("LOCAL_WRITE"), "{error}");
        assert!(Access::REMOTE_READ.check("register memory").is_ok());
        assert!(Access::default().check("register memory").is_ok());
    }
}
