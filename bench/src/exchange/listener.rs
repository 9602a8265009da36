//! The server's port: finds the client among all connections.
//!
//! The server sends its hello to every new connection, and expects a greeting
//! within a timeout: a hello with the same options, then that the client
//! accepts the server's. All connections are polled together, so a silent one
//! delays no other. The first complete greeting is the client's. All other
//! connections are reported and closed.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dat_engine::cm::ListenOn;

use super::frame::{Arriving, FrameError};
use super::message::Message;
use super::options::Options;
use super::peer::{Peer, local};
use super::perftest::Test;
use crate::failure::Failure;

/// Most connections without a complete greeting; another one closes the oldest.
const MAX_PENDING: usize = 64;
/// Most attempts to find a port that is free on both loopback addresses.
const PORT_ATTEMPTS: u32 = 16;

/// The TCP port on which a server listens.
pub(crate) struct ControlPort {
    listeners: Vec<TcpListener>,
    listen: ListenOn,
}

impl ControlPort {
    /// Opens the port; 0 is any free one.
    pub(crate) fn open(listen: ListenOn, port: u16) -> Result<Self, Failure> {
        let bind = |addresses: &[IpAddr]| {
            let addresses: Vec<_> = addresses
                .iter()
                .map(|&address| SocketAddr::new(address, port))
                .collect();
            TcpListener::bind(&addresses[..])
        };
        let listeners = match listen {
            // A listener on IPv6 takes IPv4 too; hosts without IPv6 use the second address.
            ListenOn::All => bind(&[Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()])
                .map(|listener| vec![listener]),
            ListenOn::Loopback => loopback(port),
            ListenOn::One(address) => bind(&[address]).map(|listener| vec![listener]),
        }
        .map_err(|error| {
            let place = match listen {
                ListenOn::One(address) => format!("{address}, "),
                _ => String::new(),
            };
            let remedy = match (error.kind(), listen) {
                (io::ErrorKind::AddrNotAvailable, ListenOn::One(_)) => {
                    "give --listen an address of this host"
                }
                _ => "give another port with -p on both sides",
            };
            Failure::environment(format!(
                "cannot listen on {place}TCP port {port}: {error}; {remedy}"
            ))
        })?;
        for listener in &listeners {
            listener.set_nonblocking(true).map_err(local)?;
        }
        Ok(Self { listeners, listen })
    }

    /// Returns the port number.
    pub(crate) fn port(&self) -> Result<u16, Failure> {
        Ok(self.listeners[0].local_addr().map_err(local)?.port())
    }

    /// Returns the addresses on which it listens, in words.
    pub(crate) fn addresses(&self) -> String {
        match self.listen {
            ListenOn::All => "on every address of this host".to_owned(),
            ListenOn::Loopback => "on this host's loopback addresses only".to_owned(),
            ListenOn::One(address) => format!("on {address} only"),
        }
    }
}

/// Listens on the same port of 127.0.0.1 and, if the host has IPv6, of ::1.
fn loopback(port: u16) -> io::Result<Vec<TcpListener>> {
    let mut attempts = 0;
    loop {
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        match TcpListener::bind((Ipv6Addr::LOCALHOST, four.local_addr()?.port())) {
            Ok(six) => return Ok(vec![four, six]),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                attempts += 1;
                if port != 0 || attempts == PORT_ATTEMPTS {
                    return Err(error);
                }
            }
            // This host has no IPv6.
            Err(_) => return Ok(vec![four]),
        }
    }
}

/// A connection whose greeting is not complete.
struct PendingConnection {
    stream: TcpStream,
    name: String,
    deadline: Instant,
    /// Whether its hello has arrived, with the same options.
    has_greeted: bool,
    arriving: Arriving,
}

/// What is known of a connection from its greeting.
enum Greeting {
    /// It is not complete.
    Pending,
    /// The client has the same options, and has accepted the server's.
    Client,
    /// The connection is closed, for this reason.
    Other(String),
}

/// A server's port and the connections whose greeting is not complete.
pub(crate) struct ClientListener {
    control_port: ControlPort,
    options: Options,
    timeout: Duration,
    pending: Vec<PendingConnection>,
    perftest: Option<Test>,
}

impl ClientListener {
    /// `timeout` is the timeout of a greeting, and later of each message of the
    /// client.
    pub(crate) fn new(control_port: ControlPort, options: Options, timeout: Duration) -> Self {
        Self {
            control_port,
            options,
            timeout,
            pending: Vec::new(),
            perftest: None,
        }
    }

    /// Waits for perftest's clients, if there is a test. perftest's client speaks first, and not
    /// of its options: the first connection is a client.
    pub(crate) fn speaking(self, perftest: Option<Test>) -> Self {
        Self { perftest, ..self }
    }

    /// Waits for a client with the same options. Returns `None` after the limit,
    /// if there is one. Calls `report` for each other connection, with the reason
    /// for closing it.
    pub(crate) fn wait(
        &mut self,
        limit: Option<Duration>,
        report: &mut dyn FnMut(&str) -> Result<(), Failure>,
    ) -> Result<Option<Peer>, Failure> {
        // A limit beyond the clock's range is no limit.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(test) = self.perftest.clone() {
            let Some(stream) = self.accept_one(end)? else {
                return Ok(None);
            };
            let peer = Peer::new(stream, self.timeout)?;
            return peer.speaking(Some(test)).map(Some);
        }
        loop {
            for index in (0..self.pending.len()).rev() {
                match self.pending[index].greeting(&self.options) {
                    Greeting::Pending => {}
                    Greeting::Client => {
                        let connection = self.pending.swap_remove(index);
                        connection.stream.set_nonblocking(false).map_err(local)?;
                        return Peer::new(connection.stream, self.timeout).map(Some);
                    }
                    Greeting::Other(reason) => {
                        let connection = self.pending.swap_remove(index);
                        report(&format!("{}: {reason}", connection.name))?;
                    }
                }
            }
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(None);
            }
            let wake = self
                .pending
                .iter()
                .map(|connection| connection.deadline)
                .chain(end)
                .min();
            self.poll(wake.map(|wake| wake.saturating_duration_since(now)))?;
            self.accept_all(report)?;
        }
    }

    /// Waits for a connection, until this time.
    fn accept_one(&self, end: Option<Instant>) -> Result<Option<TcpStream>, Failure> {
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.poll(left)?;
            for listener in &self.control_port.listeners {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).map_err(local)?;
                        return Ok(Some(stream));
                    }
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted => {}
                        _ => return Err(local(error)),
                    },
                }
            }
        }
    }

    /// Sleeps until a connection or data arrive, or the limit is over.
    fn poll(&self, limit: Option<Duration>) -> Result<(), Failure> {
        let listeners = self.control_port.listeners.iter().map(AsRawFd::as_raw_fd);
        let pending = self
            .pending
            .iter()
            .map(|connection| connection.stream.as_raw_fd());
        let mut descriptors: Vec<_> = listeners
            .chain(pending)
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let milliseconds = limit.map_or(-1, |limit| {
            libc::c_int::try_from(limit.as_millis() + 1).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: `descriptors` is a live, writable array of as many pollfd as
        // the second argument says.
        let ready = unsafe {
            libc::poll(
                descriptors.as_mut_ptr(),
                descriptors.len() as libc::nfds_t,
                milliseconds,
            )
        };
        let error = io::Error::last_os_error();
        if ready < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(local(error));
        }
        Ok(())
    }

    /// Accepts all pending connections.
    fn accept_all(
        &mut self,
        report: &mut dyn FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for at in 0..self.control_port.listeners.len() {
            loop {
                let (stream, address) = match self.control_port.listeners[at].accept() {
                    Ok(accepted) => accepted,
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EAGAIN) => break,
                        // No descriptor or memory is left: closes the oldest
                        // connection.
                        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
                            if !self.pending.is_empty() =>
                        {
                            self.close_oldest(report)?;
                            continue;
                        }
                        Some(libc::EMFILE | libc::ENFILE | libc::EBADF | libc::EINVAL) => {
                            return Err(local(error));
                        }
                        // The connection was closed already, or has a network
                        // error, which accept(2) returns.
                        _ => continue,
                    },
                };
                if self.pending.len() == MAX_PENDING {
                    self.close_oldest(report)?;
                }
                let name = address.ip().to_canonical().to_string();
                match PendingConnection::send_hello(stream, &name, &self.options, self.timeout) {
                    Ok(connection) => self.pending.push(connection),
                    Err(error) => report(&format!("{name}: {error}"))?,
                }
            }
        }
        Ok(())
    }

    fn close_oldest(
        &mut self,
        report: &mut dyn FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let oldest = (0..self.pending.len()).min_by_key(|&index| self.pending[index].deadline);
        let Some(index) = oldest else { return Ok(()) };
        let connection = self.pending.swap_remove(index);
        report(&format!(
            "{}: closed before its greeting was complete: too many connections",
            connection.name
        ))
    }
}

impl PendingConnection {
    /// Sends this side's hello to a new connection.
    fn send_hello(
        mut stream: TcpStream,
        name: &str,
        options: &Options,
        timeout: Duration,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // The send buffer of a new connection has room for the largest frame.
        stream.write_all(&Message::Hello(options.clone()).encode())?;
        let now = Instant::now();
        Ok(Self {
            stream,
            name: name.to_owned(),
            // A timeout beyond the clock's range is a day.
            deadline: now
                .checked_add(timeout)
                .unwrap_or(now + Duration::from_secs(24 * 3600)),
            has_greeted: false,
            arriving: Arriving::default(),
        })
    }

    /// Reads what has arrived of the greeting, and no byte after it.
    fn greeting(&mut self, options: &Options) -> Greeting {
        loop {
            match self.read_message() {
                Ok(Some(Message::Hello(theirs))) if !self.has_greeted => {
                    let differences = options.differences(&theirs);
                    if !differences.is_empty() {
                        let reason = format!("its options differ: {}", differences.join("; "));
                        return Greeting::Other(reason);
                    }
                    self.has_greeted = true;
                }
                Ok(Some(Message::Ready)) if self.has_greeted => return Greeting::Client,
                Ok(Some(Message::Abort(reason))) => {
                    return Greeting::Other(FrameError::Aborted(reason).to_string());
                }
                Ok(Some(_)) => {
                    let error = FrameError::Damaged("the first messages are not hello and ready");
                    return Greeting::Other(error.to_string());
                }
                Ok(None) if Instant::now() >= self.deadline => {
                    let failure = if self.has_greeted {
                        "silent after its hello until"
                    } else {
                        "no complete hello within"
                    };
                    return Greeting::Other(format!("{failure} the timeout (--timeout)"));
                }
                Ok(None) => return Greeting::Pending,
                Err(error) => return Greeting::Other(error.to_string()),
            }
        }
    }

    /// Returns the next message, if all of it has arrived. If not, a later call reads more.
    fn read_message(&mut self) -> Result<Option<Message>, FrameError> {
        let payload = self.arriving.read(&mut self.stream)?;
        payload.map(|payload| Message::decode(&payload)).transpose()
    }
}

#[cfg(test)]
mod tests;
