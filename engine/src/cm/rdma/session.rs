//! One connection: its states, and the effect of each event. Has no id, no clock
//! and no thread: the caller provides these.
//!
//! Decision: `docs/decisions/040-reconnect-while-remembered.md`

use super::conn_param::ConnParam;
use super::event::{Event, PeerParameters, STALE_CONNECTION, is_consumers};
use super::payload;
use crate::cm::gate::Gate;
use crate::cm::{ConnectionEvent, ConnectionSink, Peer};
use crate::control::{Greeting, Route};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) type ConnectionGate = Gate<dyn ConnectionSink>;

/// The first pause before a request that came too early is repeated, and the
/// longest pause.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);
/// The first pause before a greeting is checked again, and the longest pause.
const GREETING_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_GREETING_PAUSE: Duration = Duration::from_millis(2);
/// How long a request without a timeout is repeated: several times longer than any
/// kernel remembers a connection.
const STALE_FOR: Duration = Duration::from_secs(8);

/// Whether a session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum SessionStatus {
    Continues,
    Ended,
}

use SessionStatus::{Continues, Ended};

/// The calls that a session makes to rdma_cm. Results are events.
pub(super) trait Wire {
    fn resolve_address(&mut self) -> io::Result<()>;
    /// Finds the route. Also checks that the address was resolved to the right
    /// device.
    fn resolve_route(&mut self) -> io::Result<()>;
    fn connect(&mut self) -> io::Result<()>;
    /// Starts again with a new id.
    fn renew(&mut self) -> io::Result<()>;
    fn route(&mut self) -> io::Result<Route>;
    fn establish(&mut self) -> io::Result<()>;
    fn accept(&mut self, param: &ConnParam) -> io::Result<()>;
    /// Rejects the request: for the application, with its private data, or because there
    /// was no answer.
    fn reject(&mut self, private_data: Option<&[u8]>) -> io::Result<()>;
    fn disconnect(&mut self) -> io::Result<()>;
}

/// When an acceptance is sent, and how long the requester then has.
pub(super) struct AnswerTimes {
    pub(super) now: Instant,
    /// The acceptance must not reach the requester before this time.
    pub(super) not_before: Option<Instant>,
    /// The time from the acceptance to the requester's report that it is ready.
    pub(super) timeout: Duration,
}

enum State {
    /// Active: resolves the address.
    Resolving,
    /// Active: finds the route.
    Routing,
    /// Active: waits for the answer.
    Requested,
    /// Active: waits until the peer's kernel has forgotten the last connection.
    Paused,
    /// Passive: waits for the application's answer. The flag is shared with the
    /// request.
    Pending(Arc<AtomicBool>),
    /// Passive: accepted, but waits until the requester's kernel has forgotten the
    /// last connection.
    Held(ConnParam),
    /// Passive: accepted; waits for the requester to be ready.
    Accepted,
    /// Passive, iWARP: connected, but waits for the requester's greeting.
    Silent(Arc<Greeting>),
    /// Either side: connected.
    Up,
    /// Either side: a disconnect was sent, or will be when the requester is ready;
    /// waits for the answer.
    Closing,
}

pub(super) struct Session<W> {
    pub(super) wire: W,
    state: State,
    /// `None` until a request is accepted.
    gate: Option<Arc<ConnectionGate>>,
    /// When the session gives up.
    deadline: Option<Instant>,
    /// The time from an acceptance to the requester's report that it is ready.
    accept_timeout: Duration,
    /// The end of the pause.
    pause: Option<Instant>,
    /// The length of the next pause.
    step: Duration,
    /// The greeting that is expected, until the kernel has connected.
    greeting: Option<Arc<Greeting>>,
    /// The next pause before the greeting is checked.
    greeting_pause: Duration,
    /// When the peer's kernel first reported that it remembers the queue pair.
    stale: Option<Instant>,
    /// Whether the kernels will remember the connection.
    remembered: bool,
}

impl<W: Wire> Session<W> {
    /// Creates a session of the active side. The caller has started to resolve the
    /// address.
    pub(super) fn active(wire: W, gate: Arc<ConnectionGate>, deadline: Option<Instant>) -> Self {
        let mut session = Self::new(wire, State::Resolving, deadline);
        session.gate = Some(gate);
        session
    }

    /// Handles an address that could not even be submitted for resolution.
    pub(super) fn unresolved(&mut self, error: &io::Error) -> SessionStatus {
        tracing::debug!(%error, "no route to the peer");
        self.end_with(ConnectionEvent::Unreachable)
    }

    /// Handles a request that the kernel could not even send.
    pub(super) fn unconnected(&mut self, error: &io::Error) -> SessionStatus {
        match (&self.state, error.raw_os_error()) {
            // iWARP: TCP reached the host, where there is no listener (any more).
            (State::Requested, Some(libc::ECONNREFUSED | libc::ECONNRESET)) => {
                self.end_with(ConnectionEvent::NonPeerRejected)
            }
            (State::Requested, _) => self.unresolved(error),
            _ => Continues,
        }
    }

    /// Returns whether the kernel is connecting the session.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Requested | State::Accepted)
    }

    /// Creates a session of the passive side.
    pub(super) fn passive(wire: W, alive: Arc<AtomicBool>) -> Self {
        Self::new(wire, State::Pending(alive), None)
    }

    fn new(wire: W, state: State, deadline: Option<Instant>) -> Self {
        Self {
            wire,
            state,
            gate: None,
            deadline,
            accept_timeout: Duration::MAX,
            pause: None,
            step: PAUSE,
            greeting: None,
            greeting_pause: GREETING_PAUSE,
            stale: None,
            remembered: false,
        }
    }

    /// Returns when [`Session::expire`] has to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.pause).min()
    }

    /// Returns whether the kernels will remember the connection for a while.
    pub(super) fn is_remembered(&self) -> bool {
        self.remembered
    }

    fn begin(&mut self) -> SessionStatus {
        self.state = State::Resolving;
        let done = self.wire.resolve_address();
        self.or_unreachable(done)
    }

    /// Handles an event of the id.
    pub(super) fn handle(
        &mut self,
        event: Event,
        clock: impl FnOnce() -> Instant,
    ) -> SessionStatus {
        match (&self.state, event) {
            (_, Event::Other(number)) => {
                tracing::debug!(number, "ignored an event of rdma_cm");
                Continues
            }
            (State::Resolving, Event::AddressResolved) => {
                self.state = State::Routing;
                let done = self.wire.resolve_route();
                self.or_unreachable(done)
            }
            (State::Routing, Event::RouteResolved) => {
                self.state = State::Requested;
                let done = self.wire.connect();
                self.or_unreachable(done)
            }
            (State::Requested, Event::Accepted(peer_parameters)) => {
                self.accepted(peer_parameters, W::establish)
            }
            // iWARP: the kernels have connected the queue pairs.
            (State::Requested, Event::Established(peer_parameters)) => {
                self.accepted(peer_parameters, |_| Ok(()))
            }
            (
                State::Requested,
                Event::Rejected {
                    reason,
                    private_data,
                },
            ) => self.rejected(reason, &private_data, clock()),
            // iWARP: the TCP connection was established, and ended without an
            // answer.
            (State::Requested, Event::Failed(error)) if error == -libc::EINVAL => {
                self.end_with(ConnectionEvent::NonPeerRejected)
            }
            (
                State::Resolving | State::Routing | State::Requested | State::Paused,
                Event::Failed(_) | Event::DeviceRemoved | Event::Rejected { .. },
            ) => self.end_with(ConnectionEvent::Unreachable),
            (State::Accepted, Event::Established(_)) => {
                self.state = match self.greeting.take() {
                    Some(greeting) => State::Silent(greeting),
                    None => State::Accepted,
                };
                self.await_greeting(clock())
            }
            (State::Silent(greeting), Event::Disconnected) if greeting.has_arrived() => {
                self.up();
                self.handle(Event::Disconnected, clock)
            }
            (State::Up, Event::Disconnected) => {
                // Sends the answer.
                let _ = self.wire.disconnect();
                self.end_with(ConnectionEvent::Disconnected)
            }
            // The peer withdrew its acceptance, or could not become ready.
            (State::Up, Event::Rejected { .. }) => self.end_with(ConnectionEvent::Disconnected),
            (State::Up, Event::Failed(_) | Event::DeviceRemoved) => {
                let _ = self.wire.disconnect();
                self.end_with(ConnectionEvent::Broken)
            }
            // The disconnect has waited for this.
            (State::Closing, Event::Established(_)) => {
                let _ = self.wire.disconnect();
                Continues
            }
            (
                State::Pending(_)
                | State::Held(_)
                | State::Accepted
                | State::Silent(_)
                | State::Closing,
                Event::Disconnected
                | Event::Rejected { .. }
                | Event::Failed(_)
                | Event::DeviceRemoved,
            ) => self.ended(),
            (_, event) => {
                tracing::debug!(?event, "unexpected event of rdma_cm");
                Continues
            }
        }
    }

    /// Handles the end of the deadline or of a pause.
    pub(super) fn expire(&mut self, now: Instant) -> SessionStatus {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            match self.state {
                State::Resolving | State::Routing | State::Requested | State::Paused => {
                    return self.end_with(ConnectionEvent::TimedOut);
                }
                // The kernel rejects the requester when the id is destroyed.
                State::Accepted | State::Silent(_) => {
                    return self.end_with(ConnectionEvent::AcceptFailed);
                }
                State::Closing => return self.end_with(ConnectionEvent::Disconnected),
                State::Pending(_) | State::Held(_) | State::Up => (),
            }
        }
        if self.pause.is_some_and(|pause| pause <= now) {
            self.pause = None;
            match &self.state {
                State::Paused => return self.begin(),
                State::Held(param) => {
                    let param = param.clone();
                    return self.answer(&param, now);
                }
                State::Silent(_) => return self.await_greeting(now),
                _ => (),
            }
        }
        Continues
    }

    /// Accepts the request for the application.
    pub(super) fn accept(
        &mut self,
        gate: Arc<ConnectionGate>,
        param: ConnParam,
        times: &AnswerTimes,
    ) -> SessionStatus {
        self.gate = Some(gate);
        self.accept_timeout = times.timeout;
        if times.not_before.is_some() {
            self.pause = times.not_before;
            self.state = State::Held(param);
            return Continues;
        }
        self.answer(&param, times.now)
    }

    fn answer(&mut self, param: &ConnParam, now: Instant) -> SessionStatus {
        self.state = State::Accepted;
        self.greeting = param.greeting.clone();
        self.deadline = now.checked_add(self.accept_timeout);
        match self.wire.accept(param) {
            Ok(()) => {
                self.remembered = true;
                Continues
            }
            Err(error) => {
                tracing::debug!(%error, "a request cannot be accepted any more");
                self.end_with(ConnectionEvent::AcceptFailed)
            }
        }
    }

    /// Rejects the request: for the application, with its private data, or because there
    /// was no answer.
    pub(super) fn reject(&mut self, private_data: Option<&[u8]>) -> SessionStatus {
        // A requester that has given up need not be notified.
        let _ = self.wire.reject(private_data);
        Ended
    }

    /// Disconnects for the application; waits for the answer until `deadline`.
    pub(super) fn disconnect(&mut self, deadline: Option<Instant>) -> SessionStatus {
        match self.state {
            // When the id is destroyed, the kernel notifies the peer if the peer
            // knows of the request.
            State::Resolving | State::Routing | State::Requested | State::Paused => {
                self.end_with(ConnectionEvent::Disconnected)
            }
            State::Held(_) => {
                let _ = self.wire.reject(None);
                self.end_with(ConnectionEvent::Disconnected)
            }
            // A disconnect is not possible before the requester is ready.
            State::Accepted => {
                self.state = State::Closing;
                self.deadline = deadline;
                Continues
            }
            State::Up | State::Silent(_) => {
                // If the call fails, the peer's disconnect is on its way.
                let _ = self.wire.disconnect();
                self.state = State::Closing;
                self.deadline = deadline;
                Continues
            }
            State::Closing | State::Pending(_) => Continues,
        }
    }

    /// Ends the connection without events; its gate is closed.
    pub(super) fn abort(&mut self) -> SessionStatus {
        if matches!(self.state, State::Up | State::Silent(_)) {
            let _ = self.wire.disconnect();
        }
        Ended
    }

    /// Fails the session: nothing can be served any more.
    pub(super) fn fail(&mut self) {
        let _ = match self.state {
            State::Up => self.end_with(ConnectionEvent::Broken),
            State::Resolving | State::Routing | State::Requested | State::Paused => {
                self.end_with(ConnectionEvent::Unreachable)
            }
            _ => self.ended(),
        };
    }

    /// Starts, on the passive side, to wait for the requester's greeting, if one is
    /// expected.
    fn await_greeting(&mut self, now: Instant) -> SessionStatus {
        match &self.state {
            State::Silent(greeting) if !greeting.has_arrived() => {
                self.pause = now.checked_add(self.greeting_pause);
                self.greeting_pause = (2 * self.greeting_pause).min(LONGEST_GREETING_PAUSE);
            }
            _ => self.up(),
        }
        Continues
    }

    /// Reports, on the passive side, that the requester is ready.
    fn up(&mut self) {
        (self.deadline, self.pause) = (None, None);
        self.state = State::Up;
        self.report(ConnectionEvent::Established);
    }

    /// Active: the sink makes its endpoint ready, and `establish` notifies the
    /// peer; or the connection fails.
    fn accepted(
        &mut self,
        peer_parameters: PeerParameters,
        establish: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> SessionStatus {
        let Some(gate) = self.gate.clone() else {
            return Ended;
        };
        self.deadline = None;
        let route = match self.wire.route() {
            Ok(route) => route,
            Err(error) => {
                // The connection was ended meanwhile.
                tracing::debug!(%error, "an acceptance was no longer valid");
                return self.end_with(ConnectionEvent::NonPeerRejected);
            }
        };
        let (private_data, route) = payload::of_reply(peer_parameters.private_data, route);
        let event = ConnectionEvent::Accepted {
            peer: Peer {
                route,
                reads_served: peer_parameters.reads_served,
                reads_requested: peer_parameters.reads_requested,
            },
            private_data,
        };
        self.remembered = true;
        match gate.call(false, |sink| sink.event(event)) {
            Some(Ok(())) if !gate.is_closed() => match establish(&mut self.wire) {
                Ok(()) => {
                    self.state = State::Up;
                    Continues
                }
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                    self.end_with(ConnectionEvent::Broken)
                }
                Err(error) => {
                    tracing::debug!(%error, "an acceptance was withdrawn");
                    self.end_with(ConnectionEvent::Disconnected)
                }
            },
            _ => {
                gate.close(true);
                let _ = self.wire.reject(None);
                Ended
            }
        }
    }

    /// Handles, on the active side, a rejection by the application or the system.
    fn rejected(&mut self, reason: i32, private_data: &[u8], now: Instant) -> SessionStatus {
        if reason == STALE_CONNECTION {
            let since = *self.stale.get_or_insert(now);
            if self.deadline.is_none() && now.duration_since(since) >= STALE_FOR {
                tracing::warn!("rejected: the peer's kernel still remembers the last connection");
                return self.end_with(ConnectionEvent::NonPeerRejected);
            }
            self.state = State::Paused;
            self.pause = now.checked_add(self.step);
            self.step = (2 * self.step).min(LONGEST_PAUSE);
            let done = self.wire.renew();
            return self.or_unreachable(done);
        }
        tracing::debug!(reason, "rejected");
        self.end_with(match payload::of_refusal(private_data) {
            Some(private_data) if is_consumers(reason) => {
                ConnectionEvent::PeerRejected { private_data }
            }
            _ => ConnectionEvent::NonPeerRejected,
        })
    }

    /// Passive, or closing: handles an end before the connection was established.
    fn ended(&mut self) -> SessionStatus {
        match &self.state {
            State::Pending(alive) => {
                alive.store(false, Ordering::Release);
                Ended
            }
            State::Closing => self.end_with(ConnectionEvent::Disconnected),
            _ => self.end_with(ConnectionEvent::AcceptFailed),
        }
    }

    fn or_unreachable(&mut self, done: io::Result<()>) -> SessionStatus {
        match done {
            Ok(()) => Continues,
            Err(error) => self.unresolved(&error),
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
}

#[cfg(test)]
mod tests;
