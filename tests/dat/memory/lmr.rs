//! `dat_pz_*` and `dat_lmr_*`: rows of the tables of the calls.

use std::ffi::CStr;
use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, Shape, abilities, fails, fails_with, ok, refused_access,
};

const ALL: DAT_MEM_PRIV_FLAGS = DAT_MEM_PRIV_ALL_FLAG;

/// The results of `dat_lmr_create`.
#[derive(Clone, Copy, Debug)]
struct Made {
    lmr: DAT_LMR_HANDLE,
    context: DAT_LMR_CONTEXT,
    rmr_context: DAT_RMR_CONTEXT,
    address: DAT_VADDR,
    length: DAT_VLEN,
}

/// Calls `dat_lmr_create`.
fn create(
    fixture: &Fixture,
    kind: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
    length: u64,
    pz: DAT_PZ_HANDLE,
    rights: DAT_MEM_PRIV_FLAGS,
) -> Result<Made, DAT_RETURN> {
    let mut made = Made {
        lmr: ptr::null_mut(),
        context: 0,
        rmr_context: 0,
        address: 0,
        length: 0,
    };
    // SAFETY: the results are writable; the registered memory lives long enough,
    // or the call must refuse it.
    let answer = unsafe {
        dat_lmr_create(
            fixture.ia,
            kind,
            region,
            length,
            pz,
            rights,
            &raw mut made.lmr,
            &raw mut made.context,
            &raw mut made.rmr_context,
            &raw mut made.length,
            &raw mut made.address,
        )
    };
    if answer == DAT_SUCCESS {
        Ok(made)
    } else {
        Err(answer)
    }
}

fn info(lmr: DAT_LMR_HANDLE) -> DAT_LMR_PARAM {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut info = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &raw mut info) });
    info
}

fn free(lmr: DAT_LMR_HANDLE) -> DAT_RETURN {
    // SAFETY: the call validates its handles.
    unsafe { dat_lmr_free(lmr) }
}

fn of_lmr(source: DAT_LMR_HANDLE) -> DAT_REGION_DESCRIPTION {
    DAT_REGION_DESCRIPTION {
        for_lmr_handle: source,
    }
}

/// Shared memory, mapped twice.
struct Shared([*mut libc::c_void; 2]);

const SHARED: usize = 8192;

impl Shared {
    fn new() -> Self {
        Self::named(c"udapl-test")
    }

    fn named(name: &CStr) -> Self {
        // SAFETY: a file of this test, mapped whole and closed again.
        unsafe {
            let file = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0);
            assert_eq!(libc::ftruncate(file, SHARED as libc::off_t), 0);
            let map = || {
                let rights = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(ptr::null_mut(), SHARED, rights, libc::MAP_SHARED, file, 0)
            };
            let both = [map(), map()];
            libc::close(file);
            assert!(!both.contains(&libc::MAP_FAILED));
            Self(both)
        }
    }

    fn region(at: *mut libc::c_void, name: &mut [libc::c_char; 40]) -> DAT_REGION_DESCRIPTION {
        DAT_REGION_DESCRIPTION {
            for_shared_memory: DAT_SHARED_MEMORY {
                virtual_address: at,
                shared_memory_id: ptr::from_mut(name),
            },
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for at in self.0 {
            // SAFETY: mapped by `new`, not used afterwards.
            unsafe { libc::munmap(at, SHARED) };
        }
    }
}

/// Memory type LMR: another registration of the same memory, with the length of
/// the source whatever is requested, and with its own privileges and zone.
#[test]
fn lmr_of_an_lmr_is_the_same_memory_registered_again() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let (local, mut source) = (
        fixture.memory(64),
        fixture.memory_in(fixture.pz, 64, DAT_MEM_PRIV_LOCAL_READ_FLAG),
    );
    let made = create(
        &fixture,
        DAT_MEM_TYPE_LMR,
        of_lmr(source.lmr),
        7,
        fixture.pz,
        ALL,
    )
    .expect("made");
    assert_ne!(made.context, source.context);
    assert_eq!((made.address, made.length), (source.address(0), 64));
    let param = info(made.lmr);
    assert_eq!(param.mem_type, DAT_MEM_TYPE_LMR);
    // SAFETY: the type selects this member.
    assert_eq!(unsafe { param.region_desc.for_lmr_handle }, source.lmr);
    assert_eq!((param.registered_size, param.mem_priv), (64, ALL));
    assert_eq!(param.rmr_context, made.rmr_context);
    // The source gave peers no access; this one does, and outlives the source.
    assert_eq!(source.rmr_context, 0);
    ok(source.free());
    let remote = DAT_RMR_TRIPLET {
        rmr_context: made.rmr_context,
        pad: 0,
        target_address: made.address,
        segment_length: 16,
    };
    ok(pair.active.post_write(
        &[local.segment(0, 16)],
        &remote,
        1,
        DAT_COMPLETION_DEFAULT_FLAG,
    ));
    fixture.run();
    assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    ok(free(made.lmr));
    ok(pair.active.post_write(
        &[local.segment(0, 16)],
        &remote,
        2,
        DAT_COMPLETION_DEFAULT_FLAG,
    ));
    fixture.run();
    refused_access(pair.active.requested().status);
}

/// Memory type SHARED_VIRTUAL: registered for this process. One identifier names
/// one piece of shared memory, wherever it is mapped.
#[test]
fn lmr_of_shared_memory_is_named_by_its_identifier() {
    let fixture = Fixture::new();
    let (shared, other) = (Shared::new(), Shared::new());
    let mut name: [libc::c_char; 40] = std::array::from_fn(|at| at as libc::c_char);
    // They differ in the last byte only.
    let mut second = name;
    second[39] += 1;
    let make = |at, len, name: &mut _| {
        let region = Shared::region(at, name);
        create(
            &fixture,
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            region,
            len,
            fixture.pz,
            ALL,
        )
    };
    let one = make(shared.0[0], 8192, &mut name).expect("made");
    let param = info(one.lmr);
    assert_eq!(
        (param.mem_type, param.length),
        (DAT_MEM_TYPE_SHARED_VIRTUAL, 8192)
    );
    // SAFETY: the type selects this member; the identifier lives with the LMR.
    unsafe {
        let described = param.region_desc.for_shared_memory;
        assert_eq!(described.virtual_address, shared.0[0]);
        assert_eq!(*described.shared_memory_id, name);
    }
    // Mapped at another address it is the same memory.
    let two = make(shared.0[1], 8192, &mut name).expect("made");
    assert_ne!(one.context, two.context);
    let in_use = DAT_INVALID_STATE_LMR_IN_USE;
    for (at, len) in [(other.0[0], 8192), (shared.0[0], 4096)] {
        let answer = make(at, len, &mut name).expect_err("another piece");
        fails_with(answer, DAT_INVALID_STATE, in_use);
    }
    let three = make(other.0[0], 8192, &mut second).expect("another name");
    ok(free(one.lmr));
    let answer = make(other.0[0], 8192, &mut name).expect_err("still named");
    fails_with(answer, DAT_INVALID_STATE, in_use);
    ok(free(two.lmr));
    let four = make(other.0[0], 8192, &mut name).expect("free again");
    // Memory that is not shared.
    let mut private = vec![0_u8; 4096];
    let answer = make(private.as_mut_ptr().cast(), 4096, &mut second).expect_err("private");
    fails_with(answer, DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    ok(free(three.lmr));
    ok(free(four.lmr));
}

/// The name of a mapped file may be any bytes, also if the memory belongs to
/// another file.
#[test]
fn lmr_of_shared_memory_of_a_file_whose_name_is_not_utf_8() {
    let fixture = Fixture::new();
    let (odd, plain) = (Shared::named(c"\xff\xfe \x80"), Shared::new());
    for (shared, number) in [(&odd, 1), (&plain, 2)] {
        let mut name = [number; 40];
        let region = Shared::region(shared.0[0], &mut name);
        let made = create(
            &fixture,
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            region,
            SHARED as DAT_VLEN,
            fixture.pz,
            ALL,
        );
        ok(free(made.expect("made").lmr));
    }
}

/// The table of failures of `dat_lmr_create`.
#[test]
fn lmr_create_row_by_row() {
    let mut fixture = Fixture::strict();
    let mut memory = fixture.memory(64);
    let mut freed = fixture.memory(64);
    let gone = freed.lmr;
    ok(freed.free());
    let mut bytes = vec![0_u8; 64];
    let va = DAT_REGION_DESCRIPTION {
        for_va: bytes.as_mut_ptr().cast(),
    };
    let virt = DAT_MEM_TYPE_VIRTUAL;
    let row = |what: &str, made: Result<Made, DAT_RETURN>, kind, subtype| {
        println!("{what}");
        fails_with(made.expect_err("refused"), kind, subtype);
    };
    let (ih, ip) = (DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER);
    let ia = std::mem::replace(&mut fixture.ia, ptr::null_mut());
    row(
        "bad IA",
        create(&fixture, virt, va, 64, fixture.pz, ALL),
        ih,
        DAT_INVALID_HANDLE_IA,
    );
    fixture.ia = ia;
    for pz in [ptr::null_mut(), ia, memory.lmr] {
        row(
            "bad PZ",
            create(&fixture, virt, va, 64, pz, ALL),
            ih,
            DAT_INVALID_HANDLE_PZ,
        );
    }
    for source in [ptr::null_mut(), fixture.pz, gone] {
        let made = create(
            &fixture,
            DAT_MEM_TYPE_LMR,
            of_lmr(source),
            64,
            fixture.pz,
            ALL,
        );
        row("bad source LMR", made, ih, DAT_INVALID_HANDLE_LMR);
    }
    row(
        "length 0",
        create(&fixture, virt, va, 0, fixture.pz, ALL),
        ip,
        DAT_INVALID_ARG4,
    );
    for kind in [3, 99, u32::MAX] {
        row(
            "unknown type",
            create(&fixture, kind, va, 64, fixture.pz, ALL),
            ip,
            DAT_INVALID_ARG2,
        );
    }
    row(
        "unknown privilege",
        create(&fixture, virt, va, 64, fixture.pz, 0x80),
        ip,
        DAT_INVALID_ARG6,
    );
    let mut name = [0; 40];
    for (at, len, argument) in [
        (bytes.as_mut_ptr().cast(), 0, DAT_INVALID_ARG4),
        (ptr::without_provenance_mut(4096), 4096, DAT_INVALID_ARG3),
    ] {
        let region = Shared::region(at, &mut name);
        let made = create(
            &fixture,
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            region,
            len,
            fixture.pz,
            ALL,
        );
        row("no shared memory", made, ip, argument);
    }
    let nameless = DAT_REGION_DESCRIPTION {
        for_shared_memory: DAT_SHARED_MEMORY {
            virtual_address: bytes.as_mut_ptr().cast(),
            shared_memory_id: ptr::null_mut(),
        },
    };
    let made = create(
        &fixture,
        DAT_MEM_TYPE_SHARED_VIRTUAL,
        nameless,
        64,
        fixture.pz,
        ALL,
    );
    row("no identifier", made, ip, DAT_INVALID_ARG3);
    let (_, provider) = abilities(&fixture);
    let types = DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL;
    assert_eq!(provider.lmr_mem_types_supported, types);
    ok(memory.free());
    // The rows of `dat_lmr_free` and `dat_lmr_query`.
    for bad in [ptr::null_mut(), gone, fixture.pz, memory.lmr] {
        fails_with(free(bad), ih, DAT_INVALID_HANDLE_LMR);
        // SAFETY: integers and pointers, for which zero is valid; the call
        // validates its handle.
        let answer = unsafe {
            let mut info = mem::zeroed();
            dat_lmr_query(bad, DAT_LMR_FIELD_ALL, &raw mut info)
        };
        fails_with(answer, ih, DAT_INVALID_HANDLE_LMR);
    }
}

/// `dat_lmr_sync_rdma_read` and `_write`: segments of any LMR and zone of the
/// adapter. The memory is always coherent with the device.
#[test]
fn lmr_sync_checks_its_segments() {
    let fixture = Fixture::new();
    let zone = fixture.pz();
    let (one, other) = (
        fixture.memory(64),
        fixture.memory_in(zone, 64, DAT_MEM_PRIV_LOCAL_READ_FLAG),
    );
    let mut freed = fixture.memory(64);
    let stale = freed.segment(0, 8);
    ok(freed.free());
    let (_, provider) = abilities(&fixture);
    assert_eq!(provider.lmr_sync_req, DAT_FALSE);
    let good = [
        one.segment(0, 64),
        other.segment(63, 1),
        crate::support::nothing(),
    ];
    let past = |offset, len| {
        let mut segment = one.segment(0, 64);
        segment.virtual_address = segment.virtual_address.wrapping_add_signed(offset);
        segment.segment_length = len;
        segment
    };
    let unknown = DAT_LMR_TRIPLET {
        lmr_context: !one.context,
        ..one.segment(0, 8)
    };
    let bad = [
        past(-1, 8),
        past(1, 64),
        past(64, 1),
        past(0, u64::MAX),
        unknown,
        stale,
    ];
    for sync in [dat_lmr_sync_rdma_read, dat_lmr_sync_rdma_write] {
        // SAFETY: the arrays have as many elements as given; the calls validate
        // their handles.
        unsafe {
            ok(sync(fixture.ia, good.as_ptr(), 3));
            ok(sync(fixture.ia, ptr::null(), 0));
            for bad in bad {
                let list = [good[0], bad];
                let answer = sync(fixture.ia, list.as_ptr(), 2);
                fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
            }
            fails(sync(fixture.ia, ptr::null(), 1), DAT_INVALID_PARAMETER);
            let answer = sync(fixture.pz, good.as_ptr(), 1);
            fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        }
    }
}

/// `dat_pz_create`, `_query`, `_free`: the rows, with each kind of user
/// separately.
#[test]
fn pz_row_by_row() {
    let fixture = Fixture::new();
    let ih = DAT_INVALID_HANDLE;
    let mut made = ptr::null_mut();
    // SAFETY: the calls validate their handles; null pointers are under test.
    unsafe {
        for bad in [ptr::null_mut(), fixture.pz, fixture.async_evd] {
            fails_with(dat_pz_create(bad, &raw mut made), ih, DAT_INVALID_HANDLE_IA);
        }
        let answer = dat_pz_create(fixture.ia, ptr::null_mut());
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let mut info: DAT_PZ_PARAM = mem::zeroed();
        ok(dat_pz_query(fixture.pz, DAT_PZ_FIELD_ALL, &raw mut info));
        assert_eq!(info.ia_handle, fixture.ia);
        for bad in [ptr::null_mut(), fixture.ia] {
            let answer = dat_pz_query(bad, DAT_PZ_FIELD_ALL, &raw mut info);
            fails_with(answer, ih, DAT_INVALID_HANDLE_PZ);
            fails_with(dat_pz_free(bad), ih, DAT_INVALID_HANDLE_PZ);
        }
        let answer = dat_pz_query(fixture.pz, !0, &raw mut info);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let answer = dat_pz_query(fixture.pz, DAT_PZ_FIELD_ALL, ptr::null_mut());
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    }
    let in_use = |pz| {
        // SAFETY: a live handle.
        let answer = unsafe { dat_pz_free(pz) };
        fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
    };
    let by_lmr = fixture.pz();
    let memory = Memory::new(fixture.ia, by_lmr, 64, ALL);
    in_use(by_lmr);
    drop(memory);
    let by_srq = fixture.pz();
    let queue = crate::support::srq_in(&fixture, by_srq, 4);
    in_use(by_srq);
    // A zone that only an endpoint uses.
    let _end = End::new(&fixture, &Shape::default());
    in_use(fixture.pz);
    // SAFETY: the calls validate their handles.
    unsafe {
        ok(dat_srq_free(queue));
        for pz in [by_lmr, by_srq] {
            ok(dat_pz_free(pz));
            fails_with(dat_pz_free(pz), ih, DAT_INVALID_HANDLE_PZ);
        }
    }
}

/// The payload of a short message may stay in its CQE until the application
/// polls. Freeing the LMR copies it to its place first; what is written there
/// later stays, whichever call polls then.
#[test]
fn lmr_that_is_freed_has_its_data_and_is_not_written_afterwards() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let mut from = fixture.memory(64);
    from.write(0, b"by sends");
    from.write(32, b"by reads");
    let mut bytes = vec![0_u8; 4096];
    let at = bytes.as_mut_ptr();
    let region = DAT_REGION_DESCRIPTION { for_va: at.cast() };
    let made = create(
        &fixture,
        DAT_MEM_TYPE_VIRTUAL,
        region,
        4096,
        fixture.pz,
        ALL,
    )
    .expect("made");
    let segment = |offset: u64, length| DAT_LMR_TRIPLET {
        lmr_context: made.context,
        pad: 0,
        virtual_address: made.address + offset,
        segment_length: length,
    };
    let to = pair.passive;
    ok(to.post_recv(&[segment(0, 8)], 1));
    ok(to.post_read(
        &[segment(8, 8)],
        &from.remote(32, 8),
        2,
        DAT_COMPLETION_DEFAULT_FLAG,
    ));
    ok(pair
        .active
        .post_send(&[from.segment(0, 8)], 3, DAT_COMPLETION_DEFAULT_FLAG));
    // The sender's completion says that the message has arrived; no call polls
    // the receiver's.
    fixture.run();
    assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    fixture.run();
    ok(free(made.lmr));
    // SAFETY: memory of this test, which the device can no longer access.
    let seen = unsafe { std::slice::from_raw_parts(at, 16) }.to_vec();
    assert_eq!(String::from_utf8_lossy(&seen), "by sendsby reads");
    bytes.fill(0xee);
    for (event, cookie) in [(to.received(), 1), (to.requested(), 2)] {
        assert_eq!((event.cookie, event.status), (cookie, DAT_DTO_SUCCESS));
    }
    assert!(bytes.iter().all(|byte| *byte == 0xee), "written later");
}
