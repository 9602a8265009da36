use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::FaultMode;
use super::*;

/// A context's memory file and its pages, mapped as libmlx5 maps them.
pub(crate) struct App {
    pub(crate) file: OwnedFd,
    base: usize,
    pages: usize,
}

impl App {
    pub(crate) fn new(pages: usize) -> Self {
        // SAFETY: the name is a C string; the call returns a new descriptor.
        let fd = unsafe { libc::memfd_create(c"doorbells".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the descriptor was just created and is owned here only.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = pages * PAGE_SIZE;
        // SAFETY: plain system calls on a descriptor that we own.
        let base = unsafe {
            assert_eq!(libc::ftruncate(fd, len as libc::off_t), 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self {
            file,
            base: base.addr(),
            pages,
        }
    }

    pub(crate) fn addr(&self, page: usize) -> usize {
        self.base + page * PAGE_SIZE
    }

    pub(crate) fn store(&self, page: usize, offset: usize, value: u64) {
        assert!(page < self.pages && offset + 8 <= PAGE_SIZE);
        let word = std::ptr::with_exposed_provenance_mut(self.addr(page) + offset);
        // SAFETY: inside the mapping made in `new`, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
    }

    pub(crate) fn unmap(&self) {
        let base = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: a mapping of this value, which no test uses afterwards.
        assert_eq!(unsafe { libc::munmap(base, self.pages * PAGE_SIZE) }, 0);
    }
}

pub(crate) fn name(page: u32) -> UarPage {
    UarPage {
        context: ContextId(1),
        page,
    }
}

/// Returns a userfaultfd, or prints why the test is skipped.
pub(crate) fn userfaultfd_or_skip(manner: FaultMode) -> Option<Userfaultfd> {
    Userfaultfd::new(manner)
        .inspect_err(|error| eprintln!("skipped: no userfaultfd: {error}"))
        .ok()
}

fn taken(pages: &UarPages) -> Vec<(u32, u16, u64)> {
    let mut found = Vec::new();
    pages.scan(&mut |w| found.push((w.page.page, w.offset, u64::from_ne_bytes(w.bytes))));
    found
}

fn readable(pages: &UarPages) -> bool {
    let mut poll = libc::pollfd {
        fd: pages.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[test]
fn every_doorbell_is_taken_once_and_other_words_are_unchanged() {
    let app = App::new(3);
    let pages = UarPages::new(None);
    pages.add_page(name(0), app.file.as_fd()).unwrap();
    pages.add_page(name(2), app.file.as_fd()).unwrap();
    pages.add_page(name(2), app.file.as_fd()).unwrap();
    for offset in [0x20, 0x800, 0x900, 0xa00, 0xb00, 0xc00, 0xd00, 0xe00, 0xf00] {
        app.store(2, offset, 0x1000 + offset as u64);
    }
    app.store(2, 0x808, 9);
    app.store(1, 0x800, 9);
    app.store(0, 0x20, 7);
    let found = taken(&pages);
    assert_eq!(found[0], (0, 0x20, 7));
    let offsets: Vec<_> = found[1..].iter().map(|w| w.1).collect();
    assert_eq!(
        offsets,
        [0x20, 0x800, 0x900, 0xa00, 0xb00, 0xc00, 0xd00, 0xe00, 0xf00]
    );
    assert!(
        found[1..]
            .iter()
            .all(|w| w.0 == 2 && w.2 == 0x1000 + u64::from(w.1))
    );
    assert_eq!(taken(&pages), []);
}

#[test]
fn doorbells_on_removed_pages_are_not_taken() {
    let app = App::new(2);
    let pages = UarPages::new(None);
    pages.add_page(name(0), app.file.as_fd()).unwrap();
    pages.add_page(name(1), app.file.as_fd()).unwrap();
    pages.remove_page(name(0));
    app.store(0, 0x800, 1);
    app.store(1, 0x800, 2);
    assert_eq!(taken(&pages), [(1, 0x800, 2)]);
    pages.remove_context(ContextId(1));
    app.store(1, 0x800, 3);
    assert_eq!(taken(&pages), []);
}

#[test]
fn protection_fails_without_userfaultfd_or_with_an_unknown_mapping() {
    let app = App::new(1);
    let no_faults = UarPages::new(None);
    assert!(no_faults.protect(), "there is no page to protect");
    no_faults.add_page(name(0), app.file.as_fd()).unwrap();
    assert!(!no_faults.protect());
    let Some(faults) = userfaultfd_or_skip(FaultMode::Wait) else {
        return;
    };
    let pages = UarPages::new(Some(faults));
    pages.add_page(name(0), app.file.as_fd()).unwrap();
    assert!(!pages.protect());
    pages.add_mapping(ContextId(1), 0, app.addr(0), PAGE_SIZE);
    assert!(pages.protect());
    pages.unprotect();
}

#[test]
fn a_store_to_a_protected_page_waits_and_makes_the_descriptor_readable() {
    let Some(faults) = userfaultfd_or_skip(FaultMode::Wait) else {
        return;
    };
    let app = App::new(3);
    let pages = UarPages::new(Some(faults));
    for page in 0..3 {
        pages.add_page(name(page), app.file.as_fd()).unwrap();
    }
    pages.add_mapping(ContextId(1), 0, app.addr(0), 3 * PAGE_SIZE);
    app.store(1, 0x800, 5);
    assert!(pages.protect());
    assert_eq!(
        taken(&pages),
        [(1, 0x800, 5)],
        "a store before the protection is found"
    );
    assert!(!readable(&pages));
    std::thread::scope(|scope| {
        scope.spawn(|| app.store(2, 0xa00, 6));
        while !readable(&pages) {
            std::thread::yield_now();
        }
        assert_eq!(taken(&pages), [], "the store waits");
        pages.unprotect();
    });
    assert_eq!(taken(&pages), [(2, 0xa00, 6)]);
    assert!(!readable(&pages));
}

#[test]
fn a_blueflame_copy_is_told_from_a_doorbell() {
    let app = App::new(1);
    let pages = UarPages::new(None);
    pages.add_page(name(0), app.file.as_fd()).unwrap();
    for (stored, expected) in [
        (&[0x900, 0x938][..], Some(0)),
        // The rest of the copy is gone.
        (&[0x900], None),
        (&[0x900, 0x908, 0x910], Some(6)),
    ] {
        for &offset in stored {
            app.store(0, offset, 6);
        }
        let mut copies = Vec::new();
        pages.scan(&mut |write| copies.push(write.copy.map(u64::from_ne_bytes)));
        assert_eq!(copies, [expected]);
    }
}

#[test]
fn an_address_resolves_to_its_page_and_a_replayed_store_is_taken() {
    let Some(faults) = userfaultfd_or_skip(FaultMode::Wait) else {
        return;
    };
    let app = App::new(2);
    let pages = UarPages::new(Some(faults));
    pages.add_page(name(1), app.file.as_fd()).unwrap();
    pages.add_mapping(ContextId(1), 1, app.addr(1), PAGE_SIZE);
    let at = |offset| pages.resolve(app.addr(1) + offset);
    assert_eq!(at(0x808), Some((name(1), 0x808)));
    assert_eq!(pages.resolve(app.addr(0) + 0x800), None);
    let mut write = UarWrite {
        page: name(1),
        offset: 0x900,
        bytes: 7_u64.to_ne_bytes(),
        copy: None,
    };
    pages.deposit(&write);
    assert_eq!(taken(&pages), [(1, 0x900, 7)]);
    // A store with unknown bytes is still reported.
    write.bytes = [0; 8];
    pages.deposit(&write);
    assert_eq!(taken(&pages), [(1, 0x900, u64::MAX)]);
    write.offset = 0x908;
    pages.deposit(&write);
    assert_eq!(taken(&pages), []);
}

#[test]
fn a_mapping_that_is_gone_does_not_prevent_protecting_the_others() {
    let Some(faults) = userfaultfd_or_skip(FaultMode::Wait) else {
        return;
    };
    let (app, unmapped_app) = (App::new(1), App::new(1));
    let pages = UarPages::new(Some(faults));
    pages.add_page(name(0), app.file.as_fd()).unwrap();
    pages
        .add_page(
            UarPage {
                context: ContextId(2),
                page: 0,
            },
            unmapped_app.file.as_fd(),
        )
        .unwrap();
    pages.add_mapping(ContextId(1), 0, app.addr(0), PAGE_SIZE);
    pages.add_mapping(ContextId(2), 0, unmapped_app.addr(0), PAGE_SIZE);
    unmapped_app.unmap();
    assert!(pages.protect());
    pages.unprotect();
    pages.remove_mapping(app.addr(0), PAGE_SIZE);
    app.store(0, 0x20, 1);
    assert_eq!(taken(&pages), [(0, 0x20, 1)]);
}
