//! Private data, which rdma_cm pads with zeroes: 56 bytes arrive with every
//! request, 196 with every acceptance, 148 with every refusal.
//!
//! The data itself begins at byte 0, as other programs send and expect it. So
//! that two of ours know the length, the last 4 bytes of what travels are a
//! trailer: 3 bytes of magic, and the length. Data that leaves no room for it
//! (53 to 55 bytes of a request), or of other programs, arrives padded.
//!
//! On iWARP nothing is padded, and the kernels carry more ([`iwarp`]).

use crate::control::{Route, Transport};

/// Most bytes that every message of InfiniBand and RoCE carries.
const MAX_PRIVATE_DATA: usize = 56;

/// Most bytes that every message carries on a transport.
pub(in crate::cm) fn max_private_data(transport: Transport) -> usize {
    match transport {
        Transport::Iwarp => iwarp::MAX_PRIVATE_DATA,
        _ => MAX_PRIVATE_DATA,
    }
}

/// The bytes of a request.
pub(super) fn request(data: &[u8], transport: Transport) -> Vec<u8> {
    match transport {
        Transport::Iwarp => data.to_vec(),
        _ => wrap(data, REQUEST),
    }
}

/// The bytes of an acceptance.
pub(super) fn reply(data: &[u8], transport: Transport) -> Vec<u8> {
    match transport {
        Transport::Iwarp => data.to_vec(),
        _ => wrap(data, REPLY),
    }
}

/// What was sent, of what arrived by this way.
pub(super) fn received(bytes: Vec<u8>, route: &Route) -> Vec<u8> {
    match route {
        Route::Iwarp => bytes,
        _ => unwrap(bytes),
    }
}

mod iwarp {
    //! MPA (RFC 5044) has room for 512 bytes, of which the enhanced connection
    //! setup (RFC 6581) takes 4. Linux's interface to user space counts the
    //! bytes in 8 bits (`struct rdma_ucm_conn_param`), and siw counts those 4
    //! with them in 8 bits, too (`siw_send_mpareqrep` in
    //! drivers/infiniband/sw/siw/siw_cm.c): 251 are left. 16 of them are kept
    //! for a trailer.

    /// Most bytes that every message carries.
    pub(super) const MAX_PRIVATE_DATA: usize = 255 - 4 - 16;
}
/// What a request carries.
const REQUEST: usize = 56;
/// What an acceptance carries.
const REPLY: usize = 196;

const MAGIC: [u8; 3] = [0xda, 0x7a, 0x1e];
const TRAILER: usize = MAGIC.len() + 1;

/// What the application's refusal carries: the DAT provider of OFED takes a
/// refusal whose first 4 bytes are zero for that of the system.
pub(super) const REFUSAL: [u8; 4] = [1, 2, 1, 0];

/// The bytes to send with a message that has room for `room`.
fn wrap(data: &[u8], room: usize) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let (Some(end), Ok(length)) = (room.checked_sub(TRAILER), u8::try_from(data.len()))
        && data.len() <= end
    {
        bytes.resize(end, 0);
        bytes.extend(MAGIC);
        bytes.push(length);
    }
    bytes
}

/// What was sent, of what arrived.
fn unwrap(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.len().checked_sub(TRAILER)
        && let (padded, [magic @ .., length]) = bytes.split_at(end)
        && *magic == MAGIC
        && let Some(padding) = padded.get(usize::from(*length)..)
        && padding.iter().all(|&byte| byte == 0)
    {
        let length = (*length).into();
        bytes.truncate(length);
        return bytes;
    }
    // Beyond what everybody sends there is nothing but padding, unless a
    // program says more in its answers than ours can.
    let last = bytes.iter().rposition(|&byte| byte != 0);
    bytes.truncate(last.map_or(0, |last| last + 1).max(MAX_PRIVATE_DATA));
    bytes
}

/// Whether a refusal with these bytes was the application's.
pub(super) fn is_applications(refusal: &[u8]) -> bool {
    refusal
        .first_chunk::<4>()
        .is_some_and(|version| *version != [0; 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the kernel delivers it.
    fn padded(mut bytes: Vec<u8>, room: usize) -> Vec<u8> {
        assert!(bytes.len() <= room);
        bytes.resize(room, 0);
        bytes
    }

    #[test]
    fn every_length_that_leaves_room_comes_back() {
        for room in [REQUEST, REPLY] {
            for length in 0..=MAX_PRIVATE_DATA {
                // Zeroes at the end are data like any other.
                for byte in [0, 7] {
                    let sent = vec![byte; length];
                    let came = unwrap(padded(wrap(&sent, room), room));
                    if length + TRAILER <= room || length == room {
                        assert_eq!(came, sent, "{length} of {room}");
                    } else {
                        assert_eq!(came, padded(sent, room), "{length} of {room}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_travels_by_iwarp_is_what_was_given() {
        let data = vec![0; max_private_data(Transport::Iwarp)];
        assert!(data.len() <= 235);
        for sent in [request, reply].map(|wrap| wrap(&data, Transport::Iwarp)) {
            assert_eq!(received(sent, &Route::Iwarp), data);
        }
    }

    #[test]
    fn what_others_send_is_delivered_padded() {
        assert_eq!(
            unwrap(padded(b"hello".to_vec(), REQUEST)),
            padded(b"hello".to_vec(), 56)
        );
        assert_eq!(
            unwrap(padded(b"hello".to_vec(), REPLY)),
            padded(b"hello".to_vec(), 56)
        );
        // More than ours can say, as other programs may in an answer.
        assert_eq!(unwrap(padded(vec![9; 100], REPLY)), vec![9; 100]);
        assert_eq!(unwrap(Vec::new()), Vec::<u8>::new());
        assert_eq!(unwrap(vec![1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn a_trailer_that_cannot_be_true_is_data() {
        let with = |length, middle| {
            let mut bytes = vec![0; REQUEST - TRAILER];
            bytes[10] = middle;
            bytes.extend(MAGIC);
            bytes.push(length);
            bytes
        };
        assert_eq!(unwrap(with(11, 1)).len(), 11);
        assert_eq!(unwrap(with(10, 1)).len(), REQUEST, "data beyond its length");
        assert_eq!(unwrap(with(53, 0)).len(), REQUEST, "longer than the room");
    }

    #[test]
    fn the_first_bytes_of_a_refusal_tell_whose_it_is() {
        assert!(is_applications(&padded(REFUSAL.to_vec(), 148)));
        assert!(!is_applications(&[0; 148]));
        assert!(!is_applications(&[]));
        assert!(!is_applications(&[1, 2]));
    }

    proptest! {
        #[test]
        fn the_data_is_at_the_beginning_whatever_it_is(data in prop::collection::vec(any::<u8>(), 0..=56)) {
            for room in [REQUEST, REPLY] {
                let bytes = wrap(&data, room);
                prop_assert!(bytes.len() <= room);
                prop_assert_eq!(&bytes[..data.len()], &data[..]);
                let came = unwrap(padded(bytes, room));
                prop_assert_eq!(&came[..data.len()], &data[..]);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..=255)) {
            let length = bytes.len();
            prop_assert!(unwrap(bytes).len() <= length);
        }
    }
}
