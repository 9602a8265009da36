//! Creating, querying, changing and freeing EVDs.

use std::sync::Arc;

use super::fixture::{FakeEp, FakeIa, Fixture, code};
use crate::handle::{self, Handle, Kind};
use crate::object::evd::state::EvdContext;
use crate::object::evd::{DtoRole, Evd, Notification, StreamKind, own};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags};

fn make(length: i32, flags: EvdFlags) -> crate::Result<Arc<Evd>> {
    Evd::make(
        EvdContext::Test(FakeIa::default()),
        length,
        flags,
        None,
        false,
    )
}

#[test]
fn evd_create_checks_length_then_flags() {
    let bad = EvdFlags::from_bits_retain(0x2);
    for (length, flags, kind, subtype) in [
        (0, bad, ReturnType::InvalidParameter, Subtype::InvalidArg2),
        (-1, bad, ReturnType::InvalidParameter, Subtype::InvalidArg2),
        (
            i32::MIN,
            EvdFlags::DTO,
            ReturnType::InvalidParameter,
            Subtype::InvalidArg2,
        ),
        (
            (1 << 16) + 1,
            bad,
            ReturnType::InsufficientResources,
            Subtype::ResourceTevd,
        ),
        (
            i32::MAX,
            EvdFlags::DTO,
            ReturnType::InsufficientResources,
            Subtype::ResourceTevd,
        ),
        (1, bad, ReturnType::InvalidParameter, Subtype::InvalidArg4),
    ] {
        assert_eq!(
            code(make(length, flags)),
            (kind, subtype),
            "{length} {flags:?}"
        );
    }
    for length in [1, 1 << 16] {
        let evd = make(length, EvdFlags::all()).expect("all kinds may be merged");
        assert_eq!(evd.queue_length(), length as u32);
        assert_eq!(evd.handle().kind(), Some(Kind::Evd));
        Evd::free(evd.handle()).expect("unused");
    }
}

#[test]
fn evd_states_begin_enabled_and_waitable_and_follow_the_calls() {
    let fixture = Fixture::software(3);
    let states = |evd: &Evd| (evd.state.is_enabled(), evd.is_waitable());
    assert_eq!(states(&fixture.evd), (true, true));
    for _ in 0..2 {
        fixture.evd.disable();
        assert_eq!(states(&fixture.evd), (false, true));
    }
    fixture.evd.set_unwaitable();
    assert_eq!(states(&fixture.evd), (false, false));
    fixture.evd.enable();
    assert_eq!(states(&fixture.evd), (true, false));
    fixture.evd.clear_unwaitable();
    fixture.evd.clear_unwaitable();
    assert_eq!(states(&fixture.evd), (true, true));
}

#[test]
fn evd_configuration_follows_the_streams() {
    let fixture = Fixture::new(1, EvdFlags::DTO);
    let configured = || fixture.evd.notification();
    assert_eq!(configured(), None);
    for (flags, notification) in [
        (CompletionFlags::empty(), Notification::PerPost),
        (CompletionFlags::UNSIGNALLED, Notification::PerPost),
        (CompletionFlags::SOLICITED_WAIT, Notification::Solicited),
        (CompletionFlags::EVD_THRESHOLD, Notification::Threshold),
    ] {
        let role = DtoRole::Recv { depth: 1 };
        let stream = fixture.evd.attach_dto(role, flags, &[]).expect("alone");
        assert_eq!(configured(), Some(notification));
        assert!(
            fixture.evd.is_waitable(),
            "notification and waitability are independent"
        );
        drop(stream);
        assert_eq!(configured(), None);
    }
}

#[test]
fn evd_free_refuses_while_streams_are_attached() {
    let fixture = Fixture::new(4, EvdFlags::all() - EvdFlags::SOFTWARE);
    let in_use = (ReturnType::InvalidState, Subtype::InvalidStateEvdInUse);
    for kind in [StreamKind::Cr, StreamKind::Connection, StreamKind::Async] {
        let guard = fixture.evd.attach(kind).expect("attached");
        assert_eq!(code(Evd::free(fixture.handle())), in_use, "{kind:?}");
        assert!(Arc::ptr_eq(guard.evd(), &fixture.evd));
    }
    let stream = fixture
        .evd
        .attach_dto(DtoRole::Request { depth: 2 }, CompletionFlags::empty(), &[])
        .expect("attached");
    assert_eq!(code(Evd::free(fixture.handle())), in_use);
    assert!(Arc::ptr_eq(stream.evd(), &fixture.evd));
    drop(stream);
    Evd::free(fixture.handle()).expect("not in use");
    let refused = fixture.evd.attach(StreamKind::Cr);
    assert_eq!(
        code(refused),
        (ReturnType::InvalidHandle, Subtype::InvalidHandleEvdCr)
    );
}

#[test]
fn evd_w17_bad_handles_are_refused() {
    let gone = {
        let fixture = Fixture::software(1);
        fixture.post(1);
        Evd::free(fixture.handle()).expect("events do not keep it");
        fixture.handle()
    };
    let other_kind = FakeEp::new();
    let garbage = [0x10, usize::MAX, gone.bits() + 8];
    let garbage = garbage.into_iter().filter_map(Handle::from_bits);
    for bad in garbage.chain([gone, other_kind.handle()]) {
        assert_eq!(
            code(own(bad).map(|_| ())),
            (ReturnType::InvalidHandle, Subtype::InvalidHandle1)
        );
        assert_eq!(
            code(Evd::free(bad)),
            (ReturnType::InvalidHandle, Subtype::InvalidHandle1)
        );
        Evd::abort(bad);
    }
    assert!(handle::pin::<Evd>(gone).is_none());
}
