//! Handling the events of the connection manager, on its thread. These functions do not touch the
//! poster. They wait only for a thread that owns an EVD at the moment; if that thread has found
//! this endpoint's failure and waits for this one in turn, it has changed the endpoint's state
//! before.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use dat_engine::cm::{ConnectionEvent, ConnectionSink, Peer};
use dat_engine::{EndpointHandle, Greeting};

use super::Ep;
use super::control::Control;
use crate::state::Trigger;
use crate::types::{EpState, PrivateData};

/// Passes the events of one connection to its endpoint.
pub(super) struct Sink {
    ep: Weak<Ep>,
    /// Whether the endpoint connects and therefore sends the first write (iWARP).
    greets: bool,
    /// If the endpoint accepts: waits for the requester's first write (iWARP).
    greeting: Option<Arc<Greeting>>,
}

impl Sink {
    /// Returns the sink of an endpoint that connects.
    pub(super) fn connecting(ep: &Arc<Ep>, qp: &EndpointHandle) -> Arc<Self> {
        Arc::new(Self {
            ep: Arc::downgrade(ep),
            greets: qp.prepare_request(),
            greeting: None,
        })
    }

    /// Returns the sink of an endpoint that accepts.
    pub(super) fn accepting(ep: &Arc<Ep>, greeting: Option<Arc<Greeting>>) -> Arc<Self> {
        Arc::new(Self {
            ep: Arc::downgrade(ep),
            greets: false,
            greeting,
        })
    }
}

impl ConnectionSink for Sink {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        // An endpoint drops its connection before it is freed.
        let ep = self.ep.upgrade().ok_or(())?;
        if event.is_terminal() && ep.state() == EpState::Connected {
            // A failed request may be the reason why the peer disconnected, and is reported with
            // more detail.
            ep.poll_for_failures();
        }
        let mut control = ep.control();
        match event {
            ConnectionEvent::Accepted { peer, private_data } => {
                return ep.accepted(&mut control, &peer, private_data);
            }
            other => {
                if let Some(trigger) = trigger(&other, ep.state()) {
                    let data = match other {
                        ConnectionEvent::PeerRejected { private_data } => private_data,
                        _ => Vec::new(),
                    };
                    let with = store(&mut control, data);
                    ep.step_with(&mut control, trigger, with);
                }
            }
        }
        Ok(())
    }

    fn greets(&self) -> bool {
        self.greets
    }

    fn greeting(&self) -> Option<Arc<Greeting>> {
        self.greeting.clone()
    }
}

/// Stores the private data of an event, which the application reads later.
fn store(control: &mut Control, private_data: Vec<u8>) -> PrivateData {
    if private_data.is_empty() {
        return PrivateData::default();
    }
    control.private_data = private_data.into_boxed_slice();
    PrivateData {
        address: control.private_data.as_ptr().expose_provenance(),
        len: u32::try_from(control.private_data.len()).unwrap_or(u32::MAX),
    }
}

/// Returns what an event means in a state; `None` if it comes too late.
fn trigger(event: &ConnectionEvent, state: EpState) -> Option<Trigger> {
    use EpState::{ActiveConnectionPending, CompletionPending, Connected, DisconnectPending};
    Some(match (state, event) {
        (ActiveConnectionPending, ConnectionEvent::PeerRejected { .. }) => Trigger::PeerRejected,
        (ActiveConnectionPending, ConnectionEvent::Unreachable) => Trigger::Unreachable,
        (ActiveConnectionPending, ConnectionEvent::TimedOut) => Trigger::TimedOut,
        (ActiveConnectionPending, _) => Trigger::NonPeerRejected,
        (CompletionPending, ConnectionEvent::Established) => Trigger::TransportReady,
        (CompletionPending, _) => Trigger::AcceptFailed,
        // The state is already `Connected`.
        (Connected, ConnectionEvent::Established) => return None,
        (Connected, ConnectionEvent::Disconnected) => Trigger::PeerDisconnected,
        (Connected, _) => Trigger::Failed,
        (DisconnectPending, ConnectionEvent::Established) => return None,
        // Any end of the connection completes the disconnect.
        (DisconnectPending, _) => Trigger::TornDown,
        _ => return None,
    })
}

impl Ep {
    /// Handles the peer's accept: connects the queue pair, and notifies the peer.
    fn accepted(
        &self,
        control: &mut Control,
        peer: &Peer,
        private_data: Vec<u8>,
    ) -> Result<(), ()> {
        if self.state() != EpState::ActiveConnectionPending {
            return Err(());
        }
        let moved = self.bring_up(control, peer);
        if let Err(error) = moved {
            tracing::error!(
                "the queue pair of an accepted connection cannot be connected: {error}"
            );
            self.step(control, Trigger::NonPeerRejected);
            return Err(());
        }
        let with = store(control, private_data);
        self.step_with(control, Trigger::PeerAccepted, with);
        Ok(())
    }

    /// Brings the queue pair to RTS.
    pub(super) fn bring_up(
        &self,
        control: &Control,
        peer: &Peer,
    ) -> Result<(), dat_engine::ControlError> {
        let mut options = self.options(&control.attributes);
        // More reads than the peer serves would break the connection.
        options.reads_issued = options.reads_issued.min(peer.reads_served);
        if let Some(qp) = &control.qp {
            qp.connect_by(&peer.route, &options)?;
        }
        self.reads_issued
            .store(options.reads_issued.into(), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::step;

    /// Every event leads to a transition of the table, and no terminal event is ignored while a
    /// connection is pending.
    #[test]
    fn every_connection_event_has_a_state_transition() {
        let events = [
            ConnectionEvent::PeerRejected {
                private_data: Vec::new(),
            },
            ConnectionEvent::NonPeerRejected,
            ConnectionEvent::Unreachable,
            ConnectionEvent::TimedOut,
            ConnectionEvent::Established,
            ConnectionEvent::AcceptFailed,
            ConnectionEvent::Disconnected,
            ConnectionEvent::Broken,
        ];
        for state in EpState::ALL {
            for event in &events {
                let found = trigger(event, state);
                if let Some(trigger) = found {
                    assert!(step(state, trigger).is_some(), "{state:?} {event:?}");
                }
                let pending = matches!(
                    state,
                    EpState::ActiveConnectionPending
                        | EpState::CompletionPending
                        | EpState::Connected
                        | EpState::DisconnectPending
                );
                if pending && event.is_terminal() {
                    assert!(found.is_some(), "{state:?} {event:?}");
                }
            }
        }
    }
}
