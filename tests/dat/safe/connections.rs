//! Safe types: connection requests, service points and their endpoints.

use std::sync::Barrier;
use std::thread;

use dat_api::ReturnType;
use dat_api::safe::{Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher};
use dat_api::types::{CompletionFlags, ConnectionKind, EpState, EvdFlags, EventData};

use super::{SOON, kind, one};
use crate::support::{Fixture, device};

/// Events can be copied, but a request's endpoint has one owner.
#[test]
fn a_request_that_is_answered_by_two_threads_gives_its_endpoint_to_one() {
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let requests = adapter
        .create_dispatcher(8, EvdFlags::CR)
        .expect("a dispatcher");
    let point = on_free(|qualifier| adapter.listen_with_endpoints(qualifier, &requests));
    let zone = adapter.create_zone().expect("a zone");
    for _ in 0..20 {
        let (mut active, actives) = one(&adapter);
        active
            .connect(adapter.address(), point.qualifier(), SOON, b"")
            .expect("begun");
        let event = requests.wait(SOON).expect("a request");
        let both = Barrier::new(2);
        let owners: Vec<Endpoint> = thread::scope(|scope| {
            let answer = || {
                let events = adapter
                    .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
                    .expect("a dispatcher");
                let asked = ConnectionRequest::from_event(&event).expect("a request");
                both.wait();
                match asked.accept_with(&zone, &EndpointOptions::new(&events), b"") {
                    Ok(served) => Some(served),
                    Err(failed) => {
                        // The other thread may be answering: this one must not reject.
                        std::mem::forget(failed.value);
                        None
                    }
                }
            };
            let threads = [scope.spawn(answer), scope.spawn(answer)];
            let answers = threads.map(|thread| thread.join().expect("no panic"));
            answers.into_iter().flatten().collect()
        });
        assert_eq!(owners.len(), 1);
        assert_eq!(kind(&actives), ConnectionKind::Established);
    }
}

/// Takes the request, which must come.
fn request(requests: &EventDispatcher) -> ConnectionRequest {
    let event = requests.wait(SOON).expect("a request");
    ConnectionRequest::from_event(&event).expect("a request")
}

/// Creates a service point for one request, on an unused qualifier.
fn on_free<T>(mut make: impl FnMut(u64) -> dat_api::Result<T>) -> T {
    let mut made = None;
    crate::support::on_free_qualifier(|qualifier| match make(qualifier) {
        Ok(point) => {
            made = Some(point);
            0
        }
        Err(error) => error.code().bits(),
    });
    made.expect("a service point")
}

#[test]
fn a_reserved_point_connects_its_endpoint_and_no_other() {
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let requests = adapter
        .create_dispatcher(8, EvdFlags::CR)
        .expect("a dispatcher");
    let (mut active, actives) = one(&adapter);
    let (mut passive, passives) = one(&adapter);
    let point = on_free(|qualifier| adapter.reserve(qualifier, &mut passive, &requests));
    assert_eq!(passive.query().state, EpState::Reserved);
    let refused = passive.connect(adapter.address(), 1, SOON, b"");
    assert!(refused.is_err_and(|error| error.code().is(ReturnType::InvalidState)));
    active
        .connect(adapter.address(), point.qualifier(), SOON, b"")
        .expect("begun");
    let asked = request(&requests);
    let (mut other, _) = one(&adapter);
    let refused = asked
        .accept(&mut other, b"")
        .expect_err("not reserved for it");
    refused.value.accept_reserved(b"").expect("its own");
    assert_eq!(kind(&actives), ConnectionKind::Established);
    assert_eq!(kind(&passives), ConnectionKind::Established);
    drop(point);
    // An endpoint that is dropped while it is reserved is freed all the same.
    let point = on_free(|qualifier| adapter.reserve(qualifier, &mut other, &requests));
    let handle = other.handle();
    drop(other);
    assert_eq!(handle.kind(), None);
    let (mut late, lates) = one(&adapter);
    late.connect(adapter.address(), point.qualifier(), SOON, b"")
        .expect("begun");
    assert_eq!(kind(&lates), ConnectionKind::NonPeerRejected);
}

#[test]
fn a_request_is_handed_off_and_served_by_the_endpoint_that_it_brings() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let [here, there] = [(); 2].map(|()| adapter.create_dispatcher(8, EvdFlags::CR).expect("one"));
    let first = adapter.listen_any(&here).expect("a service point");
    let maker = on_free(|qualifier| adapter.listen_with_endpoints(qualifier, &there));
    let (mut active, actives) = one(&adapter);
    active
        .connect(adapter.address(), first.qualifier(), SOON, b"whom?")
        .expect("begun");
    let asked = request(&here);
    let refused = asked
        .hand_off(1)
        .expect_err("no service point listens there");
    refused
        .value
        .hand_off(maker.qualifier())
        .expect("it listens");
    let asked = request(&there);
    assert_eq!(asked.private_data(), b"whom?");
    let zone = adapter.create_zone().expect("a zone");
    let events = adapter
        .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
        .expect("a dispatcher");
    let options = EndpointOptions::new(&events);
    let mut passive = asked.accept_with(&zone, &options, b"me").expect("accepted");
    assert_eq!(kind(&actives), ConnectionKind::Established);
    assert_eq!(kind(&events), ConnectionKind::Established);

    // Connects to the peer of that endpoint again, through a point for one
    // request.
    let (mut again, agains) = one(&adapter);
    again.dup_connect(&active, SOON, b"too").expect("begun");
    let asked = request(&here);
    let once = on_free(|qualifier| adapter.listen_once(qualifier, &there));
    asked.hand_off(once.qualifier()).expect("it listens");
    let served = request(&there)
        .accept_with(&zone, &options, b"")
        .expect("accepted");
    assert_eq!(kind(&agains), ConnectionKind::Established);
    assert_eq!(kind(&events), ConnectionKind::Established);
    drop(served);
    assert_eq!(kind(&agains), ConnectionKind::Disconnected);

    let none: [dat_api::safe::Segment<'_>; 0] = [];
    passive
        .post_recv(&none, 7, CompletionFlags::empty())
        .expect("posted");
    active
        .post_send(&none, 8, CompletionFlags::empty())
        .expect("posted");
    fixture.run();
    let received = device::comes(|| events.dequeue().expect("not waited on"));
    assert!(matches!(
        received.expect("an event").data,
        EventData::Dto { cookie: 7, .. }
    ));
}
