//! The events of several endpoints come out of one EVD in the order of arrival.

use crate::evd::arrival::EndpointGroup;
use crate::support::Fixture;

/// Programs create some endpoints with default attributes on an EVD with room for a
/// few events of each.
#[test]
fn events_of_several_endpoints_on_one_evd_come_out_in_order_of_arrival() {
    let fixture = Fixture::new();
    for (endpoints, length) in [(2, 8), (4, 64), (8, 100)] {
        let mut group = EndpointGroup::new(&fixture, endpoints, length);
        group.has_queues(1);
        group.exchange();
    }
}
