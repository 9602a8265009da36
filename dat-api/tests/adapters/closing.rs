//! Closing: gracefully, abruptly, and in races with other calls.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use dat_api::handle::{self, Handle};
use dat_api::object::evd::{self, Evd, Timeout};
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::object::lmr::{Lmr, MemoryKind};
use dat_api::object::psp::{EpCreator, Psp};
use dat_api::object::pz::Pz;
use dat_api::types::{EvdFlags, MemPrivileges};
use dat_api::{EvdRefusal, ReturnType, Subtype};

use crate::fixture::{self, Fixture};
use crate::setup::*;

#[test]
fn a_hundred_openings_leak_no_descriptor_and_no_thread() {
    let _lock = lock_device();
    close(open("mlx5_0").0);
    let before = holdings();
    for round in 0..100 {
        let (ia, _) = open("mlx5_0");
        close_ia(ia.handle(), round % 2 == 0).expect("nothing is left");
        drop(ia);
        // Descriptors are closed when the call returns.
        assert_eq!(holdings().0, before.0, "after {round}");
    }
    hold(before);
    let (ia, _) = open("mlx5_0");
    // The threads set their names themselves, after they start.
    fixture::until("a thread of the IA, and one of the manager", || {
        holdings().1 == before.1 + 2
    });
    close(ia);
    hold(before);
}

#[test]
fn a_failed_opening_leaks_nothing() {
    let _lock = lock_device();
    close(open("mlx5_0").0);
    let (ia, _) = open("mlx5_0");
    let plain = Evd::create(&ia, 4, EvdFlags::DTO, None).expect("an EVD");
    let before = holdings();
    for asked in [
        request("nope"),
        request("mlx5_0-2"),
        OpenRequest {
            async_qlen: i32::MAX,
            ..request("mlx5_0")
        },
        OpenRequest {
            async_evd: AsyncEvd::Existing(plain.handle()),
            ..request("mlx5_0")
        },
    ] {
        refused(&asked);
        descriptors_at_most(before.0);
    }
    close(ia);
}

#[test]
fn a_graceful_close_requires_every_object_to_be_freed() {
    let _lock = lock_device();
    let (ia, own) = open("mlx5_0");
    let pz = Pz::create(&ia).expect("a zone");
    let evd = Evd::create(&ia, 4, EvdFlags::CR, None).expect("an EVD");
    let psp = Psp::create_any(&ia, &evd, EpCreator::Consumer).expect("a service point");
    let in_use = code(ReturnType::InvalidState, Subtype::InvalidStateIaInUse);
    let refuse = |what: &str| {
        let error = close_ia(ia.handle(), true).expect_err("in use");
        assert_eq!(error.code(), in_use);
        assert!(error.cause().contains(what), "{error}");
    };
    refuse("1 Psp, 1 Pz, 1 Evd");
    Psp::free(psp.handle()).expect("no other failure");
    drop(psp);
    refuse("1 Pz, 1 Evd");
    Evd::free(evd.handle()).expect("not in use");
    refuse("1 Pz");
    Pz::free(pz.handle()).expect("not in use");
    // Its own EVD is freed only with it.
    let error = Evd::free(own).expect_err("the IA uses it");
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidState, Subtype::InvalidStateEvdInUse)
    );
    close_ia(ia.handle(), true).expect("nothing is left");
    assert_eq!((ia.handle().kind(), own.kind()), (None, None));
    let error = close_ia(ia.handle(), true).expect_err("closed");
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidHandle, Subtype::InvalidHandleIa)
    );
}

#[test]
fn an_abrupt_close_frees_everything() {
    let _lock = lock_device();
    drop(Fixture::new());
    let before = holdings();
    let mut handles: Vec<Handle> = Vec::new();
    {
        let fixture = Fixture::new();
        let pair = fixture.pair();
        let srq = fixture.srq(4);
        let shared = fixture.shared_ep(&pair.evds[0], &srq);
        let (psp, qualifier) = fixture.listen(&pair.evds[1]);
        let asking = fixture.ep(&pair.evds[0], &fixture::plain());
        fixture
            .connect(&asking, qualifier, b"pending")
            .expect("connecting");
        let cr = fixture::request(&pair.evds[1]);
        fixture::recv(&pair.eps[0], &[fixture.memory.local(0, 64)], 1).expect("posted");
        handles.extend([psp, cr, srq.handle(), shared.handle(), asking.handle()]);
        handles.extend([
            fixture.pz.handle(),
            fixture.memory.lmr.handle(),
            fixture.events,
            fixture.ia.handle(),
        ]);
        handles.extend(pair.eps.iter().map(|ep| ep.handle()));
        handles.extend(pair.evds.iter().map(|evd| evd.handle()));
        assert!(
            handles.iter().all(|handle| handle.kind().is_some()),
            "{handles:?}"
        );
        // `Fixture` closes abruptly when it is dropped.
    }
    assert!(
        handles.iter().all(|handle| handle.kind().is_none()),
        "{handles:?}"
    );
    // The manager's thread handles closed connections later.
    hold(before);
}

#[test]
fn w18_waits_on_an_evd_end_when_it_is_freed() {
    let _lock = lock_device();
    let (ia, own) = open("mlx5_0");
    let evd = Evd::create(&ia, 4, EvdFlags::SOFTWARE, None).expect("an EVD");
    let waiters: Vec<_> = [own, evd.handle()]
        .into_iter()
        .map(|handle| {
            let waiting = Arc::new(Barrier::new(2));
            let there = Arc::clone(&waiting);
            let thread = thread::spawn(move || {
                let mut owned = evd::own(handle).expect("no other wait");
                there.wait();
                evd::wait(&mut owned, Timeout::Infinite, 1).result
            });
            waiting.wait();
            thread
        })
        .collect();
    thread::sleep(Duration::from_millis(20));
    close(ia);
    for waiter in waiters {
        let refusal = waiter.join().expect("no panic").expect_err("no event");
        assert_eq!(refusal, EvdRefusal::Aborted);
    }
}

#[test]
fn one_of_two_concurrent_closes_succeeds() {
    let _lock = lock_device();
    for _ in 0..20 {
        let (ia, _) = open("mlx5_0");
        let handle = ia.handle();
        let start = Barrier::new(2);
        let closed = AtomicU32::new(0);
        thread::scope(|scope| {
            for graceful in [false, true] {
                let (start, closed) = (&start, &closed);
                scope.spawn(move || {
                    start.wait();
                    match close_ia(handle, graceful) {
                        Ok(()) => {
                            closed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert_eq!(
                            error.code(),
                            code(ReturnType::InvalidHandle, Subtype::InvalidHandleIa)
                        ),
                    }
                });
            }
        });
        assert_eq!(closed.into_inner(), 1);
    }
}

#[test]
fn objects_created_during_a_close_are_refused_or_freed() {
    let _lock = lock_device();
    drop(Fixture::new());
    let before = holdings();
    for round in 0..10 {
        let (ia, _) = open("mlx5_0");
        let handle = ia.handle();
        drop(ia);
        let made: Vec<Handle> = thread::scope(|scope| {
            let makers: Vec<_> = (0..3)
                .map(|kind| scope.spawn(move || make(handle, kind)))
                .collect();
            thread::sleep(Duration::from_millis(2 + round));
            close_ia(handle, false).expect("an abrupt close always completes");
            let each = makers.into_iter();
            each.flat_map(|maker| maker.join().expect("no panic"))
                .collect()
        });
        assert!(made.iter().all(|handle| handle.kind().is_none()));
    }
    hold(before);
}

/// Creates objects, as a C program would, until that is refused.
fn make(ia: Handle, kind: u32) -> Vec<Handle> {
    static BYTES: [u64; 512] = [0; 512];
    let mut made = Vec::new();
    loop {
        let Some(ia) = handle::pin::<Ia>(ia) else {
            return made;
        };
        let ia = ia.to_arc();
        let result = match kind {
            0 => Pz::create(&ia).map(|pz| vec![pz.handle()]),
            1 => Evd::create(&ia, 4, EvdFlags::all(), None).map(|evd| vec![evd.handle()]),
            _ => Pz::create(&ia).and_then(|pz| {
                let memory = MemoryKind::Virtual {
                    address: BYTES.as_ptr().expose_provenance(),
                    length: size_of_val(&BYTES) as u64,
                };
                // SAFETY: a static that the device may only read.
                let lmr = unsafe { Lmr::create(&ia, memory, &pz, MemPrivileges::LOCAL_READ) };
                Ok(vec![pz.handle(), lmr?.handle()])
            }),
        };
        match result {
            Ok(handles) => made.extend(handles),
            Err(error) => {
                assert_eq!(
                    error.code().kind(),
                    Some(ReturnType::InvalidHandle),
                    "{error}"
                );
                return made;
            }
        }
        // Every fourth object is freed again, in a race with the close.
        if made.len() % 4 == 3
            && let Some(last) = made.last()
            && kind == 0
        {
            let _ = Pz::free(*last);
        }
    }
}

#[test]
fn an_evd_used_by_another_adapter_prevents_a_graceful_close() {
    let _lock = lock_device();
    let (owner, evd) = open("mlx5_0");
    let asked = OpenRequest {
        async_evd: AsyncEvd::Existing(evd),
        ..request("mlx5_0")
    };
    let (guest, _) = Ia::open(&asked).expect("the EVD of the first");
    let error = close_ia(owner.handle(), true).expect_err("the guest uses its EVD");
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidState, Subtype::InvalidStateIaInUse)
    );
    // Closing the guest leaves the EVD as it was.
    close_ia(guest.handle(), true).expect("nothing is left");
    assert_eq!(evd.kind(), Some(dat_api::Kind::Evd));
    let (guest, _) = Ia::open(&asked).expect("the EVD of the first");
    close(owner);
    assert_eq!((evd.kind(), guest.async_evd()), (None, None));
    close(guest);
}

#[test]
fn a_graceful_close_does_not_wait_for_other_adapters_events() {
    let _lock = lock_device();
    // One adapter waits; the other is opened and closed.
    let (waiting, own) = open("mlx5_0");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut owned) = evd::own(own) else { return };
                let _ = evd::wait(&mut owned, Timeout::Micros(500), 1);
            }
        });
        for _ in 0..10 {
            let (ia, _) = open("mlx5_0");
            close_ia(ia.handle(), true).expect("nothing is left");
        }
        stop.store(true, Ordering::Relaxed);
    });
    close(waiting);
}
