//! Safe types: memory of the program's own, and typed access to it.

use std::fs::File;
use std::panic;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use dat_api::ReturnType;
use dat_api::safe::{
    Adapter, EndpointOptions, EventDispatcher, GivenBack, Memory, MmapMut, OwnedBytes,
    ProtectionZone,
};
use dat_api::types::{CompletionFlags, DtoStatus, EvdFlags, Event, EventData, MemPrivileges};

use super::{connected, pair_in};
use crate::support::{Fixture, device};

const NONE: CompletionFlags = CompletionFlags::empty();
const BYTES: usize = 100;

fn zone() -> (Fixture, ProtectionZone) {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    (fixture, adapter.create_zone().expect("a zone"))
}

fn register<T: OwnedBytes>(zone: &ProtectionZone, owner: T) -> Memory<T> {
    zone.register(owner, MemPrivileges::all()).expect("memory")
}

/// Takes a completion, which must be a success.
fn completes(fixture: &Fixture, events: &EventDispatcher) {
    fixture.run();
    let event = device::comes(|| events.dequeue().expect("not waited on")).expect("an event");
    let EventData::Dto { status, .. } = event.data else {
        panic!("{event:?}");
    };
    assert_eq!(status, DtoStatus::Success);
}

/// Checks that the owner is refused, and returns the memory.
fn refused<T: OwnedBytes>(memory: Memory<T>, expected: &str) -> Memory<T> {
    let Err(GivenBack { error, value }) = memory.into_inner() else {
        panic!("the memory is in use");
    };
    assert!(error.code().is(ReturnType::InvalidState), "{error}");
    assert!(error.cause().contains(expected), "{error}");
    value
}

/// Sends the bytes of one owner to those of another, and takes both back.
fn travel<T: OwnedBytes, U: OwnedBytes>(sent: T, received: U) -> (T, U) {
    let (fixture, zone) = zone();
    let (sent, received) = (register(&zone, sent), register(&zone, received));
    let [(mut one, ones), (mut other, others)] = pair_in(zone.adapter(), &zone);
    other
        .post_recv(&[received.segment(0..BYTES)], 1, NONE)
        .expect("posted");
    let received = refused(received, "Endpoint::release_memory");
    let error = other.release_memory().expect_err("a receive is posted");
    assert!(error.code().is(ReturnType::InvalidState), "{error}");
    one.post_send(&[sent.segment(0..BYTES)], 2, NONE)
        .expect("posted");
    completes(&fixture, &ones);
    completes(&fixture, &others);
    // Complete, but the endpoint has not let go of it.
    let received = refused(received, "Endpoint::release_memory");
    other.release_memory().expect("idle");
    let taken = (sent.into_inner(), received.into_inner());
    let taken = (taken.0.expect("unused"), taken.1.expect("released"));
    // The endpoints still work, with other memory.
    let memory = register(&zone, vec![0; 8]);
    other
        .post_recv(&[memory.segment(0..8)], 3, NONE)
        .expect("posted");
    one.post_send(&[memory.segment(0..8)], 4, NONE)
        .expect("posted");
    completes(&fixture, &others);
    taken
}

#[test]
fn owners_of_bytes_are_registered_and_taken_back() {
    let text: [u8; BYTES] = core::array::from_fn(|at| at as u8);
    let (vector, boxed) = travel(text.to_vec(), vec![0; BYTES].into_boxed_slice());
    assert_eq!((&vector[..], &boxed[..]), (&text[..], &text[..]));
    let mapping = MmapMut::map_anon(BYTES).expect("memory");
    let (boxed, mapping) = travel(boxed, mapping);
    assert_eq!((&boxed[..], &mapping[..]), (&text[..], &text[..]));
    let leaked: &'static mut [u8] = vec![0; BYTES].leak();
    let (_, leaked) = travel(mapping, leaked);
    assert_eq!(leaked, text);
}

#[test]
fn a_value_without_bytes_or_of_a_closed_adapter_is_given_back() {
    let (_fixture, zone) = zone();
    let refused = zone.register(Vec::with_capacity(8), MemPrivileges::all());
    let GivenBack { error, value } = refused.expect_err("no bytes");
    assert!(error.cause().contains("0 bytes"), "{error}");
    assert_eq!(value.capacity(), 8);
    let memory = register(&zone, vec![1, 2, 3]);
    // SAFETY: no endpoint of the adapter is posted to.
    unsafe { dat_api::object::ia::Ia::close(zone.adapter().handle(), false) }.expect("closed");
    assert_eq!(memory.into_inner().expect("deregistered"), [1, 2, 3]);
    let refused = zone.register(vec![4, 5], MemPrivileges::all());
    assert_eq!(refused.expect_err("closed").value, [4, 5]);
}

/// Counts its end, and then panics.
struct Counted(Vec<u8>, Arc<AtomicU32>);

// SAFETY: as for `Vec<u8>`; the vector is not used otherwise.
unsafe impl OwnedBytes for Counted {
    fn owned_bytes(&mut self) -> NonNull<[u8]> {
        self.0.owned_bytes()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        panic!("an owner that panics when it is dropped");
    }
}

#[test]
fn an_owner_that_panics_is_dropped_after_the_last_request_and_disturbs_nothing() {
    let (_fixture, zone) = zone();
    let ends = Arc::new(AtomicU32::new(0));
    let ended = |count| assert_eq!(ends.load(Ordering::Relaxed), count);
    let made = || register(&zone, Counted(vec![0; 64], Arc::clone(&ends)));
    drop(made());
    ended(1);
    let [(mut one, _ones), (_other, others)] = pair_in(zone.adapter(), &zone);
    let (first, second) = (made(), made());
    for memory in [&first, &second] {
        one.post_recv(&[memory.segment(0..64)], 1, NONE)
            .expect("posted");
    }
    drop((first, second));
    ended(1);
    // The panics of both do not leave this call, which also disconnects.
    drop(one);
    ended(3);
    let event = others.wait(super::SOON).expect("an event");
    assert!(
        matches!(event.data, EventData::Connection { .. }),
        "{event:?}"
    );
    // One that is taken back panics at its new owner.
    let owner = made().into_inner().expect("unused");
    assert!(panic::catch_unwind(move || drop(owner)).is_err());
    ended(4);
}

#[test]
fn memory_of_a_window_or_a_shared_queue_is_not_given_back() {
    let (fixture, zone) = zone();
    let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::RMR_BIND;
    let made = || {
        let events = zone.adapter().create_dispatcher(64, streams);
        let events = events.expect("a dispatcher");
        let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    };
    let [(mut one, ones), _other] = connected(zone.adapter(), [made(), made()]);
    let memory = register(&zone, vec![0; 64]);
    let mut window = zone.create_window().expect("a window");
    let all = memory.segment(0..64);
    one.bind(&mut window, all, MemPrivileges::REMOTE_READ, 1, NONE)
        .expect("bound");
    fixture.run();
    device::comes(|| ones.dequeue().expect("not waited on")).expect("an event");
    let mut memory = refused(memory, "a window is bound");
    // The first unbind may not be complete; the second comes after it.
    for cookie in [2, 3] {
        memory = refused(memory, "unbind it twice");
        one.unbind(&mut window, cookie, NONE).expect("unbound");
        fixture.run();
        device::comes(|| ones.dequeue().expect("not waited on")).expect("an event");
    }
    assert_eq!(memory.into_inner().expect("free").len(), 64);
    let memory = register(&zone, vec![0; 64]);
    let all = memory.segment(0..64);
    one.bind(&mut window, all, MemPrivileges::REMOTE_READ, 4, NONE)
        .expect("bound");
    fixture.run();
    let memory = refused(memory, "a window is bound");
    drop(window);
    assert_eq!(memory.into_inner().expect("free").len(), 64);

    let queue = zone.create_shared_receive_queue(4, 1).expect("a queue");
    let memory = register(&zone, vec![0; 64]);
    queue
        .post_recv(&[memory.segment(0..64)], 1)
        .expect("posted");
    let memory = refused(memory, "shared queue");
    drop(queue);
    assert_eq!(memory.into_inner().expect("free").len(), 64);
}

/// The payload of a CQE is copied by the thread that owns the dispatcher, which may be about to.
#[test]
fn memory_that_a_waiting_thread_may_still_write_to_is_not_given_back() {
    let (_fixture, zone) = zone();
    let [(_one, _ones), (mut other, others)] = pair_in(zone.adapter(), &zone);
    let memory = register(&zone, vec![0; 64]);
    other
        .post_recv(&[memory.segment(0..64)], 1, NONE)
        .expect("posted");
    other.disconnect_abruptly().expect("connected");
    let flushed = |event: &Event| matches!(event.data, EventData::Dto { .. });
    while !device::comes(|| others.dequeue().expect("not waited on")).is_some_and(|it| flushed(&it))
    {
    }
    let memory = thread::scope(|scope| {
        scope.spawn(|| {
            // The disconnection may end the first wait.
            while others.wait(None).is_ok() {}
        });
        while others.dequeue().is_ok() {
            thread::yield_now();
        }
        other.release_memory().expect("idle");
        let result = memory.into_inner();
        others.set_unwaitable().expect("open");
        result
    });
    let GivenBack { value, .. } = memory.expect_err("a thread waits");
    let memory = refused(value, "Endpoint::release_memory");
    other.release_memory().expect("idle");
    assert_eq!(memory.into_inner().expect("free").len(), 64);
}

#[test]
fn memory_that_processes_share_is_registered_under_its_identifier() {
    let (_fixture, zone) = zone();
    let path = std::env::temp_dir().join(format!("dat-safe-memory-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("a file");
    std::fs::remove_file(&path).expect("a file");
    file.set_len(4096).expect("room");
    // SAFETY: nothing else uses the file.
    let map = || unsafe { MmapMut::map_mut(&file) }.expect("mapped");
    let (name, all) = ([7; 40], MemPrivileges::all());
    let one = zone.register_shared(map(), name, all).expect("shared");
    let other = zone.register_shared(map(), name, all).expect("the same");
    one.write_value(8, 0x0123_4567_89ab_cdef_u64);
    assert_eq!(other.load_u64(8), 0x0123_4567_89ab_cdef);
    let refused = zone.register_shared(vec![0; 64], name, all);
    assert_eq!(refused.expect_err("not shared").value.len(), 64);
}

#[test]
fn numbers_and_arrays_are_copied_and_flags_are_aligned() {
    let (_fixture, zone) = zone();
    let memory = zone.allocate(64, MemPrivileges::all()).expect("memory");
    memory.write_value(1, [1_u16, 2, 3]);
    assert_eq!(memory.read_value::<[u16; 3]>(1), [1, 2, 3]);
    memory.write_value(8, [1.5_f64, -2.0]);
    assert_eq!(memory.read_value::<[f64; 2]>(8), [1.5, -2.0]);
    memory.store_u64(32, u64::MAX);
    memory.store_u32(36, 7);
    assert_eq!((memory.load_u32(32), memory.load_u32(36)), (u32::MAX, 7));
    assert_eq!(memory.read_value::<[u32; 2]>(32), [u32::MAX, 7]);
    assert_eq!(memory.read_value::<[u8; 0]>(64), []);
    let fails = |call: &dyn Fn()| panic::catch_unwind(panic::AssertUnwindSafe(call)).is_err();
    assert!(fails(&|| memory.write_value(57, 0_u64)));
    assert!(fails(&|| assert_eq!(
        memory.read_value::<u8>(usize::MAX),
        0
    )));
    assert!(fails(&|| memory.read(0, &mut [0; 65])));
    assert!(fails(&|| assert_eq!(memory.load_u64(4), 0)));
    assert!(fails(&|| memory.store_u32(62, 0)));
    // The address counts: a vector of bytes begins anywhere.
    let memory = register(&zone, vec![0_u8; 64]);
    let odd = memory.as_ptr().align_offset(8) + 1;
    assert!(fails(&|| memory.store_u64(odd, 0)));
}
