//! DAT calls with checked return codes and converted results.

use std::ffi::CStr;
use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::device;

/// Type bits of a return code.
const TYPE: DAT_RETURN = 0x3fff_0000;

/// Checks that a call succeeded.
#[track_caller]
pub fn ok(answer: DAT_RETURN) {
    assert_eq!(answer, DAT_SUCCESS, "{}", words(answer));
}

/// Checks the type of a failure.
#[track_caller]
pub fn fails(answer: DAT_RETURN, kind: DAT_RETURN) {
    assert_eq!(
        answer & TYPE,
        kind,
        "{} instead of {}",
        words(answer),
        words(kind | 0x8000_0000)
    );
}

/// Checks type and subtype of a failure.
#[track_caller]
pub fn fails_with(answer: DAT_RETURN, kind: DAT_RETURN, subtype: DAT_RETURN_SUBTYPE) {
    assert_eq!(
        answer & 0x3fff_ffff,
        kind | subtype as DAT_RETURN,
        "{} instead of {}",
        words(answer),
        words(0x8000_0000 | kind | subtype as DAT_RETURN)
    );
}

/// Returns the text of `dat_strerror`.
pub fn words(answer: DAT_RETURN) -> String {
    let (mut major, mut minor) = (ptr::null(), ptr::null());
    // SAFETY: both results are writable; they are static strings on success.
    unsafe {
        if dat_strerror(answer, &raw mut major, &raw mut minor) != DAT_SUCCESS {
            return format!("{answer:#x}");
        }
        let text = |at| CStr::from_ptr(at).to_string_lossy();
        format!("{} {}", text(major), text(minor))
    }
}

/// Returns a zeroed event.
pub fn blank() -> DAT_EVENT {
    // SAFETY: integers and pointers, for which zero is valid.
    unsafe { mem::zeroed() }
}

/// Returns a cookie of 64 bits.
pub fn cookie(value: u64) -> DAT_CONTEXT {
    DAT_CONTEXT { as_64: value }
}

/// Calls `dat_evd_wait`. Returns its code, the event and `nmore`.
pub fn wait(
    evd: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
) -> (DAT_RETURN, DAT_EVENT, DAT_COUNT) {
    let (mut event, mut nmore) = (blank(), -77);
    // SAFETY: both results are writable.
    let answer = unsafe { dat_evd_wait(evd, timeout, threshold, &raw mut event, &raw mut nmore) };
    (answer, event, nmore)
}

/// Takes the next event, without waiting.
pub fn dequeue(evd: DAT_EVD_HANDLE) -> Result<DAT_EVENT, DAT_RETURN> {
    let mut event = blank();
    // SAFETY: the result is writable.
    match unsafe { dat_evd_dequeue(evd, &raw mut event) } {
        DAT_SUCCESS => Ok(event),
        answer => Err(answer),
    }
}

/// Takes the next event, which must exist.
#[track_caller]
pub fn take(evd: DAT_EVD_HANDLE, what: &str) -> DAT_EVENT {
    let mut refused = DAT_SUCCESS;
    let event = device::comes(|| dequeue(evd).map_err(|answer| refused = answer).ok());
    event.unwrap_or_else(|| panic!("no {what}: {}", words(refused)))
}

/// Checks that an EVD has no event.
#[track_caller]
pub fn nothing_on(evd: DAT_EVD_HANDLE) {
    match dequeue(evd) {
        Ok(event) => panic!("unexpected event {:#x}", event.event_number),
        Err(answer) => fails(answer, DAT_QUEUE_EMPTY),
    }
}

/// Takes the next event, which must come within seconds and have this number.
#[track_caller]
pub fn expect(evd: DAT_EVD_HANDLE, number: DAT_EVENT_NUMBER) -> DAT_EVENT {
    let (answer, event, _) = wait(evd, 60_000_000, 1);
    ok(answer);
    assert_eq!(
        event.event_number, number,
        "expected event {number:#x}, got {:#x}",
        event.event_number
    );
    assert_eq!(event.evd_handle, evd);
    if ENDS.contains(&number) {
        of_an_endpoint(&event);
    }
    event
}

/// Checks that both ends report the connection as established.
#[track_caller]
pub fn established(ends: [&super::End; 2]) {
    for end in ends {
        let event = expect(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
        // SAFETY: the event number selects this member.
        let data = unsafe { event.event_data.connect_event_data };
        assert_eq!(data.ep_handle, end.ep);
    }
}

/// Connection events without private data: all except Established.
const ENDS: [DAT_EVENT_NUMBER; 7] = [
    DAT_CONNECTION_EVENT_PEER_REJECTED,
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
    DAT_CONNECTION_EVENT_DISCONNECTED,
    DAT_CONNECTION_EVENT_BROKEN,
    DAT_CONNECTION_EVENT_TIMED_OUT,
    DAT_CONNECTION_EVENT_UNREACHABLE,
];

/// Checks that the event names the endpoint of this EVD, and carries no data.
#[track_caller]
fn of_an_endpoint(event: &DAT_EVENT) {
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.connect_event_data };
    let info = super::ep_info(data.ep_handle);
    assert_eq!(info.connect_evd_handle, event.evd_handle);
    assert_eq!(data.private_data_size, 0);
}

/// The fields of a DTO completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dto {
    pub ep: DAT_EP_HANDLE,
    pub cookie: u64,
    pub status: DAT_DTO_COMPLETION_STATUS,
    pub length: u64,
}

/// Returns the fields of a DTO event.
#[track_caller]
pub fn dto(event: &DAT_EVENT) -> Dto {
    assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.dto_completion_event_data };
    Dto {
        ep: data.ep_handle,
        // SAFETY: any bytes are 64 bits.
        cookie: unsafe { data.user_cookie.as_64 },
        status: data.status,
        length: data.transfered_length,
    }
}

/// Takes the next event, which must exist and be a completion.
#[track_caller]
pub fn take_dto(evd: DAT_EVD_HANDLE) -> Dto {
    dto(&take(evd, "completion"))
}

/// Checks that the peer refused an access. Returns whether this completion
/// reported the refusal. On a device that works on its own, the peer's disconnect
/// may overtake the refusal and flush the request.
#[track_caller]
pub fn refused_access(status: DAT_DTO_COMPLETION_STATUS) -> bool {
    let reported = status == DAT_DTO_ERR_REMOTE_ACCESS;
    let overtaken = status == DAT_DTO_ERR_FLUSHED && device::emulator().is_none();
    assert!(reported || overtaken, "status {status}");
    reported
}

/// Returns the state of an endpoint.
pub fn state_of(ep: DAT_EP_HANDLE) -> DAT_EP_STATE {
    let mut state = 99;
    // SAFETY: the result is writable; the others are not asked for.
    ok(unsafe { dat_ep_get_status(ep, &raw mut state, ptr::null_mut(), ptr::null_mut()) });
    state
}

/// Polls for up to seconds for something that the library's threads bring about.
pub fn within_seconds<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..10_000 {
        let found = look();
        if found.is_some() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

/// Waits until an endpoint is in a state.
#[track_caller]
pub fn reaches(ep: DAT_EP_HANDLE, state: DAT_EP_STATE) {
    let reached = within_seconds(|| (state_of(ep) == state).then_some(()));
    assert!(
        reached.is_some(),
        "expected state {state}, got {}",
        state_of(ep)
    );
}
