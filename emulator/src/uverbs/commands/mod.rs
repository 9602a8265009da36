//! The commands, independent of how they were sent.
//!
//! A function here takes a parsed request, checks it as ib_core and mlx5_ib do, calls
//! the backend, and updates the handle table.

mod ah;
mod caps;
mod channel;
mod cq;
mod device;
mod devx;
mod mr;
mod mw;
mod pd;
mod qp;
mod srq;
mod uar;

pub(super) use cq::{CQ_FLAGS, CqRequest};
pub(super) use device::{COMPLETION_VECTORS, CORE_SUPPORT};
pub(super) use qp::{QP_CREATE_FLAGS, QP_CREATE_SQ_SIG_ALL, QpRequest, check_creation_flags};
pub(super) use srq::SrqRequest;

use std::sync::Arc;

use libc::EINVAL;

use super::backend::Backend;
use super::context::{ContextState, DeviceFile};
use super::files::files;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{ChannelId, ContextId, Result};
use crate::sync::MutexGuard;

/// A command that is executed on an open device, under the device's lock.
pub(super) struct Call<'a> {
    file: &'a Arc<DeviceFile>,
    state: MutexGuard<'a, ContextState>,
}

impl<'a> Call<'a> {
    pub(super) fn new(file: &'a Arc<DeviceFile>) -> Self {
        Self {
            file,
            state: file.lock(),
        }
    }

    fn backend(&self) -> &'a dyn Backend {
        self.file.backend()
    }

    /// Returns the context; `EINVAL` before `GET_CONTEXT`, as in the kernel's
    /// `ib_uverbs_get_ucontext_file`.
    fn context(&self) -> Result<ContextId> {
        self.state.context.or_refuse(
            EINVAL,
            "the descriptor has no context yet: GET_CONTEXT comes first",
        )
    }
}

/// Returns the event file behind a descriptor of the application.
fn event_file(fd: Option<i32>) -> Result<Option<ChannelId>> {
    fd.map(|fd| files().events(fd)).transpose()
}

/// Checks the alignment of a ring address, which the device's page offset limits.
fn check_aligned(address: u64, alignment: u64) -> Result<()> {
    refuse_if(
        !address.is_multiple_of(alignment),
        EINVAL,
        "a ring or a doorbell record is not aligned",
    )
}
