//! Opening sockets, and what their errors mean.

use crate::cm::{CmError, ConnectionEvent, ListenOn, ManagerOptions, local, port_of};
use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Connections that may wait to be taken; the system lowers it to its limit.
const BACKLOG: i32 = 4096;
/// How often a port of the system's choice is asked for anew.
const ATTEMPTS: usize = 16;

/// Listening sockets for a qualifier, or for one of the system's choice: one
/// of each address.
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
            // The port is free on one address only.
            Ok(_) | Err(CmError::InUse) => (),
            Err(error) => return Err(error),
        }
    }
    Err(CmError::InUse)
}

fn listener_at(on: ListenOn, port: u16) -> Result<(Vec<TcpListener>, u16), CmError> {
    let bound = match on {
        ListenOn::One(address) => one(address, port),
        // Of both families at once; a host without IPv6 has no such socket.
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

/// On both loopback addresses, or on the one that there is.
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
    // Two sockets that reuse addresses may bind together; only one may listen.
    socket.listen(BACKLOG)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |it| it.port());
    Ok((TcpListener::from_std(socket.into()), port))
}

/// Begins to connect. `Err` in the result's inner part is an event: the
/// network's answer came at once.
pub(super) fn stream(
    options: &ManagerOptions,
    to: SocketAddr,
) -> Result<Result<TcpStream, ConnectionEvent>, CmError> {
    local::require_one_host(to.ip())?;
    let ip = to.ip().to_canonical();
    let socket = socket(to).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => {
            CmError::Address(format!("this host does not have the family of {ip}"))
        }
        _ => CmError::Resources(error),
    })?;
    socket.set_tcp_nodelay(true).map_err(CmError::Resources)?;
    keep_alive(&socket, options);
    match socket.connect(&SockAddr::from(to)) {
        Ok(()) => (),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS | libc::EINTR) => (),
            Some(libc::EINVAL | libc::EAFNOSUPPORT) => {
                return Err(CmError::Address(format!("cannot connect to {to}: {error}")));
            }
            // Out of local ports.
            Some(libc::EADDRNOTAVAIL | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                return Err(CmError::Resources(error));
            }
            _ => return Ok(Err(outcome(&error))),
        },
    }
    Ok(Ok(TcpStream::from_std(socket.into())))
}

/// What it means for an attempt to connect that the stream failed.
pub(super) fn outcome(error: &io::Error) -> ConnectionEvent {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => {
            ConnectionEvent::NonPeerRejected
        }
        // No route, no host, a firewall, or the system's own timeout.
        _ => ConnectionEvent::Unreachable,
    }
}

/// Options of a stream that a listener took.
pub(super) fn taken(stream: &TcpStream, options: &ManagerOptions) {
    // Without it messages are late, not lost.
    let _ = stream.set_nodelay(true);
    keep_alive(&socket2::SockRef::from(stream), options);
}

fn keep_alive(socket: &Socket, options: &ManagerOptions) {
    if let Some(idle) = options.keepalive
        && let Err(error) = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle))
    {
        tracing::warn!(%error, "cannot set the keepalive of a connection");
    }
}

/// A socket that does not block. Addresses are reused on both sides: a
/// connection that has ended, or that goes out from the port by chance, does
/// not keep a listener from it.
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
    fn what_the_system_says_of_an_attempt_is_told_apart() {
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
        let stream = stream(&ManagerOptions::default(), to).unwrap().unwrap();
        let taken = loop {
            match listener.accept() {
                Ok((taken, _)) => break taken,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        for fd in [listener.as_raw_fd(), stream.as_raw_fd(), taken.as_raw_fd()] {
            // SAFETY: asks for flags of descriptors that are open.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
    }
}
