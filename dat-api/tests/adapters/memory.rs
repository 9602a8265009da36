//! Zones and memory regions.

use std::sync::Arc;

use dat_api::handle::Handle;
use dat_api::object::ia::Ia;
use dat_api::object::lmr::{Lmr, MemoryKind};
use dat_api::object::pz::Pz;
use dat_api::types::{DtoStatus, MemPrivileges};
use dat_api::{DatError, Kind, ReturnType, Subtype};
use memmap2::MmapOptions;

use crate::fixture::{self, Fixture, Memory};
use crate::setup::*;

static BYTES: [u64; 1024] = [7; 1024];

fn bytes() -> MemoryKind {
    MemoryKind::Virtual {
        address: BYTES.as_ptr().expose_provenance(),
        length: size_of_val(&BYTES) as u64,
    }
}

fn register(ia: &Arc<Ia>, pz: &Arc<Pz>, kind: MemoryKind) -> Result<Arc<Lmr>, DatError> {
    // SAFETY: the memory is a static, or registering it is refused; the device may only read it.
    unsafe { Lmr::create(ia, kind, pz, MemPrivileges::LOCAL_READ) }
}

#[test]
fn a_zone_can_be_freed_when_nothing_uses_it() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let pz = Pz::create(&ia).expect("a zone");
    let other = Pz::create(&ia).expect("a zone");
    assert_ne!(pz.handle(), other.handle());
    assert_eq!(pz.ia().handle(), ia.handle());
    let lmr = register(&ia, &pz, bytes()).expect("an LMR");
    let error = Pz::free(pz.handle()).expect_err("the LMR uses it");
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidState, Subtype::InvalidStatePzInUse)
    );
    assert_eq!(pz.handle().kind(), Some(Kind::Pz), "nothing has happened");
    Lmr::free(lmr.handle()).expect("no window is bound");
    Pz::free(pz.handle()).expect("nothing uses it");
    let stale = code(ReturnType::InvalidHandle, Subtype::InvalidHandlePz);
    assert_eq!(Pz::free(pz.handle()).expect_err("freed").code(), stale);
    assert_eq!(Pz::free(ia.handle()).expect_err("an IA").code(), stale);
    assert_eq!(
        register(&ia, &pz, bytes()).expect_err("freed").code(),
        stale
    );
    close(ia);
}

#[test]
fn a_region_reports_its_parameters_and_has_unique_contexts() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let pz = Pz::create(&ia).expect("a zone");
    let lmr = register(&ia, &pz, bytes()).expect("an LMR");
    let info = lmr.query();
    let MemoryKind::Virtual { address, length } = bytes() else {
        unreachable!("created above");
    };
    assert_eq!(
        (info.ia, info.pz, info.kind),
        (ia.handle(), pz.handle(), bytes())
    );
    assert_eq!(info.privileges, MemPrivileges::LOCAL_READ);
    assert_eq!(info.rmr_context, 0, "no remote privilege was asked for");
    assert!(info.registered_address <= address as u64);
    assert!(info.registered_address + info.registered_size >= address as u64 + length);
    let again = register(&ia, &pz, bytes())
        .expect("the same memory once more")
        .query();
    assert_ne!(info.lmr_context, 0);
    assert_ne!(info.lmr_context, again.lmr_context);
    for (remote, has) in [
        (MemPrivileges::REMOTE_READ, true),
        (MemPrivileges::REMOTE_WRITE, true),
        (MemPrivileges::LOCAL_WRITE, false),
    ] {
        let memory = Memory::new(&ia, &pz, 4096, remote);
        assert_eq!(memory.lmr.query().rmr_context != 0, has, "{remote:?}");
    }
    close(ia);
}

#[test]
fn invalid_memory_is_refused() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let pz = Pz::create(&ia).expect("a zone");
    let range = |address, length| MemoryKind::Virtual { address, length };
    let argument = |number| code(ReturnType::InvalidParameter, number);
    let cases = [
        (
            range(4096, 0),
            code(ReturnType::LengthError, Subtype::NoSubtype),
        ),
        (range(usize::MAX, 2), argument(Subtype::InvalidArg4)),
        (range(4096, u64::MAX), argument(Subtype::InvalidArg4)),
        (range(4096, 4096), argument(Subtype::InvalidArg3)),
        (range(0, 4096), argument(Subtype::InvalidArg3)),
        (
            MemoryKind::Lmr {
                source: pz.handle(),
            },
            code(ReturnType::InvalidHandle, Subtype::InvalidHandleLmr),
        ),
        (
            MemoryKind::SharedVirtual {
                address: 4096,
                length: 4096,
                identifier: [0; 40],
            },
            argument(Subtype::InvalidArg3),
        ),
    ];
    let before = holdings();
    for (kind, expected) in cases {
        let error = register(&ia, &pz, kind).expect_err("refused");
        assert_eq!(error.code(), expected, "{kind:?}: {error}");
        assert!(!error.cause().is_empty());
    }
    descriptors_at_most(before.0);
    close(ia);
}

#[test]
fn a_zone_of_another_adapter_is_refused() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let (other, _) = open("mlx5_0");
    let pz = Pz::create(&other).expect("a zone");
    let error = register(&ia, &pz, bytes()).expect_err("not of this IA");
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidHandle, Subtype::InvalidHandlePz)
    );
    close(ia);
    close(other);
}

#[test]
fn a_freed_region_and_its_context_are_stale() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let memory = Memory::new(&fixture.ia, &fixture.pz, 4096, MemPrivileges::all());
    let evd = fixture.evd(8);
    let ep = fixture.ep(&evd, &fixture::plain());
    let segment = memory.local(0, 64);
    fixture::recv(&ep, &[segment], 1).expect("posted");
    Lmr::free(memory.lmr.handle()).expect("no window is bound");
    let stale = code(ReturnType::InvalidHandle, Subtype::InvalidHandleLmr);
    assert_eq!(
        Lmr::free(memory.lmr.handle()).expect_err("freed").code(),
        stale
    );
    let code = fixture::recv(&ep, &[segment], 2).expect_err("r12: its LMR is gone");
    assert_eq!(code.kind(), Some(ReturnType::PrivilegesViolation));
    // The next LMR does not get the same context.
    let next = Memory::new(&fixture.ia, &fixture.pz, 4096, MemPrivileges::all());
    assert_ne!(next.local(0, 64).context, segment.context);
}

#[test]
fn r10_r11_r12_posts_use_memory_only_as_its_region_allows() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let zone = Pz::create(&fixture.ia).expect("a zone");
    let evd = fixture.evd(8);
    let ep = fixture.ep(&evd, &fixture::plain());
    let refused = |memory: &Memory, at: usize, len| {
        fixture::recv(&ep, &[memory.local(at, len)], 1)
            .expect_err("refused")
            .kind()
    };
    assert_eq!(
        refused(&fixture.memory, (1 << 16) - 8, 9),
        Some(ReturnType::InvalidParameter)
    );
    let foreign = Memory::new(&fixture.ia, &zone, 4096, MemPrivileges::all());
    assert_eq!(
        refused(&foreign, 0, 8),
        Some(ReturnType::ProtectionViolation)
    );
    let remote = MemPrivileges::REMOTE_WRITE | MemPrivileges::LOCAL_READ;
    let target = Memory::new(&fixture.ia, &fixture.pz, 4096, remote);
    assert_eq!(
        refused(&target, 0, 8),
        Some(ReturnType::PrivilegesViolation)
    );
}

#[test]
fn peers_can_write_memory_that_this_side_may_not() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let target = Memory::new(&fixture.ia, &fixture.pz, 4096, MemPrivileges::REMOTE_WRITE);
    fixture.memory.write(0, b"from the peer");
    let post = fixture::write(
        &pair.eps[0],
        &[fixture.memory.local(0, 13)],
        5,
        &target.remote(100, 13),
    );
    post.expect("posted");
    assert_eq!(fixture::done(&pair.evds[0]).status, DtoStatus::Success);
    assert_eq!(target.read(100, 13), b"from the peer");
}

#[test]
fn read_only_memory_can_be_registered_for_reading() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let map = MmapOptions::new().len(4096).map_anon().expect("a page");
    let map = map.make_read_only().expect("protected");
    let kind = MemoryKind::Virtual {
        address: map.as_ptr().expose_provenance(),
        length: 4096,
    };
    let lmr = register(&fixture.ia, &fixture.pz, kind).expect("readable");
    let segment = dat_api::types::LmrSegment {
        context: lmr.query().lmr_context,
        address: map.as_ptr().expose_provenance() as u64,
        length: 16,
    };
    fixture::recv(&pair.eps[1], &[fixture.memory.local(0, 64)], 1).expect("posted");
    fixture::send(&pair.eps[0], &[segment], 2).expect("posted");
    assert_eq!(fixture::success(&pair.evds[1]), (1, 16));
    let code = fixture::recv(&pair.eps[1], &[segment], 3).expect_err("not to be written");
    assert_eq!(code.kind(), Some(ReturnType::PrivilegesViolation));
    drop(fixture);
}

#[test]
fn garbage_handles_are_no_regions() {
    let _lock = lock_device();
    let (ia, evd) = open("mlx5_0");
    for bits in [1, 8, usize::MAX, ia.handle().bits() + 1, evd.bits()] {
        let handle = Handle::from_bits(bits).expect("not null");
        let stale = code(ReturnType::InvalidHandle, Subtype::InvalidHandleLmr);
        assert_eq!(
            Lmr::free(handle).expect_err("no LMR").code(),
            stale,
            "{bits:#x}"
        );
    }
    close(ia);
}
