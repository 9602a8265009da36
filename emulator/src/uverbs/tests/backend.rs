//! A machine that accepts everything and remembers it.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use crate::fabric::name::{DeviceIdentity, FabricName};
use crate::nic::spec::{
    ContextId, CqBuffer, CqSpec, Cqn, MrKeys, MrSpec, MwKeys, MwSpec, PdId, PortAddress, QpAttr,
    QpSpec, Qpn, Result, SrqSpec, Srqn, UarPage, WallClock,
};
use crate::uverbs::{Backend, Events};

/// What was asked of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) cq: Option<CqSpec>,
    pub(super) qp: Option<QpSpec>,
    pub(super) srq: Option<SrqSpec>,
    pub(super) mr: Option<MrSpec>,
    pub(super) mw: Option<MwSpec>,
    pub(super) resized: Option<CqBuffer>,
    pub(super) rereg: Option<(u32, MrSpec, bool)>,
    pub(super) modified: Option<QpAttr>,
    pub(super) limit: Option<u32>,
    pub(super) closed: Vec<ContextId>,
    pub(super) removed_pages: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Recorder {
    pub(super) seen: Mutex<Seen>,
    pub(super) events: Arc<Events>,
    next: Mutex<u32>,
}

impl Recorder {
    fn note(&self, write_down: impl FnOnce(&mut Seen)) {
        write_down(&mut self.seen.lock().unwrap());
    }

    fn number(&self) -> u32 {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        *next
    }
}

impl Backend for Recorder {
    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn wall_clock(&self) -> Option<WallClock> {
        Some(WallClock {
            device: 5,
            nanoseconds: 1_000_000,
        })
    }

    fn identity(&self, device: u8) -> DeviceIdentity {
        DeviceIdentity::derive(&FabricName::default(), device)
    }

    fn port_is_up(&self, _port: PortAddress) -> bool {
        true
    }

    fn open_context(&self, _device: u8) -> Result<ContextId> {
        Ok(ContextId(self.number()))
    }

    fn close_context(&self, context: ContextId) {
        self.note(|seen| seen.closed.push(context));
    }

    fn page_mapped(&self, _page: UarPage, _address: usize, _: BorrowedFd<'_>) -> Result<()> {
        Ok(())
    }

    fn unmapped(&self, _address: usize, _len: usize) {}

    fn remove_page(&self, page: UarPage) {
        self.note(|seen| seen.removed_pages.push(page.page));
    }

    fn alloc_pd(&self, _context: ContextId) -> Result<PdId> {
        Ok(PdId(self.number()))
    }

    fn dealloc_pd(&self, _pd: PdId) -> Result<()> {
        Ok(())
    }

    fn reg_mr(&self, spec: &MrSpec) -> Result<MrKeys> {
        self.note(|seen| seen.mr = Some(*spec));
        let handle = self.number();
        Ok(MrKeys {
            handle,
            lkey: handle << 8,
            rkey: handle << 8,
        })
    }

    fn rereg_mr(&self, handle: u32, spec: &MrSpec, moved: bool) -> Result<()> {
        self.note(|seen| seen.rereg = Some((handle, *spec, moved)));
        Ok(())
    }

    fn dereg_mr(&self, _context: ContextId, _handle: u32) -> Result<()> {
        Ok(())
    }

    fn alloc_mw(&self, spec: &MwSpec) -> Result<MwKeys> {
        self.note(|seen| seen.mw = Some(*spec));
        let handle = self.number();
        Ok(MwKeys {
            handle,
            rkey: handle << 8,
        })
    }

    fn dealloc_mw(&self, _context: ContextId, _handle: u32) -> Result<()> {
        Ok(())
    }

    fn create_cq(&self, spec: &CqSpec) -> Result<Cqn> {
        self.note(|seen| seen.cq = Some(*spec));
        Ok(Cqn(self.number()))
    }

    fn resize_cq(&self, _cq: Cqn, to: &CqBuffer) -> Result<()> {
        self.note(|seen| seen.resized = Some(*to));
        Ok(())
    }

    fn destroy_cq(&self, _cq: Cqn) -> Result<()> {
        Ok(())
    }

    fn create_srq(&self, spec: &SrqSpec) -> Result<Srqn> {
        self.note(|seen| seen.srq = Some(*spec));
        Ok(Srqn(self.number()))
    }

    fn modify_srq_limit(&self, _srq: Srqn, limit: u32) -> Result<()> {
        self.note(|seen| seen.limit = Some(limit));
        Ok(())
    }

    fn query_srq(&self, _srq: Srqn) -> Result<(u32, u32, u32)> {
        Ok((0, 0, self.seen.lock().unwrap().limit.unwrap_or(0)))
    }

    fn destroy_srq(&self, _srq: Srqn) -> Result<()> {
        Ok(())
    }

    fn create_qp(&self, spec: &QpSpec) -> Result<Qpn> {
        self.note(|seen| seen.qp = Some(*spec));
        Ok(Qpn(self.number()))
    }

    fn modify_qp(&self, _qp: Qpn, attributes: &QpAttr) -> Result<()> {
        self.note(|seen| seen.modified = Some(*attributes));
        Ok(())
    }

    fn query_qp(&self, _qp: Qpn) -> Result<QpAttr> {
        Ok(self.seen.lock().unwrap().modified.unwrap_or_default())
    }

    fn destroy_qp(&self, _qp: Qpn) -> Result<()> {
        Ok(())
    }
}
