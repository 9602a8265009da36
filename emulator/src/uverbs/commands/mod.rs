//! What the commands do, however they were sent.
//!
//! A function here takes a request whose bytes were already read, checks it
//! as ib_core and mlx5_ib do, asks the machine, and keeps the handle tables.

mod ah;
mod caps;
mod channel;
mod cq;
mod device;
mod mr;
mod mw;
mod pd;
mod qp;
mod srq;
mod uar;

pub(super) use cq::{CQ_FLAGS, CqRequest};
pub(super) use device::{COMPLETION_VECTORS, CORE_SUPPORT};
pub(super) use qp::{QP_CREATE_FLAGS, QP_CREATE_SQ_SIG_ALL, QpRequest};
pub(super) use srq::SrqRequest;

use std::sync::Arc;

use libc::EINVAL;

use super::context::{DeviceFile, State};
use super::files::{FILES, Files};
use super::machine::Machine;
use crate::nic::spec::{ChannelId, ContextId, Errno, Result};
use crate::sync::MutexGuard;

/// A command at work on an open device; commands of one device take turns.
pub(super) struct Call<'a> {
    file: &'a Arc<DeviceFile>,
    state: MutexGuard<'a, State>,
}

impl<'a> Call<'a> {
    pub(super) fn new(file: &'a Arc<DeviceFile>) -> Self {
        Self {
            file,
            state: file.lock(),
        }
    }

    fn machine(&self) -> &'a dyn Machine {
        self.file.machine()
    }

    /// The context; `EINVAL` before `GET_CONTEXT`, as the kernel's
    /// `ib_uverbs_get_ucontext_file`.
    fn context(&self) -> Result<ContextId> {
        self.state.context.ok_or(Errno(EINVAL))
    }
}

/// The event file that a descriptor of the application names.
fn event_file(fd: Option<i32>) -> Result<Option<ChannelId>> {
    let files: &Files = &FILES;
    fd.map(|fd| files.events(fd)).transpose()
}

/// Ring addresses are aligned to what the device's page offset can tell.
fn check_aligned(address: u64, alignment: u64) -> Result<()> {
    if address.is_multiple_of(alignment) {
        Ok(())
    } else {
        Err(Errno(EINVAL))
    }
}
