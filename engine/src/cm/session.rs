//! One connection: its states, and the effect of each signal. Has no wire, no clock and no
//! thread of its own: the caller provides these.
//!
//! Decision: `docs/decisions/040-reconnect-while-remembered.md`

use super::wire::{Answer, ConnectionGate, Event, Signal, Wire};
use super::{ConnectionEvent, Target};
use crate::control::Greeting;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The first pause before a request that came too early is repeated, and the
/// longest pause.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);
/// The first pause before a greeting is checked again, and the longest pause.
const GREETING_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_GREETING_PAUSE: Duration = Duration::from_millis(2);
/// How long a request without a timeout is repeated: several times longer than any
/// kernel remembers a connection.
pub(super) const STALE_FOR: Duration = Duration::from_secs(8);

/// Whether a session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum SessionStatus {
    Continues,
    Ended,
}

use SessionStatus::{Continues, Ended};

enum SessionPhase {
    /// Active: waits for the answer.
    Requesting,
    /// Active: waits until the peer's kernel has forgotten the last connection.
    Paused,
    /// Passive: waits for the application's answer. The flag is shared with the
    /// request.
    Pending(Arc<AtomicBool>),
    /// Passive: accepted, but waits until the requester's kernel has forgotten the
    /// last connection.
    Held(Answer),
    /// Passive: accepted; waits for the requester to be ready.
    Accepted(Option<Arc<Greeting>>),
    /// Passive, iWARP: connected, but waits for the requester's greeting.
    Silent(Arc<Greeting>),
    /// Either side: connected.
    Up,
    /// Either side: a disconnect was sent, or will be when the requester is ready;
    /// waits for the answer.
    Closing,
}

pub(super) struct Session {
    pub(super) wire: Box<dyn Wire>,
    state: SessionPhase,
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
    /// When the peer's kernel first reported that it remembers the queue pair.
    stale: Option<Instant>,
    /// Active: for a warning, if the connection fails.
    to: Option<Target>,
}

impl Session {
    /// Creates a session of the active side, which [`Self::begin`] starts.
    pub(super) fn active(
        wire: Box<dyn Wire>,
        gate: Arc<ConnectionGate>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            gate: Some(gate),
            deadline,
            step: PAUSE,
            ..Self::new(wire, SessionPhase::Requesting, Duration::MAX)
        }
    }

    /// Names the peer in warnings.
    pub(super) fn to(self, to: Target) -> Self {
        let to = Some(to);
        Self { to, ..self }
    }

    /// Creates a session of the passive side, whose request waits for its answer as long as
    /// `alive` is set.
    pub(super) fn passive(
        wire: Box<dyn Wire>,
        alive: Arc<AtomicBool>,
        accept_timeout: Duration,
    ) -> Self {
        Self::new(wire, SessionPhase::Pending(alive), accept_timeout)
    }

    fn new(wire: Box<dyn Wire>, state: SessionPhase, accept_timeout: Duration) -> Self {
        Self {
            wire,
            state,
            gate: None,
            deadline: None,
            accept_timeout,
            pause: None,
            step: GREETING_PAUSE,
            stale: None,
            to: None,
        }
    }

    /// Returns whether it waits for the application's answer.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state, SessionPhase::Pending(_))
    }

    /// Returns when [`Session::expire`] has to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.pause).min()
    }

    /// Starts to request the connection.
    pub(super) fn begin(&mut self) -> SessionStatus {
        self.state = SessionPhase::Requesting;
        match self.wire.begin() {
            Ok(()) => Continues,
            Err(error) => {
                tracing::debug!(%error, "no route to the peer");
                self.end_with(ConnectionEvent::Unreachable)
            }
        }
    }

    /// Handles everything that the wire has received.
    pub(super) fn receive(
        &mut self,
        mut event: Option<Event>,
        clock: impl Fn() -> Instant,
    ) -> SessionStatus {
        while let Some(signal) = self.wire.receive(event.take()) {
            if self.handle(signal, &clock) == Ended {
                return Ended;
            }
        }
        Continues
    }

    fn handle(&mut self, signal: Signal, clock: &impl Fn() -> Instant) -> SessionStatus {
        match (&self.state, signal) {
            (SessionPhase::Requesting, Signal::Accepted { peer, private_data }) => {
                self.deadline = None;
                self.accepted(ConnectionEvent::Accepted { peer, private_data })
            }
            (SessionPhase::Requesting, Signal::Rejected(private_data)) => {
                self.end_with(ConnectionEvent::PeerRejected { private_data })
            }
            (SessionPhase::Requesting, Signal::Remembered) => self.request_later(clock()),
            (SessionPhase::Requesting | SessionPhase::Paused, Signal::Ended(event)) => {
                self.end_with(event)
            }
            (SessionPhase::Accepted(greeting), Signal::Ready) => {
                if let Some(greeting) = greeting.clone() {
                    self.state = SessionPhase::Silent(greeting);
                }
                self.await_greeting(clock())
            }
            (SessionPhase::Silent(greeting), Signal::Disconnected) if greeting.has_arrived() => {
                self.up();
                self.handle(Signal::Disconnected, clock)
            }
            (SessionPhase::Up, Signal::Disconnected) => {
                self.wire.answer_disconnect();
                self.end_with(ConnectionEvent::Disconnected)
            }
            // It crossed with the disconnect of this side.
            (SessionPhase::Closing, Signal::Ready) => Continues,
            (_, Signal::Disconnected | Signal::Ended(_)) => self.ended(),
            (_, signal) => {
                tracing::warn!(?signal, "connection ended: unexpected message");
                self.ended()
            }
        }
    }

    /// Handles the end of the deadline or of a pause.
    pub(super) fn expire(&mut self, now: Instant) -> SessionStatus {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            match self.state {
                SessionPhase::Requesting | SessionPhase::Paused => {
                    self.wire.withdraw();
                    return self.end_with(ConnectionEvent::TimedOut);
                }
                // If the requester becomes ready later, it learns that it is too late.
                SessionPhase::Accepted(_) | SessionPhase::Silent(_) => {
                    tracing::debug!("accepted, but not ready in time: dropped");
                    self.wire.withdraw();
                    return self.end_with(ConnectionEvent::AcceptFailed);
                }
                SessionPhase::Closing => return self.end_with(ConnectionEvent::Disconnected),
                SessionPhase::Pending(_) | SessionPhase::Held(_) | SessionPhase::Up => (),
            }
        }
        if self.pause.is_some_and(|pause| pause <= now) {
            self.pause = None;
            match &self.state {
                SessionPhase::Paused => return self.begin(),
                SessionPhase::Held(answer) => return self.answer(answer.clone(), now),
                SessionPhase::Silent(_) => return self.await_greeting(now),
                _ => (),
            }
        }
        Continues
    }

    /// Accepts the request for the application. The requester has a limited time to report
    /// that it is ready.
    pub(super) fn accept(
        &mut self,
        gate: Arc<ConnectionGate>,
        mut answer: Answer,
        now: Instant,
    ) -> SessionStatus {
        if self.wire.greets() {
            answer.greeting = gate.call(false, |sink| sink.greeting()).flatten();
        }
        self.gate = Some(gate);
        self.pause = self.wire.held_until(&answer).filter(|&until| until > now);
        if self.pause.is_some() {
            self.state = SessionPhase::Held(answer);
            return Continues;
        }
        self.answer(answer, now)
    }

    fn answer(&mut self, answer: Answer, now: Instant) -> SessionStatus {
        let sent = self.wire.accept(&answer);
        self.state = SessionPhase::Accepted(answer.greeting);
        self.deadline = now.checked_add(self.accept_timeout);
        match sent {
            Ok(()) => Continues,
            Err(error) => {
                tracing::debug!(%error, "a request cannot be accepted any more");
                self.end_with(ConnectionEvent::AcceptFailed)
            }
        }
    }

    /// Rejects the request: for the application, with its private data, or because there
    /// was no answer.
    pub(super) fn reject(&mut self, private_data: Option<&[u8]>) -> SessionStatus {
        self.wire.reject(private_data);
        Ended
    }

    /// Disconnects for the application; waits for the answer until `deadline`.
    pub(super) fn disconnect(&mut self, deadline: Option<Instant>) -> SessionStatus {
        match self.state {
            SessionPhase::Requesting | SessionPhase::Paused => {
                self.wire.withdraw();
                self.end_with(ConnectionEvent::Disconnected)
            }
            SessionPhase::Held(_) => {
                self.wire.reject(None);
                self.end_with(ConnectionEvent::Disconnected)
            }
            SessionPhase::Accepted(_) | SessionPhase::Up | SessionPhase::Silent(_) => {
                self.wire.disconnect();
                self.state = SessionPhase::Closing;
                self.deadline = deadline;
                Continues
            }
            SessionPhase::Closing | SessionPhase::Pending(_) => Continues,
        }
    }

    /// Ends the connection without events; its gate is closed.
    pub(super) fn abort(&mut self) -> SessionStatus {
        match self.state {
            SessionPhase::Requesting | SessionPhase::Paused | SessionPhase::Accepted(_) => {
                self.wire.withdraw()
            }
            SessionPhase::Up | SessionPhase::Silent(_) => self.wire.disconnect(),
            SessionPhase::Pending(_) | SessionPhase::Held(_) | SessionPhase::Closing => (),
        }
        Ended
    }

    /// Ends the connection as [`Self::abort`] does, after a failure.
    pub(super) fn fail(&mut self) -> SessionStatus {
        if !matches!(self.state, SessionPhase::Up) {
            return self.abort();
        }
        self.wire.fail();
        Ended
    }

    /// Ends the session since nothing can be served any more.
    pub(super) fn give_up(&mut self) {
        let _ = self.handle(Signal::Ended(ConnectionEvent::Unreachable), &Instant::now);
    }

    /// Waits, on the passive side, for the requester's greeting, if one is expected.
    fn await_greeting(&mut self, now: Instant) -> SessionStatus {
        match &self.state {
            SessionPhase::Silent(greeting) if !greeting.has_arrived() => {
                self.pause = now.checked_add(self.step);
                self.step = (2 * self.step).min(LONGEST_GREETING_PAUSE);
            }
            _ => self.up(),
        }
        Continues
    }

    /// Reports, on the passive side, that the requester is ready.
    fn up(&mut self) {
        (self.deadline, self.pause) = (None, None);
        self.state = SessionPhase::Up;
        self.report(ConnectionEvent::Established);
    }

    /// Active: the sink makes its endpoint ready, and the peer is notified; or the
    /// connection fails.
    fn accepted(&mut self, event: ConnectionEvent) -> SessionStatus {
        let Some(gate) = self.gate.clone() else {
            return Ended;
        };
        match gate.call(false, |sink| sink.event(event)) {
            Some(Ok(())) if !gate.is_closed() => match self.wire.ready() {
                Ok(()) => {
                    self.state = SessionPhase::Up;
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
                self.wire.fail();
                Ended
            }
        }
    }

    /// Active: requests again after a pause, since the peer's kernel remembers the last
    /// connection of the queue pair.
    fn request_later(&mut self, now: Instant) -> SessionStatus {
        let since = *self.stale.get_or_insert(now);
        if self.deadline.is_none() && now.duration_since(since) >= STALE_FOR {
            tracing::warn!("rejected: the peer's kernel still remembers the last connection");
            return self.end_with(ConnectionEvent::NonPeerRejected);
        }
        self.state = SessionPhase::Paused;
        self.pause = now.checked_add(self.step);
        self.step = (2 * self.step).min(LONGEST_PAUSE);
        Continues
    }

    /// Handles the end of the connection in a state for which it has no other meaning.
    fn ended(&mut self) -> SessionStatus {
        match &self.state {
            SessionPhase::Pending(alive) => {
                alive.store(false, Ordering::Release);
                Ended
            }
            SessionPhase::Requesting | SessionPhase::Paused => {
                self.end_with(ConnectionEvent::NonPeerRejected)
            }
            SessionPhase::Held(_) | SessionPhase::Accepted(_) | SessionPhase::Silent(_) => {
                self.end_with(ConnectionEvent::AcceptFailed)
            }
            SessionPhase::Up => self.end_with(ConnectionEvent::Broken),
            SessionPhase::Closing => self.end_with(ConnectionEvent::Disconnected),
        }
    }

    /// Reports a terminal event.
    fn end_with(&mut self, event: ConnectionEvent) -> SessionStatus {
        if let (SessionPhase::Requesting | SessionPhase::Paused, Some(to)) = (&self.state, &self.to)
        {
            let awaits = match self.state {
                SessionPhase::Paused => "the peer's kernel still remembers the last connection",
                _ => self.wire.awaits(),
            };
            warn_of_failure(to, &event, self.wire.why(), awaits);
        }
        self.report(event);
        Ended
    }

    fn report(&self, event: ConnectionEvent) {
        if let Some(gate) = &self.gate {
            let _ = gate.call(event.is_terminal(), |sink| sink.event(event));
        }
    }
}

/// Says why a request has failed, since events have no words: `why` is what its wire knows, and
/// `awaits` what it waited for.
pub(super) fn warn_of_failure(to: &Target, event: &ConnectionEvent, why: &str, awaits: &str) {
    let (host, qualifier) = (to.host.ip().to_canonical(), to.qualifier);
    let known = |otherwise| if why.is_empty() { otherwise } else { why };
    let (what, why) = match event {
        ConnectionEvent::PeerRejected { .. } => ("refused", "the peer's program rejected it"),
        ConnectionEvent::NonPeerRejected => ("refused", known("the peer has ended the request")),
        ConnectionEvent::Unreachable => ("failed", known("the host cannot be reached")),
        ConnectionEvent::TimedOut => ("timed out", awaits),
        _ => return,
    };
    tracing::warn!("the connection to {host}, qualifier {qualifier}, {what}: {why}");
}
