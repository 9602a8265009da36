//! Errors of the connection manager's calls.

use crate::memory::NoMemory;
use std::io;

/// A call that failed at once. Later failures of a connection are events of its
/// sink ([`super::ConnectionEvent`]).
///
/// `Display` prints the cause on one line and the remedy on a second line.
#[derive(Debug, thiserror::Error)]
pub enum CmError {
    /// A listener on this host has this qualifier, or another one that maps to the
    /// same port (see [`super::port_of`]).
    #[error(
        "this qualifier, or another one that maps to the same port, is in use on this host\n\
         listen on another qualifier, or stop the other listener (`ss -ltnp` shows it)"
    )]
    InUse,
    /// The manager's thread has ended.
    #[error("the connection manager has ended\nstart another one; the log has the reason")]
    Unavailable,
    /// The private data is longer than [`super::Manager::max_private_data`].
    #[error("the private data is too long\nsend at most {max} bytes")]
    TooLong {
        /// The most bytes that are accepted.
        max: usize,
    },
    /// The address is not one that can be connected to, or listened on.
    #[error("{0}\nuse the address of a host's network interface")]
    Address(String),
    /// The qualifier maps to a port that only privileged processes may use.
    #[error(
        "the qualifier maps to port {port}, on which this process may not listen\n\
         use a qualifier of 1024 or more, or give the process CAP_NET_BIND_SERVICE"
    )]
    Privileged {
        /// The port.
        port: u16,
    },
    /// The kernel's connection manager is missing, or access to it is denied.
    #[error(
        "the kernel's connection manager cannot be used: {0}\n\
         load it with `modprobe rdma_ucm`, and check the permissions of /dev/infiniband/rdma_cm"
    )]
    Missing(#[source] io::Error),
    /// The kernel's connection manager does not serve the port.
    #[error(
        "{0}\ngive the port's network interface an IP address and bring it up (see \
         `ip address` and `rdma link`); InfiniBand and RoCE ports connect by sockets, too"
    )]
    NotServed(String),
    /// The device is iWARP, and the manager uses TCP.
    #[error(
        "{device} is an iWARP device, which only rdma_cm can connect, not the socket manager\n\
         choose rdma_cm"
    )]
    OnlyRdma {
        /// The name of the device.
        device: String,
    },
    /// No descriptors, ports, memory or threads are left.
    #[error(
        "the system has no resources for a connection: {0}\n\
         close unused connections or files; see also `ulimit -n`"
    )]
    Resources(#[source] io::Error),
    /// The process has no memory left.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// The manager belongs to the parent of this forked process.
    #[error(
        "the connection manager was started by another process, of which this is a fork\nstart one in this process"
    )]
    Forked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iwarp_devices_are_refused_with_cause_and_remedy_on_separate_lines() {
        let device = "siw0".to_owned();
        assert_eq!(
            CmError::OnlyRdma { device }.to_string(),
            "siw0 is an iWARP device, which only rdma_cm can connect, not the socket manager\n\
             choose rdma_cm"
        );
    }
}
