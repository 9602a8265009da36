//! Creating, querying, changing and freeing EVDs.

use std::sync::Arc;

use super::rig::{FakeEp, Rig, World, code};
use crate::handle::{self, Handle, Kind};
use crate::object::evd::context::EvdContext;
use crate::object::evd::{DtoRole, Evd, Notification, StreamKind, own};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags};

fn make(length: i32, flags: EvdFlags) -> crate::Result<Arc<Evd>> {
    Evd::make(
        EvdContext::Test(World::default()),
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
    let rig = Rig::software(3);
    let states = |evd: &Evd| (evd.switches.is_enabled(), evd.switches.is_waitable());
    assert_eq!(states(&rig.evd), (true, true));
    for _ in 0..2 {
        rig.evd.disable();
        assert_eq!(states(&rig.evd), (false, true));
    }
    rig.evd.set_unwaitable();
    assert_eq!(states(&rig.evd), (false, false));
    rig.evd.enable();
    assert_eq!(states(&rig.evd), (true, false));
    rig.evd.clear_unwaitable();
    rig.evd.clear_unwaitable();
    assert_eq!(states(&rig.evd), (true, true));
}

#[test]
fn evd_configuration_follows_the_streams() {
    let rig = Rig::new(1, EvdFlags::DTO);
    let configured = || rig.evd.notification();
    assert_eq!(configured(), None);
    for (flags, notification) in [
        (CompletionFlags::empty(), Notification::PerPost),
        (CompletionFlags::UNSIGNALLED, Notification::PerPost),
        (CompletionFlags::SOLICITED_WAIT, Notification::Solicited),
        (CompletionFlags::EVD_THRESHOLD, Notification::Threshold),
    ] {
        let role = DtoRole::Recv { depth: 1 };
        let stream = rig.evd.attach_dto(role, flags, &[]).expect("alone");
        assert_eq!(configured(), Some(notification));
        assert!(
            rig.evd.switches.is_waitable(),
            "notification and waitability are independent"
        );
        drop(stream);
        assert_eq!(configured(), None);
    }
}

#[test]
fn evd_free_refuses_while_streams_are_attached() {
    let rig = Rig::new(4, EvdFlags::all() - EvdFlags::SOFTWARE);
    let in_use = (ReturnType::InvalidState, Subtype::InvalidStateEvdInUse);
    for kind in [StreamKind::Cr, StreamKind::Connection, StreamKind::Async] {
        let guard = rig.evd.attach(kind).expect("attached");
        assert_eq!(code(Evd::free(rig.handle())), in_use, "{kind:?}");
        assert!(Arc::ptr_eq(guard.evd(), &rig.evd));
    }
    let stream = rig
        .evd
        .attach_dto(DtoRole::Request { depth: 2 }, CompletionFlags::empty(), &[])
        .expect("attached");
    assert_eq!(code(Evd::free(rig.handle())), in_use);
    assert!(Arc::ptr_eq(stream.evd(), &rig.evd));
    drop(stream);
    Evd::free(rig.handle()).expect("not in use");
    let refused = rig.evd.attach(StreamKind::Cr);
    assert_eq!(
        code(refused),
        (ReturnType::InvalidHandle, Subtype::InvalidHandleEvdCr)
    );
}

#[test]
fn evd_w17_bad_handles_are_refused() {
    let gone = {
        let rig = Rig::software(1);
        rig.post(1);
        Evd::free(rig.handle()).expect("events do not keep it");
        rig.handle()
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
