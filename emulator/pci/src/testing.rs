//! A guest for the tests: memory, and a driver that gives commands as mlx5_core does.

use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mlx5emu::config::{Config, Mode};
use mlx5emu::emulator::Emulator;
use vfio_user::{DmaMapFlags, ServerBackend};

use crate::bits::Field;
use crate::commands::{BAR, Function};
use crate::device::Device;
use crate::events::{Events, Sink};
use crate::layout::command_in;
use crate::memory::PAGE;

/// Size of the guest's memory.
pub(crate) const MEMORY: u64 = 256 * PAGE;
/// Where the guest keeps the queue of commands, and the mailboxes for commands and results:
/// behind the rest of its memory, which objects of any kind may use. Random commands must not
/// name it, so few of its bytes are 0.
pub(crate) const QUEUE: u64 = 0x7b_5d93_6000;
const INPUT: u64 = QUEUE + 16 * PAGE;
const OUTPUT: u64 = QUEUE + 32 * PAGE;

/// Returns a file in memory.
pub(crate) fn memory_file(length: u64) -> File {
    // SAFETY: a name that ends with 0; the descriptor is a new one.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"guest".as_ptr(), 0)) };
    file.set_len(length).unwrap();
    file
}

/// Returns the emulator of the process, which the test steps, and its events.
pub(crate) fn emulator() -> (&'static Emulator, Arc<Events>) {
    static EVENTS: OnceLock<Arc<Events>> = OnceLock::new();
    let events = EVENTS.get_or_init(Arc::default);
    let config = Config {
        mode: Mode::Stepped,
        ..Config::default()
    };
    let emulator = Emulator::start(config, Box::new(Sink::new(Arc::clone(events), false))).unwrap();
    (emulator, Arc::clone(events))
}

/// A guest with the device. One at a time, since a process has one emulator.
pub(crate) struct Guest {
    pub(crate) device: Device,
    memory: File,
    queue: File,
    pub(crate) bar: File,
    pub(crate) emulator: &'static Emulator,
    _one: MutexGuard<'static, ()>,
}

impl Guest {
    pub(crate) fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (emulator, events) = emulator();
        let bar = memory_file(BAR);
        let copy = |file: &File| file.try_clone().unwrap();
        let function = Function::new(emulator, 0, Arc::clone(&events), copy(&bar), None).unwrap();
        let mut device = Device::new(function, events, copy(&bar));
        let memory = memory_file(MEMORY);
        let queue = memory_file(MEMORY);
        for (at, file) in [(0, &memory), (QUEUE, &queue)] {
            let share = Some(copy(file));
            device
                .dma_map(DmaMapFlags::READ_WRITE, 0, at, MEMORY, share)
                .unwrap();
        }
        let mut guest = Self {
            device,
            memory,
            queue,
            bar,
            emulator,
            _one: one,
        };
        guest.set_queue();
        guest
    }

    /// Tells the device where the queue of commands is.
    pub(crate) fn set_queue(&mut self) {
        self.set_register(0x10, (QUEUE >> 32) as u32);
        self.set_register(0x14, QUEUE as u32);
    }

    /// Returns the file of an address, and the offset in it.
    fn place(&self, at: u64) -> (&File, u64) {
        match at.checked_sub(QUEUE) {
            Some(offset) => (&self.queue, offset),
            None => (&self.memory, at),
        }
    }

    pub(crate) fn register(&mut self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.device.region_read(0, at, &mut word).unwrap();
        u32::from_be_bytes(word)
    }

    pub(crate) fn set_register(&mut self, at: u64, value: u32) {
        self.device
            .region_write(0, at, &value.to_be_bytes())
            .unwrap();
    }

    pub(crate) fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let (file, offset) = self.place(at);
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let (file, offset) = self.place(at);
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Puts a command into slot 0, with mailboxes for `room` bytes of result.
    pub(crate) fn put(&self, input: &[u8], room: usize) {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[0x04..0x08].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[0x08..0x10].copy_from_slice(&INPUT.to_be_bytes());
        let inline = input.len().min(16);
        entry[0x10..][..inline].copy_from_slice(&input[..inline]);
        entry[0x30..0x38].copy_from_slice(&OUTPUT.to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(room as u32).to_be_bytes());
        entry[0x3f] = 1;
        for (at, piece) in (INPUT..).step_by(1024).zip(input[inline..].chunks(512)) {
            self.write(at, piece);
            self.write(at + 560, &(at + 1024).to_be_bytes());
        }
        for at in (OUTPUT..).step_by(1024).take(room.div_ceil(512)) {
            self.write(at + 560, &(at + 1024).to_be_bytes());
        }
        self.write(QUEUE, &entry);
    }

    /// Gives a command, of at least 16 bytes. Returns its result.
    pub(crate) fn command(&mut self, input: &[u8], room: usize) -> Vec<u8> {
        self.put(input, room);
        self.set_register(0x18, 1);
        let entry = self.read(QUEUE, 64);
        assert_eq!(
            entry[0x3f], 0,
            "the entry is the guest's again, and was delivered"
        );
        let mut output = entry[0x20..0x30].to_vec();
        let mut at = OUTPUT;
        while output.len() < room {
            output.extend(self.read(at, (room - output.len()).min(512)));
            at += 1024;
        }
        output
    }

    /// Gives a command that must succeed, with fields at 16 and pages at 272.
    pub(crate) fn succeed(
        &mut self,
        opcode: u16,
        fields: &[(Field, u64)],
        pages: &[u64],
    ) -> Vec<u8> {
        let output = self.command(&command(opcode, fields, pages), 272);
        assert_eq!(output[0], 0, "status of {opcode:#x}");
        output
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.device.disconnect();
    }
}

/// Returns the bytes of a command.
pub(crate) fn command(opcode: u16, fields: &[(Field, u64)], pages: &[u64]) -> Vec<u8> {
    let mut input = vec![0; 272 + 8 * pages.len().div_ceil(2) * 2];
    command_in::OPCODE.set(&mut input, opcode.into());
    for (field, value) in fields {
        field.set(&mut input, *value);
    }
    for (at, page) in pages.iter().enumerate() {
        input[272 + 8 * at..][..8].copy_from_slice(&page.to_be_bytes());
    }
    input
}
