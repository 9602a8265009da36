//! Connections and endpoints.

mod dup_connect;
mod handoff;
mod reserved;
mod watermark;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Bed, End, Shape, ep_info, expect, ok};

/// An endpoint that can do everything.
fn end(bed: &Bed) -> End {
    End::new(bed, &Shape::default())
}

/// Both ends hear that they are connected.
#[track_caller]
fn established(ends: [&End; 2]) {
    for end in ends {
        let event = expect(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
        // SAFETY: the number tells which member holds.
        let data = unsafe { event.event_data.connect_event_data };
        assert_eq!(data.ep_handle, end.ep);
    }
}

/// One message from one end to the other.
#[track_caller]
fn talk(bed: &Bed, from: &End, to: &End) {
    let memory = bed.memory(128);
    ok(to.post_recv(&[memory.segment(64, 8)], 1));
    ok(from.post_send(&[memory.segment(0, 8)], 2, DAT_COMPLETION_DEFAULT_FLAG));
    bed.run();
    assert_eq!(to.received().status, DAT_DTO_SUCCESS);
    assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
}

/// Gives an endpoint that a request has brought a zone and EVDs.
#[track_caller]
fn furnish(bed: &Bed, ep: DAT_EP_HANDLE) -> End {
    let mut end = End::without_ep(bed, &Shape::default());
    end.ep = ep;
    let mut change = ep_info(ep);
    change.pz_handle = bed.pz;
    change.recv_evd_handle = end.recv;
    change.request_evd_handle = end.request;
    change.connect_evd_handle = end.connect;
    let fields = DAT_EP_FIELD_PZ_HANDLE
        | DAT_EP_FIELD_RECV_EVD_HANDLE
        | DAT_EP_FIELD_REQUEST_EVD_HANDLE
        | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    // SAFETY: live handles; the values are ours.
    ok(unsafe { dat_ep_modify(ep, fields, &raw const change) });
    end
}
