use core::mem::MaybeUninit;

use dat_api::handle::{Object, publish_for_test, retire_for_test};
use dat_api::types::{AsyncKind, ConnectionKind, DtoOperation, DtoStatus, PrivateData};
use std::sync::Arc;

use super::*;
use crate::abi::*;

/// An object of which only the handle and its kind matter.
struct TestObject<const KIND: u8>;

// SAFETY: no test looks up the object behind the handle of a `TestObject`.
unsafe impl<const KIND: u8> Object for TestObject<KIND> {
    const KIND: Kind = Kind::ALL[KIND as usize];
}

fn make<const KIND: u8>() -> Handle {
    // SAFETY: the object is new.
    unsafe { publish_for_test(Arc::new(TestObject::<KIND>)) }.expect("a slot")
}

fn converted(data: EventData, evd: Handle) -> DAT_EVENT {
    let mut event = MaybeUninit::<DAT_EVENT>::uninit();
    // SAFETY: there is room for an event, and all of it is filled first.
    unsafe {
        // Filled with a pattern other than 0, so that bytes that `write` leaves
        // out are detected.
        event
            .as_mut_ptr()
            .cast::<u8>()
            .write_bytes(0xa5, size_of::<DAT_EVENT>());
        write(event.as_mut_ptr(), &Event { evd, data });
        event.assume_init()
    }
}

fn first_word(handle: DAT_HANDLE) -> *const DAT_PROVIDER {
    // SAFETY: the handle leads to a slot of this library, whose first word points
    // to a table.
    unsafe { *handle.cast::<*const DAT_PROVIDER>() }
}

#[test]
fn dto_completions_are_converted() {
    let (evd, ep) = (make::<{ Kind::Evd as u8 }>(), make::<{ Kind::Ep as u8 }>());
    for status in 0..=11 {
        let status = [
            DtoStatus::Success,
            DtoStatus::Flushed,
            DtoStatus::LocalLength,
            DtoStatus::LocalEp,
            DtoStatus::LocalProtection,
            DtoStatus::BadResponse,
            DtoStatus::RemoteAccess,
            DtoStatus::RemoteResponder,
            DtoStatus::Transport,
            DtoStatus::ReceiverNotReady,
            DtoStatus::PartialPacket,
            DtoStatus::RmrOperationFailed,
        ][status];
        let event = converted(
            EventData::Dto {
                ep,
                cookie: u64::MAX - 6,
                status,
                length: 1 << 30,
                operation: DtoOperation::RdmaRead,
            },
            evd,
        );
        assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
        assert_eq!(event.evd_handle, bare(evd));
        // SAFETY: the event number selects this member.
        let data = unsafe { event.event_data.dto_completion_event_data };
        assert_eq!(data.ep_handle, bare(ep));
        // SAFETY: any 64 bits are a number.
        assert_eq!(unsafe { data.user_cookie.as_64 }, u64::MAX - 6);
        assert_eq!(data.status, status as u32);
        assert_eq!(data.transfered_length, 1 << 30);
    }
}

#[test]
fn a_bind_completion_is_converted() {
    let (evd, rmr) = (make::<{ Kind::Evd as u8 }>(), make::<{ Kind::Rmr as u8 }>());
    let event = converted(
        EventData::RmrBind {
            ep: make::<{ Kind::Ep as u8 }>(),
            rmr,
            cookie: 77,
            status: DtoStatus::RmrOperationFailed,
        },
        evd,
    );
    assert_eq!(event.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.rmr_completion_event_data };
    assert_eq!(data.rmr_handle, bare(rmr));
    // SAFETY: any 64 bits are a number.
    assert_eq!(unsafe { data.user_cookie.as_64 }, 77);
    assert_eq!(data.status, DAT_RMR_OPERATION_FAILED);
}

/// The application sees a request's handle first in its event, so the handle must
/// lead to the provider table by then.
#[test]
fn w02_the_handle_in_a_request_event_has_a_table() {
    let evd = make::<{ Kind::Evd as u8 }>();
    let (sp, cr) = (make::<{ Kind::Psp as u8 }>(), make::<{ Kind::Cr as u8 }>());
    assert!(first_word(bare(cr)).is_null());
    let event = converted(
        EventData::ConnectionRequest {
            sp,
            local_address: 0x1000,
            qualifier: 1 << 50,
            cr,
        },
        evd,
    );
    assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.cr_arrival_event_data };
    // SAFETY: both members are the same pointer.
    assert_eq!(unsafe { data.sp_handle.rsp_handle }, bare(sp));
    assert_eq!(data.local_ia_address_ptr.addr(), 0x1000);
    assert_eq!(data.conn_qual, 1 << 50);
    assert_eq!(data.cr_handle, bare(cr));
    assert!(core::ptr::eq(first_word(data.cr_handle), &crate::PROVIDER));
}

#[test]
fn w03_connection_events_and_private_data() {
    let (evd, ep) = (make::<{ Kind::Evd as u8 }>(), make::<{ Kind::Ep as u8 }>());
    for (kind, number) in [
        (
            ConnectionKind::Established,
            DAT_CONNECTION_EVENT_ESTABLISHED,
        ),
        (
            ConnectionKind::PeerRejected,
            DAT_CONNECTION_EVENT_PEER_REJECTED,
        ),
        (
            ConnectionKind::NonPeerRejected,
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
        ),
        (
            ConnectionKind::AcceptCompletionError,
            DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
        ),
        (
            ConnectionKind::Disconnected,
            DAT_CONNECTION_EVENT_DISCONNECTED,
        ),
        (ConnectionKind::Broken, DAT_CONNECTION_EVENT_BROKEN),
        (ConnectionKind::TimedOut, DAT_CONNECTION_EVENT_TIMED_OUT),
        (
            ConnectionKind::Unreachable,
            DAT_CONNECTION_EVENT_UNREACHABLE,
        ),
    ] {
        for private_data in [
            PrivateData::default(),
            PrivateData {
                address: 0x2000,
                len: 56,
            },
        ] {
            let event = converted(
                EventData::Connection {
                    kind,
                    ep,
                    private_data,
                },
                evd,
            );
            assert_eq!(event.event_number, number);
            // SAFETY: the event number selects this member.
            let data = unsafe { event.event_data.connect_event_data };
            assert_eq!(data.ep_handle, bare(ep));
            assert_eq!(data.private_data_size, count(private_data.len));
            assert_eq!(data.private_data.addr(), private_data.address);
        }
    }
}

#[test]
fn the_kind_of_the_object_selects_the_number_of_a_reason() {
    use AsyncReason::{Failed, Other, Watermark};
    let evd = make::<{ Kind::Evd as u8 }>();
    let (ia, ep) = (make::<{ Kind::Ia as u8 }>(), make::<{ Kind::Ep as u8 }>());
    let (srq, lmr) = (make::<{ Kind::Srq as u8 }>(), make::<{ Kind::Lmr as u8 }>());
    let (rmr, pz) = (make::<{ Kind::Rmr as u8 }>(), make::<{ Kind::Pz as u8 }>());
    for (handle, reason, number) in [
        (ia, Failed, DAT_IA_CATASTROPHIC_ERROR),
        (ia, Other, DAT_IA_OTHER_ERROR),
        (ep, Failed, DAT_EP_TRANSFER_TO_ERROR),
        (ep, Other, DAT_EP_OTHER_ERROR),
        (ep, Watermark, DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT),
        (evd, Failed, DAT_EVD_OVERFLOW_ERROR),
        (evd, Other, DAT_EVD_OTHER_ERROR),
        (srq, Failed, DAT_SRQ_TRANSFER_TO_ERROR),
        (srq, Other, DAT_SRQ_OTHER_ERROR),
        (srq, Watermark, DAT_SRQ_LOW_WATERMARK_EVENT),
        (lmr, Other, DAT_LMR_OTHER_ERROR),
        (rmr, Other, DAT_RMR_OTHER_ERROR),
        (pz, Other, DAT_PZ_OTHER_ERROR),
    ] {
        let event = converted(
            EventData::Async {
                kind: AsyncKind::ProviderInternalError,
                handle,
                reason,
            },
            evd,
        );
        assert_eq!(event.event_number, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR);
        // SAFETY: the event number selects this member.
        let data = unsafe { event.event_data.asynch_error_event_data };
        assert_eq!(data.dat_handle, bare(handle));
        assert_eq!(
            data.reason,
            DAT_COUNT::try_from(number).expect("small"),
            "{handle:?} {reason:?}"
        );
    }
}

/// An object may be freed before its event is taken.
#[test]
fn the_reason_of_a_gone_object_keeps_its_number() {
    let evd = make::<{ Kind::Evd as u8 }>();
    let ep = make::<{ Kind::Ep as u8 }>();
    // SAFETY: `make` published the object, and no thread uses it.
    unsafe { retire_for_test::<TestObject<{ Kind::Ep as u8 }>>(ep) }.expect("live");
    assert_eq!(number(ep, AsyncReason::Watermark), 2);
    let event = converted(
        EventData::Async {
            kind: AsyncKind::EpBroken,
            handle: ep,
            reason: AsyncReason::Failed,
        },
        evd,
    );
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_EP_BROKEN);
}

#[test]
fn a_software_event_is_converted_and_its_unused_words_are_zero() {
    let evd = make::<{ Kind::Evd as u8 }>();
    let event = converted(EventData::Software { pointer: 0x1234 }, evd);
    assert_eq!(event.event_number, DAT_SOFTWARE_EVENT);
    assert_eq!(event.evd_handle, bare(evd));
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.software_event_data };
    assert_eq!(data.pointer.addr(), 0x1234);
    // SAFETY: all of the event was written; any 64 bits are a number.
    let words =
        unsafe { core::slice::from_raw_parts((&raw const event.event_data).cast::<u64>(), 4) };
    assert_eq!(words, [0x1234, 0, 0, 0]);
}
