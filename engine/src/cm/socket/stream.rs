//! The wire of a session: a stream, and the messages on it.

use super::accept::descriptor_of;
use super::frame::{self, Frame, Malformed, Reason};
use super::network::Tcp;
use super::open;
use super::port::port_of;
use crate::cm::wire::{Answer, Call, Event, Signal, Started, Wire};
use crate::cm::{CmError, ConnectionEvent, Parameters, Peer};
use crate::control::Route;
use mio::net::TcpStream;
use mio::{Interest, Token};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// More messages than a connection ever has in one direction. Together with
/// [`frame::MAX_FRAME`] it limits how much is read from a peer.
const MAX_FRAMES: u8 = 8;

pub(super) struct Stream {
    tcp: Arc<Tcp>,
    stream: TcpStream,
    peer: Option<SocketAddr>,
    /// The stream is being connected; the request waits in the outbox.
    connecting: bool,
    /// A disconnect was sent.
    closing: bool,
    /// The received part of a message.
    inbox: Vec<u8>,
    /// Bytes that the stream has not taken yet.
    outbox: Vec<u8>,
    /// The number of messages received.
    frames: u8,
    /// Why the request has failed.
    why: String,
}

/// Why a host refuses a TCP connection.
const NO_LISTENER: &str = "nothing listens on the qualifier's TCP port there: no service point has the \
    qualifier, or the peer's manager is rdma_cm (DAT_CM)";

/// What a connection without a request has sent.
pub(super) enum Message {
    /// Not a whole message.
    None,
    Frame(Frame),
    /// Nothing that this side reads.
    End,
}

/// Why no further message can be read.
enum Cut {
    /// The stream has ended, with an error or in order.
    Ended(Option<io::Error>),
    Malformed(Malformed),
}

impl Stream {
    /// Starts to connect to a listener.
    pub(super) fn connect(
        tcp: Arc<Tcp>,
        token: Token,
        call: &Call<'_>,
    ) -> Result<Started, CmError> {
        let mut to = call.target.host;
        to.set_port(port_of(call.target.qualifier));
        let mut stream = match open::stream(tcp.keepalive, to)? {
            Ok(stream) => stream,
            Err(event) => return Ok(Err(event)),
        };
        if let Ok(own) = stream.local_addr() {
            call.port.store(own.port(), Ordering::Release);
        }
        tcp.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let request = frame::request(call.target.qualifier, call.endpoint, call.private_data);
        Ok(Ok(Box::new(Self {
            connecting: true,
            peer: None,
            outbox: request,
            ..Self::accepted(tcp, stream, to)
        })))
    }

    /// Makes a wire of a stream that a listener has accepted.
    pub(super) fn accepted(tcp: Arc<Tcp>, stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            tcp,
            stream,
            peer: Some(peer),
            connecting: false,
            closing: false,
            inbox: Vec::new(),
            outbox: Vec::new(),
            frames: 0,
            why: String::new(),
        }
    }

    pub(super) fn descriptor(&self) -> usize {
        descriptor_of(&self.stream)
    }

    /// Reads the first message, which may be anything. Reports what is wrong with it to the
    /// log, and another version of the protocol to the peer.
    pub(super) fn first_message(&mut self) -> Message {
        match self.read() {
            Ok(None) => return Message::None,
            Ok(Some(frame)) => return Message::Frame(frame),
            Err(Cut::Ended(_)) => (),
            Err(Cut::Malformed(what @ Malformed::Version(_))) => {
                tracing::warn!(peer = ?self.peer, "request refused: {what}");
                self.send(&frame::reject(&Reason::Version(frame::VERSION)));
            }
            // A port scan must not fill the log.
            Err(Cut::Malformed(what)) => tracing::debug!(peer = ?self.peer, "dropped: {what}"),
        }
        Message::End
    }

    /// Returns whether the stream is connected; `Err` if it cannot be.
    fn connected(&mut self) -> Result<bool, ConnectionEvent> {
        let error = match self.stream.take_error() {
            Ok(None) => match self.stream.peer_addr() {
                Ok(peer) if self.stream.local_addr().is_ok_and(|own| own == peer) => {
                    // No listener had this ephemeral port, and the system assigned
                    // the same port to this socket: the stream is connected to
                    // itself.
                    self.why = NO_LISTENER.into();
                    return Err(ConnectionEvent::NonPeerRejected);
                }
                Ok(peer) => {
                    self.peer = Some(peer);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(error) => error,
            },
            Ok(Some(error)) | Err(error) => error,
        };
        self.why = match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => NO_LISTENER.into(),
            _ => format!("no TCP connection: {error}"),
        };
        Err(open::outcome(&error))
    }

    /// Returns the next message; `None` if it has not arrived as a whole.
    fn read(&mut self) -> Result<Option<Frame>, Cut> {
        // More than one message, since bytes that are left unread turn the end into a reset.
        let mut bytes = [0; 4 * frame::MAX_FRAME];
        loop {
            if let Some((frame, length)) = frame::parse(&self.inbox).map_err(Cut::Malformed)? {
                self.inbox.drain(..length);
                self.frames += 1;
                return Ok(Some(frame));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Cut::Ended(None)),
                Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => (),
                    _ => return Err(Cut::Ended(Some(error))),
                },
            }
        }
    }

    fn signal(&mut self, frame: Frame) -> Signal {
        match frame {
            frame if self.frames > MAX_FRAMES => self.unexpected(&frame),
            Frame::Accept {
                parameters,
                private_data,
            } => Signal::Accepted {
                peer: peer_of(&parameters),
                private_data,
            },
            Frame::Reject(Reason::Application(private_data)) => Signal::Rejected(private_data),
            Frame::Reject(reason) => {
                self.why = match reason {
                    Reason::Application(_) => String::new(),
                    Reason::NoListener => "the peer has the port of the qualifier, but no service \
                        point for it, or its program gave no answer"
                        .into(),
                    Reason::Version(_) => "the peer has another version of the protocol".into(),
                };
                if let Reason::Version(theirs) = reason {
                    tracing::warn!(peer = ?self.peer,
                        "request refused: the peer uses version {theirs} of the protocol, but this side uses version {}",
                        frame::VERSION);
                }
                Signal::Ended(ConnectionEvent::NonPeerRejected)
            }
            Frame::Ready => Signal::Ready,
            Frame::Failed => Signal::Ended(ConnectionEvent::NonPeerRejected),
            Frame::Disconnect => Signal::Disconnected,
            Frame::DisconnectReply if self.closing => Signal::Disconnected,
            frame => self.unexpected(&frame),
        }
    }

    fn unexpected(&self, frame: &Frame) -> Signal {
        tracing::warn!(peer = ?self.peer, "connection ended: unexpected message {frame:?}");
        Signal::Ended(ConnectionEvent::NonPeerRejected)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                // Reading reports how the stream ended, after the remaining
                // messages.
                Err(_) => self.outbox.clear(),
            }
        }
    }
}

impl Wire for Stream {
    fn receive(&mut self, _: Option<Event>) -> Option<Signal> {
        if self.connecting {
            match self.connected() {
                Ok(false) => return None,
                Ok(true) => self.connecting = false,
                Err(event) => return Some(Signal::Ended(event)),
            }
        }
        self.flush();
        match self.read() {
            Ok(frame) => frame.map(|frame| self.signal(frame)),
            Err(Cut::Ended(error)) => {
                self.why = match &error {
                    Some(error) => format!("the TCP connection has failed: {error}"),
                    None => "the peer closed the TCP connection without an answer: its program \
                        ended, or is no socket manager (DAT_CM)"
                        .into(),
                };
                let event = error.as_ref().map(open::outcome);
                Some(Signal::Ended(
                    event.unwrap_or(ConnectionEvent::NonPeerRejected),
                ))
            }
            Err(Cut::Malformed(what)) => {
                self.why =
                    format!("what answers on the qualifier's TCP port is another program: {what}");
                tracing::warn!(peer = ?self.peer, "connection ended: {what}");
                Some(Signal::Ended(ConnectionEvent::NonPeerRejected))
            }
        }
    }

    fn why(&self) -> &str {
        &self.why
    }

    fn awaits(&self) -> &'static str {
        match self.connecting {
            true => "the host has not answered the TCP connection",
            false => "the TCP connection is there, but the program has not answered the request",
        }
    }

    fn withdraw(&mut self) {
        if !self.connecting {
            self.send(&frame::disconnect());
        }
    }

    fn accept(&mut self, answer: &Answer) -> io::Result<()> {
        self.send(&frame::accept(&answer.endpoint, &answer.private_data));
        Ok(())
    }

    fn reject(&mut self, private_data: Option<&[u8]>) {
        let by_application = |data: &[u8]| Reason::Application(data.to_vec());
        let reason = private_data.map_or(Reason::NoListener, by_application);
        self.send(&frame::reject(&reason));
    }

    fn ready(&mut self) -> io::Result<()> {
        self.send(&frame::ready());
        Ok(())
    }

    fn disconnect(&mut self) {
        self.closing = true;
        self.send(&frame::disconnect());
    }

    fn answer_disconnect(&mut self) {
        self.send(&frame::disconnect_reply());
    }

    fn fail(&mut self) {
        self.send(&frame::failed());
    }

    fn end(mut self: Box<Self>) {
        // A stream that is closed already needs no shutdown.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.tcp.deregister(&mut self.stream);
    }
}

/// Returns the peer whose endpoint has these parameters.
pub(super) fn peer_of(parameters: &Parameters) -> Peer {
    Peer {
        route: Route::Address(parameters.address),
        reads_served: parameters.reads_served,
        reads_requested: parameters.reads_requested,
    }
}
