//! Messages for the fuzzer.

use crate::cm::Body;
use crate::cm::message::{Ece, Message, Rep, data_of};
use crate::cm::wire::{decode, encode};

/// Checks that a message is the same after it was sent.
pub(crate) fn encodes_again(message: &Message) {
    let mut message = message.clone();
    if let Body::Req(req) = &mut message.body {
        // Other ends are told a time with a delay, and XRC has two types of ends.
        req.path.packet_life_time = 17;
        req.qp_type = req.qp_type.min(3);
    }
    assert_eq!(decode(&encode(&message)), Some(message));
}

/// Returns an acceptance.
pub(crate) fn rep() -> Rep {
    Rep {
        qpn: 0x02_0007,
        guid: [9; 8],
        starting_psn: 70,
        responder_resources: 4,
        initiator_depth: 3,
        flow_control: true,
        rnr_retry_count: 2,
        srq: true,
        target_ack_delay: 16,
        ece: Ece::default(),
        private_data: data_of::<Rep>(b"welcome").expect("they fit"),
    }
}
