//! The connection manager, one for all IAs of the process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dat_engine::cm::{CmError, Manager, ManagerKind, ManagerOptions};

use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};

/// The manager, as long as any IA has it. Its thread ends with the last.
pub(super) struct SharedManager {
    process: u32,
    manager: Manager,
}

static CURRENT: Mutex<Weak<SharedManager>> = Mutex::new(Weak::new());

impl SharedManager {
    /// The manager of this process, started if there is none.
    pub(super) fn get() -> Result<Arc<Self>> {
        // Held while one is started: two IAs that are opened at the same time
        // are to share it.
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        // In a fork, that of the parent may still be there.
        if let Some(shared) = current.upgrade().filter(|shared| shared.process == process) {
            return Ok(shared);
        }
        let manager =
            Manager::start(ManagerKind::Socket, ManagerOptions::default()).map_err(no_manager)?;
        let shared = Arc::new(Self { process, manager });
        *current = Arc::downgrade(&shared);
        Ok(shared)
    }

    pub(super) fn manager(&self) -> &Manager {
        &self.manager
    }
}

fn no_manager(error: CmError) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceDevice,
        format!("the connection manager does not start: {error}"),
    )
}
