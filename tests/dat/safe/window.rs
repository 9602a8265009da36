//! Safe types: windows.

use dat_api::safe::{Adapter, EndpointOptions, EventDispatcher};
use dat_api::types::{CompletionFlags, DtoStatus, EvdFlags, EventData, MemPrivileges};

use super::connected;
use crate::support::{Fixture, device};

/// A window keeps its memory registered and is unbound when dropped. The order of
/// the other drops does not matter.
#[test]
fn a_window_opens_memory_and_keeps_it_registered() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let made = || {
        let flags = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::RMR_BIND;
        let events = adapter.create_dispatcher(64, flags).expect("a dispatcher");
        let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    };
    let [(mut one, ones), (mut other, others)] = connected(&adapter, [made(), made()]);
    let local = zone.allocate(64, MemPrivileges::all()).expect("memory");
    let region = zone.allocate(64, MemPrivileges::all()).expect("memory");
    local.write(0, &[9; 64]);
    let mut window = zone.create_window().expect("a window");
    let (rights, none) = (MemPrivileges::REMOTE_WRITE, CompletionFlags::empty());
    let remote = other
        .bind(&mut window, region.segment(8..24), rights, 31, none)
        .expect("posted");
    let next = |events: &EventDispatcher| {
        fixture.run();
        device::comes(|| events.dequeue().expect("not waited on")).expect("an event")
    };
    let bound = EventData::RmrBind {
        ep: other.handle(),
        rmr: window.handle(),
        cookie: 31,
        status: DtoStatus::Success,
    };
    assert_eq!(next(&others).data, bound);
    one.post_rdma_write(&[local.segment(0..16)], 32, remote, none)
        .expect("posted");
    assert!(matches!(
        next(&ones).data,
        EventData::Dto {
            cookie: 32,
            status: DtoStatus::Success,
            ..
        }
    ));
    let mut bytes = [0; 32];
    region.read(0, &mut bytes);
    assert_eq!(bytes[8..24], [9; 16]);
    assert_eq!(bytes[..8], [0; 8]);
    // The window still uses the memory.
    let bound = window.query().bound.expect("bound");
    assert_eq!((bound.context, bound.privileges), (remote.context, rights));
    drop(region);
    one.post_rdma_write(&[local.segment(0..16)], 33, remote, none)
        .expect("posted");
    assert!(matches!(
        next(&ones).data,
        EventData::Dto {
            status: DtoStatus::Success,
            ..
        }
    ));
    other.unbind(&mut window, 34, none).expect("posted");
    assert!(matches!(
        next(&others).data,
        EventData::RmrBind { cookie: 34, .. }
    ));
    assert_eq!(window.query().bound, None);
    let handle = window.handle();
    drop(window);
    assert_eq!(handle.kind(), None);
}
