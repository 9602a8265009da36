//! The wire of a session: turns events of rdma_cm into signals. Has no id: the caller
//! provides one.

use super::event::{NO_LISTENER, STALE_CONNECTION, is_consumers};
use super::payload;
use crate::cm::wire::{Answer, Event, PeerParameters, Signal, Wire};
use crate::cm::{ConnectionEvent, Peer};
use crate::control::Route;
use std::io;
use std::time::Instant;

/// The calls that a link makes to rdma_cm. Results are events.
pub(super) trait Calls: Send {
    fn resolve_address(&mut self) -> io::Result<()>;
    /// Finds the route. Also checks that the address was resolved to the right
    /// device.
    fn resolve_route(&mut self) -> io::Result<()>;
    fn connect(&mut self) -> io::Result<()>;
    /// Starts again with a new id.
    fn renew(&mut self) -> io::Result<()>;
    fn route(&mut self) -> io::Result<Route>;
    fn establish(&mut self) -> io::Result<()>;
    fn notify_established(&mut self) -> io::Result<()>;
    fn held_until(&mut self, answer: &Answer) -> Option<Instant>;
    fn greets(&self) -> bool;
    fn accept(&mut self, answer: &Answer) -> io::Result<()>;
    fn reject(&mut self, private_data: Option<&[u8]>) -> io::Result<()>;
    fn disconnect(&mut self) -> io::Result<()>;
    /// Destroys the id, which the kernel may be `connecting`.
    fn end(self, connecting: bool);
}

/// How far the kernel is with the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Active: resolves the address, or will.
    Resolving,
    /// Active: finds the route.
    Routing,
    /// Active: waits for the answer, or for this side to be ready.
    Requested,
    /// Passive: was requested.
    Pending,
    /// Passive: accepted; waits for the requester to be ready.
    Accepted,
    /// Either side: established, or disconnected by this side.
    Established,
}

pub(super) struct Link<C> {
    calls: C,
    progress: Progress,
    /// iWARP: the kernels have connected the queue pairs.
    connected: bool,
    /// Disconnect when the requester is ready, before which it is not possible.
    disconnects: bool,
    /// Why the request has failed.
    why: String,
}

/// Why a host rejects a request.
const NOTHING_LISTENS: &str = "nothing listens on the qualifier there by rdma_cm: no service point has the \
    qualifier, or the peer's manager is TCP (DAT_CM=socket)";

impl<C: Calls> Link<C> {
    pub(super) fn active(calls: C) -> Self {
        Self::new(calls, Progress::Resolving)
    }

    pub(super) fn passive(calls: C) -> Self {
        Self::new(calls, Progress::Pending)
    }

    fn new(calls: C, progress: Progress) -> Self {
        Self {
            calls,
            progress,
            connected: false,
            disconnects: false,
            why: String::new(),
        }
    }

    /// Returns how far a request is, in words.
    fn progress(&self) -> &'static str {
        match self.progress {
            Progress::Resolving => "the address was not resolved to a port of the device",
            Progress::Routing => "no route was found",
            _ => "the peer has not answered the request",
        }
    }

    /// Reports the acceptance.
    fn accepted(&mut self, parameters: PeerParameters) -> Signal {
        let route = match self.calls.route() {
            Ok(route) => route,
            Err(error) => {
                // The connection was ended meanwhile.
                tracing::debug!(%error, "an acceptance was no longer valid");
                return Signal::Ended(ConnectionEvent::NonPeerRejected);
            }
        };
        let (private_data, route) = payload::of_reply(parameters.private_data, route);
        let peer = Peer {
            route,
            reads_served: parameters.reads_served,
            reads_requested: parameters.reads_requested,
        };
        Signal::Accepted { peer, private_data }
    }
}

fn unreachable_unless(done: io::Result<()>) -> Option<Signal> {
    let error = done.err()?;
    tracing::debug!(%error, "no route to the peer");
    Some(Signal::Ended(ConnectionEvent::Unreachable))
}

impl<C: Calls> Wire for Link<C> {
    fn receive(&mut self, event: Option<Event>) -> Option<Signal> {
        match (self.progress, event?) {
            (_, Event::Other(number)) => {
                tracing::debug!(number, "ignored an event of rdma_cm");
                None
            }
            (Progress::Resolving, Event::AddressResolved) => {
                self.progress = Progress::Routing;
                unreachable_unless(self.calls.resolve_route())
            }
            (Progress::Routing, Event::RouteResolved) => {
                self.progress = Progress::Requested;
                unreachable_unless(self.calls.connect())
            }
            (Progress::Requested, Event::Accepted(parameters)) => Some(self.accepted(parameters)),
            (Progress::Requested, Event::Established(parameters)) => {
                self.connected = true;
                Some(self.accepted(parameters))
            }
            (Progress::Requested, Event::Rejected { reason, .. }) if reason == STALE_CONNECTION => {
                self.progress = Progress::Resolving;
                unreachable_unless(self.calls.renew()).or(Some(Signal::Remembered))
            }
            (
                Progress::Requested,
                Event::Rejected {
                    reason,
                    private_data,
                },
            ) => {
                self.why = match -reason {
                    _ if reason == NO_LISTENER => NOTHING_LISTENS.into(),
                    libc::ECONNREFUSED | libc::ECONNRESET => NOTHING_LISTENS.into(),
                    _ if is_consumers(reason) => {
                        "the peer's program gave no answer, or is no uDAPL program".into()
                    }
                    _ => format!("rdma_cm reports a rejection with the reason {reason}"),
                };
                Some(match payload::of_refusal(&private_data) {
                    Some(private_data) if is_consumers(reason) => {
                        self.why.clear();
                        Signal::Rejected(private_data)
                    }
                    _ => Signal::Ended(ConnectionEvent::NonPeerRejected),
                })
            }
            // iWARP: the TCP connection was established, and ended without an
            // answer; or TCP reached the host, where there is no listener (any more).
            (Progress::Requested, Event::Failed(error)) if error == -libc::EINVAL => {
                self.why = NOTHING_LISTENS.into();
                Some(Signal::Ended(ConnectionEvent::NonPeerRejected))
            }
            (Progress::Requested, Event::Unsent(Some(libc::ECONNREFUSED | libc::ECONNRESET))) => {
                self.why = NOTHING_LISTENS.into();
                Some(Signal::Ended(ConnectionEvent::NonPeerRejected))
            }
            (Progress::Accepted, Event::Established(_)) => {
                self.progress = Progress::Established;
                if self.disconnects {
                    self.disconnect();
                }
                Some(Signal::Ready)
            }
            // The peer withdrew its acceptance, or could not become ready.
            (Progress::Established, Event::Rejected { .. }) => Some(Signal::Disconnected),
            (Progress::Established, Event::Failed(_) | Event::DeviceRemoved) => {
                self.disconnect();
                Some(Signal::Ended(ConnectionEvent::Unreachable))
            }
            (
                Progress::Pending | Progress::Accepted | Progress::Established,
                Event::Disconnected,
            ) => Some(Signal::Disconnected),
            (Progress::Requested, Event::Unsent(_))
            | (_, Event::Rejected { .. } | Event::Failed(_) | Event::DeviceRemoved) => {
                self.why = format!("rdma_cm has failed: {}", self.progress());
                Some(Signal::Ended(ConnectionEvent::Unreachable))
            }
            (_, event) => {
                tracing::debug!(?event, "unexpected event of rdma_cm");
                None
            }
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        self.calls.resolve_address()
    }

    fn why(&self) -> &str {
        &self.why
    }

    fn awaits(&self) -> &'static str {
        self.progress()
    }

    fn held_until(&mut self, answer: &Answer) -> Option<Instant> {
        self.calls.held_until(answer)
    }

    fn greets(&self) -> bool {
        self.calls.greets()
    }

    fn accept(&mut self, answer: &Answer) -> io::Result<()> {
        self.progress = Progress::Accepted;
        self.calls.accept(answer)
    }

    fn reject(&mut self, private_data: Option<&[u8]>) {
        // A requester that has given up need not be notified.
        let _ = self.calls.reject(private_data);
    }

    fn ready(&mut self) -> io::Result<()> {
        if !self.connected {
            self.calls.establish()?;
        }
        self.progress = Progress::Established;
        Ok(())
    }

    /// The ready message of the requester can be lost, and a message on the queue pair can
    /// overtake it. The device reports the first of those (`IBV_EVENT_COMM_EST`), and
    /// rdma_cm then continues as if the ready message had come (`rdma_notify`).
    fn message_received(&mut self) {
        if let Err(error) = self.calls.notify_established() {
            // The kernel has this report already, or the requester has gone.
            tracing::debug!(%error, "cannot report a message that arrived before the connection was established");
        }
    }

    fn disconnect(&mut self) {
        self.disconnects = self.progress == Progress::Accepted;
        if !self.disconnects {
            // If the call fails, the peer's disconnect is on its way.
            let _ = self.calls.disconnect();
        }
    }

    fn answer_disconnect(&mut self) {
        let _ = self.calls.disconnect();
    }

    fn fail(&mut self) {
        let _ = match self.progress {
            Progress::Established => self.calls.disconnect(),
            _ => self.calls.reject(None),
        };
    }

    fn end(self: Box<Self>) {
        let connecting = matches!(self.progress, Progress::Requested | Progress::Accepted);
        self.calls.end(connecting);
    }
}

#[cfg(test)]
mod tests;
