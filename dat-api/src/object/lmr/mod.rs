//! Local memory regions: memory that this side's requests, and with the
//! privileges for it the peers, may use.

mod table;

use core::fmt;
use std::sync::Arc;

use dat_engine::{Access, MemoryRegion};

use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Kind, Object, Reservation};
use crate::object::ia::Ia;
use crate::object::pz::Pz;
use crate::object::usage::{Counted, Usage, Use};
use crate::status::{ReturnType, Subtype};
use crate::types::MemPrivileges;

pub(crate) use table::lookup;

/// What an LMR is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of this process.
    Virtual {
        /// First byte.
        address: usize,
        /// Bytes.
        length: u64,
    },
    /// The memory of another LMR, registered once more. Not supported yet.
    Lmr {
        /// The other LMR.
        source: Handle,
    },
    /// Memory that processes share under one identifier. Not supported yet.
    SharedVirtual {
        /// First byte.
        address: usize,
        /// Bytes.
        length: u64,
        /// What the processes agreed on.
        identifier: [u8; 40],
    },
}

/// What [`Lmr::query`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LmrInfo {
    /// Its IA.
    pub ia: Handle,
    /// What it was made of.
    pub kind: MemoryKind,
    /// Its zone.
    pub pz: Handle,
    /// The privileges that were asked for.
    pub privileges: MemPrivileges,
    /// What local segments name it by.
    pub lmr_context: u32,
    /// What peers name it by; 0 without a remote privilege.
    pub rmr_context: u32,
    /// First byte that is registered.
    pub registered_address: u64,
    /// Bytes that are registered: not rounded to pages.
    pub registered_size: u64,
}

/// A registered range of memory.
pub struct Lmr {
    handle: Handle,
    info: LmrInfo,
    bindable: bool,
    // Dropped in this order: nobody finds the key once the region goes.
    entry: table::Entry,
    region: MemoryRegion,
    pz: Use<Pz>,
    usage: Usage,
}

impl Lmr {
    /// Registers memory and names it.
    ///
    /// # Errors
    /// - A zone of another IA: `DAT_INVALID_HANDLE_PZ`.
    /// - No bytes, or more than the address space or the device allows:
    ///   `DAT_INVALID_PARAMETER`, argument 4; not mapped: argument 3.
    /// - A kind of memory that is not supported: `DAT_MODEL_NOT_SUPPORTED`.
    /// - The device, the limit on locked memory or the table of LMRs is full:
    ///   `DAT_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// Until the LMR is freed the memory stays mapped, and the device (and
    /// with remote privileges any peer that knows the context) may read it,
    /// and with write privileges write it, whenever a request says so: no
    /// Rust reference may exist to bytes that are being written.
    pub unsafe fn create(
        ia: &Arc<Ia>,
        kind: MemoryKind,
        pz: &Arc<Pz>,
        privileges: MemPrivileges,
    ) -> Result<Arc<Self>> {
        let _ = (ia, kind, pz, privileges);
        unimplemented!()
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// What it is.
    #[must_use]
    pub fn query(&self) -> LmrInfo {
        self.info
    }

    /// Its zone.
    #[must_use]
    pub fn pz(&self) -> &Arc<Pz> {
        self.pz.arc()
    }

    /// Whether windows may be bound to it.
    #[must_use]
    pub fn is_bindable(&self) -> bool {
        self.bindable
    }

    /// Ends the registration.
    ///
    /// # Errors
    /// The handle names none, or a window is bound to it.
    pub fn free(handle: Handle) -> Result<()> {
        let _ = handle;
        unimplemented!()
    }
}

impl fmt::Debug for Lmr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lmr")
            .field("handle", &self.handle)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl Object for Lmr {
    const KIND: Kind = Kind::Lmr;
}

impl Counted for Lmr {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}
