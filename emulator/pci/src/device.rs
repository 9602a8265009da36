//! The PCI device: what the client's messages read and write.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::commands::{BAR, FIRST_UAR, Function};
use crate::config_space;
use crate::events::{Events, INTERRUPTS};
use crate::mailbox::{self, LOG_ENTRIES, LOG_STRIDE};
use crate::memory::PAGE;

/// The registers of the initialisation segment that are not constant.
mod register {
    pub(super) const QUEUE_HIGH: u64 = 0x10;
    pub(super) const QUEUE_LOW: u64 = 0x14;
    pub(super) const DOORBELL: u64 = 0x18;
    pub(super) const CLOCK_HIGH: u64 = 0x1000;
    pub(super) const CLOCK_LOW: u64 = 0x1004;
    pub(super) const HEALTH_COUNTER: u64 = 0x1010;
}
/// Version of the firmware, in the halves of two words as the segment has it: 22.0.0, and of
/// the command interface.
const FIRMWARE: u32 = 22;
const COMMAND_INTERFACE: u32 = 5 << 16;
/// End of the registers in BAR 0.
const REGISTERS: u64 = FIRST_UAR as u64 * PAGE;

/// The device as its client sees it.
pub struct Device {
    function: Function,
    events: Arc<Events>,
    bar: File,
    config: [u8; config_space::SIZE],
    /// Address of the queue of commands in the guest's memory.
    queue: u64,
    /// The state of the interface that the driver has set; 0 is normal operation.
    interface: u32,
    /// Counts the readings of the health counter, which must change.
    health: u32,
}

impl Device {
    /// Returns a device after power-on, whose BAR 0 is this file.
    #[must_use]
    pub fn new(function: Function, events: Arc<Events>, bar: File) -> Self {
        Self {
            function,
            events,
            bar,
            config: config_space::new(INTERRUPTS),
            queue: 0,
            interface: 0,
            health: 0,
        }
    }

    /// Brings the device to the state after power-on, except what the client shares.
    pub fn reset_all(&mut self) {
        self.function.reset();
        self.config = config_space::new(INTERRUPTS);
        (self.queue, self.interface) = (0, 0);
    }

    /// Forgets a client: its memory and interrupts too.
    pub fn disconnect(&mut self) {
        self.reset_all();
        self.events.listen_to_none();
        let _unmapped = self.function.memory.unshare(0, u64::MAX);
        self.clear_bar();
    }

    /// Clears the doorbell pages: what a client stored last is no doorbell of the next one.
    fn clear_bar(&self) {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let length = i64::try_from(BAR).unwrap_or(0);
        // SAFETY: takes pages out of a file in memory; who maps it finds zeros there.
        unsafe { libc::fallocate(self.bar.as_raw_fd(), how, 0, length) };
    }

    /// Returns a register of the initialisation segment.
    fn register(&mut self, at: u64) -> u32 {
        let clock = || self.function.clock();
        match at {
            0x00 => FIRMWARE,
            0x04 => COMMAND_INTERFACE,
            register::QUEUE_HIGH => (self.queue >> 32) as u32,
            register::QUEUE_LOW => self.interface << 8 | LOG_ENTRIES << 4 | LOG_STRIDE,
            register::CLOCK_HIGH => (clock() >> 32) as u32,
            register::CLOCK_LOW => clock() as u32,
            register::HEALTH_COUNTER => {
                self.health = (self.health + 1) & 0x00ff_ffff;
                self.health
            }
            _ => 0,
        }
    }

    fn set_register(&mut self, at: u64, value: u32) {
        match at {
            register::QUEUE_HIGH => self.queue = u64::from(value) << 32 | self.queue & 0xffff_ffff,
            register::QUEUE_LOW => {
                self.queue = self.queue & !0xffff_ffff | u64::from(value & 0xffff_f000);
                self.interface = value >> 8 & 0x3;
            }
            register::DOORBELL => self.execute(value),
            _ => {}
        }
    }

    /// Executes the commands of these slots, one bit each.
    fn execute(&mut self, slots: u32) {
        for slot in (0..1 << LOG_ENTRIES).filter(|slot| slots >> slot & 1 != 0) {
            // A command's event goes to a queue that existed before the command.
            let event_queue = self.events.command_queue();
            let memory = &self.function.memory;
            match mailbox::read(memory, self.queue, slot) {
                None => continue,
                Some(Err(why)) => mailbox::refuse(memory, self.queue, slot, why),
                Some(Ok(request)) => {
                    let output = self.function.execute(&request.input, request.output_length);
                    mailbox::answer(&self.function.memory, &request, &output);
                }
            }
            if let Some(queue) = event_queue {
                self.events.commands_done(queue, 1 << slot);
            }
        }
    }
}

fn outside() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

impl ServerBackend for Device {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or_else(outside)?;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX if end <= self.config.len() as u64 => {
                data.copy_from_slice(&self.config[offset as usize..end as usize]);
            }
            VFIO_PCI_BAR0_REGION_INDEX if end <= REGISTERS => {
                for (at, byte) in (offset..).zip(data.iter_mut()) {
                    *byte = self.register(at & !3).to_be_bytes()[(at & 3) as usize];
                }
            }
            VFIO_PCI_BAR0_REGION_INDEX if end <= BAR && offset >= REGISTERS => {
                self.bar.read_exact_at(data, offset)?
            }
            _ => return Err(outside()),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or_else(outside)?;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX if end <= self.config.len() as u64 => {
                for (at, byte) in (offset as usize..).zip(data) {
                    if config_space::is_writable(at) {
                        self.config[at] = *byte;
                    }
                }
            }
            VFIO_PCI_BAR0_REGION_INDEX if end <= REGISTERS => {
                for (at, word) in (offset..).step_by(4).zip(data.chunks_exact(4)) {
                    let word = word.try_into().map_or(0, u32::from_be_bytes);
                    if at.is_multiple_of(4) {
                        self.set_register(at, word);
                    }
                }
            }
            VFIO_PCI_BAR0_REGION_INDEX if end <= BAR && offset >= REGISTERS => {
                self.bar.write_all_at(data, offset)?
            }
            _ => return Err(outside()),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // What is not shared as a file, the device does not reach.
        fd.map_or(Ok(()), |file| {
            self.function.memory.share(address, size, file, offset)
        })
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            return self.function.memory.unshare(0, u64::MAX);
        }
        self.function.memory.unshare(address, size)
    }

    fn reset(&mut self) -> io::Result<()> {
        self.reset_all();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return Ok(());
        }
        let trigger = flags & VFIO_IRQ_SET_ACTION_TRIGGER != 0;
        if trigger && flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            let end = start.saturating_add(count);
            self.events.listen(start..end, fds);
        } else if trigger && count == 0 {
            self.events.listen_to_none();
        }
        Ok(())
    }
}
