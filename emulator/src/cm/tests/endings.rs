//! Refusals, disconnects, destroyed connections and dead processes.

use super::*;

fn rejected(answers: Answers, reason: RejReason, data: &[u8]) -> Event {
    let private_data = data_of::<Rej>(data).unwrap();
    Event::Rejected(Box::new(Rej {
        answers,
        guid: None,
        reason,
        private_data,
    }))
}

#[test]
fn a_refusal_carries_the_reason_and_private_data() {
    let mut pair = Pair::new();
    let active = pair.connect();
    pair.carry_all();
    let passive = pair.request();
    let data = data_of::<Rej>(b"no").unwrap();
    let reason = RejReason::CONSUMER_DEFINED;
    pair.passive.reject(passive, reason, data).unwrap();
    pair.carry_all();
    assert_eq!(
        pair.active_events,
        [(active, rejected(Answers::Req, reason, b"no"))]
    );
    assert_eq!(pair.passive.reject(passive, reason, data), Err(WrongState));
    assert_eq!(pair.passive.accept(passive, rep()), Err(WrongState));
}

#[test]
fn a_refusal_of_a_request_need_not_name_its_sender() {
    // The kernel's manager names no connection of its own if it refuses a request.
    let mut pair = Pair::new();
    let active = pair.connect();
    let reason = RejReason::CONSUMER_DEFINED;
    let Event::Rejected(rej) = rejected(Answers::Req, reason, b"no") else {
        unreachable!("a refusal")
    };
    let refusal = Message {
        sender: CommId::NONE,
        receiver: active,
        body: Body::Rej(rej),
    };
    let refusal = decode(&encode(&refusal)).expect("encoded by us");
    pair.active.receive(Peer::Process(PASSIVE), refusal);
    let (id, event) = pair.active.next_event().expect("a refusal");
    assert_eq!((id, event), (active, rejected(Answers::Req, reason, b"no")));
}

#[test]
fn without_a_listener_the_request_is_refused_at_once() {
    let mut pair = Pair::new();
    let active = pair.active.connect(None, req());
    let asked = pair.active.ask(None, sidr_req(), 1, 1);
    pair.carry_all();
    assert_eq!(pair.sent, 0);
    let refused = (
        active,
        rejected(Answers::Other, RejReason::INVALID_SERVICE_ID, b""),
    );
    let unsupported = Event::ServiceReply(Box::new(SidrRep {
        service_id: 0,
        status: SidrStatus::UNSUPPORTED,
        qpn: 0,
        qkey: 0,
        private_data: [0; SidrRep::PRIVATE_DATA],
        ..sidr_rep()
    }));
    assert_eq!(pair.active_events, [refused, (asked, unsupported)]);
}

#[test]
fn both_ends_may_disconnect_at_once() {
    let mut pair = Pair::new();
    let (active, passive) = pair.establish();
    pair.active.disconnect(active).unwrap();
    pair.passive.disconnect(passive).unwrap();
    pair.carry_all();
    assert_eq!(pair.active_events, [(active, Event::DisconnectRequested)]);
    assert_eq!(pair.passive_events, [(passive, Event::DisconnectRequested)]);
    pair.active.confirm_disconnect(active).unwrap();
    pair.carry_all();
    pair.advance(LONG, |_| Fate::Arrives);
    let last = |events: &[(CommId, Event)]| events.last().map(|it| it.1.clone());
    assert_eq!(last(&pair.active_events), Some(Event::TimeWaitOver));
    assert_eq!(last(&pair.passive_events), Some(Event::TimeWaitOver));
}

#[test]
fn a_disconnect_that_is_never_confirmed_times_out() {
    let mut pair = Pair::new();
    let (active, passive) = pair.establish();
    pair.active.disconnect(active).unwrap();
    pair.advance(20 * LONG, |_| Fate::Arrives);
    // The application on the other side does nothing.
    assert_eq!(pair.passive_events, [(passive, Event::DisconnectRequested)]);
    let expected = [
        (active, Event::DisconnectTimeout),
        (active, Event::TimeWaitOver),
    ];
    assert_eq!(pair.active_events, expected);
}

#[test]
fn destroying_an_end_tells_the_other_in_every_state() {
    // Requested, accepted, replied, established, disconnecting.
    for state in 0..5 {
        for by_active in [true, false] {
            let mut pair = Pair::new();
            let active = pair.connect();
            pair.carry_all();
            let passive = pair.request();
            if state >= 1 {
                pair.passive.accept(passive, rep()).unwrap();
            }
            if state >= 2 {
                pair.carry_all();
            }
            if state >= 3 {
                pair.active.confirm(active).unwrap();
                pair.carry_all();
            }
            if state >= 4 {
                let (manager, id) = if by_active {
                    (&mut pair.passive, passive)
                } else {
                    (&mut pair.active, active)
                };
                manager.disconnect(id).unwrap();
                pair.carry_all();
            }
            pair.active_events.clear();
            pair.passive_events.clear();
            if by_active {
                pair.active.destroy(active);
            } else {
                pair.passive.destroy(passive);
            }
            pair.carry_all();
            let heard = if by_active {
                &pair.passive_events
            } else {
                &pair.active_events
            };
            let last = heard.last().map(|it| &it.1);
            let is_told = match state {
                0..=2 => matches!(last, Some(Event::Rejected(_))),
                3 => last == Some(&Event::DisconnectRequested),
                _ => last == Some(&Event::Disconnected),
            };
            assert!(is_told, "state {state}, by active {by_active}: {heard:?}");
            // Nothing is left of the destroyed end, and nothing is repeated.
            let sent = pair.sent;
            let survivor = if by_active { PASSIVE } else { ACTIVE };
            if survivor == PASSIVE {
                pair.passive.destroy(passive);
            } else {
                pair.active.destroy(active);
            }
            pair.carry_all();
            pair.advance(20 * LONG, |_| Fate::Arrives);
            assert!(
                pair.sent <= sent + 2,
                "state {state}: {} messages",
                pair.sent - sent
            );
            assert!(pair.active.peers() == 0 && pair.passive.peers() == 0);
        }
    }
}

#[test]
fn the_death_of_a_process_ends_its_connections() {
    let mut pair = Pair::new();
    let waiting = pair.connect();
    pair.carry(|_| Fate::Lost);
    pair.active.peer_died(PASSIVE);
    pair.carry_all();
    let invalid = rejected(Answers::Other, RejReason::INVALID_SERVICE_ID, b"");
    assert_eq!(pair.active_events, [(waiting, invalid)]);

    let mut pair = Pair::new();
    let (active, passive) = pair.establish();
    pair.passive.peer_died(ACTIVE);
    pair.active.peer_died(PASSIVE);
    pair.carry_all();
    assert_eq!(pair.active_events, [(active, Event::DisconnectRequested)]);
    assert_eq!(pair.passive_events, [(passive, Event::DisconnectRequested)]);
    // Confirming is possible, and reaches nobody.
    pair.active.confirm_disconnect(active).unwrap();
    pair.advance(LONG, |_| Fate::Arrives);
    assert_eq!(
        pair.active_events.last(),
        Some(&(active, Event::TimeWaitOver))
    );

    let mut pair = Pair::new();
    pair.connect();
    pair.carry_all();
    let request = pair.request();
    pair.passive.peer_died(ACTIVE);
    pair.carry_all();
    let timeout = rejected(Answers::Other, RejReason::TIMEOUT, b"");
    assert_eq!(pair.passive_events, [(request, timeout)]);
}

#[test]
fn a_later_process_in_the_same_slot_is_another_one() {
    let mut pair = Pair::new();
    let (_, passive) = pair.establish();
    // The process dies and its successor counts its connections from 1 again.
    pair.passive.peer_died(ACTIVE);
    pair.active = Manager::default();
    pair.passive_events.clear();
    pair.connect();
    pair.carry_all();
    let events = &pair.passive_events;
    let requests = events.iter().filter(|it| matches!(it.1, Event::Request(_)));
    assert_eq!(requests.count(), 1, "{events:?}");
    assert!(events.contains(&(passive, Event::DisconnectRequested)));
}

#[test]
fn an_ignored_request_is_new_when_it_is_repeated() {
    let mut pair = Pair::new();
    pair.connect();
    pair.carry_all();
    let first = pair.request();
    pair.passive.ignore_request(first);
    pair.advance(LONG / 10, |_| Fate::Arrives);
    let second = pair.request();
    assert_ne!(first, second);
    pair.passive.accept(second, rep()).unwrap();
    pair.carry_all();
    assert!(matches!(pair.active_events[..], [(_, Event::Reply(_))]));
}
