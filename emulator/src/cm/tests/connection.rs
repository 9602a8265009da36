//! Connecting, with and without losses.

use super::*;

#[test]
fn both_queue_pairs_get_attributes_that_fit_each_other() {
    let mut pair = Pair::new();
    let (active, passive) = pair.establish();
    let of = |manager: &Manager, id, state| manager.attributes(id, state).unwrap();
    let ends = [(&pair.active, active), (&pair.passive, passive)];
    let [ours, theirs] = ends.map(|(manager, id)| {
        let Attributes::Rtr {
            path,
            remote_qpn,
            rq_psn,
            max_dest_rd_atomic,
        } = of(manager, id, QpState::Rtr)
        else {
            panic!("not RTR");
        };
        let Attributes::Rts {
            sq_psn,
            retry_count,
            rnr_retry_count,
            max_rd_atomic,
            ..
        } = of(manager, id, QpState::Rts)
        else {
            panic!("not RTS");
        };
        let init = of(manager, id, QpState::Init);
        assert_eq!(init, Attributes::Init { remote_reads: true });
        let depths = (max_rd_atomic, max_dest_rd_atomic);
        let retries = (retry_count, rnr_retry_count);
        (path, remote_qpn, (sq_psn, rq_psn), depths, retries)
    });
    assert_eq!((ours.1, theirs.1), (rep().qpn, req().qpn));
    assert_eq!((ours.0, theirs.0), (path(), path().reversed()));
    assert_eq!(ours.2, (70, 50));
    assert_eq!(theirs.2, (50, 70));
    assert_eq!((ours.3, theirs.3), ((4, 3), (3, 4)));
    // The requester decides how often to retry, the receiver how often after an
    // RNR NAK.
    assert_eq!((ours.4, theirs.4), ((6, 2), (6, 5)));
}

#[test]
fn a_lost_message_is_sent_again_whichever_it_is() {
    // REQ, REP, RTU, DREQ, DREP.
    for lost in 0..5 {
        let mut pair = Pair::new();
        let fate = |number| {
            if number == lost {
                Fate::Lost
            } else {
                Fate::Arrives
            }
        };
        let active = pair.connect();
        pair.advance(LONG, fate);
        let passive = pair.request();
        pair.passive.accept(passive, rep()).unwrap();
        pair.advance(LONG, fate);
        assert!(
            matches!(pair.active_events[..], [(_, Event::Reply(_))]),
            "{lost}"
        );
        pair.active.confirm(active).unwrap();
        pair.advance(LONG, fate);
        assert_eq!(
            pair.passive_events,
            [(passive, Event::Established)],
            "{lost}"
        );
        pair.passive.disconnect(passive).unwrap();
        pair.carry(fate);
        pair.advance(LONG, fate);
        pair.active.confirm_disconnect(active).unwrap();
        pair.advance(LONG, fate);
        let active_events: Vec<_> = pair.active_events.iter().skip(1).map(|it| &it.1).collect();
        let expected = [&Event::DisconnectRequested, &Event::TimeWaitOver];
        assert_eq!(active_events, expected, "{lost}");
        let passive_events: Vec<_> = pair.passive_events.iter().skip(1).map(|it| &it.1).collect();
        assert_eq!(
            passive_events,
            [&Event::Disconnected, &Event::TimeWaitOver],
            "{lost}"
        );
    }
}

#[test]
fn a_message_that_arrives_twice_counts_once() {
    let mut pair = Pair::new();
    let active = pair.connect();
    pair.carry(|_| Fate::Twice);
    let passive = pair.request();
    pair.passive.accept(passive, rep()).unwrap();
    pair.carry(|_| Fate::Twice);
    assert!(matches!(pair.active_events[..], [(_, Event::Reply(_))]));
    pair.active.confirm(active).unwrap();
    pair.carry(|_| Fate::Twice);
    assert_eq!(pair.passive_events, [(passive, Event::Established)]);
    pair.active.disconnect(active).unwrap();
    pair.carry(|_| Fate::Twice);
    pair.passive.confirm_disconnect(passive).unwrap();
    pair.carry(|_| Fate::Twice);
    let disconnected = (active, Event::Disconnected);
    assert_eq!(pair.active_events[1..], [disconnected]);
    let requested = (passive, Event::DisconnectRequested);
    assert_eq!(pair.passive_events[1..], [requested]);
}

#[test]
fn a_peer_that_never_answers_is_unreachable_after_all_retries() {
    let mut pair = Pair::new();
    let active = pair.connect();
    let one = timeout(20) + 2 * timeout(17);
    pair.advance(16 * one - 1, |_| Fate::Lost);
    assert_eq!((pair.sent, pair.active_events.len()), (16, 0));
    pair.advance(2, |_| Fate::Lost);
    assert_eq!(pair.active_events, [(active, Event::Unreachable)]);
    assert_eq!(pair.active.disconnect(active), Err(WrongState));
}

#[test]
fn an_accepted_peer_that_never_confirms_is_unreachable() {
    let mut pair = Pair::new();
    pair.connect();
    pair.carry_all();
    let passive = pair.request();
    pair.passive.accept(passive, rep()).unwrap();
    pair.advance(20 * LONG, |_| Fate::Lost);
    assert_eq!(pair.passive_events, [(passive, Event::Unreachable)]);
}

#[test]
fn an_application_may_take_longer_than_all_retries() {
    let mut pair = Pair::new();
    let active = pair.connect();
    pair.carry_all();
    let passive = pair.request();
    pair.passive.delay_reply(passive);
    pair.advance(5 * LONG, |_| Fate::Arrives);
    assert_eq!(pair.active_events, []);
    assert_eq!(pair.passive_events, []);
    pair.passive.accept(passive, rep()).unwrap();
    pair.carry_all();
    assert!(matches!(pair.active_events[..], [(id, Event::Reply(_))] if id == active));
}

#[test]
fn traffic_establishes_a_connection_whose_confirmation_is_late() {
    let mut pair = Pair::new();
    let active = pair.connect();
    pair.carry_all();
    let passive = pair.request();
    assert_eq!(
        pair.passive.established_by_traffic(passive),
        Err(WrongState)
    );
    pair.passive.accept(passive, rep()).unwrap();
    assert_eq!(pair.passive.established_by_traffic(passive), Ok(false));
    assert_eq!(pair.passive.established_by_traffic(passive), Ok(true));
    pair.carry_all();
    pair.active.confirm(active).unwrap();
    pair.carry_all();
    assert_eq!(pair.passive_events, [(passive, Event::Established)]);
}

#[test]
fn operations_in_a_wrong_state_are_refused_and_change_nothing() {
    let mut pair = Pair::new();
    let active = pair.connect();
    let none = [0; Rej::PRIVATE_DATA];
    assert_eq!(pair.active.accept(active, rep()), Err(WrongState));
    assert_eq!(pair.active.confirm(active), Err(WrongState));
    assert_eq!(pair.active.disconnect(active), Err(WrongState));
    assert_eq!(pair.active.confirm_disconnect(active), Err(WrongState));
    assert_eq!(
        pair.active.attributes(active, QpState::Rtr),
        Err(WrongState)
    );
    assert_eq!(pair.active.answer(active, sidr_rep()), Err(WrongState));
    let unknown = CommId(77);
    assert_eq!(
        pair.active.reject(unknown, RejReason::TIMEOUT, none),
        Err(WrongState)
    );
    pair.carry_all();
    let passive = pair.request();
    pair.passive.accept(passive, rep()).unwrap();
    assert_eq!(pair.passive.accept(passive, rep()), Err(WrongState));
    pair.carry_all();
    assert!(matches!(pair.active_events[..], [(_, Event::Reply(_))]));
}

#[test]
fn a_question_for_a_service_is_repeated_and_answered() {
    let mut pair = Pair::new();
    let second = 1_000_000_000;
    let asked = pair
        .active
        .ask(Some(Peer::Process(PASSIVE)), sidr_req(), second, 3);
    pair.advance(2 * second - 1, |number| {
        if number == 0 {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    let [(question, Event::ServiceRequest(req))] = &pair.passive_events[..] else {
        panic!("{:?}", pair.passive_events);
    };
    assert_eq!(**req, sidr_req());
    pair.passive.answer(*question, sidr_rep()).unwrap();
    pair.carry_all();
    let reply = Event::ServiceReply(Box::new(sidr_rep()));
    assert_eq!(pair.active_events, [(asked, reply)]);
    // Nobody answers the second one.
    let second_question = pair
        .active
        .ask(Some(Peer::Process(PASSIVE)), sidr_req(), second, 3);
    pair.advance(4 * second + 1, |_| Fate::Lost);
    let timed_out = (second_question, Event::ServiceTimeout);
    assert_eq!(pair.active_events[1..], [timed_out]);
}
