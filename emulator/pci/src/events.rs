//! Event queues and interrupts: completion events, asynchronous events and those of commands.
//!
//! The guest's driver creates the queues. The NIC reports events on its own thread, commands are
//! executed on another, so all of it is under one lock, which is taken behind that of the NIC.
//!
//! Every event raises the interrupt of its queue: a doorbell that arms an event queue may be
//! overwritten by the next one on its page before it is seen, and an interrupt that finds no
//! event does no harm.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5emu::nic::memory;
use mlx5emu::spec::{AsyncEvent, AsyncObject, ChannelId, ContextId, Cqn, EventSink};

use crate::memory::Pages;

/// Size of an event queue entry in bytes.
pub const EQE: u64 = 64;
/// Number of interrupts of the device (MSI-X).
pub const INTERRUPTS: usize = 64;
/// Offsets in an entry: its type, the type of a port's change, the data, the owner bit.
const TYPE: usize = 1;
const SUBTYPE: usize = 3;
const DATA: usize = 32;
const OWNER: usize = 63;
/// Length of the data in bytes.
const DATA_LENGTH: usize = 28;

/// The types of events (`enum mlx5_event`).
mod event {
    pub(super) const COMPLETION: u8 = 0x00;
    pub(super) const COMM_EST: u8 = 0x02;
    pub(super) const SQ_DRAINED: u8 = 0x03;
    pub(super) const CQ_ERROR: u8 = 0x04;
    pub(super) const WQ_CATAS_ERROR: u8 = 0x05;
    pub(super) const INTERNAL_ERROR: u8 = 0x08;
    pub(super) const PORT_CHANGE: u8 = 0x09;
    pub(super) const COMMAND: u8 = 0x0a;
    pub(super) const WQ_INVALID_REQUEST: u8 = 0x10;
    pub(super) const WQ_ACCESS_ERROR: u8 = 0x11;
    pub(super) const SRQ_CATAS_ERROR: u8 = 0x12;
    pub(super) const SRQ_LAST_WQE: u8 = 0x13;
    pub(super) const SRQ_LIMIT: u8 = 0x14;
}

/// Changes of a port (`enum mlx5_port_change_subtype`).
const PORT_DOWN: u8 = 1;
const PORT_ACTIVE: u8 = 4;
const PORT_GUID: u8 = 8;

/// An event queue.
#[derive(Debug)]
pub struct EventQueue {
    /// The pages of the ring, and its address.
    pub _pages: Pages,
    pub ring: u64,
    /// log2 of the number of entries.
    pub log_size: u32,
    /// The interrupt.
    pub vector: usize,
    /// The types of events that it gets, one bit each. Completion events go to the queue that
    /// the completion queue names.
    pub types: u64,
    /// Number of entries written.
    pub produced: u64,
}

impl EventQueue {
    /// Writes an entry, the owner bit last. Memory that the guest has taken away gets none.
    fn write(&mut self, kind: u8, subtype: u8, data: &[u8]) {
        let entries = 1 << self.log_size;
        let at = self.ring + self.produced % entries * EQE;
        let mut entry = [0; EQE as usize];
        entry[TYPE] = kind;
        entry[SUBTYPE] = subtype;
        entry[DATA..][..data.len()].copy_from_slice(data);
        // The owner bit changes with every wrap of the ring.
        entry[OWNER] = u8::from(self.produced & entries != 0);
        let written = memory::write(at, &entry[..OWNER]);
        let _fault = written.and_then(|()| memory::publish_byte(at + OWNER as u64, entry[OWNER]));
        self.produced += 1;
    }
}

/// The event queues of the device, and its interrupts.
#[derive(Debug, Default)]
pub struct Events(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<u8, EventQueue>,
    /// The descriptor of each interrupt that the client listens to.
    interrupts: BTreeMap<usize, File>,
    /// The numbers of queues, by the handles under which the NIC knows them.
    numbers: HashMap<u64, u32>,
    next_handle: u64,
}

impl State {
    fn raise(&mut self, queue: u8, kind: u8, subtype: u8, data: &[u8]) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.write(kind, subtype, data);
            if let Some(mut interrupt) = self.interrupts.get(&queue.vector) {
                // An eventfd takes 8 bytes at once. One that is full has interrupts already.
                let _full = interrupt.write(&1_u64.to_ne_bytes());
            }
        }
    }

    /// Returns the queue that gets events of a type.
    fn queue_of(&self, kind: u8) -> Option<u8> {
        let gets = |queue: &EventQueue| queue.types & 1 << kind != 0;
        self.queues
            .iter()
            .find(|(_, queue)| gets(queue))
            .map(|(number, _)| *number)
    }

    fn number(&self, handle: u64) -> u32 {
        self.numbers.get(&handle).copied().unwrap_or(0)
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue. Returns its number, `None` if there are too many.
    pub fn add(&self, queue: EventQueue) -> Option<u8> {
        let mut state = self.lock();
        let number = (1..=u8::MAX).find(|number| !state.queues.contains_key(number))?;
        state.queues.insert(number, queue);
        Some(number)
    }

    /// Removes a queue. Returns whether there was one.
    pub fn remove(&self, number: u8) -> bool {
        self.lock().queues.remove(&number).is_some()
    }

    /// Removes all queues.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.queues.clear();
        state.numbers.clear();
    }

    /// Returns whether there is a queue with this number.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        u8::try_from(number).is_ok_and(|number| self.lock().queues.contains_key(&number))
    }

    /// Returns how many events a queue has got.
    #[must_use]
    pub fn produced(&self, number: u8) -> Option<u64> {
        self.lock().queues.get(&number).map(|queue| queue.produced)
    }

    /// Returns a new handle for a queue that the NIC is about to create.
    pub fn handle(&self) -> u64 {
        let mut state = self.lock();
        state.next_handle += 1;
        state.next_handle
    }

    /// Sets the number of the queue with a handle.
    pub fn name(&self, handle: u64, number: u32) {
        self.lock().numbers.insert(handle, number);
    }

    /// Forgets a handle.
    pub fn forget(&self, handle: u64) {
        self.lock().numbers.remove(&handle);
    }

    /// Sets where the interrupts with these numbers are reported. Those that are left without
    /// a descriptor are reported no more.
    pub fn listen(&self, numbers: std::ops::Range<u32>, descriptors: Vec<File>) {
        let mut descriptors = descriptors.into_iter();
        let mut state = self.lock();
        for number in numbers.start..numbers.end.min(INTERRUPTS as u32) {
            // A descriptor that stays blocking could stop the NIC.
            match descriptors.next().filter(set_non_blocking) {
                Some(descriptor) => state.interrupts.insert(number as usize, descriptor),
                None => state.interrupts.remove(&(number as usize)),
            };
        }
    }

    /// Reports no interrupt any more.
    pub fn listen_to_none(&self) {
        self.lock().interrupts.clear();
    }

    /// Returns the queue that gets the events of commands.
    #[must_use]
    pub fn command_queue(&self) -> Option<u8> {
        self.lock().queue_of(event::COMMAND)
    }

    /// Reports that the commands of these slots, one bit each, are executed, if the queue is
    /// still there.
    pub fn commands_done(&self, queue: u8, slots: u32) {
        self.lock()
            .raise(queue, event::COMMAND, 0, &slots.to_be_bytes());
    }
}

/// Makes writes to a descriptor fail where they would wait. Returns whether they do.
fn set_non_blocking(descriptor: &File) -> bool {
    let fd = descriptor.as_raw_fd();
    // SAFETY: these change flags of a descriptor that is open; no memory is accessed.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    }
}

/// What the NIC reports to.
pub struct Sink {
    events: Arc<Events>,
    /// Whether failures are explained on standard error.
    explains: bool,
}

impl Sink {
    /// Returns a sink for these queues.
    #[must_use]
    pub fn new(events: Arc<Events>, explains: bool) -> Self {
        Self { events, explains }
    }
}

impl EventSink for Sink {
    fn completion(&self, channel: ChannelId, cq: Cqn, _: u64) {
        let mut data = [0; DATA_LENGTH];
        data[24..].copy_from_slice(&cq.0.to_be_bytes());
        let queue = u8::try_from(channel.0).unwrap_or(0);
        self.events.lock().raise(queue, event::COMPLETION, 0, &data);
    }

    fn asynchronous(&self, _: ContextId, event: AsyncEvent, object: AsyncObject) {
        let mut state = self.events.lock();
        let (kind, subtype) = match event {
            AsyncEvent::CqErr => (event::CQ_ERROR, 0),
            AsyncEvent::QpFatal => (event::WQ_CATAS_ERROR, 0),
            AsyncEvent::QpReqErr => (event::WQ_INVALID_REQUEST, 0),
            AsyncEvent::QpAccessErr => (event::WQ_ACCESS_ERROR, 0),
            AsyncEvent::CommEst => (event::COMM_EST, 0),
            AsyncEvent::SqDrained => (event::SQ_DRAINED, 0),
            AsyncEvent::DeviceFatal => (event::INTERNAL_ERROR, 0),
            AsyncEvent::PortActive => (event::PORT_CHANGE, PORT_ACTIVE),
            AsyncEvent::PortErr => (event::PORT_CHANGE, PORT_DOWN),
            AsyncEvent::GidChange => (event::PORT_CHANGE, PORT_GUID),
            AsyncEvent::SrqErr => (event::SRQ_CATAS_ERROR, 0),
            AsyncEvent::SrqLimitReached => (event::SRQ_LIMIT, 0),
            AsyncEvent::QpLastWqeReached => (event::SRQ_LAST_WQE, 0),
        };
        let mut data = [0; DATA_LENGTH];
        match object {
            AsyncObject::Cq(handle) => {
                data[..4].copy_from_slice(&state.number(handle).to_be_bytes());
                // Overrun.
                data[11] = 1;
            }
            AsyncObject::Qp(handle) | AsyncObject::Srq(handle) => {
                data[24..].copy_from_slice(&state.number(handle).to_be_bytes());
            }
            AsyncObject::Port(port) => data[8] = port << 4,
            AsyncObject::Device => {}
        }
        if let Some(queue) = state.queue_of(kind) {
            state.raise(queue, kind, subtype, &data);
        }
    }

    fn explain(&self, text: &str) {
        if self.explains {
            eprintln!("mlx5-emu pci: {text}");
        }
    }

    fn warn(&self, text: &str) {
        eprintln!("mlx5-emu pci: {text}");
    }
}
