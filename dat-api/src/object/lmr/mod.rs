//! Local memory regions: memory that this side's requests may use, and peers too if they have the
//! privileges.
//!
//! Decision: `docs/decisions/014-payload-in-cqe.md`

mod cache;
mod register;
mod shared;
mod table;

use std::sync::Arc;

use dat_engine::MemoryRegion;
use dat_engine::sync::Mutex;

use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::ia::Ia;
use crate::object::pz::{self, Pz};
use crate::object::stale;
use crate::object::usage::{Counted, Usage, Use};
use crate::object::{exhausted, of_another_ia};
use crate::status::{ReturnType, Subtype};
use crate::types::{LmrSegment, MemPrivileges};

pub(crate) use cache::LmrCache;
use register::register;
use shared::Name;
use table::{CAPACITY, Contents, OwnedRow};

const REMOTE: MemPrivileges = MemPrivileges::REMOTE_READ
    .union(MemPrivileges::REMOTE_WRITE)
    .union(MemPrivileges::REMOTE_ATOMIC);

/// The kind of memory of an LMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of this process.
    Virtual {
        /// The first byte.
        address: usize,
        /// The length in bytes.
        length: u64,
    },
    /// The memory of another LMR of the IA, registered again.
    Lmr {
        /// The other LMR.
        source: Handle,
    },
    /// Memory that processes share under one identifier. Each process registers it for itself,
    /// because verbs cannot share translations. The library checks that it is shared memory, and
    /// that in this process the identifier names no other memory.
    SharedVirtual {
        /// The first byte.
        address: usize,
        /// The length in bytes.
        length: u64,
        /// The identifier that the processes agreed on.
        identifier: [u8; 40],
    },
}

/// The result of [`Lmr::query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LmrInfo {
    /// Its IA.
    pub ia: Handle,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// Its zone.
    pub pz: Handle,
    /// The requested privileges.
    pub privileges: MemPrivileges,
    /// The context in local segments.
    pub lmr_context: u32,
    /// The context for peers; 0 without a remote privilege.
    pub rmr_context: u32,
    /// The first byte that is registered.
    pub registered_address: u64,
    /// The number of bytes that are registered, not rounded to pages.
    pub registered_size: u64,
}

/// A registered range of memory.
pub struct Lmr {
    handle: Handle,
    info: LmrInfo,
    /// The privileges that posts and binds are checked against.
    granted: MemPrivileges,
    bindable: bool,
    pz: Arc<Pz>,
    /// `None` once it is freed, even if references to the object remain.
    registration: Mutex<Option<Registration>>,
    usage: Usage,
}

/// Dropped when an LMR is freed, in this order: first its key can no longer be looked up, then the
/// region is deregistered.
struct Registration {
    entry: OwnedRow,
    region: MemoryRegion,
    name: Option<Name>,
    pz: Use<Pz>,
}

impl Lmr {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        ..Upcalls::NONE
    };

    /// Registers memory.
    ///
    /// # Errors
    /// - A zone of another IA: `DAT_INVALID_HANDLE_PZ`.
    /// - A length of 0: `DAT_LENGTH_ERROR`; on a strict IA `DAT_INVALID_PARAMETER`, argument 4.
    /// - A length of more than the address space or the device allows: `DAT_INVALID_PARAMETER`,
    ///   argument 4; not mapped: argument 3.
    /// - The source LMR does not exist, or belongs to another IA: `DAT_INVALID_HANDLE_LMR`.
    /// - Shared memory that is not shared: `DAT_INVALID_STATE`; whose identifier names other memory
    ///   here: `DAT_INVALID_STATE_LMR_IN_USE`.
    /// - The device, the limit on locked memory or the table of LMRs is full:
    ///   `DAT_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// Until the LMR is freed the memory stays mapped. The device (and with remote privileges any
    /// peer that has the context) may read it, and with write privileges write it, whenever a
    /// request names it: no Rust reference may exist to bytes that are being written.
    pub unsafe fn create(
        ia: &Arc<Ia>,
        kind: MemoryKind,
        pz: &Arc<Pz>,
        privileges: MemPrivileges,
    ) -> Result<Arc<Self>> {
        if !Arc::ptr_eq(pz.ia(), ia) {
            return Err(pz::unusable(of_another_ia("protection zone", pz.ia(), ia)));
        }
        let (address, length) = range_of(ia, kind)?;
        let pz = Use::of(pz).ok_or_else(|| pz::unusable("the zone is being freed"))?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let name = match kind {
            MemoryKind::SharedVirtual { identifier, .. } => {
                Some(Name::claim(identifier, address, length)?)
            }
            _ => None,
        };
        // SAFETY: the memory stays mapped until the LMR is freed.
        let (region, bindable) = unsafe { register(&pz, address, length, privileges)? };
        let granted = privileges | ia.rules().conformance.added_privileges;
        let entry = OwnedRow::new(&Contents {
            address: address as u64,
            length,
            key: region.lkey(),
            pz: pz.handle().bits(),
            privileges: granted,
            handle: place.handle().bits(),
        })
        .ok_or_else(table_full)?;
        let info = LmrInfo {
            ia: ia.handle(),
            kind,
            pz: pz.handle(),
            privileges,
            lmr_context: entry.context(),
            rmr_context: if privileges.intersects(REMOTE) {
                region.rkey()
            } else {
                0
            },
            registered_address: address as u64,
            registered_size: length,
        };
        let lmr = Arc::new(Self {
            handle: place.handle(),
            info,
            granted,
            bindable,
            pz: Arc::clone(pz.arc()),
            registration: Mutex::new(Some(Registration {
                entry,
                region,
                name,
                pz,
            })),
            usage: Usage::default(),
        });
        ia.publish(place, &lmr)?;
        Ok(lmr)
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns its parameters.
    #[must_use]
    pub fn query(&self) -> LmrInfo {
        self.info
    }

    /// Returns the identifier of shared memory, which is stored as long as the LMR lives.
    #[must_use]
    pub fn identifier(&self) -> Option<&[u8; 40]> {
        match &self.info.kind {
            MemoryKind::SharedVirtual { identifier, .. } => Some(identifier),
            _ => None,
        }
    }

    /// Returns its zone.
    #[must_use]
    pub fn pz(&self) -> &Arc<Pz> {
        &self.pz
    }

    /// Returns the privileges that requests and binds have: those requested, and local read unless
    /// the IA is strict.
    #[must_use]
    pub fn granted(&self) -> MemPrivileges {
        self.granted
    }

    /// Returns whether RMRs can be bound to it.
    #[must_use]
    pub fn is_bindable(&self) -> bool {
        self.bindable
    }

    /// Calls a function with the region; returns `None` if it is deregistered.
    pub(crate) fn with_region<R>(&self, call: impl FnOnce(&MemoryRegion) -> R) -> Option<R> {
        let registration = self.registration.lock();
        Some(call(&registration.as_ref()?.region))
    }

    /// Deregisters the memory.
    ///
    /// # Errors
    /// The handle names no LMR, or an RMR is bound to it.
    pub fn free(handle: Handle) -> Result<()> {
        let lmr = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        if !lmr.usage.close() {
            return Err(in_use(
                "an RMR is bound to the region: unbind or free it first",
            ));
        }
        if !lmr.deregister() {
            lmr.usage.reopen();
            return Err(in_use(
                "the device still has an RMR bound to the region: its unbind is not complete, or was \
                 flushed. Wait for the unbind, or free the RMR",
            ));
        }
        let ia = lmr.pz.ia();
        // The memory may be unmapped after this, so no later poll may copy payload into it.
        ia.copy_payloads();
        ia.unregister(handle);
        drop(lmr);
        let lmr = handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        lmr.end();
        Ok(())
    }

    /// Deregisters the region; returns `false`, with nothing changed, if the device has a window
    /// bound to it.
    fn deregister(&self) -> bool {
        let mut registration = self.registration.lock();
        let Some(Registration {
            entry,
            region,
            name,
            pz,
        }) = registration.take()
        else {
            return true;
        };
        match region.deregister() {
            Ok(()) => true,
            Err(region) => {
                *registration = Some(Registration {
                    entry,
                    region,
                    name,
                    pz,
                });
                false
            }
        }
    }

    /// Frees it because its IA is closed abruptly.
    fn abort(handle: Handle) {
        if let Some(lmr) = handle::retire::<Self>(handle, |_| ()) {
            lmr.usage.close_anyway();
            lmr.end();
        }
    }

    /// Ends the registration, even if references to the object remain.
    pub(crate) fn end(&self) {
        *self.registration.lock() = None;
    }
}

impl Counted for Lmr {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

fn range_of(ia: &Arc<Ia>, kind: MemoryKind) -> Result<(usize, u64)> {
    let (address, length) = match kind {
        MemoryKind::Virtual { address, length }
        | MemoryKind::SharedVirtual {
            address, length, ..
        } => (address, length),
        MemoryKind::Lmr { source } => {
            let source = handle::pin::<Lmr>(source).ok_or_else(stale::<Lmr>)?;
            if !Arc::ptr_eq(source.pz.ia(), ia) {
                return Err(DatError::new(
                    ReturnType::InvalidHandle,
                    Subtype::InvalidHandleLmr,
                    of_another_ia("LMR", source.pz.ia(), ia),
                ));
            }
            let info = source.query();
            // The consumer gave it as an address.
            let address = usize::try_from(info.registered_address).unwrap_or(usize::MAX);
            (address, info.registered_size)
        }
    };
    if length == 0 && ia.rules().conformance.lmr_length_error {
        return Err(DatError::new(
            ReturnType::LengthError,
            Subtype::NoSubtype,
            "invalid length 0 of a memory region: expected 1 byte or more",
        ));
    }
    let end = u64::try_from(address)
        .ok()
        .and_then(|first| first.checked_add(length));
    if length == 0 || end.is_none() {
        return Err(DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg4,
            format!(
                "invalid memory range of {length} bytes at {address:#x}: expected 1 byte or more, within the address space"
            ),
        ));
    }
    Ok((address, length))
}

fn table_full() -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemoryRegion,
        format!("the process has the maximum of {CAPACITY} LMRs: free some first"),
    )
}

fn in_use(cause: &'static str) -> DatError {
    DatError::new(
        ReturnType::InvalidState,
        Subtype::InvalidStateLmrInUse,
        cause,
    )
}

/// Returns whether a segment lies inside an LMR of this IA; a segment of length 0 always does.
#[must_use]
pub fn covers(ia: &Arc<Ia>, segment: &LmrSegment) -> bool {
    segment.length == 0
        || find(segment.context).is_some_and(|lmr| {
            let offset = segment.address.wrapping_sub(lmr.info.registered_address);
            let bytes = lmr.info.registered_size;
            Arc::ptr_eq(lmr.pz.ia(), ia) && offset <= bytes && segment.length <= bytes - offset
        })
}

/// Returns the LMR that a context names now.
pub(crate) fn find(context: u32) -> Option<Arc<Lmr>> {
    let lmr = handle::pin::<Lmr>(table::handle_of(context)?)?.to_arc();
    // The row may hold another LMR since.
    (lmr.info.lmr_context == context).then_some(lmr)
}
