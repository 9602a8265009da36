//! The function of the device that the guest's driver has enabled, and its simple objects.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

use mlx5emu::emulator::Emulator;
use mlx5emu::spec::{ContextId, PdId, UarPage};

use super::{OBJECT, Outcome, Status, command_in};
use crate::events::Events;
use crate::keys::{Changes, Keys, addresses};
use crate::memory::{GuestMemory, PAGE, Pages};

/// Size of BAR 0 in bytes.
pub const BAR: u64 = 32 << 20;
/// The first page of BAR 0 that is a doorbell page.
pub const FIRST_UAR: u32 = 16;

/// A queue or region that the NIC knows, and the pages that it uses.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) pages: Option<Pages>,
    /// The handle in events; 0 if it has none.
    pub(super) handle: u64,
    /// The context that created it, for queries.
    pub(super) context: Vec<u8>,
}

/// The kinds of objects with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Key,
    Window,
    Cq,
    Qp,
    Srq,
}

/// The device's function.
pub struct Function {
    pub(super) emulator: &'static Emulator,
    /// Number of the device on the fabric.
    pub(super) device: u8,
    pub memory: Arc<GuestMemory>,
    pub(super) keys: Arc<Keys>,
    pub(super) events: Arc<Events>,
    /// BAR 0, of which the client maps the doorbell pages.
    bar: File,
    enabled: Option<ContextId>,
    /// The domain of queue pairs that name none.
    own_domain: Option<PdId>,
    pub(super) objects: HashMap<(Kind, u32), Object>,
    uars: HashSet<u32>,
    /// Set by the driver: completions have user indices.
    pub(super) cqe_version: u8,
    next_number: u32,
    trace: Option<File>,
}

impl Function {
    /// Returns the function of a device, which the guest has not enabled.
    ///
    /// # Errors
    /// Returns the system's error if the guest's addresses cannot be reserved.
    pub fn new(
        emulator: &'static Emulator,
        device: u8,
        events: Arc<Events>,
        bar: File,
        trace: Option<File>,
    ) -> std::io::Result<Self> {
        let memory = Arc::new(GuestMemory::new()?);
        let keys = Arc::new(Keys::default());
        let changes = Changes {
            keys: Arc::clone(&keys),
            memory: Arc::clone(&memory),
        };
        emulator.nic().set_translator(Box::new(changes));
        Ok(Self {
            emulator,
            device,
            memory,
            keys,
            events,
            bar,
            enabled: None,
            own_domain: None,
            objects: HashMap::new(),
            uars: HashSet::new(),
            cqe_version: 0,
            next_number: 1,
            trace,
        })
    }

    /// Returns the time of the device's clock.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.emulator.wall_clock().device
    }

    /// Returns the context of all objects.
    pub(super) fn context(&self) -> Result<ContextId, Status> {
        self.enabled.ok_or(Status::BadSystemState)
    }

    /// Destroys all objects, as a reset of the function does.
    pub fn reset(&mut self) {
        let page = |context, page| UarPage { context, page };
        if let Some(context) = self.enabled.take() {
            self.emulator.nic().close_context(context);
            for uar in self.uars.drain() {
                self.emulator.forget_page(page(context, uar));
            }
        }
        // Only now, since the NIC used their pages.
        self.objects.clear();
        self.keys.lock().clear();
        self.events.clear();
        self.own_domain = None;
        self.cqe_version = 0;
    }

    /// Returns the domain of queue pairs that name none.
    pub(super) fn own_domain(&mut self) -> Result<PdId, Status> {
        let context = self.context()?;
        if let Some(domain) = self.own_domain {
            return Ok(domain);
        }
        let domain = self.emulator.nic().alloc_pd(context)?;
        self.own_domain = Some(domain);
        Ok(domain)
    }

    /// Maps the pages of a queue: `list` are the addresses in a command. The queue begins
    /// `offset` 64ths of a page behind the first. Returns the pages, and the address of the
    /// queue's `length` bytes.
    pub(super) fn ring(
        &self,
        list: &[u8],
        log_size: u32,
        offset: u64,
        length: u64,
    ) -> Result<(Pages, u64), Status> {
        let size = page_size(log_size)?;
        let offset = offset * (size / 64);
        let count = (offset + length).div_ceil(size);
        let pages = self.pages(list, count, size)?;
        let address = pages.address(offset, length).ok_or(Status::BadParameter)?;
        Ok((pages, address))
    }

    /// Maps `count` pages of a list. The lowest bits of an address are rights.
    pub(super) fn pages(&self, list: &[u8], count: u64, size: u64) -> Result<Pages, Status> {
        let available = list.len() as u64 / 8;
        if count == 0 || count > available {
            return Err(Status::BadParameter);
        }
        let addresses: Vec<_> = addresses(list).take(count as usize).collect();
        let mapped = self.memory.map_pages(&addresses, size);
        Ok(mapped?)
    }

    /// Returns the address of a doorbell record.
    pub(super) fn record(&self, guest: u64) -> Result<u64, Status> {
        self.memory.address(guest, 8).ok_or(Status::BadParameter)
    }

    /// Returns a doorbell page that the guest has allocated.
    pub(super) fn uar(&self, page: u32) -> Result<UarPage, Status> {
        let context = self.context()?;
        let known = self.uars.contains(&page);
        known
            .then_some(UarPage { context, page })
            .ok_or(Status::BadParameter)
    }

    pub(super) fn add(&mut self, kind: Kind, number: u32, object: Object) {
        if object.handle != 0 {
            self.events.name(object.handle, number);
        }
        self.objects.insert((kind, number), object);
    }

    pub(super) fn remove(&mut self, kind: Kind, number: u32) {
        if let Some(object) = self.objects.remove(&(kind, number)) {
            self.events.forget(object.handle);
        }
    }

    pub(super) fn trace(
        &mut self,
        opcode: u16,
        name: Option<&str>,
        input: &[u8],
        outcome: Outcome,
    ) {
        let Some(file) = &mut self.trace else { return };
        let name = name.unwrap_or("unknown command");
        let modifier = command_in::OP_MOD.get(input);
        let number = OBJECT.get(input);
        let outcome = outcome.map_or_else(
            |status| format!("{status:?} ({:#x})", status as u8),
            |()| "ok".into(),
        );
        let line = format!(
            "{name} (opcode {opcode:#x}, modifier {modifier:#x}, object {number:#x}): {outcome}\n"
        );
        // A trace that cannot be written ends no device.
        let _unwritten = file.write_all(line.as_bytes());
    }
}

/// Returns the size of a page from its binary logarithm above 4 KiB.
fn page_size(log: u32) -> Result<u64, Status> {
    (log <= 28).then(|| PAGE << log).ok_or(Status::BadParameter)
}

pub(super) fn enable(function: &mut Function, _: &[u8], _: &mut [u8]) -> Outcome {
    if function.enabled.is_none() {
        let context = function.emulator.nic().open_context(function.device)?;
        function.enabled = Some(context);
    }
    Ok(())
}

pub(super) fn disable(function: &mut Function, _: &[u8], _: &mut [u8]) -> Outcome {
    function.reset();
    Ok(())
}

/// Everything but the queues of events is gone; the driver destroys these before.
pub(super) fn tear_down(function: &mut Function, _: &[u8], _: &mut [u8]) -> Outcome {
    if function.enabled.is_some() {
        function.reset();
        enable(function, &[], &mut [])?;
    }
    Ok(())
}

pub(super) fn allocate_domain(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    let context = function.context()?;
    let domain = function.emulator.nic().alloc_pd(context)?;
    OBJECT.set(output, domain.0.into());
    Ok(())
}

pub(super) fn free_domain(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    function.context()?;
    Ok(function
        .emulator
        .nic()
        .dealloc_pd(PdId(OBJECT.get32(input)))?)
}

pub(super) fn allocate_page(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    let context = function.context()?;
    let pages = (BAR / PAGE) as u32;
    let free = (FIRST_UAR..pages).find(|page| !function.uars.contains(page));
    let page = free.ok_or(Status::Limit)?;
    let name = UarPage { context, page };
    let watched = function.emulator.watch_page(name, function.bar.as_fd());
    watched.map_err(|_| Status::NoResources)?;
    function.uars.insert(page);
    OBJECT.set(output, page.into());
    Ok(())
}

pub(super) fn free_page(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let page = function.uar(OBJECT.get32(input))?;
    function.emulator.forget_page(page);
    function.uars.remove(&page.page);
    Ok(())
}

/// Counters of queues exist, but count nothing.
pub(super) fn allocate_counter(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    function.context()?;
    super::EVENT_QUEUE.set(output, 1);
    Ok(())
}

/// Objects that only have a number.
pub(super) fn allocate_number(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    function.context()?;
    OBJECT.set(output, function.next_number.into());
    function.next_number = function.next_number % 0xff_ffff + 1;
    Ok(())
}
