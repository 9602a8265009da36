//! Objects as C sees them: their first word, contexts, and end; and events taken
//! through the C interface.

use dat::abi::*;
use dat::exports::*;
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::face::common::{expect, success};
use crate::face::fixture::{Fixture, dirty, open};
use crate::face::launcher::{device, on_a_device};

#[test]
fn every_handle_leads_to_the_table_and_has_a_context_of_its_own() {
    on_a_device(
        "objects::every_handle_leads_to_the_table_and_has_a_context_of_its_own",
        || {
            let w = Fixture::new();
            for (value, (handle, kind)) in (1..).zip(w.handles()) {
                // SAFETY: the first word of an object points to a table.
                let table = unsafe { *handle.cast::<*const DAT_PROVIDER>() };
                assert!(core::ptr::eq(table, &dat::PROVIDER), "type {kind}");
                // SAFETY: the table has all calls.
                let table = unsafe { &*table };
                let (set, get, of) = (
                    table.set_consumer_context_func.expect("there"),
                    table.get_consumer_context_func.expect("there"),
                    table.get_handle_type_func.expect("there"),
                );
                let (mut number, mut context) = (99, DAT_CONTEXT { as_64: 99 });
                // SAFETY: there is room for the results.
                unsafe {
                    success("type", of(handle, &raw mut number));
                    assert_eq!(number, kind);
                    success("get", get(handle, &raw mut context));
                    assert_eq!(context.as_64, 0);
                    success("set", set(handle, DAT_CONTEXT { as_64: value }));
                }
            }
            for (value, (handle, kind)) in (1..).zip(w.handles()) {
                let mut context = DAT_CONTEXT { as_64: 99 };
                // SAFETY: there is room for the result; any 64 bits are a number.
                unsafe {
                    success("get", dat_get_consumer_context(handle, &raw mut context));
                    assert_eq!(context.as_64, value, "type {kind}");
                }
            }
            // SAFETY: there is room for the handle.
            unsafe {
                let mut ia = DAT_HANDLE_NULL;
                let mut evd = DAT_HANDLE_NULL;
                let open = dat::PROVIDER.ia_open_func.expect("there");
                let name = device();
                let name = name.as_ptr().cast_mut();
                success("open", open(name, 4, &raw mut evd, &raw mut ia));
                let close = dat::PROVIDER.ia_close_func.expect("there");
                success("close", close(ia, DAT_CLOSE_GRACEFUL_FLAG));
            }
        },
    );
}

#[test]
fn objects_in_use_cannot_be_freed_and_freed_handles_are_invalid() {
    on_a_device(
        "objects::objects_in_use_cannot_be_freed_and_freed_handles_are_invalid",
        || {
            let w = Fixture::new();
            let in_use = ReturnType::InvalidState;
            // SAFETY: the calls validate their handles.
            unsafe {
                for (what, answer, subtype) in [
                    ("PZ", dat_pz_free(w.pz), Subtype::InvalidStatePzInUse),
                    ("EVD", dat_evd_free(w.evd), Subtype::InvalidStateEvdInUse),
                    (
                        "CR EVD",
                        dat_evd_free(w.cr_evd),
                        Subtype::InvalidStateEvdInUse,
                    ),
                    (
                        "async EVD",
                        dat_evd_free(w.async_evd),
                        Subtype::InvalidStateEvdInUse,
                    ),
                    ("SRQ", dat_srq_free(w.srq), Subtype::InvalidStateSrqInUse),
                    (
                        "IA",
                        dat_ia_close(w.ia, DAT_CLOSE_GRACEFUL_FLAG),
                        Subtype::InvalidStateIaInUse,
                    ),
                ] {
                    expect(what, answer, in_use, subtype);
                }
                type Free = unsafe extern "C" fn(DAT_HANDLE) -> DAT_RETURN;
                let frees: [(DAT_HANDLE, Free, Subtype); 9] = [
                    (w.psp, dat_psp_free, Subtype::InvalidHandlePsp),
                    (w.srq_ep, dat_ep_free, Subtype::InvalidHandleEp),
                    (w.ep, dat_ep_free, Subtype::InvalidHandleEp),
                    (w.srq, dat_srq_free, Subtype::InvalidHandleSrq),
                    (w.lmr, dat_lmr_free, Subtype::InvalidHandleLmr),
                    (w.cr_evd, dat_evd_free, Subtype::InvalidHandleEvdRequest),
                    (
                        w.connect_evd,
                        dat_evd_free,
                        Subtype::InvalidHandleEvdRequest,
                    ),
                    (w.evd, dat_evd_free, Subtype::InvalidHandleEvdRequest),
                    (w.pz, dat_pz_free, Subtype::InvalidHandlePz),
                ];
                for (handle, free, subtype) in frees {
                    success("free", free(handle));
                    expect("again", free(handle), ReturnType::InvalidHandle, subtype);
                }
                success("close", dat_ia_close(w.ia, DAT_CLOSE_GRACEFUL_FLAG));
                for (handle, kind) in w.handles() {
                    let mut number = 0;
                    expect(
                        &format!("type {kind}"),
                        dat_get_handle_type(handle, &raw mut number),
                        ReturnType::InvalidHandle,
                        Subtype::InvalidHandle1,
                    );
                }
            }
        },
    );
}

#[test]
fn an_abrupt_close_ends_everything() {
    on_a_device("objects::an_abrupt_close_ends_everything", || {
        let w = Fixture::new();
        // SAFETY: the calls validate their handles.
        unsafe {
            success("close", dat_ia_close(w.ia, DAT_CLOSE_ABRUPT_FLAG));
            for (handle, kind) in w.handles() {
                let mut number = 0;
                expect(
                    &format!("type {kind}"),
                    dat_get_handle_type(handle, &raw mut number),
                    ReturnType::InvalidHandle,
                    Subtype::InvalidHandle1,
                );
            }
            expect(
                "again",
                dat_ia_close(w.ia, DAT_CLOSE_ABRUPT_FLAG),
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleIa,
            );
        }
    });
}

#[test]
fn w01_w09_w11_w13_w16_w20_software_events_are_passed_through() {
    on_a_device(
        "objects::w01_w09_w11_w13_w16_w20_software_events_are_passed_through",
        || {
            let w = Fixture::new();
            let mut event = dirty::<DAT_EVENT>();
            let place = event.as_mut_ptr();
            let post = |pointer: usize| {
                let mut event = dirty::<DAT_EVENT>();
                // SAFETY: there is room for the two members, and the call reads
                // only these.
                unsafe {
                    (*event.as_mut_ptr()).event_number = DAT_SOFTWARE_EVENT;
                    (*event.as_mut_ptr()).event_data.software_event_data.pointer =
                        core::ptr::without_provenance_mut(pointer);
                    dat_evd_post_se(w.evd, event.as_ptr())
                }
            };
            // SAFETY: there is room for an event.
            let taken = |answer, place: *const DAT_EVENT| unsafe {
                success("taken", answer);
                assert_eq!((*place).event_number, DAT_SOFTWARE_EVENT);
                assert_eq!((*place).evd_handle, w.evd);
                (*place).event_data.software_event_data.pointer.addr()
            };
            let wait = |timeout, threshold| {
                let mut more = -5;
                // SAFETY: there is room for the results.
                let answer =
                    unsafe { dat_evd_wait(w.evd, timeout, threshold, place, &raw mut more) };
                (answer, more)
            };
            // SAFETY: there is room for an event.
            let dequeue = || unsafe { dat_evd_dequeue(w.evd, place) };

            // The EVD is for completions too, so the code has no class.
            assert_eq!(dequeue(), ReturnType::QueueEmpty as u32, "empty");
            let (answer, more) = wait(0, 1);
            expect(
                "w20",
                answer,
                ReturnType::TimeoutExpired,
                Subtype::NoSubtype,
            );
            assert_eq!(more, 0);
            for pointer in 1..=3 {
                success("post", post(pointer));
            }
            let (answer, more) = wait(1000, 4);
            expect(
                "w09",
                answer,
                ReturnType::TimeoutExpired,
                Subtype::NoSubtype,
            );
            assert_eq!(more, 3);
            let (answer, more) = wait(DAT_TIMEOUT_INFINITE, 3);
            assert_eq!((taken(answer, place), more), (1, 2));
            assert_eq!(taken(dequeue(), place), 2);

            // SAFETY: a handle.
            unsafe { success("unwaitable", dat_evd_set_unwaitable(w.evd)) };
            let (answer, more) = wait(DAT_TIMEOUT_INFINITE, 1);
            expect(
                "w16",
                answer,
                ReturnType::InvalidState,
                Subtype::InvalidStateEvdUnwaitable,
            );
            assert_eq!(more, -5, "untouched");
            assert_eq!(taken(dequeue(), place), 3);
            // SAFETY: a handle.
            unsafe { success("waitable", dat_evd_clear_unwaitable(w.evd)) };
            let (answer, _) = wait(0, 1);
            expect(
                "w20",
                answer,
                ReturnType::TimeoutExpired,
                Subtype::NoSubtype,
            );

            // An EVD without software events takes none.
            let mut event = dirty::<DAT_EVENT>();
            // SAFETY: there is room for the member.
            let answer = unsafe {
                (*event.as_mut_ptr()).event_number = DAT_SOFTWARE_EVENT;
                dat_evd_post_se(w.connect_evd, event.as_ptr())
            };
            expect(
                "no stream",
                answer,
                ReturnType::InvalidParameter,
                Subtype::InvalidArg1,
            );
            // More events than the EVD holds.
            let full = (1..=100).map(post).find(|&answer| answer != 0);
            expect(
                "full",
                full.expect("it holds fewer"),
                ReturnType::QueueFull,
                Subtype::NoSubtype,
            );
        },
    );
}

#[test]
fn w18_closing_an_adapter_ends_its_waits() {
    on_a_device("objects::w18_closing_an_adapter_ends_its_waits", || {
        let (ia, evd) = open(&device());
        let evd = evd.expose_provenance();
        let waiter = std::thread::spawn(move || {
            let mut event = dirty::<DAT_EVENT>();
            let mut more = 0;
            let evd = core::ptr::with_exposed_provenance_mut(evd);
            loop {
                // SAFETY: there is room for the results.
                let answer = unsafe {
                    dat_evd_wait(
                        evd,
                        DAT_TIMEOUT_INFINITE,
                        1,
                        event.as_mut_ptr(),
                        &raw mut more,
                    )
                };
                // The dequeue below had the EVD.
                if !DatReturn::from_bits(answer).is(ReturnType::InvalidState) {
                    return answer;
                }
            }
        });
        // A dequeue is refused once the other thread waits.
        let waits = || {
            let mut event = dirty::<DAT_EVENT>();
            let evd = core::ptr::with_exposed_provenance_mut(evd);
            // SAFETY: there is room for the event.
            let answer = unsafe { dat_evd_dequeue(evd, event.as_mut_ptr()) };
            DatReturn::from_bits(answer).is(ReturnType::InvalidState)
        };
        while !waits() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: a handle.
        unsafe { success("close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG)) };
        let answer = waiter.join().expect("no panic");
        expect("w18", answer, ReturnType::Abort, Subtype::NoSubtype);
    });
}
