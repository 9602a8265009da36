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
