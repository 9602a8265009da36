//! Registered memory that leaves its addresses: a use of it is reported, and with
//! `--nasty pin` finds the old pages.

use super::fixtures::*;
use crate::nic::NicOptions;
use crate::residency::pins;
use crate::spec::*;
use std::ffi::c_void;
use std::ptr::null_mut;

const PAGE: usize = 4096;
const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const OLD: u8 = b'O';
const NEW: u8 = b'N';
/// Larger than anything that malloc keeps.
const LARGE: usize = 64 << 20;

/// Memory of a test.
#[derive(Clone, Copy)]
struct Mapping {
    at: *mut c_void,
    len: usize,
}

impl Mapping {
    fn new(len: usize, flags: i32) -> Self {
        let flags = flags | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(null_mut(), len, RW, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at, len }
    }

    fn private(len: usize) -> Self {
        Self::new(len, libc::MAP_PRIVATE)
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the test's own memory, which is mapped.
        unsafe { self.at.cast::<u8>().write_bytes(byte, self.len) };
    }

    /// Maps new memory at the same addresses, with other contents.
    fn replace(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: replaces the test's own mapping.
        let at = unsafe { libc::mmap(self.at, self.len, RW, flags, -1, 0) };
        assert_eq!(at, self.at);
        self.fill(NEW);
    }

    fn part(&self, from: usize, len: usize) -> Self {
        let at = self.at.wrapping_byte_add(from);
        Self { at, len }
    }

    fn advise(&self, advice: i32) -> i32 {
        // SAFETY: the test's own memory.
        unsafe { libc::madvise(self.at, self.len, advice) }
    }

    /// Moves the pages to another address. Empty ones are left.
    fn move_away(&self) -> Self {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        // SAFETY: moves the test's own pages.
        let at = unsafe { libc::mremap(self.at, self.len, self.len, flags, null_mut::<c_void>()) };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at, ..*self }
    }

    fn unmap(&self) {
        // SAFETY: the test's own mapping.
        assert_eq!(unsafe { libc::munmap(self.at, self.len) }, 0);
    }

    fn byte(&self) -> u8 {
        // SAFETY: the test's own memory, which is mapped.
        unsafe { self.at.cast::<u8>().read_volatile() }
    }
}

const ACCESS: Access = ALL_ACCESS
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// A pair, and registered memory of its second peer.
struct Test {
    pair: Pair,
    memory: Mapping,
    handle: u32,
    key: u32,
}

impl Test {
    fn new(nasty: &str, memory: Mapping) -> Self {
        let host = |slot| {
            Host::with_options(NicOptions {
                slot,
                nasty: nasty.parse().unwrap_or_default(),
                ..NicOptions::default()
            })
        };
        let attributes = QpAttr {
            access: ACCESS,
            ..attributes()
        };
        let mut pair = Pair::connect(peer(host(1), |_| {}), peer(host(2), |_| {}), attributes);
        memory.fill(OLD);
        let spec = spec(&pair.b.host, &memory);
        let keys = pair.b.host.nic.reg_mr(&spec).unwrap();
        Self {
            pair,
            memory,
            handle: keys.handle,
            key: keys.rkey,
        }
    }

    /// Posts an RDMA operation of a byte. Returns whether it succeeds.
    fn access(&mut self, opcode: u8, offset: usize) -> bool {
        let at = self.memory.at.addr() + offset;
        let segments = [
            raddr_segment(at as u64, self.key),
            self.pair.a.data_segment(0, 1),
        ];
        self.pair.a.post(opcode, SIGNALLED, &segments);
        self.pair.run_until_idle();
        self.pair.a.cq.poll_all()[0].syndrome == OK
    }

    /// Reads a byte of the memory by RDMA. Returns `None` if the read fails.
    fn read(&mut self, offset: usize) -> Option<u8> {
        self.pair.a.memory.put(0, &[0]);
        let done = self.access(READ, offset);
        done.then(|| self.pair.a.memory.get(0, 1)[0])
    }

    fn write(&mut self, offset: usize, byte: u8) {
        self.pair.a.memory.put(0, &[byte]);
        assert!(self.access(WRITE, offset));
    }

    fn reports(&self) -> Vec<String> {
        self.pair.b.host.events.take_warnings()
    }

    /// Checks that there is one report since the last check, of these pages and this call.
    fn assert_reported(&self, pages: &Mapping, call: &str) {
        let reports = self.reports();
        let start = pages.at.addr();
        let end = start + pages.len;
        let removed = format!("but {call} has removed pages {start:#x} to {end:#x} of");
        let key = format!("by key {:#x},", self.key);
        assert!(
            matches!(&reports[..], [one] if one.contains(&key) && one.contains(&removed)),
            "not {key}, {removed}: {reports:#?}"
        );
    }
}

fn spec(host: &Host, memory: &Mapping) -> MrSpec {
    MrSpec {
        context: host.context,
        pd: host.pd,
        start: memory.at.addr() as u64,
        length: memory.len as u64,
        hca_va: memory.at.addr() as u64,
        access: ACCESS,
    }
}

/// Returns whether memory can be pinned; prints a line if not.
fn can_pin() -> bool {
    let can = pins::open().and_then(|()| {
        let memory = Mapping::private(1 << 20);
        let pin = pins::Pin::new(memory.at.addr() as u64, memory.len as u64);
        memory.unmap();
        pin.map(drop)
    });
    if let Err(error) = &can {
        eprintln!("SKIPPED: memory cannot be pinned: {error}");
    }
    can.is_ok()
}

#[test]
fn a_use_of_memory_that_a_call_has_removed_is_reported_once_with_key_range_and_call() {
    if !can_recover_from_faults() {
        return;
    }
    type Removal = fn(&Mapping);
    let calls: [(Removal, &str); 4] = [
        (Mapping::replace, "mmap with MAP_FIXED"),
        (
            |memory| assert_eq!(memory.advise(libc::MADV_DONTNEED), 0),
            "madvise(MADV_DONTNEED)",
        ),
        (Mapping::unmap, "munmap"),
        (|memory| memory.move_away().unmap(), "mremap"),
    ];
    for (remove, call) in calls {
        let mut test = Test::new("", Mapping::private(4 * PAGE));
        assert_eq!(test.read(2 * PAGE), Some(OLD));
        let middle = test.memory.part(PAGE, 2 * PAGE);
        remove(&middle);
        assert_eq!(test.read(0), Some(OLD), "{call}");
        assert_eq!(test.read(3 * PAGE), Some(OLD), "{call}");
        assert_eq!(test.reports(), Vec::<String>::new(), "{call}: not used");
        test.read(2 * PAGE);
        test.assert_reported(&middle, call);
        assert_eq!(test.pair.b.host.nic.violations().count(), 1);
    }
}

/// Allocates with malloc. Returns the allocation, and pages in it.
fn allocate() -> (*mut c_void, Mapping) {
    // SAFETY: a plain call.
    let allocation = unsafe { libc::malloc(LARGE) };
    assert!(!allocation.is_null());
    let start = allocation.addr().next_multiple_of(PAGE);
    let at = allocation.with_addr(start);
    (allocation, Mapping { at, len: 8 * PAGE })
}

#[test]
fn a_use_of_a_large_block_after_free_or_realloc_is_reported() {
    if !can_recover_from_faults() {
        return;
    }
    let (allocation, memory) = allocate();
    let mut test = Test::new("", memory);
    // SAFETY: allocated above.
    unsafe { libc::free(allocation) };
    test.read(0);
    test.assert_reported(&memory, "free");

    let (allocation, memory) = allocate();
    let mut test = Test::new("", memory);
    // SAFETY: allocated above.
    let moved = unsafe { libc::realloc(allocation, 16 * LARGE) };
    assert!(!moved.is_null());
    let has_moved = moved != allocation;
    test.read(0);
    match has_moved {
        true => test.assert_reported(&memory, "realloc"),
        false => assert_eq!(test.reports(), Vec::<String>::new()),
    }
    // SAFETY: allocated above.
    unsafe { libc::free(moved) };
}

#[test]
fn a_block_that_libc_keeps_when_it_is_freed_is_not_reported() {
    // SAFETY: a plain call.
    let allocation = unsafe { libc::memalign(PAGE, 2 * PAGE) };
    let memory = Mapping {
        at: allocation,
        len: PAGE,
    };
    let mut test = Test::new("", memory);
    // SAFETY: allocated above.
    unsafe { libc::free(allocation) };
    assert!(test.read(PAGE / 2).is_some());
    assert_eq!(test.reports(), Vec::<String>::new());
}

#[test]
fn what_only_leaves_and_calls_that_fail_or_keep_the_pages_are_not_reported() {
    let memory = Mapping::new(4 * PAGE, libc::MAP_SHARED);
    let mut test = Test::new("", memory);
    // Shared pages come back.
    assert_eq!(memory.advise(libc::MADV_DONTNEED), 0);
    assert_eq!(test.read(0), Some(OLD));
    // No multiple of a page.
    // SAFETY: fails.
    let done = unsafe { libc::munmap(memory.at.wrapping_byte_add(1), PAGE) };
    assert_ne!(done, 0);
    // Grows at its place, or fails.
    let len = memory.len;
    // SAFETY: the test's own memory.
    unsafe { libc::mremap(memory.at, len, 2 * len, 0) };
    assert_eq!(test.read(0), Some(OLD));
    assert_eq!(test.reports(), Vec::<String>::new());
    // Unmapped before it is deregistered, and not used.
    memory.replace();
    let (nic, context) = (&mut test.pair.b.host.nic, test.pair.b.host.context);
    nic.dereg_mr(context, test.handle).unwrap();
    // Registered again, it is new memory.
    let spec = spec(&test.pair.b.host, &memory);
    test.key = test.pair.b.host.nic.reg_mr(&spec).unwrap().rkey;
    assert_eq!(test.read(0), Some(NEW));
    assert_eq!(test.reports(), Vec::<String>::new());
}

#[test]
fn the_newer_of_two_registrations_of_the_same_addresses_and_a_changed_one_are_not_stale() {
    let memory = Mapping::private(2 * PAGE);
    let mut test = Test::new("", memory);
    memory.replace();
    let old = test.key;
    let spec = spec(&test.pair.b.host, &memory);
    test.key = test.pair.b.host.nic.reg_mr(&spec).unwrap().rkey;
    assert_eq!(test.read(0), Some(NEW));
    assert_eq!(test.reports(), Vec::<String>::new());
    let new = std::mem::replace(&mut test.key, old);
    test.read(0);
    test.assert_reported(&memory, "mmap with MAP_FIXED");
    let nic = &mut test.pair.b.host.nic;
    nic.rereg_mr(test.handle, &spec, true).unwrap();
    assert_eq!(test.read(0), Some(NEW));
    assert_eq!(test.reports(), Vec::<String>::new());
    test.key = new;
    assert_eq!(test.read(0), Some(NEW));
}

#[test]
fn pin_the_device_uses_the_old_pages_after_each_call() {
    if !can_pin() {
        return;
    }
    type Removal = fn(&Mapping);
    let removals: [Removal; 3] = [
        Mapping::replace,
        |memory| {
            assert_eq!(memory.advise(libc::MADV_DONTNEED), 0);
            memory.fill(NEW);
        },
        |memory| {
            memory.move_away().unmap();
            memory.fill(NEW);
        },
    ];
    for remove in removals {
        let mut test = Test::new("pin", Mapping::private(4 * PAGE));
        let middle = test.memory.part(PAGE, 2 * PAGE);
        remove(&middle);
        assert_eq!(test.read(PAGE), Some(OLD));
        assert_eq!(test.reports().len(), 1, "reported all the same");
        test.write(PAGE, b'W');
        assert_eq!(middle.byte(), NEW, "the new page is untouched");
        assert_eq!(test.read(PAGE), Some(b'W'));
        assert_eq!(test.read(0), Some(OLD));
        test.memory.unmap();
        assert_eq!(test.read(3 * PAGE), Some(OLD));
        assert_eq!(test.read(PAGE), Some(b'W'));
    }
}

#[test]
fn pin_pages_that_moved_are_used_at_their_new_place() {
    if !can_pin() {
        return;
    }
    let mut test = Test::new("pin", Mapping::private(2 * PAGE));
    let moved = test.memory.move_away();
    test.write(0, b'W');
    assert_eq!(moved.byte(), b'W');
    moved.fill(b'X');
    assert_eq!(test.read(PAGE), Some(b'X'));
}

#[test]
fn pin_memory_that_free_has_unmapped_is_used_on() {
    if !can_pin() {
        return;
    }
    let (allocation, memory) = allocate();
    let mut test = Test::new("pin", memory);
    // SAFETY: allocated above.
    unsafe { libc::free(allocation) };
    assert_eq!(test.read(0), Some(OLD));
    test.write(PAGE, b'W');
    assert_eq!(test.read(PAGE), Some(b'W'));
    assert_eq!(test.reports().len(), 1);
}

#[test]
fn pin_atomics_of_a_peer_change_the_old_page() {
    if !can_pin() {
        return;
    }
    const FETCH_ADD: u8 = 0x12;
    let memory = Mapping::private(PAGE);
    let mut test = Test::new("pin", memory);
    memory.replace();
    let old = u64::from_ne_bytes([OLD; 8]);
    for expected in [old, old + 1] {
        let operands = [1_u64.to_be_bytes(), [0; 8]].concat();
        let segments = [
            raddr_segment(memory.at.addr() as u64, test.key),
            operands,
            test.pair.a.data_segment(0, 8),
        ];
        test.pair.a.post(FETCH_ADD, SIGNALLED, &segments);
        test.pair.run_until_idle();
        assert_eq!(test.pair.a.cq.poll_all()[0].syndrome, OK);
        assert_eq!(test.pair.a.memory.get(0, 8), expected.to_ne_bytes());
    }
    assert_eq!(memory.byte(), NEW);
}

#[test]
fn a_use_through_a_window_is_reported_with_the_key_of_its_region() {
    let mut it = Windows::new();
    let memory = Mapping::private(PAGE);
    let spec = spec(&it.pair.b.host, &memory);
    let region = it.pair.b.host.nic.reg_mr(&spec).unwrap().lkey;
    let at = memory.at.addr() as u64;
    let bind = Bind {
        region,
        address: at,
        start: at,
        ..it.bind(WindowType::One)
    };
    assert_eq!(it.post_bind(&bind), OK);
    memory.replace();
    assert_eq!(it.pair.b.host.events.take_warnings(), Vec::<String>::new());
    assert_eq!(it.write(it.one.rkey, at), OK);
    let reports = it.pair.b.host.events.take_warnings();
    let used = format!("by key {region:#x}, but mmap with MAP_FIXED has");
    assert!(
        matches!(&reports[..], [one] if one.contains(&used)),
        "{reports:?}"
    );
}
