//! The interface from the kernel commands to the NIC.
//!
//! The methods for objects are those of [`crate::nic`]'s `Nic`. The trait allows
//! tests of the command parsing without a NIC, its thread and a fabric.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::events::Events;
use crate::fabric::name::DeviceIdentity;
use crate::spec::{
    ContextId, CqBuffer, CqSpec, Cqn, MrKeys, MrSpec, MwKeys, MwSpec, PdId, PortAddress, QpAttr,
    QpSpec, Qpn, Result, SrqSpec, Srqn, UarPage, WallClock,
};

/// The device behind a command descriptor. Every method may be called from any
/// thread; the errors are those that the command returns.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait Backend: Send + Sync {
    /// Returns the event files for the events of all objects.
    fn events(&self) -> &Arc<Events>;
    /// Returns the relation of the device clock to the time of day.
    fn wall_clock(&self) -> WallClock;
    /// Returns GUID, GIDs and LIDs of a device.
    fn identity(&self, device: u8) -> DeviceIdentity;

    fn port_is_up(&self, port: PortAddress) -> bool;

    fn open_context(&self, device: u8) -> Result<ContextId>;
    fn close_context(&self, context: ContextId);

    /// Records that the application has mapped a doorbell page of the file `memory`
    /// at `address`.
    fn page_mapped(&self, page: UarPage, address: usize, memory: BorrowedFd<'_>) -> Result<()>;
    /// Records that the application has unmapped a range, which may contain doorbell
    /// pages.
    fn unmapped(&self, address: usize, len: usize);
    /// Removes a doorbell page that the application has released.
    fn remove_page(&self, page: UarPage);

    fn alloc_pd(&self, context: ContextId) -> Result<PdId>;
    fn dealloc_pd(&self, pd: PdId) -> Result<()>;
    fn reg_mr(&self, spec: &MrSpec) -> Result<MrKeys>;
    /// Changes a region to `spec`; its keys stay the same.
    fn rereg_mr(&self, handle: u32, spec: &MrSpec, moved: bool) -> Result<()>;
    fn dereg_mr(&self, context: ContextId, handle: u32) -> Result<()>;
    fn alloc_mw(&self, spec: &MwSpec) -> Result<MwKeys>;
    fn dealloc_mw(&self, context: ContextId, handle: u32) -> Result<()>;
    fn create_cq(&self, spec: &CqSpec) -> Result<Cqn>;
    fn resize_cq(&self, cq: Cqn, to: &CqBuffer) -> Result<()>;
    fn destroy_cq(&self, cq: Cqn) -> Result<()>;
    fn create_srq(&self, spec: &SrqSpec) -> Result<Srqn>;
    fn modify_srq_limit(&self, srq: Srqn, limit: u32) -> Result<()>;
    /// Returns (receives, segments, limit).
    fn query_srq(&self, srq: Srqn) -> Result<(u32, u32, u32)>;
    fn destroy_srq(&self, srq: Srqn) -> Result<()>;
    fn create_qp(&self, spec: &QpSpec) -> Result<Qpn>;
    fn modify_qp(&self, qp: Qpn, attributes: &QpAttr) -> Result<()>;
    fn query_qp(&self, qp: Qpn) -> Result<QpAttr>;
    fn destroy_qp(&self, qp: Qpn) -> Result<()>;
}
