//! Registered memory.

use core::fmt;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::{read_message, write_message};
use memmap2::{MmapMut, MmapOptions, MmapRaw};

use super::ProtectionZone;
use crate::error::{DatError, Result};
use crate::object::lmr::{Lmr, MemoryKind};
use crate::object::post::count_of;
use crate::status::{ReturnType, Subtype};
use crate::types::{LmrSegment, MemPrivileges, RmrSegment};

/// Memory that the device may use, allocated and registered together.
///
/// Dropping it deregisters the memory at once; the bytes themselves stay mapped as long as an
/// endpoint lives that has received or read into them.
///
/// An RMR that is bound to it ([`super::Window`]) keeps it registered until the RMR is bound
/// elsewhere, or unbound, or dropped.
///
/// Any thread may read and write it at any time, and so may the device. Bytes that change during a
/// read may be a mixture of old and new ones; the program must order accesses where that matters.
/// No reference to the bytes is ever made.
pub struct Memory {
    region: Arc<Region>,
    bytes: Arc<Mapping>,
    context: u32,
    rmr_context: u32,
}

/// The registration of memory, which ends when this is dropped.
pub(super) struct Region {
    lmr: Arc<Lmr>,
    bytes: Arc<Mapping>,
    // Dropped after the region is deregistered.
    _zone: ProtectionZone,
}

/// The bytes, apart from their registration.
pub(super) struct Mapping(MmapRaw);

/// The pages that memory is allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Normal,
    /// Huge pages of the size that is the system's default.
    Huge,
}

/// Returns the size of the system's default huge pages, in bytes; `None` if it has none.
fn huge_page_size() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    huge_page_size_in(&text)
}

/// Returns the size that the text of `/proc/meminfo` states.
fn huge_page_size_in(text: &str) -> Option<usize> {
    let mut lines = text.lines();
    let stated = lines.find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: usize = stated.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).filter(|size| size.is_power_of_two())
}

/// Maps at least this many bytes on huge pages of this size.
fn on_huge_pages(bytes: usize, page: Option<usize>) -> Result<MmapMut> {
    let Some(page) = page else {
        return Err(no_memory(
            "this system has no huge pages (no Hugepagesize in /proc/meminfo): use normal pages"
                .to_owned(),
        ));
    };
    let pages = bytes.div_ceil(page);
    // A length that does not fit is refused by the system.
    let length = pages.saturating_mul(page);
    // The system reserves the pages for the mapping now, so none is missing later.
    let mapped = MmapOptions::new().len(length).huge(None).map_anon();
    mapped.map_err(|error| {
        let kib = page / 1024;
        no_memory(format!(
            "{bytes} bytes need {pages} huge pages of {kib} KiB, which cannot be allocated: \
             {error}; reserve more, for example by sysctl -w vm.nr_hugepages={pages} (all programs \
             share them)"
        ))
    })
}

/// The error of memory that cannot be allocated.
fn no_memory(cause: String) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        cause,
    )
}

impl Memory {
    pub(super) fn allocate(
        zone: &ProtectionZone,
        bytes: usize,
        privileges: MemPrivileges,
        pages: Pages,
    ) -> Result<Self> {
        if bytes == 0 {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg4,
                "memory of 0 bytes cannot be registered: expected 1 byte or more",
            ));
        }
        let mapping = match pages {
            Pages::Normal => MmapOptions::new().len(bytes).map_anon().map_err(|error| {
                no_memory(format!(
                    "{bytes} bytes of memory cannot be allocated: {error}"
                ))
            }),
            Pages::Huge => on_huge_pages(bytes, huge_page_size()),
        }?;
        let mapping = Arc::new(Mapping(MmapRaw::from(mapping)));
        let kind = MemoryKind::Virtual {
            address: mapping.0.as_mut_ptr().addr(),
            length: mapping.0.len() as u64,
        };
        // SAFETY: the mapping belongs to this value, no reference to it is ever made, and it is
        // unmapped after the region is deregistered (see `Drop`).
        let lmr = unsafe { Lmr::create(zone.adapter().ia(), kind, zone.pz(), privileges) }?;
        let info = lmr.query();
        Ok(Self {
            region: Arc::new(Region {
                lmr,
                bytes: Arc::clone(&mapping),
                _zone: zone.clone(),
            }),
            bytes: mapping,
            context: info.lmr_context,
            rmr_context: info.rmr_context,
        })
    }

    /// Returns the length in bytes: what was asked for, or on huge pages a multiple of their size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.0.len()
    }

    /// Returns `false`: memory of 0 bytes cannot be registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns a pointer to the first byte. The device may write at any time what it has privileges
    /// for.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes.0.as_mut_ptr()
    }

    /// Copies bytes into the memory. A concurrent reader of the same bytes (an outstanding request,
    /// a peer, another thread) may see old ones, new ones, or a mixture; two concurrent writes may
    /// leave a mixture.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let at = self.at(offset, bytes.len());
        // SAFETY: `at` has checked the bounds; no slice covers the mapping, so the two do not
        // overlap. `write_message` allows concurrent access by other threads and the device.
        unsafe { write_message(bytes.as_ptr(), at, bytes.len()) };
    }

    /// Copies bytes out of the memory. During a concurrent write they may be a mixture of old and
    /// new ones; they are all new once the program has seen the completion of the write, or the
    /// flag behind it ([`Self::load_u64`]).
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let at = self.at(offset, bytes.len());
        // SAFETY: as in `write`.
        unsafe { read_message(at, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Returns the 64 bits at `offset`, read once, for a flag that a peer's RDMA write sets. Later
    /// reads are not older than this one. Whether the rest of the write is in memory when its last
    /// bytes are, is what [`super::Endpoint::data_in_order`] says.
    ///
    /// # Panics
    /// If they are not inside, or `offset` is not a multiple of 8.
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8), "{offset} is not a multiple of 8");
        let at = self.at(offset, 8).cast::<u64>();
        // SAFETY: inside the mapping, whose start is page-aligned.
        let value = unsafe { at.read_volatile() };
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        value
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len() && len <= self.len() - offset,
            "{len} bytes at {offset} are not inside {} bytes",
            self.len()
        );
        // SAFETY: inside the mapping.
        unsafe { self.as_ptr().add(offset) }
    }

    /// Returns a piece of it, for a request of this side.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    #[must_use]
    pub fn segment(&self, range: Range<usize>) -> Segment<'_> {
        let length = range.end.wrapping_sub(range.start);
        let at = self.at(range.start, length);
        Segment {
            segment: LmrSegment {
                context: self.context,
                address: at.addr() as u64,
                length: length as u64,
            },
            memory: &self.bytes,
            region: &self.region,
        }
    }

    /// Returns a piece of it, to be sent to the peer, which may read or write there as the
    /// privileges say.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn remote(&self, range: Range<usize>) -> RemoteSegment {
        let length = range.end.wrapping_sub(range.start);
        RemoteSegment {
            context: self.rmr_context,
            address: self.at(range.start, length).addr() as u64,
            length: length as u64,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Freeing fails if the adapter was closed, which has deregistered the region; or if the
        // device still has a window bound to it whose unbind was flushed. Then the memory stays
        // mapped until the adapter is closed.
        if let Err(error) = Lmr::free(self.lmr.handle())
            && error.code().kind() == Some(ReturnType::InvalidState)
        {
            core::mem::forget(Arc::clone(&self.bytes));
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("bytes", &self.len())
            .field("lmr", &self.region.lmr)
            .finish_non_exhaustive()
    }
}

/// A piece of this side's memory, for a post.
#[derive(Clone, Copy)]
pub struct Segment<'m> {
    segment: LmrSegment,
    memory: &'m Arc<Mapping>,
    region: &'m Arc<Region>,
}

/// A send or a receive of a list: [`super::Endpoint::post_send_list`],
/// [`super::Endpoint::post_recv_list`].
#[derive(Clone, Copy, Debug)]
pub struct Message<'m> {
    /// Its memory.
    pub segment: Segment<'m>,
    /// Returned by its event.
    pub cookie: u64,
}

impl Message<'_> {
    /// Returns the segment as posts take it, and the cookie.
    #[inline(always)]
    pub(super) fn listed(&self) -> (LmrSegment, u64) {
        (self.segment.segment, self.cookie)
    }
}

/// Returns the number of segments of a post, and a function that returns one of them.
///
/// # Safety
/// The function is called with indices below that number, and while the segments are borrowed.
#[inline(always)]
pub(super) unsafe fn posted(segments: &[Segment<'_>]) -> (u32, impl Fn(usize) -> LmrSegment) {
    let first = segments.as_ptr();
    // SAFETY: the index is below the number of segments, which are borrowed. The closure captures
    // one word, without the length, which a post checks once.
    let segment = move |at| unsafe { (*first.add(at)).segment };
    (count_of(segments), segment)
}

impl Segment<'_> {
    pub(super) fn lmr(&self) -> LmrSegment {
        self.segment
    }

    /// Returns what keeps it registered.
    pub(super) fn region(&self) -> &Arc<Region> {
        self.region
    }
}

impl fmt::Debug for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.segment.fmt(f)
    }
}

/// A piece of the peer's memory: what [`Memory::remote`] returned to the peer, which the program
/// sends over in any form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteSegment {
    /// The context by which peers name the memory.
    pub context: u32,
    /// The first byte, in the address space of its owner.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
}

impl From<RemoteSegment> for RmrSegment {
    fn from(remote: RemoteSegment) -> Self {
        Self {
            context: remote.context,
            address: remote.address,
            length: remote.length,
        }
    }
}

/// Mappings that the device, or the copy of a CQE's payload, may still write to; kept until their
/// owner is dropped.
#[derive(Default)]
pub(super) struct Mappings {
    /// The one that was posted last, which most posts use again.
    latest: Option<Arc<Mapping>>,
    others: Vec<Arc<Mapping>>,
}

impl Mappings {
    /// Keeps the memory of these segments.
    #[inline]
    pub(super) fn keep(&mut self, segments: &[Segment<'_>]) {
        for segment in segments {
            let latest = self.latest.as_ref();
            if !latest.is_some_and(|latest| Arc::ptr_eq(latest, segment.memory)) {
                self.add(segment.memory);
            }
        }
    }

    /// Makes a mapping the latest; the others keep one of each. It may be the latest already:
    /// another thread may have added it just now.
    #[cold]
    fn add(&mut self, mapping: &Arc<Mapping>) {
        if self
            .latest
            .as_ref()
            .is_some_and(|latest| Arc::ptr_eq(latest, mapping))
        {
            return;
        }
        let mut others = self.others.iter_mut();
        let known = others.find(|known| Arc::ptr_eq(known, mapping));
        match (known, &mut self.latest) {
            (Some(known), Some(latest)) => core::mem::swap(known, latest),
            (_, latest) => self.others.extend(latest.replace(Arc::clone(mapping))),
        }
    }
}

/// As [`Mappings`], for posts of several threads at a time.
#[derive(Default)]
pub(super) struct SharedMappings {
    /// The mapping that was posted last, which is kept; initially null. Only compared.
    latest: AtomicPtr<Mapping>,
    kept: Mutex<Mappings>,
}

impl SharedMappings {
    /// Keeps the memory of these segments.
    #[inline]
    pub(super) fn keep(&self, segments: &[Segment<'_>]) {
        for segment in segments {
            // Acquire: the mapping was kept before.
            if !ptr::eq(
                self.latest.load(Ordering::Acquire),
                &raw const **segment.memory,
            ) {
                self.add(segment.memory);
            }
        }
    }

    #[cold]
    fn add(&self, mapping: &Arc<Mapping>) {
        let mut kept = self.kept.lock();
        kept.add(mapping);
        self.latest
            .store(Arc::as_ptr(mapping).cast_mut(), Ordering::Release);
    }
}

impl fmt::Debug for Mappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = usize::from(self.latest.is_some());
        f.debug_tuple("Mappings")
            .field(&(latest + self.others.len()))
            .finish()
    }
}

impl fmt::Debug for SharedMappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.lock().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_huge_pages_is_read_from_meminfo() {
        let text = "HugePages_Total:       0\nHugepagesize:       2048 kB\nHugetlb:  0 kB\n";
        assert_eq!(huge_page_size_in(text), Some(2 << 20));
        for text in [
            "",
            "Hugepagesize: 3 kB",
            "Hugepagesize: 2048",
            "Hugepagesize: x kB",
        ] {
            assert_eq!(huge_page_size_in(text), None, "{text}");
        }
    }

    #[test]
    fn refused_huge_pages_have_a_cause_and_a_remedy() {
        let error = on_huge_pages(1, None).expect_err("none");
        assert!(error.cause().contains("no huge pages"), "{error}");
        // More than any system has.
        for bytes in [1 << 60, usize::MAX] {
            let error = on_huge_pages(bytes, Some(2 << 20)).expect_err("too many");
            assert!(error.code().is(ReturnType::InsufficientResources));
            assert!(error.cause().contains("vm.nr_hugepages="), "{error}");
        }
    }

    #[test]
    fn every_mapping_is_kept_once_whatever_the_order_of_posts() {
        let mappings: [_; 3] = core::array::from_fn(|_| {
            let bytes = MmapOptions::new().len(1).map_anon();
            Arc::new(Mapping(MmapRaw::from(bytes.expect("one byte of memory"))))
        });
        let (mut kept, shared) = (Mappings::default(), SharedMappings::default());
        for at in [0, 1, 0, 1, 2, 0, 2, 2, 1, 0] {
            kept.add(&mappings[at]);
            assert!(Arc::ptr_eq(
                kept.latest.as_ref().expect("one"),
                &mappings[at]
            ));
            shared.add(&mappings[at]);
            let latest = shared.latest.load(Ordering::Relaxed);
            assert!(ptr::eq(latest, Arc::as_ptr(&mappings[at])));
        }
        let owners = |count| mappings.each_ref().map(Arc::strong_count) == [count; 3];
        assert!(owners(3), "this test, `kept` and `shared`");
        drop(kept);
        assert!(owners(2));
        drop(shared);
        assert!(owners(1));
    }
}
