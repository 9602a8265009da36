//! The tables, compared with a second, independent description.

use std::collections::HashSet;

use super::*;

#[test]
fn a_trigger_has_at_most_one_transition_per_state() {
    let mut seen = HashSet::new();
    for edge in &EDGES {
        assert!(seen.insert((edge.from, edge.trigger)), "{edge:?}");
        assert_eq!(step(edge.from, edge.trigger), Some(edge));
    }
}

#[test]
fn every_state_can_be_reached_and_freed_from() {
    // Tentative endpoints are created in that state.
    let mut reached = HashSet::from([Unconnected, Tentative]);
    loop {
        let more: Vec<_> = EDGES
            .iter()
            .filter(|edge| reached.contains(&edge.from))
            .filter_map(|edge| match edge.to {
                To::State(to) => (!reached.contains(&to)).then_some(to),
                To::Gone => None,
            })
            .collect();
        if more.is_empty() {
            break;
        }
        reached.extend(more);
    }
    assert_eq!(reached.len(), EpState::ALL.len());

    let mut ends = HashSet::new();
    loop {
        let more: Vec<_> = EDGES
            .iter()
            .filter(|edge| !ends.contains(&edge.from))
            .filter(|edge| match edge.to {
                To::State(to) => ends.contains(&to),
                To::Gone => true,
            })
            .map(|edge| edge.from)
            .collect();
        if more.is_empty() {
            break;
        }
        ends.extend(more);
    }
    assert_eq!(ends.len(), EpState::ALL.len());
}

/// A connection event must be true in the state that is entered.
#[test]
fn events_announce_the_state_that_is_entered() {
    for edge in &EDGES {
        let Some(event) = edge.event else { continue };
        let announced = if event == Event::Established {
            Connected
        } else {
            Disconnected
        };
        assert_eq!(edge.to, To::State(announced), "{edge:?}");
    }
    // Every change to these states has an event.
    for edge in &EDGES {
        if let To::State(to @ (Connected | Disconnected)) = edge.to
            && edge.from != to
        {
            assert!(edge.event.is_some(), "{edge:?}");
        }
    }
}

/// A call that is a trigger is legal exactly where a transition begins.
#[test]
fn legal_calls_and_transitions_agree() {
    let pairs = [
        (Call::Connect, Trigger::Connect),
        (Call::Disconnect, Trigger::DisconnectGraceful),
        (Call::Disconnect, Trigger::DisconnectAbrupt),
        (Call::Reset, Trigger::Reset),
        (Call::Free, Trigger::Free),
        (Call::Reserve, Trigger::Reserve),
    ];
    for (call, trigger) in pairs {
        for state in EpState::ALL {
            assert_eq!(
                call.legal().has(state),
                step(state, trigger).is_some(),
                "{call:?} {state:?}"
            );
        }
    }
    for state in EpState::ALL {
        let accepts =
            Call::AcceptNamed.legal().has(state) || Call::AcceptProvided.legal().has(state);
        assert_eq!(accepts, step(state, Trigger::Accept).is_some(), "{state:?}");
    }
}

#[test]
fn refused_calls_name_the_state() {
    let mut refused = 0;
    for call in Call::ALL {
        for state in EpState::ALL {
            if call.legal().has(state) {
                continue;
            }
            refused += 1;
            let code = refused_in(call.legal(), "it", state).code();
            assert_eq!(code.kind(), Some(ReturnType::InvalidState));
            assert_eq!(code.subtype(), Some(state.subtype()));
        }
    }
    assert_eq!(refused, 13 * 9 - LEGAL_PAIRS);
}

/// Counted by hand from the man pages: connect 1, dup model 1, disconnect 5,
/// reset 2, free 6, requests 2, receives 9, reserve 1, accept 1 + 2,
/// modify 2 + 4 + 1.
const LEGAL_PAIRS: usize = 1 + 1 + 5 + 2 + 6 + 2 + 9 + 1 + 3 + 7;

#[test]
fn r08_receives_are_legal_in_every_state() {
    assert!(
        EpState::ALL
            .into_iter()
            .all(|state| Call::PostRecv.legal().has(state))
    );
}

/// The transitions of the active and the passive side, step by step.
#[test]
fn active_and_passive_connections_produce_their_events() {
    let walk = |from: EpState, triggers: &[Trigger]| {
        triggers
            .iter()
            .fold((from, Vec::new()), |(state, mut events), &trigger| {
                let edge = step(state, trigger).unwrap_or_else(|| panic!("{state:?} {trigger:?}"));
                events.extend(edge.event);
                match edge.to {
                    To::State(to) => (to, events),
                    To::Gone => (state, events),
                }
            })
    };
    let active = [
        Trigger::Connect,
        Trigger::PeerAccepted,
        Trigger::DisconnectGraceful,
        Trigger::DisconnectGraceful,
        Trigger::TornDown,
        Trigger::Reset,
        Trigger::Free,
    ];
    assert_eq!(
        walk(Unconnected, &active),
        (Unconnected, vec![Event::Established, Event::Disconnected])
    );
    let passive = [
        Trigger::Reserve,
        Trigger::RequestArrived,
        Trigger::Accept,
        Trigger::TransportReady,
        Trigger::Failed,
        Trigger::DisconnectAbrupt,
        Trigger::Reset,
    ];
    assert_eq!(
        walk(Unconnected, &passive),
        (Unconnected, vec![Event::Established, Event::Broken])
    );
    let refused = [
        Trigger::Accept,
        Trigger::AcceptFailed,
        Trigger::Reset,
        Trigger::Connect,
        Trigger::TimedOut,
    ];
    assert_eq!(
        walk(Unconnected, &refused),
        (
            Disconnected,
            vec![Event::AcceptCompletionError, Event::TimedOut]
        )
    );
}
