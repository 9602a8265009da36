//! An established control connection: connecting, and messages with timeouts.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use dat_engine::DataInOrder;
use socket2::{SockRef, TcpKeepalive};

use super::frame::{Arriving, FrameError, text};
use super::message::{Address, Done, Message, Service};
use super::options::Options;
use super::perftest::{Perftest, Test};
use crate::failure::Failure;

/// Returns the addresses of a host.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        Failure::environment(format!(
            "cannot resolve host '{host}': {error}; give an IP address, or a name that this host resolves (getent hosts {host})"
        ))
    })?;
    Ok(addresses.collect())
}

/// The control connection to the other side of a run.
pub(crate) struct Peer {
    stream: TcpStream,
    timeout: Duration,
    address: IpAddr,
    name: String,
    arriving: Arriving,
    /// Spoken instead of dat-bench's messages.
    perftest: Option<Perftest>,
}

/// Receives a message of the kind that matches. The second argument is the name of the kind.
macro_rules! receive {
    ($peer:expr, $name:literal, $message:pat => $value:expr) => {
        match $peer.receive()? {
            $message => Ok($value),
            other => Err($peer.unexpected(&other, $name)),
        }
    };
}

impl Peer {
    /// Connects to a server.
    pub(crate) fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, Failure> {
        let addresses = resolve(host, port)?;
        let mut last = None;
        for address in addresses {
            tracing::debug!(%address, "control connection: connecting");
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Self::new(stream, timeout),
                Err(error) => last = Some(error),
            }
        }
        let cause = last.map_or_else(
            || "the name has no address".into(),
            |error| error.to_string(),
        );
        Err(Failure::environment(format!(
            "no server listens on {host}, TCP port {port}: {cause}; start it there first (the same command without a host, with the same -p)"
        )))
    }

    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Result<Self, Failure> {
        stream.set_nodelay(true).map_err(local)?;
        stream.set_write_timeout(Some(timeout)).map_err(local)?;
        keep_alive(&stream).map_err(local)?;
        let address = stream.peer_addr().map_err(local)?.ip().to_canonical();
        Ok(Self {
            stream,
            timeout,
            address,
            name: address.to_string(),
            arriving: Arriving::default(),
            perftest: None,
        })
    }

    /// Speaks perftest's exchange, if there is a test.
    pub(crate) fn speaking(mut self, test: Option<Test>) -> Result<Self, Failure> {
        if let Some(test) = test {
            let stream = self.stream.try_clone().map_err(local)?;
            let perftest = Perftest::new(stream, self.timeout, &self.name, test);
            self.perftest = Some(perftest);
        }
        Ok(self)
    }

    /// Returns whether the other side is perftest, which says less of itself than dat-bench does.
    pub(crate) fn is_perftest(&self) -> bool {
        self.perftest.is_some()
    }

    /// Fails if perftest has exchanged another number of messages than this side expects.
    pub(crate) fn require_messages(&self, messages: u64) -> Result<(), Failure> {
        match &self.perftest {
            Some(perftest) => perftest.require_messages(messages),
            None => Ok(()),
        }
    }

    /// Returns the other side's IP address, as text.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the other side's IP address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Exchanges the options, and fails if they differ, as the other side does. A server serves
    /// only a client that accepts its options.
    pub(crate) fn agree(&mut self, options: &Options) -> Result<(), Failure> {
        if self.perftest.is_some() {
            return Ok(());
        }
        self.send(&Message::Hello(options.clone()))?;
        let theirs = receive!(self, "hello", Message::Hello(theirs) => theirs)?;
        let differences = options.differences(&theirs);
        if differences.is_empty() {
            return self.send_ready();
        }
        Err(Failure::usage(format!(
            "the two sides have different options; give both the same:\n  {}",
            differences.join("\n  ")
        )))
    }

    /// Exchanges addresses.
    pub(crate) fn exchange_addresses(&mut self, ours: Address) -> Result<Address, Failure> {
        if let Some(perftest) = &mut self.perftest {
            return perftest.addresses(&ours);
        }
        self.send(&Message::Address(ours))?;
        let theirs = receive!(self, "address", Message::Address(theirs) => theirs)?;
        if theirs.ethernet != ours.ethernet {
            let link = |ethernet| {
                if ethernet {
                    "Ethernet (RoCE)"
                } else {
                    "InfiniBand"
                }
            };
            return Err(Failure::environment(format!(
                "this side's link is {}, the other's is {}; give ports of one network with -d and -i",
                link(ours.ethernet),
                link(theirs.ethernet)
            )));
        }
        Ok(theirs)
    }

    /// Sends the service point of this side.
    pub(crate) fn send_service(&mut self, service: Service) -> Result<(), Failure> {
        self.send(&Message::Service(service))
    }

    /// Receives the service point of the other side.
    pub(crate) fn await_service(&mut self) -> Result<Service, Failure> {
        receive!(self, "service", Message::Service(service) => service)
    }

    /// Sends the port for the control connections of further threads.
    pub(crate) fn send_port(&mut self, port: u16) -> Result<(), Failure> {
        self.send(&Message::Port(port))
    }

    /// Receives the port for the control connections of further threads.
    pub(crate) fn await_port(&mut self) -> Result<u16, Failure> {
        receive!(self, "port", Message::Port(port) => port)
    }

    /// Exchanges what the queue pairs say about the order of data. Returns what holds for
    /// both sides.
    pub(crate) fn exchange_order(&mut self, ours: DataInOrder) -> Result<DataInOrder, Failure> {
        if self.perftest.is_some() {
            return Ok(ours);
        }
        self.send(&Message::DataInOrder(ours))?;
        receive!(self, "order of data", Message::DataInOrder(theirs) => ours.and(theirs))
    }

    /// Waits until both sides have called this (a barrier).
    pub(crate) fn barrier(&mut self) -> Result<(), Failure> {
        if let Some(perftest) = &mut self.perftest {
            return perftest.barrier();
        }
        self.send(&Message::Ready)?;
        self.await_ready()
    }

    /// Sends that this side is ready.
    pub(crate) fn send_ready(&mut self) -> Result<(), Failure> {
        match &mut self.perftest {
            Some(perftest) => perftest.prepared(),
            None => self.send(&Message::Ready),
        }
    }

    /// Waits until the other side is ready.
    pub(crate) fn await_ready(&mut self) -> Result<(), Failure> {
        if let Some(perftest) = &mut self.perftest {
            return perftest.prepared();
        }
        receive!(self, "ready", Message::Ready => ())
    }

    /// Announces messages of this size.
    pub(crate) fn begin(&mut self, size: u32) -> Result<(), Failure> {
        match self.perftest {
            Some(_) => Ok(()),
            None => self.send(&Message::Begin { size }),
        }
    }

    /// Waits until the other side announces messages of this size.
    pub(crate) fn await_begin(&mut self, expected: u32) -> Result<(), Failure> {
        if self.perftest.is_some() {
            return Ok(());
        }
        match receive!(self, "begin", Message::Begin { size } => size == expected)? {
            true => Ok(()),
            false => Err(Failure::run(
                "the other side began another message size than this one; are both the same build?",
            )),
        }
    }

    /// Sends what this side has done.
    pub(crate) fn done(&mut self, done: Done) -> Result<(), Failure> {
        match &mut self.perftest {
            Some(perftest) => perftest.done(done),
            None => self.send(&Message::Done(done)),
        }
    }

    /// Receives what the other side has done, with this timeout.
    pub(crate) fn await_done(&mut self, within: Duration) -> Result<Done, Failure> {
        if let Some(perftest) = &mut self.perftest {
            return perftest.end(within);
        }
        let saved = core::mem::replace(&mut self.timeout, within);
        let received = self.receive();
        self.timeout = saved;
        match received? {
            Message::Done(done) => Ok(done),
            other => Err(self.unexpected(&other, "done")),
        }
    }

    /// Sends the reason why this side ends the run. A failure to send is ignored.
    pub(crate) fn abort(&mut self, reason: &str) {
        if self.perftest.is_none() {
            let _ = self.send(&Message::Abort(text(reason)));
        }
    }

    /// After a failure on this side, returns the other side's failure, if it
    /// arrives within the limit: its abort message, or that it closed the
    /// connection.
    pub(crate) fn remote_failure(&mut self, within: Duration) -> Option<Failure> {
        match self.read_message(within) {
            Err(FrameError::TimedOut(_)) => None,
            Err(error) => Some(self.failed(error)),
            Ok(Message::Abort(reason)) => Some(self.aborted(&reason)),
            Ok(message) => Some(Failure::run(format!(
                "the other side ({}) sent '{}' during the measurement; are both the same build?",
                self.name,
                message.name()
            ))),
        }
    }

    /// Returns whether a message, or the end of the connection, can be received.
    /// Costs one system call and does not wait.
    pub(crate) fn has_message(&self) -> bool {
        if self.perftest.as_ref().is_some_and(|it| !it.is_watched()) {
            return false;
        }
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let result =
            SockRef::from(&self.stream).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
        !matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        tracing::debug!(to = self.name, ?message, "control connection: sends");
        self.stream
            .write_all(&message.encode())
            .map_err(|error| match error.kind() {
                // An abort message that was received before says more than the broken pipe.
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    match self.receive() {
                        Err(failure) => failure,
                        Ok(_) => self.failed(FrameError::Closed),
                    }
                }
                _ => self.failed(error.into()),
            })
    }

    fn unexpected(&self, message: &Message, expected: &str) -> Failure {
        Failure::run(format!(
            "the other side ({}) sent '{}' instead of '{expected}'; are both the same build?",
            self.name,
            message.name()
        ))
    }

    /// Receives the next message. An abort message is a failure.
    fn receive(&mut self) -> Result<Message, Failure> {
        match self.read_message(self.timeout) {
            Ok(Message::Abort(reason)) => Err(self.aborted(&reason)),
            Ok(message) => {
                tracing::debug!(from = self.name, ?message, "control connection: received");
                Ok(message)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Reads one message. The limit is for the whole message, however slowly its bytes arrive.
    fn read_message(&mut self, limit: Duration) -> Result<Message, FrameError> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(FrameError::TimedOut(limit.as_secs_f64()));
            }
            self.stream.set_read_timeout(Some(left))?;
            if let Some(payload) = self.arriving.read(&mut self.stream)? {
                return Message::decode(&payload);
            }
        }
    }

    fn aborted(&self, reason: &str) -> Failure {
        Failure::run(format!(
            "the other side ({}) ended the run: {reason}",
            self.name
        ))
    }

    fn failed(&self, error: FrameError) -> Failure {
        let text = format!("{error} [{}]", self.name);
        match error {
            FrameError::Version(_) => Failure::environment(text),
            FrameError::Closed => {
                Failure::run(format!("{text}; it ended or was killed: see its output"))
            }
            _ => Failure::run(text),
        }
    }
}

/// Makes TCP detect within about 15 s that the other host is unreachable
/// (power, cable), while this side sends nothing.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keep_alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
        .with_retries(5);
    SockRef::from(stream).set_tcp_keepalive(&keep_alive)
}

/// Converts an error of a local socket call.
pub(super) fn local(error: io::Error) -> Failure {
    Failure::environment(format!("control connection: {error}"))
}

#[cfg(test)]
mod tests;
