//! What the kernel face asks of the machine behind it.
//!
//! The methods that name objects are those of [`crate::nic`]'s `Nic`; the
//! trait keeps command parsing testable without a NIC, its thread or a fabric.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::events::Events;
use crate::fabric::name::DeviceIdentity;
use crate::nic::spec::{
    ContextId, CqBuffer, CqSpec, Cqn, MrKeys, MrSpec, MwKeys, MwSpec, PdId, PortAddress, QpAttr,
    QpSpec, Qpn, Result, SrqSpec, Srqn, UarPage, WallClock,
};

/// The device behind a command descriptor. Every method may be called from
/// any thread; errors are the ones the command answers.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait Machine: Send + Sync {
    /// Where events of this machine's objects are delivered.
    fn events(&self) -> &Arc<Events>;
    /// What the time of day is by the device's clock, if that goes.
    fn wall_clock(&self) -> Option<WallClock>;
    /// GUID, GID and LID of a device.
    fn identity(&self, device: u8) -> DeviceIdentity;

    /// Whether a port is up.
    fn port_is_up(&self, port: PortAddress) -> bool;

    fn open_context(&self, device: u8) -> Result<ContextId>;
    fn close_context(&self, context: ContextId);

    /// The application mapped a doorbell page at `address`; `memory` is the
    /// file it is a page of.
    fn page_mapped(&self, page: UarPage, address: usize, memory: BorrowedFd<'_>) -> Result<()>;
    /// The application unmapped a range; doorbell pages may be in it.
    fn unmapped(&self, address: usize, len: usize);
    /// The application released a doorbell page.
    fn remove_page(&self, page: UarPage);

    fn alloc_pd(&self, context: ContextId) -> Result<PdId>;
    fn dealloc_pd(&self, pd: PdId) -> Result<()>;
    fn reg_mr(&self, spec: &MrSpec) -> Result<MrKeys>;
    /// Changes a region to what the specification says; its keys stay.
    fn rereg_mr(&self, handle: u32, spec: &MrSpec, moved: bool) -> Result<()>;
    fn dereg_mr(&self, context: ContextId, handle: u32) -> Result<()>;
    fn alloc_mw(&self, spec: &MwSpec) -> Result<MwKeys>;
    fn dealloc_mw(&self, context: ContextId, handle: u32) -> Result<()>;
    fn create_cq(&self, spec: &CqSpec) -> Result<Cqn>;
    fn resize_cq(&self, cq: Cqn, to: &CqBuffer) -> Result<()>;
    fn destroy_cq(&self, cq: Cqn) -> Result<()>;
    fn create_srq(&self, spec: &SrqSpec) -> Result<Srqn>;
    fn modify_srq_limit(&self, srq: Srqn, limit: u32) -> Result<()>;
    /// Answers (receives, segments, limit).
    fn query_srq(&self, srq: Srqn) -> Result<(u32, u32, u32)>;
    fn destroy_srq(&self, srq: Srqn) -> Result<()>;
    fn create_qp(&self, spec: &QpSpec) -> Result<Qpn>;
    fn modify_qp(&self, qp: Qpn, attributes: &QpAttr) -> Result<()>;
    fn query_qp(&self, qp: Qpn) -> Result<QpAttr>;
    fn destroy_qp(&self, qp: Qpn) -> Result<()>;
}
