//! Opening sockets, and the meaning of their errors.

use super::port::port_of;
use crate::cm::{CmError, ConnectionEvent, ListenOn};
use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The most connections that wait to be accepted; the system reduces it to its
/// limit.
const BACKLOG: i32 = 4096;
/// How many ports of the system's choice are tried.
const ATTEMPTS: usize = 16;

/// Opens listening sockets for a qualifier, or for one of the system's choice: one
/// socket per address.
pub(super) fn listener(
    on: ListenOn,
    qualifier: Option<u64>,
) -> Result<(Vec<TcpListener>, u64), CmError> {
    if let Some(qualifier) = qualifier {
        let (listeners, _) = listener_at(on, port_of(qualifier))?;
        return Ok((listeners, qualifier));
    }
    for _ in 0..ATTEMPTS {
        match listener_at(on, 0) {
            Ok((listeners, port)) if port_of(port.into()) == port => {
                return Ok((listeners, port.into()));
            }
            // The port is free on one of the addresses only.
            Ok(_) | Err(CmError::InUse) => (),
            Err(error) => return Err(error),
        }
    }
    Err(CmError::InUse)
}

fn listener_at(on: ListenOn, port: u16) -> Result<(Vec<TcpListener>, u16), CmError> {
    let bound = match on {
        ListenOn::One(address) => one(address, port),
        // One socket for both families; a host without IPv6 has no such socket.
        ListenOn::All => match one(Ipv6Addr::UNSPECIFIED.into(), port) {
            Err(error) if missing_family(&error) => one(Ipv4Addr::UNSPECIFIED.into(), port),
            other => other,
        },
        ListenOn::Loopback => on_loopback(port),
    };
    bound.map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => CmError::InUse,
        Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL) => {
            let address = on.address().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            CmError::Address(format!("cannot listen on {address}: {error}"))
        }
        _ => CmError::Resources(error),
    })
}

fn one(address: IpAddr, port: u16) -> io::Result<(Vec<TcpListener>, u16)> {
    let (listener, port) = bound((address, port).into())?;
    Ok((vec![listener], port))
}

/// Opens sockets on both loopback addresses, or on the one that the host has.
fn on_loopback(port: u16) -> io::Result<(Vec<TcpListener>, u16)> {
    let (mut listeners, port) = match one(Ipv4Addr::LOCALHOST.into(), port) {
        Err(error) if missing_family(&error) => return one(Ipv6Addr::LOCALHOST.into(), port),
        other => other?,
    };
    match bound((Ipv6Addr::LOCALHOST, port).into()) {
        Ok((listener, _)) => listeners.push(listener),
        Err(error) if missing_family(&error) => (),
        Err(error) => return Err(error),
    }
    Ok((listeners, port))
}

fn missing_family(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

fn bound(address: SocketAddr) -> io::Result<(TcpListener, u16)> {
    let socket = socket(address)?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    // Two sockets that reuse addresses may bind to one port; only one of them may
    // listen.
    socket.listen(BACKLOG)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |it| it.port());
    Ok((TcpListener::from_std(socket.into()), port))
}

/// Starts to connect. An inner `Err` is an event: the network answered at once.
pub(super) fn stream(
    keepalive: Option<Duration>,
    to: SocketAddr,
) -> Result<Result<TcpStream, ConnectionEvent>, CmError> {
    let ip = to.ip().to_canonical();
    let socket = socket(to).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => CmError::Address(format!(
            "this host does not support the address family of {ip}"
        )),
        _ => CmError::Resources(error),
    })?;
    socket.set_tcp_nodelay(true).map_err(CmError::Resources)?;
    keep_alive(&socket, keepalive);
    match socket.connect(&SockAddr::from(to)) {
        Ok(()) => (),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS | libc::EINTR) => (),
            Some(libc::EINVAL | libc::EAFNOSUPPORT) => {
                return Err(CmError::Address(format!("cannot connect to {to}: {error}")));
            }
            // No local ports are left.
            Some(libc::EADDRNOTAVAIL | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                return Err(CmError::Resources(error));
            }
            _ => return Ok(Err(outcome(&error))),
        },
    }
    Ok(Ok(TcpStream::from_std(socket.into())))
}

/// Returns the event for a failed attempt to connect.
pub(super) fn outcome(error: &io::Error) -> ConnectionEvent {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => {
            ConnectionEvent::NonPeerRejected
        }
        // No route, no such host, a firewall, or the system's own timeout.
        _ => ConnectionEvent::Unreachable,
    }
}

/// Sets the options of a stream that a listener has accepted.
pub(super) fn taken(stream: &TcpStream, keepalive: Option<Duration>) {
    // Without this option messages are delayed, not lost.
    let _ = stream.set_nodelay(true);
    keep_alive(&socket2::SockRef::from(stream), keepalive);
}

fn keep_alive(socket: &Socket, keepalive: Option<Duration>) {
    if let Some(idle) = keepalive
        && let Err(error) = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle))
    {
        tracing::warn!(%error, "cannot set the keepalive of a connection");
    }
}

/// Creates a non-blocking socket. Addresses are reused on both sides: a connection
/// that has ended, or that uses the port as its local port by chance, does not keep
/// a listener from the port.
fn socket(family_of: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(family_of);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_map_to_events() {
        let of = |errno| outcome(&io::Error::from_raw_os_error(errno));
        for errno in [libc::ECONNREFUSED, libc::ECONNRESET] {
            assert_eq!(of(errno), ConnectionEvent::NonPeerRejected, "{errno}");
        }
        let unreachable = [
            libc::EHOSTUNREACH,
            libc::ENETUNREACH,
            libc::ENETDOWN,
            libc::EHOSTDOWN,
            libc::ETIMEDOUT,
            libc::EPERM,
            libc::EACCES,
        ];
        for errno in unreachable {
            assert_eq!(of(errno), ConnectionEvent::Unreachable, "{errno}");
        }
    }

    #[test]
    fn sockets_are_not_inherited_by_other_programs() {
        use std::os::fd::AsRawFd;
        let (listeners, qualifier) = listener(ListenOn::default(), None).unwrap();
        let listener = &listeners[0];
        let port = u16::try_from(qualifier).unwrap();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = stream(None, to).unwrap().unwrap();
        let taken = loop {
            match listener.accept() {
                Ok((taken, _)) => break taken,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        for fd in [listener.as_raw_fd(), stream.as_raw_fd(), taken.as_raw_fd()] {
            // SAFETY: reads the flags of open descriptors.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
    }
}
