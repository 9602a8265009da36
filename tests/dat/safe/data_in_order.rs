//! Safe types: whether a program may poll the last byte of a peer's write.

use dat_api::safe::{Adapter, DataInOrder, EndpointOptions};
use dat_api::types::EvdFlags;

use super::pair;
use crate::support::{Fixture, device};

#[test]
fn a_connected_endpoint_says_whether_the_bytes_of_a_write_arrive_in_order() {
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let events = adapter
        .create_dispatcher(8, EvdFlags::DTO | EvdFlags::CONNECTION)
        .expect("a dispatcher");
    let alone = zone.create_endpoint(&EndpointOptions::new(&events));
    let alone = alone.expect("an endpoint");
    assert_eq!(alone.data_in_order(), DataInOrder::Unknown);
    let [(mut active, _), (passive, _)] = pair(&adapter);
    for endpoint in [&active, &passive] {
        let answer = endpoint.data_in_order();
        match device::installed::expected_order() {
            Some(expected) => assert_eq!(answer, expected),
            None => assert_ne!(answer, DataInOrder::Unknown),
        }
    }
    active.disconnect_abruptly().expect("connected");
    assert_eq!(active.data_in_order(), DataInOrder::Unknown);
}
