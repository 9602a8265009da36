//! Registered memory.
//!
//! Decision: `docs/decisions/081-memory-that-programs-own.md`

mod mapping;
mod owner;
mod pages;
mod plain;

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;

use super::{GivenBack, ProtectionZone};
use crate::error::{DatError, Result};
use crate::object::lmr::{Lmr, MemoryKind};
use crate::object::post::count_of;
use crate::status::{ReturnType, Subtype};
use crate::types::{LmrSegment, MemPrivileges, RmrSegment};

use mapping::Mapping;
pub(super) use mapping::{Mappings, SharedMappings};
pub use owner::OwnedBytes;
pub(super) use pages::Pages;
pub use plain::Plain;

/// Memory that the device may use: the bytes of a value, by default of a mapping that
/// [`ProtectionZone::allocate`] makes. [`ProtectionZone::register`] takes other owners.
///
/// Dropping it deregisters the memory at once. The owner lives as long as an endpoint or a shared
/// queue lives that has received or read into the bytes, and is then dropped, on any thread; if it
/// panics, that is reported as an error of the crate `tracing`. [`Self::into_inner`] returns the
/// owner instead. If this value is leaked ([`core::mem::forget`]), the memory stays registered.
///
/// An RMR that is bound to it ([`super::Window`]) keeps it registered until the RMR is bound
/// elsewhere, or unbound, or dropped.
///
/// Any thread may read and write it at any time, and so may the device. Bytes that change during a
/// read may be a mixture of old and new ones; the program must order accesses where that matters.
/// No reference to the bytes is ever made.
pub struct Memory<T = MmapMut> {
    region: Arc<Region>,
    bytes: Arc<Mapping>,
    context: u32,
    rmr_context: u32,
    owner: PhantomData<fn() -> T>,
}

/// The registration of memory, which ends when this is dropped.
pub(super) struct Region {
    lmr: Arc<Lmr>,
    bytes: Arc<Mapping>,
    // Dropped after the region is deregistered.
    _zone: ProtectionZone,
}

impl ProtectionZone {
    /// Registers the bytes of a value, which the memory then owns:
    ///
    /// ```no_run
    /// # use dat_api::{safe::ProtectionZone, types::MemPrivileges};
    /// # fn main() {}
    /// # fn some(zone: &ProtectionZone) -> dat_api::Result<()> {
    /// let memory = zone.register(vec![0_u8; 4096], MemPrivileges::all())?;
    /// memory.write(0, b"hello");
    /// let bytes: Vec<u8> = memory.into_inner()?;
    /// assert_eq!(&bytes[..5], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// 0 bytes, no memory, or the limit on locked memory is too low. The error has the value.
    pub fn register<T: OwnedBytes>(
        &self,
        owner: T,
        privileges: MemPrivileges,
    ) -> Result<Memory<T>, GivenBack<T>> {
        Memory::register(self, owner, privileges, |address, length| {
            MemoryKind::Virtual { address, length }
        })
    }

    /// Registers memory that processes share, such as a [`MmapMut`] of a file in `/dev/shm`, under
    /// an identifier that they agree on (`DAT_MEM_TYPE_SHARED_VIRTUAL`). Each process registers it
    /// for itself.
    ///
    /// # Errors
    /// As for [`Self::register`]; also if the memory is not shared, or the identifier names other
    /// memory in this process.
    pub fn register_shared<T: OwnedBytes>(
        &self,
        owner: T,
        identifier: [u8; 40],
        privileges: MemPrivileges,
    ) -> Result<Memory<T>, GivenBack<T>> {
        Memory::register(self, owner, privileges, |address, length| {
            MemoryKind::SharedVirtual {
                address,
                length,
                identifier,
            }
        })
    }
}

/// The error of memory without bytes.
fn no_bytes() -> DatError {
    DatError::new(
        ReturnType::InvalidParameter,
        Subtype::InvalidArg4,
        "memory of 0 bytes cannot be registered: expected 1 byte or more",
    )
}

/// The error of memory that is in use.
fn in_use(cause: &'static str) -> DatError {
    DatError::new(ReturnType::InvalidState, Subtype::NoSubtype, cause)
}

impl Memory {
    pub(super) fn allocate(
        zone: &ProtectionZone,
        bytes: usize,
        privileges: MemPrivileges,
        pages: Pages,
    ) -> Result<Self> {
        if bytes == 0 {
            return Err(no_bytes());
        }
        Ok(zone.register(pages.map(bytes)?, privileges)?)
    }
}

impl<T: OwnedBytes> Memory<T> {
    fn register(
        zone: &ProtectionZone,
        owner: T,
        privileges: MemPrivileges,
        kind: impl FnOnce(usize, u64) -> MemoryKind,
    ) -> Result<Self, GivenBack<T>> {
        let mapping = Mapping::of(owner);
        let registered = match mapping.len() {
            0 => Err(no_bytes()),
            length => {
                let kind = kind(mapping.as_ptr().expose_provenance(), length as u64);
                // SAFETY: the owner keeps the bytes where they are, without a reference to them
                // (`OwnedBytes`); it is dropped, or taken back, after the region is deregistered
                // (see `Drop` and `into_inner`).
                unsafe { Lmr::create(zone.adapter().ia(), kind, zone.pz(), privileges) }
            }
        };
        let lmr = match registered {
            Ok(lmr) => lmr,
            Err(error) => {
                let value = mapping.into_owner().expect("it has not been taken");
                return Err(GivenBack { error, value });
            }
        };
        let (info, mapping) = (lmr.query(), Arc::new(mapping));
        Ok(Self {
            region: Arc::new(Region {
                lmr,
                bytes: Arc::clone(&mapping),
                _zone: zone.clone(),
            }),
            bytes: mapping,
            context: info.lmr_context,
            rmr_context: info.rmr_context,
            owner: PhantomData,
        })
    }

    /// Ends the registration, and returns the owner of the bytes. Sends and RDMA writes of this
    /// memory that are outstanding fail.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`, with the memory, which stays registered:
    ///
    /// - The memory was posted for a receive, an RDMA read or an atomic operation of an endpoint
    ///   that has not released it since ([`super::Endpoint::release_memory`]) and was not dropped,
    ///   or for a receive of a shared queue that was not dropped.
    /// - A window is bound to it, or was until the last unbind or bind, which may not be complete:
    ///   drop the window, or unbind it once more.
    pub fn into_inner(mut self) -> Result<T, GivenBack<Self>> {
        if let Err(error) = self.deregister() {
            return Err(GivenBack { error, value: self });
        }
        let Self { region, bytes, .. } = self;
        drop(region);
        let owner = Arc::into_inner(bytes).and_then(Mapping::into_owner);
        Ok(owner.expect("no other user of the mapping is left that could have cloned it"))
    }

    /// Ends the registration, if nothing else uses the memory.
    fn deregister(&mut self) -> Result<()> {
        let Some(region) = Arc::get_mut(&mut self.region) else {
            return Err(in_use(
                "a window is bound to the memory, or was last: drop the window, or unbind it twice",
            ));
        };
        // The region's and this one; only one of these, or of those that are counted besides, can be
        // cloned.
        if Arc::strong_count(&self.bytes) > 2 {
            return Err(in_use(
                "the memory was posted for a receive, a read or an atomic operation: complete or flush \
                 them, then call Endpoint::release_memory; or drop the endpoint or the shared queue",
            ));
        }
        match Lmr::free(region.lmr.handle()) {
            Err(error) if error.code().kind() == Some(ReturnType::InvalidState) => Err(error),
            // An error is that of an adapter that is closed, maybe on another thread at the moment.
            _ => {
                region.lmr.end();
                Ok(())
            }
        }
    }
}

impl<T> Memory<T> {
    /// Returns the length in bytes: what was asked for, or on huge pages a multiple of their size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
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
        self.bytes.as_ptr()
    }

    /// Copies bytes into the memory. A concurrent reader of the same bytes (an outstanding request,
    /// a peer, another thread) may see old ones, new ones, or a mixture; two concurrent writes may
    /// leave a mixture.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: the bytes are borrowed.
        unsafe { self.bytes.write(offset, bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of the memory. During a concurrent write they may be a mixture of old and
    /// new ones; they are all new once the program has seen the completion of the write, or the
    /// flag behind it ([`Self::load_u64`]).
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: the bytes are borrowed mutably.
        unsafe { self.bytes.read(offset, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies one value into the memory, as [`Self::write`]: a number in the order of the host, or
    /// an array.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write_value<V: Plain>(&self, offset: usize, value: V) {
        // SAFETY: the value is our own, and has no padding.
        unsafe {
            let from = (&raw const value).cast();
            self.bytes.write(offset, from, size_of::<V>());
        }
    }

    /// Copies one value out of the memory, as [`Self::read`].
    ///
    /// ```no_run
    /// # use dat_api::safe::Memory;
    /// # fn sum(memory: &Memory) -> u64 {
    /// let [length, checksum]: [u32; 2] = memory.read_value(64);
    /// # u64::from(length) + u64::from(checksum)
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it is not inside.
    #[must_use]
    pub fn read_value<V: Plain>(&self, offset: usize) -> V {
        let mut value = MaybeUninit::<V>::uninit();
        // SAFETY: the value is our own, all its bytes are written, and any bytes are a `Plain` one.
        unsafe {
            self.bytes
                .read(offset, value.as_mut_ptr().cast(), size_of::<V>());
            value.assume_init()
        }
    }

    /// Returns the 64 bits at `offset`, read at once, for a flag that a peer's RDMA write or another
    /// thread sets. Later reads are not older than this one. Whether the rest of the write is in
    /// memory when its last bytes are, is what [`super::Endpoint::data_in_order`] says.
    ///
    /// # Panics
    /// If they are not inside, or their address is not a multiple of 8.
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.bytes.load(offset)
    }

    /// Writes 64 bits at `offset` at once, for a flag that another thread or a peer's RDMA read
    /// loads. Earlier writes are not newer than this one.
    ///
    /// # Panics
    /// As [`Self::load_u64`].
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.bytes.store(offset, value);
    }

    /// As [`Self::load_u64`], with 32 bits.
    ///
    /// # Panics
    /// If they are not inside, or their address is not a multiple of 4.
    #[must_use]
    pub fn load_u32(&self, offset: usize) -> u32 {
        self.bytes.load(offset)
    }

    /// As [`Self::store_u64`], with 32 bits.
    ///
    /// # Panics
    /// As [`Self::load_u32`].
    pub fn store_u32(&self, offset: usize, value: u32) {
        self.bytes.store(offset, value);
    }

    /// Returns a piece of it, for a request of this side.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    #[must_use]
    pub fn segment(&self, range: Range<usize>) -> Segment<'_> {
        let length = range.end.wrapping_sub(range.start);
        let at = self.bytes.at(range.start, length);
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
            address: self.bytes.at(range.start, length).addr() as u64,
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

impl<T> fmt::Debug for Memory<T> {
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
