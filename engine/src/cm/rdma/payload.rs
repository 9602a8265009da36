//! Private data over rdma_cm, which pads it with zeroes: 56 bytes arrive with every
//! request, 196 with every acceptance, 148 with every rejection.
//!
//! The data begins at byte 0, as other programs send and expect it. The last 4
//! bytes of the message are a trailer for peers that use this engine: 3 bytes of
//! magic, and the length. Data that leaves no room for the trailer (53 to 55 bytes
//! of a request), or that another program sent, is delivered with its padding.
//!
//! On iWARP nothing is padded, and the kernels carry more data ([`iwarp`]).

use crate::control::{GreetingPlace, IwarpRoute, Route, Transport};

/// The most bytes that every message carries on InfiniBand and RoCE.
const MAX_PRIVATE_DATA: usize = 56;

/// Returns the most bytes that every message carries on a transport.
pub(in crate::cm) fn max_private_data(transport: Transport) -> usize {
    match transport {
        Transport::Iwarp => iwarp::MAX_PRIVATE_DATA,
        _ => MAX_PRIVATE_DATA,
    }
}

/// Returns the bytes of a request; `greets` is true if the requester greets.
pub(super) fn request(data: &[u8], transport: Transport, greets: bool) -> Vec<u8> {
    match transport {
        Transport::Iwarp => iwarp::request(data, greets),
        _ => wrap(data, REQUEST),
    }
}

/// Returns the bytes of an acceptance; `greet` is where the peer has to write, if
/// it has to.
pub(super) fn reply(data: &[u8], transport: Transport, greet: Option<GreetingPlace>) -> Vec<u8> {
    match transport {
        Transport::Iwarp => iwarp::reply(data, greet),
        _ => wrap(data, REPLY),
    }
}

/// Returns the data that was sent with a request, and whether its requester greets.
pub(super) fn of_request(bytes: Vec<u8>, route: &Route) -> (Vec<u8>, bool) {
    match route {
        Route::Iwarp(_) => iwarp::of_request(bytes),
        _ => (unwrap(bytes), false),
    }
}

/// Returns the data that was sent with an acceptance, and the route with the
/// greeting in it.
pub(super) fn of_reply(bytes: Vec<u8>, route: Route) -> (Vec<u8>, Route) {
    match route {
        Route::Iwarp(_) => {
            let (data, greet) = iwarp::of_reply(bytes);
            (data, Route::Iwarp(IwarpRoute::new(greet)))
        }
        _ => (unwrap(bytes), route),
    }
}

mod iwarp {
    //! A request of a requester that greets ([`Greeting`]) has, after its data, 3
    //! bytes of magic and a 1. An answer to it has the address and the key of the
    //! word as 8 and 4 big-endian bytes, the magic, and a 2. Without such an end
    //! everything is data.
    //!
    //! [`Greeting`]: crate::control::Greeting
    //!
    //! MPA (RFC 5044) has room for 512 bytes, of which the enhanced connection
    //! setup (RFC 6581) takes 4. Linux's user interface counts the bytes in 8 bits
    //! (`struct rdma_ucm_conn_param`), and siw includes those 4 bytes in an 8-bit
    //! count (`siw_send_mpareqrep` in drivers/infiniband/sw/siw/siw_cm.c): 251 are
    //! left. 16 of them are reserved for the trailer.

    use crate::control::GreetingPlace;

    /// The most bytes that every message carries.
    pub(super) const MAX_PRIVATE_DATA: usize = 255 - 4 - 16;

    const GREETS: [u8; 4] = [0xda, 0x7a, 0x2e, 1];
    const WAITS: [u8; 4] = [0xda, 0x7a, 0x2e, 2];

    pub(super) fn request(data: &[u8], greets: bool) -> Vec<u8> {
        let end = if greets { &GREETS[..] } else { &[] };
        [data, end].concat()
    }

    pub(super) fn reply(data: &[u8], greet: Option<GreetingPlace>) -> Vec<u8> {
        let mut bytes = data.to_vec();
        if let Some(GreetingPlace { address, key }) = greet {
            bytes.extend(address.to_be_bytes());
            bytes.extend(key.to_be_bytes());
            bytes.extend(WAITS);
        }
        bytes
    }

    pub(super) fn of_request(mut bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let greets = bytes.ends_with(&GREETS);
        if greets {
            bytes.truncate(bytes.len() - GREETS.len());
        }
        (bytes, greets)
    }

    pub(super) fn of_reply(mut bytes: Vec<u8>) -> (Vec<u8>, Option<GreetingPlace>) {
        let Some((data, place)) = bytes
            .strip_suffix(&WAITS)
            .and_then(|bytes| bytes.split_last_chunk::<12>())
        else {
            return (bytes, None);
        };
        let [a, b, c, d, e, f, g, h, key @ ..] = *place;
        let place = GreetingPlace {
            address: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_be_bytes(key),
        };
        let length = data.len();
        bytes.truncate(length);
        (bytes, Some(place))
    }
}
/// The size of the private data of a request, in bytes.
const REQUEST: usize = 56;
/// The size of the private data of an acceptance, in bytes.
const REPLY: usize = 196;

const MAGIC: [u8; 3] = [0xda, 0x7a, 0x1e];
const TRAILER: usize = MAGIC.len() + 1;

/// The size of the private data of a rejection, in bytes.
const REFUSED: usize = 148;

/// The first bytes of a rejection by the application, before its data. OFED's DAT
/// provider treats a rejection whose first 4 bytes are zero as one by the system.
pub(super) const REFUSAL: [u8; 4] = [1, 2, 1, 0];

/// Returns the bytes of a rejection by the application. Without data there is no
/// trailer: kernels carry short rejections as they are on iWARP.
pub(super) fn refusal(data: &[u8]) -> Vec<u8> {
    let mut bytes = REFUSAL.to_vec();
    if !data.is_empty() {
        bytes.extend(wrap(data, REFUSED - REFUSAL.len()));
    }
    bytes
}

/// Returns the data of a rejection; `None` if the application did not make it.
pub(super) fn of_refusal(bytes: &[u8]) -> Option<Vec<u8>> {
    let (version, data) = bytes.split_first_chunk::<4>()?;
    if *version == [0; 4] {
        return None;
    }
    if data.iter().all(|&byte| byte == 0) {
        return Some(Vec::new());
    }
    Some(unwrap(data.to_vec()))
}

/// Returns the bytes to send with a message that has `room` bytes.
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

/// Returns the data that was sent, from the bytes that arrived.
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
    // Bytes beyond the smallest size of all messages are padding, unless another
    // program sends more in its answers than this engine can.
    let last = bytes.iter().rposition(|&byte| byte != 0);
    bytes.truncate(last.map_or(0, |last| last + 1).max(MAX_PRIVATE_DATA));
    bytes
}

/// Reads the private data of a peer, for `fuzz/`: no more than there is, whatever they are.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let all = [
        unwrap(bytes.to_vec()),
        iwarp::of_request(bytes.to_vec()).0,
        iwarp::of_reply(bytes.to_vec()).0,
        of_refusal(bytes).unwrap_or_default(),
    ];
    assert!(all.iter().all(|data| data.len() <= bytes.len()));
    // What fits a message comes back from it.
    if bytes.len() <= MAX_PRIVATE_DATA {
        assert_eq!(unwrap(wrap(bytes, REPLY)), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the bytes as the kernel delivers them.
    fn padded(mut bytes: Vec<u8>, room: usize) -> Vec<u8> {
        assert!(bytes.len() <= room);
        bytes.resize(room, 0);
        bytes
    }

    #[test]
    fn every_length_that_leaves_room_for_the_trailer_is_restored() {
        for room in [REQUEST, REPLY] {
            for length in 0..=MAX_PRIVATE_DATA {
                // Zeroes at the end are part of the data.
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
    fn iwarp_delivers_the_data_as_it_was_sent() {
        let iwarp = Transport::Iwarp;
        let way = |greet| Route::Iwarp(IwarpRoute::new(greet));
        let place = GreetingPlace {
            address: 0x0102_0304_0506_0708,
            key: 0x090a_0b0c,
        };
        let most = max_private_data(iwarp);
        for length in [0, 1, 12, 16, most] {
            let data = vec![0; length];
            for greets in [false, true] {
                let sent = request(&data, iwarp, greets);
                assert!(sent.len() <= 251);
                assert_eq!(of_request(sent, &way(None)), (data.clone(), greets));
            }
            for greet in [None, Some(place)] {
                let sent = reply(&data, iwarp, greet);
                assert!(sent.len() <= 251);
                assert_eq!(of_reply(sent, way(None)), (data.clone(), way(greet)));
            }
        }
        // Messages of other programs.
        let short = [0xda, 0x7a, 0x2e, 2].to_vec();
        assert_eq!(of_reply(short.clone(), way(None)), (short, way(None)));
    }

    #[test]
    fn data_of_other_programs_is_delivered_padded() {
        assert_eq!(
            unwrap(padded(b"hello".to_vec(), REQUEST)),
            padded(b"hello".to_vec(), 56)
        );
        assert_eq!(
            unwrap(padded(b"hello".to_vec(), REPLY)),
            padded(b"hello".to_vec(), 56)
        );
        // More data than this engine can send, as other programs may in an answer.
        assert_eq!(unwrap(padded(vec![9; 100], REPLY)), vec![9; 100]);
        assert_eq!(unwrap(Vec::new()), Vec::<u8>::new());
        assert_eq!(unwrap(vec![1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn an_inconsistent_trailer_is_data() {
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
    fn the_first_bytes_of_a_rejection_show_its_origin() {
        assert_eq!(of_refusal(&padded(refusal(&[]), REFUSED)), Some(vec![]));
        assert_eq!(of_refusal(&[0; REFUSED]), None);
        assert_eq!(of_refusal(&[]), None);
        assert_eq!(of_refusal(&[1, 2]), None);
    }

    /// Also with zeroes at its end. OFED's provider finds the data after 4 bytes, too.
    #[test]
    fn the_data_of_a_rejection_arrives_with_its_length() {
        for data in [&b"no"[..], &[7, 0, 0], &[0; 56]] {
            let bytes = refusal(data);
            assert!(bytes.len() <= REFUSED && bytes[4..].starts_with(data));
            assert_eq!(of_refusal(&padded(bytes, REFUSED)).as_deref(), Some(data));
        }
    }

    proptest! {
        #[test]
        fn the_data_begins_at_byte_0(data in prop::collection::vec(any::<u8>(), 0..=56)) {
            for room in [REQUEST, REPLY] {
                let bytes = wrap(&data, room);
                prop_assert!(bytes.len() <= room);
                prop_assert_eq!(&bytes[..data.len()], &data[..]);
                let came = unwrap(padded(bytes, room));
                prop_assert_eq!(&came[..data.len()], &data[..]);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..=255)) {
            let length = bytes.len();
            prop_assert!(unwrap(bytes).len() <= length);
        }
    }
}
