//! Bytes and messages that no manager sends.

use proptest::prelude::*;

use super::*;

fn all() -> Vec<Message> {
    let rej = Rej {
        answers: Answers::Rep,
        guid: Some([5; 8]),
        reason: RejReason::CONSUMER_DEFINED,
        private_data: [7; Rej::PRIVATE_DATA],
    };
    let bodies = [
        Body::Req(Box::new(req())),
        Body::Mra {
            answers: Answers::Req,
            time: 24,
        },
        Body::Rep(Box::new(rep())),
        Body::Rtu,
        Body::Rej(Box::new(rej)),
        Body::Dreq { qpn: 0x03_0001 },
        Body::Drep,
        Body::SidrReq(Box::new(sidr_req())),
        Body::SidrRep(Box::new(sidr_rep())),
    ];
    let message = |body| Message {
        sender: match body {
            Body::SidrRep(_) => CommId::NONE,
            _ => CommId(3),
        },
        receiver: match body {
            Body::Req(_) | Body::SidrReq(_) => CommId::NONE,
            _ => CommId(4),
        },
        body,
    };
    bodies.map(message).to_vec()
}

/// Returns each kind of message as a management datagram.
pub(crate) fn datagrams() -> Vec<Vec<u8>> {
    all().iter().map(encode).collect()
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

/// Returns the bytes of a field, by its offset in the specification.
fn field(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    &bytes[24 + at..24 + at + len]
}

#[test]
fn messages_have_the_layout_that_the_kernel_reads() {
    let [req, mra, rep, .., rej, dreq, _, sidr_req, sidr_rep] = <[Message; 9]>::try_from(all())
        .unwrap()
        .map(|it| encode(&it));
    // Version, class, class version, method; transaction 3; attribute REQ.
    assert_eq!(req[..4], [1, 7, 2, 3]);
    assert_eq!(
        (&req[12..16], &req[16..20]),
        (&[0, 0, 0, 3][..], &[0, 0x10, 0, 0][..])
    );
    assert_eq!(field(&req, 0, 8), [0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(field(&req, 8, 8), SERVICE.to_be_bytes());
    assert_eq!(field(&req, 16, 8), [8; 8]);
    // Queue pair, resources, depth, timeout with RC and flow control.
    assert_eq!(field(&req, 32, 4), [1, 0, 5, 3]);
    assert_eq!(
        (field(&req, 39, 1), field(&req, 43, 1)),
        (&[4][..], &[20 << 3 | 1][..])
    );
    assert_eq!(field(&req, 44, 4), [0, 0, 50, 20 << 3 | 6]);
    assert_eq!(field(&req, 48, 8), [0xff, 0xff, 0x55, 0xf0, 0, 1, 0, 2]);
    assert_eq!(field(&req, 56, 32), [[1; 16], [2; 16]].concat());
    // Flow label and rate; hop limit 0 in the subnet; ack timeout.
    assert_eq!(field(&req, 88, 8), [0, 0, 0x30, 16, 0, 0, 8, 18 << 3]);
    assert_eq!(field(&req, 140, 5), b"hello");
    assert_eq!((field(&mra, 8, 2), mra[17]), (&[0, 24 << 3][..], 0x11));
    // Transaction of the peer, options.
    assert_eq!(
        (&rep[12..16], &rep[20..24]),
        (&[0, 0, 0, 4][..], &[0, 0, 0, 2][..])
    );
    assert_eq!(field(&rep, 12, 4), [2, 0, 7, 0]);
    assert_eq!(
        field(&rep, 20, 8),
        [0, 0, 70, 1, 4, 3, 16 << 3 | 1, 2 << 5 | 0x10]
    );
    assert_eq!(field(&rep, 28, 15), [&[9; 8][..], b"welcome"].concat());
    assert_eq!(field(&rej, 8, 6), [0x40, 16, 0, 28, 5, 5]);
    assert_eq!(field(&rej, 84, 2), [7, 7]);
    assert_eq!((field(&dreq, 8, 4), dreq[17]), (&[3, 0, 1, 0][..], 0x15));
    assert_eq!(field(&sidr_req, 0, 8), [0, 0, 0, 3, 0xff, 0xff, 0, 0]);
    assert_eq!(field(&sidr_req, 16, 6), b"where?");
    assert_eq!(
        field(&sidr_rep, 0, 12),
        [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 9, 0]
    );
    assert_eq!(
        field(&sidr_rep, 12, 12),
        [&SERVICE.to_be_bytes()[..], &[0, 0, 0x12, 0x34]].concat()
    );
    assert_eq!(field(&sidr_rep, 96, 4), b"here");
}

#[test]
fn routed_paths_have_no_lids() {
    let mut message = all().swap_remove(0);
    let Body::Req(req) = &mut message.body else {
        unreachable!("the first message")
    };
    (req.path.hop_limit, req.qp_type) = (64, 3);
    (req.path.slid, req.path.dlid) = (0, 0);
    let bytes = encode(&message);
    assert_eq!(field(&bytes, 52, 4), [0xff; 4]);
    assert_eq!(
        (field(&bytes, 43, 1)[0] >> 1 & 3, field(&bytes, 94, 1)),
        (1, &[0][..])
    );
    assert_eq!(decode(&bytes), Some(message));
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
            pair.passive.receive(Peer::Process(THIRD), message);
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
            pair.passive.receive(Peer::Process(ACTIVE), message);
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
    fn what_decodes_from_any_bytes_encodes_to_the_same_message(
        mut bytes in proptest::collection::vec(any::<u8>(), 256),
        attribute in 0x0f_u8..0x1a, kind: bool,
    ) {
        if kind {
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        }
        bytes[16..18].copy_from_slice(&[0, attribute]);
        let decoded = decode(&bytes);
        prop_assert!(kind || decoded.is_none());
        if let Some(mut message) = decoded {
            if let Body::Req(req) = &mut message.body {
                // Other ends are told a time with a delay, and XRC has two types of ends.
                req.path.packet_life_time = 17;
                req.qp_type = req.qp_type.min(3);
            }
            prop_assert_eq!(decode(&encode(&message)), Some(message));
        }
    }
}
