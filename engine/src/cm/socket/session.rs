//! One connection: a stream, its state, and the effect of each message on it.

use super::frame::{self, Frame, Malformed, Reason};
use super::handle::Request;
use super::open;
use super::service::{Connecting, Listening, Service};
use crate::cm::gate::Gate;
use crate::cm::manager::{Details, RequestOf};
use crate::cm::{ConnectionEvent, ConnectionSink, ListenSink, ManagerOptions, Parameters, Peer};
use crate::control::Route;
use mio::Token;
use mio::net::TcpStream;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

pub(super) type ConnectionGate = Gate<dyn ConnectionSink>;
pub(super) type ListenGate = Gate<dyn ListenSink>;

/// More messages than a connection ever has in one direction. Together with
/// [`frame::MAX_FRAME`] it limits how much is read from a peer.
const MAX_FRAMES: u8 = 8;

/// Whether a session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum SessionStatus {
    Continues,
    Ended,
}

use SessionStatus::{Continues, Ended};

/// The context that a session runs in.
pub(super) struct SessionContext<'a> {
    pub(super) service: &'a Weak<Service>,
    pub(super) token: Token,
}

enum State {
    /// Active: the stream is being connected; the request waits in the outbox.
    Connecting,
    /// Active: waits for the answer.
    Requested,
    /// Passive: waits for the request.
    Silent(Arc<Listening>),
    /// Passive: waits for the application's answer. The flag is shared with the
    /// request.
    Pending(Arc<AtomicBool>),
    /// Passive: accepted; waits for the requester's `Ready`.
    Accepted,
    /// Either side: connected.
    Up,
    /// Either side: a disconnect was sent; waits for the reply.
    Closing,
}

pub(super) struct Session {
    pub(super) stream: TcpStream,
    peer: Option<SocketAddr>,
    state: State,
    /// `None` until a request is accepted.
    gate: Option<Arc<ConnectionGate>>,
    /// When [`Session::expire`] has to be called.
    pub(super) deadline: Option<Instant>,
    /// The received part of a message.
    inbox: Vec<u8>,
    /// Bytes that the stream has not taken yet.
    outbox: Vec<u8>,
    /// The number of messages received.
    frames: u8,
}

impl Session {
    /// Creates a session of the active side. If the attempt has failed already,
    /// reports that and returns `None`.
    pub(super) fn active(connecting: Connecting) -> Option<Self> {
        let gate = connecting.gate;
        let stream = match connecting.stream {
            Ok(stream) => stream,
            Err(event) => {
                let _ = gate.call(true, |sink| sink.event(event));
                return None;
            }
        };
        Some(Self {
            stream,
            peer: None,
            state: State::Connecting,
            gate: Some(gate),
            deadline: connecting.deadline,
            inbox: Vec::new(),
            outbox: connecting.request,
            frames: 0,
        })
    }

    /// Creates a session of the passive side.
    pub(super) fn passive(
        stream: TcpStream,
        peer: SocketAddr,
        listening: Arc<Listening>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            stream,
            peer: Some(SocketAddr::new(peer.ip().to_canonical(), peer.port())),
            state: State::Silent(listening),
            gate: None,
            deadline,
            inbox: Vec::new(),
            outbox: Vec::new(),
            frames: 0,
        }
    }

    /// Returns whether its request has not arrived yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent(_))
    }

    /// Reads and writes everything that the stream allows now.
    pub(super) fn drive(
        &mut self,
        around: &SessionContext<'_>,
        scratch: &mut [u8],
    ) -> SessionStatus {
        if matches!(self.state, State::Connecting) {
            match self.connected() {
                Ok(false) => return Continues,
                Ok(true) => self.state = State::Requested,
                Err(event) => return self.end_with(event),
            }
        }
        self.flush();
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return self.ended(None),
                Ok(count) => {
                    self.inbox.extend_from_slice(&scratch[..count]);
                    if self.handle_messages(around) == Ended {
                        return Ended;
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Continues,
                    io::ErrorKind::Interrupted => (),
                    _ => return self.ended(Some(&error)),
                },
            }
        }
    }

    /// Handles the end of the deadline.
    pub(super) fn expire(&mut self) -> SessionStatus {
        self.deadline = None;
        match self.state {
            State::Connecting => self.end_with(ConnectionEvent::TimedOut),
            State::Requested => {
                self.send(&frame::disconnect());
                self.end_with(ConnectionEvent::TimedOut)
            }
            State::Silent(_) => {
                tracing::debug!(peer = ?self.peer, "connected, but requests nothing: dropped");
                Ended
            }
            State::Accepted => {
                tracing::debug!(peer = ?self.peer, "accepted, but not ready in time: dropped");
                // If the requester becomes ready later, it gets a disconnect.
                self.send(&frame::disconnect());
                self.end_with(ConnectionEvent::AcceptFailed)
            }
            State::Closing => self.end_with(ConnectionEvent::Disconnected),
            State::Pending(_) | State::Up => Continues,
        }
    }

    /// Accepts the request for the application. The requester has a limited time to
    /// report that it is ready.
    pub(super) fn accept(
        &mut self,
        gate: Arc<ConnectionGate>,
        answer: &[u8],
        options: &ManagerOptions,
    ) {
        self.gate = Some(gate);
        self.state = State::Accepted;
        self.deadline = Instant::now().checked_add(options.accept_timeout);
        self.send(answer);
    }

    /// Rejects the request, for the application or because there was no answer.
    pub(super) fn reject(&mut self, reason: &Reason) -> SessionStatus {
        self.send(&frame::reject(reason));
        Ended
    }

    /// Disconnects for the application.
    pub(super) fn disconnect(&mut self, options: &ManagerOptions) -> SessionStatus {
        match self.state {
            State::Connecting => self.end_with(ConnectionEvent::Disconnected),
            State::Requested => {
                self.send(&frame::disconnect());
                self.end_with(ConnectionEvent::Disconnected)
            }
            State::Accepted | State::Up => {
                self.send(&frame::disconnect());
                self.state = State::Closing;
                self.deadline = Instant::now().checked_add(options.disconnect_timeout);
                Continues
            }
            State::Closing | State::Silent(_) | State::Pending(_) => Continues,
        }
    }

    /// Ends the connection without events; its gate is closed.
    pub(super) fn abort(&mut self) -> SessionStatus {
        if matches!(self.state, State::Requested | State::Accepted | State::Up) {
            self.send(&frame::disconnect());
        }
        Ended
    }

    /// Ends the connection as [`Self::abort`] does, after a failure.
    pub(super) fn fail(&mut self) -> SessionStatus {
        if !matches!(self.state, State::Up) {
            return self.abort();
        }
        self.send(&frame::failed());
        Ended
    }

    /// Shuts the stream down, also for copies of its descriptor in forked children.
    pub(super) fn close(&mut self) {
        // A stream that is closed already needs no shutdown.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Returns whether the stream is connected; `Err` if it cannot be.
    fn connected(&mut self) -> Result<bool, ConnectionEvent> {
        let error = match self.stream.take_error() {
            Ok(None) => match self.stream.peer_addr() {
                Ok(peer) if self.stream.local_addr().is_ok_and(|own| own == peer) => {
                    // No listener had this ephemeral port, and the system assigned
                    // the same port to this socket: the stream is connected to
                    // itself.
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
        tracing::debug!(%error, "cannot connect");
        Err(open::outcome(&error))
    }

    /// Handles all complete messages in the inbox.
    fn handle_messages(&mut self, around: &SessionContext<'_>) -> SessionStatus {
        loop {
            match frame::parse(&self.inbox) {
                Ok(None) => return Continues,
                Ok(Some((frame, length))) => {
                    self.inbox.drain(..length);
                    self.frames += 1;
                    let status = if self.frames > MAX_FRAMES {
                        self.unexpected(&frame)
                    } else {
                        self.receive(frame, around)
                    };
                    if status == Ended {
                        return Ended;
                    }
                }
                Err(what) => return self.malformed(what),
            }
        }
    }

    fn receive(&mut self, frame: Frame, around: &SessionContext<'_>) -> SessionStatus {
        match (&self.state, frame) {
            (
                State::Requested,
                Frame::Accept {
                    parameters,
                    private_data,
                },
            ) => {
                self.deadline = None;
                self.accepted(ConnectionEvent::Accepted {
                    peer: peer(&parameters),
                    private_data,
                })
            }
            (State::Requested, Frame::Reject(reason)) => self.end_with(match reason {
                Reason::Application(private_data) => {
                    ConnectionEvent::PeerRejected { private_data }
                }
                Reason::NoListener => ConnectionEvent::NonPeerRejected,
                Reason::Version(theirs) => {
                    tracing::warn!(peer = ?self.peer,
                        "request refused: the peer uses version {theirs} of the protocol, but this side uses version {}",
                        frame::VERSION);
                    ConnectionEvent::NonPeerRejected
                }
            }),
            (
                State::Silent(listening),
                Frame::Request {
                    qualifier,
                    parameters,
                    private_data,
                },
            ) => {
                let (listening, requester) = (Arc::clone(listening), self.peer);
                let (true, Some(requester)) = (listening.qualifier == qualifier, requester) else {
                    return self.reject(&Reason::NoListener);
                };
                let details = Details {
                    qualifier,
                    requester,
                    peer: peer(&parameters),
                    private_data,
                };
                self.requested(&listening, details, around)
            }
            (State::Accepted, Frame::Ready) => {
                self.deadline = None;
                self.state = State::Up;
                self.report(ConnectionEvent::Established);
                Continues
            }
            (State::Accepted, Frame::Failed | Frame::Disconnect) => {
                self.end_with(ConnectionEvent::AcceptFailed)
            }
            (State::Pending(_), Frame::Disconnect) => self.ended(None),
            (State::Up, Frame::Disconnect) => {
                self.send(&frame::disconnect_reply());
                self.end_with(ConnectionEvent::Disconnected)
            }
            (State::Up, Frame::Failed) => self.end_with(ConnectionEvent::Broken),
            (State::Closing, Frame::Disconnect | Frame::DisconnectReply | Frame::Failed) => {
                self.end_with(ConnectionEvent::Disconnected)
            }
            // It crossed with the disconnect of this side.
            (State::Closing, Frame::Ready) => Continues,
            (_, frame) => self.unexpected(&frame),
        }
    }

    /// Passes the request of the passive side to the application.
    fn requested(
        &mut self,
        listening: &Listening,
        details: Details,
        around: &SessionContext<'_>,
    ) -> SessionStatus {
        let Some(service) = around.service.upgrade() else {
            return self.reject(&Reason::NoListener);
        };
        self.deadline = None;
        let alive = Arc::new(AtomicBool::new(true));
        self.state = State::Pending(Arc::clone(&alive));
        let request = Request::new(service, around.token, alive);
        // If no sink takes the request, dropping it rejects it.
        let request = crate::cm::Request::new(details, RequestOf::Socket(request));
        let _ = listening.gate.call(false, |sink| sink.request(request));
        Continues
    }

    /// Active: the sink makes its endpoint ready, or the connection fails.
    fn accepted(&mut self, event: ConnectionEvent) -> SessionStatus {
        let Some(gate) = self.gate.clone() else {
            return Ended;
        };
        match gate.call(false, |sink| sink.event(event)) {
            Some(Ok(())) if !gate.is_closed() => {
                self.state = State::Up;
                self.send(&frame::ready());
                Continues
            }
            _ => {
                gate.close(true);
                self.send(&frame::failed());
                Ended
            }
        }
    }

    fn malformed(&mut self, what: Malformed) -> SessionStatus {
        match (&self.state, what) {
            (State::Silent(_), Malformed::Version(_)) => {
                tracing::warn!(peer = ?self.peer, "request refused: {what}");
                self.send(&frame::reject(&Reason::Version(frame::VERSION)));
            }
            // A port scan must not fill the log.
            (State::Silent(_), _) => tracing::debug!(peer = ?self.peer, "dropped: {what}"),
            _ => tracing::warn!(peer = ?self.peer, "connection ended: {what}"),
        }
        self.ended(None)
    }

    fn unexpected(&mut self, frame: &Frame) -> SessionStatus {
        tracing::warn!(peer = ?self.peer, "connection ended: unexpected message {frame:?}");
        self.ended(None)
    }

    /// Handles the end of the stream, or a stream that is not read any further.
    pub(super) fn ended(&mut self, error: Option<&io::Error>) -> SessionStatus {
        match &self.state {
            State::Connecting | State::Requested => {
                self.end_with(error.map_or(ConnectionEvent::NonPeerRejected, open::outcome))
            }
            State::Silent(_) => Ended,
            State::Pending(alive) => {
                alive.store(false, Ordering::Release);
                Ended
            }
            State::Accepted => self.end_with(ConnectionEvent::AcceptFailed),
            State::Up => self.end_with(ConnectionEvent::Broken),
            State::Closing => self.end_with(ConnectionEvent::Disconnected),
        }
    }

    /// Reports a terminal event.
    fn end_with(&mut self, event: ConnectionEvent) -> SessionStatus {
        self.report(event);
        Ended
    }

    fn report(&self, event: ConnectionEvent) {
        if let Some(gate) = &self.gate {
            let _ = gate.call(event.is_terminal(), |sink| sink.event(event));
        }
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

fn peer(parameters: &Parameters) -> Peer {
    Peer {
        route: Route::Address(parameters.address),
        reads_served: parameters.reads_served,
        reads_requested: parameters.reads_requested,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Events(Mutex<Vec<ConnectionEvent>>);

    impl ConnectionSink for Events {
        fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
            self.0.lock().unwrap().push(event);
            Ok(())
        }
    }

    #[test]
    fn a_stream_that_is_connected_to_itself_is_rejected() {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&local.into()).unwrap();
        socket.connect(&socket.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let events = Arc::new(Events::default());
        let sink: Arc<dyn ConnectionSink> = events.clone();
        let connecting = Connecting {
            stream: Ok(TcpStream::from_std(socket.into())),
            gate: Arc::new(Gate::new(sink)),
            request: frame::ready(),
            deadline: None,
        };
        let mut session = Session::active(connecting).expect("a session");
        let around = SessionContext {
            service: &Weak::new(),
            token: Token(7),
        };
        assert_eq!(session.drive(&around, &mut [0; 64]), Ended);
        assert_eq!(
            *events.0.lock().unwrap(),
            [ConnectionEvent::NonPeerRejected]
        );
    }
}
