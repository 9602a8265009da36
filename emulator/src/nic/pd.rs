//! Contexts and protection domains.

use super::adapter::Nic;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{ContextId, PdId, Result};

/// A device context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// Index of the emulated device.
    pub(super) device: u8,
}

/// A protection domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pd {
    pub(super) context: ContextId,
    /// Number of regions and queues in it.
    pub(super) users: u32,
}

impl Nic {
    /// Opens a context on a device.
    ///
    /// # Errors
    /// `ENODEV` if there is no such device, `EIO` if it has failed.
    pub fn open_context(&mut self, device: u8) -> Result<ContextId> {
        refuse_if(
            device >= self.core.options.devices,
            libc::ENODEV,
            "there is no device with this number",
        )?;
        refuse_if(
            self.core.devices.is_failed(device),
            libc::EIO,
            "the device has failed (IBV_EVENT_DEVICE_FATAL)",
        )?;
        self.core.check_memory()?;
        let id = self.core.contexts.insert_with(|_| Context { device });
        id.map(ContextId)
            .or_refuse(libc::ENOMEM, "the process has too many open devices")
    }

    /// Closes a context and destroys all objects in it.
    pub fn close_context(&mut self, context: ContextId) {
        let qpns: Vec<_> = self
            .qps
            .iter()
            .filter(|(_, qp)| qp.spec.context == context)
            .map(|(n, _)| n)
            .collect();
        for qpn in qpns {
            self.remove_qp(qpn);
        }
        let core = &mut self.core;
        let srqns: Vec<_> = core
            .srqs
            .iter()
            .filter(|(_, srq)| srq.spec.context == context)
            .map(|(n, _)| n)
            .collect();
        for srqn in srqns {
            core.srqs.remove(srqn);
        }
        let cqns: Vec<_> = core
            .cqs
            .iter()
            .filter(|(_, cq)| cq.spec.context == context)
            .map(|(n, _)| n)
            .collect();
        for cqn in cqns {
            core.cqs.remove(cqn);
        }
        core.mkeys.remove_all_of(context);
        let pds: Vec<_> = core
            .pds
            .iter()
            .filter(|(_, pd)| pd.context == context)
            .map(|(n, _)| n)
            .collect();
        for pd in pds {
            core.pds.remove(pd);
        }
        core.contexts.remove(context.0);
    }

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// `EINVAL` for an unknown context, `ENOMEM` if there are too many domains.
    pub fn alloc_pd(&mut self, context: ContextId) -> Result<PdId> {
        self.core
            .contexts
            .get(context.0)
            .or_refuse(libc::EINVAL, "the device context is closed")?;
        self.core.check_memory()?;
        let id = self.core.pds.insert_with(|_| Pd { context, users: 0 });
        id.map(PdId).or_refuse(
            libc::ENOMEM,
            "the process has as many protection domains as max_pd allows",
        )
    }

    /// Frees a protection domain.
    ///
    /// # Errors
    /// `EBUSY` while it is in use, `EINVAL` if it does not exist.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<()> {
        let found = self.core.pds.get(pd.0);
        let found = found.or_refuse(libc::EINVAL, "the protection domain does not exist")?;
        refuse_if(
            found.users > 0,
            libc::EBUSY,
            "queues, regions or windows still use the protection domain",
        )?;
        self.core.pds.remove(pd.0);
        Ok(())
    }
}
