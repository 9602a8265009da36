//! Why a call to the connection manager failed.

use std::io;

/// A call that failed at once. What happens to a connection later, its sink
/// is told ([`super::ConnectionEvent`]).
///
/// Shown as the cause on one line and the remedy on a second one.
#[derive(Debug, thiserror::Error)]
pub enum CmError {
    /// Somebody on this host listens on this qualifier, or on another one
    /// that maps to the same port (see [`super::port_of`]).
    #[error(
        "this qualifier, or another one that maps to the same port, is in use on this host\n\
         listen on another qualifier, or end the other listener (`ss -ltnp` shows it)"
    )]
    InUse,
    /// The manager has ended.
    #[error("the connection manager has ended\nstart another one; a log line tells why it ended")]
    Unavailable,
    /// The private data is longer than [`super::Manager::max_private_data`].
    #[error("the private data is too long\nsend at most {max} bytes")]
    TooLong {
        /// Most bytes that fit.
        max: usize,
    },
    /// The address cannot be connected to, or listened on.
    #[error("{0}\ngive the address of a host's network interface")]
    Address(String),
    /// The qualifier means a port that only privileged processes may have.
    #[error(
        "the qualifier means port {port}, on which this process may not listen\n\
         take a qualifier from 1024 on, or give the process CAP_NET_BIND_SERVICE"
    )]
    Privileged {
        /// The port.
        port: u16,
    },
    /// The kernel's connection manager is not there, or may not be used.
    #[error(
        "the kernel's connection manager cannot be used: {0}\n\
         load it with `modprobe rdma_ucm`, and see the rights of /dev/infiniband/rdma_cm"
    )]
    Missing(#[source] io::Error),
    /// The kernel's connection manager does not serve the port.
    #[error(
        "{0}\ngive the port's network interface an IP address and bring it up (see \
         `ip address` and `rdma link`); InfiniBand and RoCE ports connect by sockets, too"
    )]
    NotServed(String),
    /// The device speaks iWARP, and the manager works by TCP.
    #[error(
        "{device} speaks iWARP: the kernel alone makes its connections, the socket manager cannot\n\
         choose rdma_cm"
    )]
    OnlyRdma {
        /// Name of the device.
        device: String,
    },
    /// Descriptors, ports, memory or threads are used up.
    #[error(
        "the system refuses what a connection needs: {0}\n\
         close unused connections or files; see also `ulimit -n`"
    )]
    Resources(#[source] io::Error),
    /// The manager belongs to a process of which this one is a fork.
    #[error(
        "the connection manager was started by another process, of which this is a fork\nstart one in this process"
    )]
    Forked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_refused_on_iwarp_with_the_cause_and_the_remedy_on_a_line_each() {
        let device = "siw0".to_owned();
        assert_eq!(
            CmError::OnlyRdma { device }.to_string(),
            "siw0 speaks iWARP: the kernel alone makes its connections, the socket manager cannot\n\
             choose rdma_cm"
        );
    }
}
