//! Bytes and messages that no manager sends.

use proptest::prelude::*;

use super::*;

fn all() -> Vec<Message> {
    let rej = Rej {
        reason: RejReason::CONSUMER_DEFINED,
        private_data: [7; Rej::PRIVATE_DATA],
    };
    let bodies = [
        Body::Req(Box::new(req())),
        Body::Mra(24),
        Body::Rep(Box::new(rep())),
        Body::Rtu,
        Body::Rej(Box::new(rej)),
        Body::Dreq,
        Body::Drep,
        Body::SidrReq(Box::new(sidr_req())),
        Body::SidrRep(Box::new(sidr_rep())),
    ];
    let message = |body| Message {
        sender: CommId(3),
        receiver: CommId(4),
        body,
    };
    bodies.map(message).to_vec()
}

#[test]
fn every_message_survives_its_encoding_and_no_other_length_is_accepted() {
    for message in all() {
        let mut bytes = encode(&message);
        assert_eq!(decode(&bytes), Some(message));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None);
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), None);
    }
}

#[test]
fn private_data_must_fit_their_message() {
    assert!(data_of::<Req>(&[1; 92]).is_some() && data_of::<Req>(&[1; 93]).is_none());
    assert!(data_of::<Rep>(&[1; 196]).is_some() && data_of::<Rep>(&[1; 197]).is_none());
    assert!(data_of::<Rej>(&[1; 148]).is_some() && data_of::<Rej>(&[1; 149]).is_none());
}

proptest! {
    /// Whatever a process sends, the connections of others are not affected.
    #[test]
    fn messages_of_a_third_process_do_not_end_a_connection(
        choices in proptest::collection::vec((0usize..9, 0u32..4, 0u32..4), 0..60),
    ) {
        const THIRD: u8 = 3;
        let mut pair = Pair::new();
        let (active, passive) = pair.establish();
        for (kind, sender, receiver) in choices {
            let mut message = all().swap_remove(kind);
            (message.sender, message.receiver) = (CommId(sender + 1), CommId(receiver));
            pair.passive.receive(THIRD, message);
            pair.carry_all();
        }
        pair.passive_events.clear();
        pair.active.disconnect(active).unwrap();
        pair.carry_all();
        prop_assert_eq!(&pair.passive_events, &[(passive, Event::DisconnectRequested)]);
    }

    /// Whatever the peer sends, nothing panics, and every connection can be
    /// destroyed.
    #[test]
    fn random_messages_of_the_peer_leave_nothing_behind(
        choices in proptest::collection::vec((0usize..9, 0u32..6, 0u32..6, 0u64..9), 0..80),
    ) {
        let mut pair = Pair::new();
        pair.establish();
        for (kind, sender, receiver, wait) in choices {
            let mut message = all().swap_remove(kind);
            (message.sender, message.receiver) = (CommId(sender + 1), CommId(receiver));
            pair.passive.receive(ACTIVE, message);
            pair.advance(wait * 1_000_000_000, |_| Fate::Arrives);
        }
        for id in 0..200 {
            pair.passive.destroy(CommId(id));
        }
        pair.carry_all();
        prop_assert_eq!(pair.passive.peers(), 0);
        prop_assert_eq!(pair.passive.work(pair.now + 1000 * LONG), None);
    }

    #[test]
    fn random_bytes_decode_to_nothing_or_to_what_encodes_to_them(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        if let Some(message) = decode(&bytes) {
            prop_assert_eq!(encode(&message), bytes);
        }
    }
}
