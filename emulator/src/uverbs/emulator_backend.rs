//! The implementation of [`Backend`] by this process's emulator.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::backend::Backend;
use super::events::Events;
use crate::emulator::Emulator;
use crate::fabric::name::DeviceIdentity;
use crate::spec::{
    ContextId, CqBuffer, CqSpec, Cqn, Errno, MrKeys, MrSpec, MwKeys, MwSpec, PdId, PortAddress,
    QpAttr, QpSpec, Qpn, Result, SrqSpec, Srqn, UarPage, WallClock,
};

/// The emulator, and the event files to which its NIC delivers events.
pub struct EmulatorBackend {
    emulator: &'static Emulator,
    events: Arc<Events>,
}

impl EmulatorBackend {
    /// Returns the backend for an emulator that was started with `events`.
    #[must_use]
    pub fn new(emulator: &'static Emulator, events: Arc<Events>) -> Self {
        Self { emulator, events }
    }
}

impl Backend for EmulatorBackend {
    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn wall_clock(&self) -> WallClock {
        self.emulator.wall_clock()
    }

    fn identity(&self, device: u8) -> DeviceIdentity {
        self.emulator.device_identity(device)
    }

    fn port_is_up(&self, port: PortAddress) -> bool {
        self.emulator.nic().port_is_up(port)
    }

    fn open_context(&self, device: u8) -> Result<ContextId> {
        self.emulator.nic().open_context(device)
    }

    fn close_context(&self, context: ContextId) {
        self.emulator.nic().close_context(context);
    }

    fn page_mapped(&self, page: UarPage, address: usize, memory: BorrowedFd<'_>) -> Result<()> {
        let mapped = self.emulator.map_page(page, address, memory);
        mapped.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)))
    }

    fn unmapped(&self, address: usize, len: usize) {
        self.emulator.uar().remove_mapping(address, len);
    }

    fn remove_page(&self, page: UarPage) {
        self.emulator.uar().remove_page(page);
    }

    fn alloc_pd(&self, context: ContextId) -> Result<PdId> {
        self.emulator.nic().alloc_pd(context)
    }

    fn dealloc_pd(&self, pd: PdId) -> Result<()> {
        self.emulator.nic().dealloc_pd(pd)
    }

    fn reg_mr(&self, spec: &MrSpec) -> Result<MrKeys> {
        self.emulator.nic().reg_mr(spec)
    }

    fn rereg_mr(&self, handle: u32, spec: &MrSpec, moved: bool) -> Result<()> {
        self.emulator.nic().rereg_mr(handle, spec, moved)
    }

    fn dereg_mr(&self, context: ContextId, handle: u32) -> Result<()> {
        self.emulator.nic().dereg_mr(context, handle)
    }

    fn alloc_mw(&self, spec: &MwSpec) -> Result<MwKeys> {
        self.emulator.nic().alloc_mw(spec)
    }

    fn dealloc_mw(&self, context: ContextId, handle: u32) -> Result<()> {
        self.emulator.nic().dealloc_mw(context, handle)
    }

    fn create_cq(&self, spec: &CqSpec) -> Result<Cqn> {
        self.emulator.nic().create_cq(spec)
    }

    fn resize_cq(&self, cq: Cqn, to: &CqBuffer) -> Result<()> {
        self.emulator.nic().resize_cq(cq, to)
    }

    fn destroy_cq(&self, cq: Cqn) -> Result<()> {
        self.emulator.nic().destroy_cq(cq)
    }

    fn create_srq(&self, spec: &SrqSpec) -> Result<Srqn> {
        self.emulator.nic().create_srq(spec)
    }

    fn modify_srq_limit(&self, srq: Srqn, limit: u32) -> Result<()> {
        self.emulator.nic().modify_srq_limit(srq, limit)
    }

    fn query_srq(&self, srq: Srqn) -> Result<(u32, u32, u32)> {
        self.emulator.nic().query_srq(srq)
    }

    fn destroy_srq(&self, srq: Srqn) -> Result<()> {
        self.emulator.nic().destroy_srq(srq)
    }

    fn create_qp(&self, spec: &QpSpec) -> Result<Qpn> {
        self.emulator.nic().create_qp(spec)
    }

    fn modify_qp(&self, qp: Qpn, attributes: &QpAttr) -> Result<()> {
        self.emulator.nic_after_packets().modify_qp(qp, attributes)
    }

    fn query_qp(&self, qp: Qpn) -> Result<QpAttr> {
        self.emulator.nic().query_qp(qp)
    }

    fn destroy_qp(&self, qp: Qpn) -> Result<()> {
        self.emulator.nic_after_packets().destroy_qp(qp)
    }
}
