//! Create, query and free: which calls are refused, and with which code.

use std::mem;
use std::ptr;
use std::thread;

use dat::abi::*;
use dat::exports::*;

use super::{Cno, Evd, NO_AGENT, SECOND, joined};
use crate::support::{Fixture, fails_with, ok};

unsafe extern "C-unwind" fn never(_: DAT_PVOID, _: DAT_EVD_HANDLE) {
    std::process::abort();
}

/// An agent that must not be called.
fn aborting_agent(data: usize) -> DAT_OS_WAIT_PROXY_AGENT {
    DAT_OS_WAIT_PROXY_AGENT {
        instance_data: ptr::without_provenance_mut(data),
        proxy_agent_func: Some(never),
    }
}

/// Returns the results of `dat_cno_query`: the IA, the agent's data and function.
fn query(cno: Cno) -> (DAT_IA_HANDLE, usize, usize) {
    // SAFETY: pointers, for which zero is valid.
    let mut param: DAT_CNO_PARAM = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_cno_query(cno.0, DAT_CNO_FIELD_ALL, &raw mut param) });
    (
        param.ia_handle,
        param.agent.instance_data.addr(),
        param.agent.proxy_agent_func.map_or(0, |call| call as usize),
    )
}

/// Returns the CNO that an EVD reports.
fn cno_of(evd: DAT_EVD_HANDLE) -> DAT_CNO_HANDLE {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut param: DAT_EVD_PARAM = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_evd_query(evd, DAT_EVD_FIELD_ALL, &raw mut param) });
    param.cno_handle
}

#[test]
fn cno_n01_n02_a_new_cno_has_only_its_agent() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    assert_eq!(query(cno), (fixture.ia, 0, 0));
    cno.finds_nothing();
    ok(cno.free());
    let cno = Cno::with_agent(&fixture, aborting_agent(5));
    assert_eq!(query(cno), (fixture.ia, 5, never as *const () as usize));
    cno.finds_nothing();
    for (agent, function) in [
        (aborting_agent(0), never as *const () as usize),
        (NO_AGENT, 0),
    ] {
        ok(cno.set_agent(agent));
        assert_eq!(query(cno), (fixture.ia, 0, function));
    }
    let mut kind = 99;
    // SAFETY: the result is writable.
    ok(unsafe { dat_get_handle_type(cno.0, &raw mut kind) });
    assert_eq!(kind, DAT_HANDLE_TYPE_CNO);
    ok(cno.free());
}

#[test]
fn cno_n02_an_evd_reports_its_cno() {
    let fixture = Fixture::new();
    let (first, second) = (Cno::new(&fixture), Cno::new(&fixture));
    let evd = first.software(&fixture, 4);
    assert_eq!(cno_of(evd.0), first.0);
    for cno in [first, second, second, first] {
        cno.bind(evd.0);
        assert_eq!(cno_of(evd.0), cno.0);
    }
    // SAFETY: live handles.
    ok(unsafe { dat_evd_modify_cno(evd.0, DAT_HANDLE_NULL) });
    assert_eq!(cno_of(evd.0), DAT_HANDLE_NULL);
    assert_eq!(cno_of(fixture.async_evd), DAT_HANDLE_NULL, "at first");
    first.bind(fixture.async_evd);
    assert_eq!(cno_of(fixture.async_evd), first.0);
}

#[test]
fn cno_n03_a_cno_with_evds_cannot_be_freed() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let [one, two] = [(); 2].map(|()| cno.software(&fixture, 4));
    let in_use = || fails_with(cno.free(), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
    in_use();
    // SAFETY: live handles.
    ok(unsafe { dat_evd_modify_cno(one.0, DAT_HANDLE_NULL) });
    in_use();
    // The refused call has changed nothing.
    two.post(1);
    assert_eq!(cno.wait(SECOND), Ok(two.0));
    two.calls(dat_evd_free);
    ok(cno.free());
    fails_with(cno.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    one.calls(dat_evd_free);
}

#[test]
fn cno_n03_a_cno_with_a_waiter_cannot_be_freed() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let waker = Evd(fixture.evd(4, DAT_EVD_SOFTWARE_FLAG));
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        fails_with(cno.free(), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
        // Ends the wait by freeing its last EVD, as the page describes.
        cno.bind(waker.0);
        waker.post(1);
        assert_eq!(joined(waiter), Ok(waker));
    });
    // SAFETY: live handles.
    ok(unsafe { dat_evd_modify_cno(waker.0, DAT_HANDLE_NULL) });
    ok(cno.free());
}

/// An IA with a CNO is not closed gracefully.
#[test]
fn cno_n03_a_cno_keeps_its_ia_open() {
    let mut fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    // SAFETY: a live handle.
    ok(unsafe { dat_pz_free(fixture.pz) });
    let answer = fixture.close(DAT_CLOSE_GRACEFUL_FLAG);
    fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    cno.finds_nothing();
    ok(cno.free());
    ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
}

#[test]
fn cno_n04_errors_have_type_and_subtype() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let gone = Cno::new(&fixture);
    ok(gone.free());
    let (param, place): (*mut DAT_CNO_PARAM, *mut DAT_HANDLE) = (ptr::null_mut(), ptr::null_mut());
    let bad_agent = DAT_OS_WAIT_PROXY_AGENT {
        instance_data: ptr::without_provenance_mut(8),
        proxy_agent_func: None,
    };
    let (handle, parameter) = (DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER);
    let mut made = ptr::null_mut();
    let evd = cno.software(&fixture, 4).0;
    let flags = DAT_EVD_SOFTWARE_FLAG;
    // SAFETY: the calls validate their handles; results are writable or null.
    let rows = unsafe {
        [
            (
                "create: no IA",
                dat_cno_create(cno.0, NO_AGENT, &raw mut made),
                handle,
                DAT_INVALID_HANDLE_IA,
            ),
            (
                "create: a bad agent",
                dat_cno_create(fixture.ia, bad_agent, &raw mut made),
                parameter,
                DAT_INVALID_ARG2,
            ),
            (
                "create: no place",
                dat_cno_create(fixture.ia, NO_AGENT, place),
                parameter,
                DAT_INVALID_ARG3,
            ),
            (
                "modify_agent: no CNO",
                dat_cno_modify_agent(evd, NO_AGENT),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "modify_agent: a bad agent",
                dat_cno_modify_agent(cno.0, bad_agent),
                parameter,
                DAT_INVALID_ARG2,
            ),
            (
                "query: a freed one",
                dat_cno_query(gone.0, 0, param),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "query: the mask",
                dat_cno_query(cno.0, 4, param),
                parameter,
                DAT_INVALID_ARG2,
            ),
            (
                "query: no place",
                dat_cno_query(cno.0, 1, param),
                parameter,
                DAT_INVALID_ARG3,
            ),
            (
                "free: null",
                dat_cno_free(DAT_HANDLE_NULL),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "wait: a freed one",
                dat_cno_wait(gone.0, 0, &raw mut made),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "wait: an EVD",
                dat_cno_wait(evd, 0, &raw mut made),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "wait: no place",
                dat_cno_wait(cno.0, 0, place),
                parameter,
                DAT_INVALID_ARG3,
            ),
            (
                "evd_create: a freed one",
                dat_evd_create(fixture.ia, 4, gone.0, flags, &raw mut made),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "evd_create: an EVD",
                dat_evd_create(fixture.ia, 4, evd, flags, &raw mut made),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "modify_cno: a freed one",
                dat_evd_modify_cno(evd, gone.0),
                handle,
                DAT_INVALID_HANDLE_CNO,
            ),
            (
                "modify_cno: no EVD",
                dat_evd_modify_cno(cno.0, cno.0),
                handle,
                DAT_INVALID_HANDLE_EVD_REQUEST,
            ),
        ]
    };
    for (what, answer, kind, subtype) in rows {
        println!("{what}");
        fails_with(answer, kind, subtype);
    }
    // The refused calls have changed nothing.
    assert_eq!(cno_of(evd), cno.0);
}

/// A CNO of another IA is refused, and the EVD keeps its own.
#[test]
fn cno_n04_the_cno_of_another_ia_is_refused() {
    let fixture = Fixture::new();
    let (mut ia, mut async_evd) = (ptr::null_mut(), ptr::null_mut());
    let name = crate::support::c_name();
    let mut theirs = ptr::null_mut();
    let evd = Cno::new(&fixture).software(&fixture, 4);
    let before = cno_of(evd.0);
    // SAFETY: every pointer leads to what the call expects.
    unsafe {
        ok(dat_ia_openv(
            name.as_ptr().cast_mut(),
            8,
            &raw mut async_evd,
            &raw mut ia,
            1,
            2,
            DAT_FALSE,
        ));
        ok(dat_cno_create(ia, NO_AGENT, &raw mut theirs));
        let answer = dat_evd_modify_cno(evd.0, theirs);
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
        let mut made = ptr::null_mut();
        let answer = dat_evd_create(fixture.ia, 4, theirs, DAT_EVD_DTO_FLAG, &raw mut made);
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
        assert_eq!(cno_of(evd.0), before);
        ok(dat_cno_free(theirs));
        ok(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    }
}
