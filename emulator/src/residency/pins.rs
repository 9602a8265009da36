//! Pinned pages, for `--nasty pin`: the device reads and writes them although they have
//! left their addresses.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use super::ring::{Copy, Ring};
use crate::fork::PerProcess;
use crate::hidden::HiddenFile;
use crate::sync::Mutex;

/// Maximum number of buffers of a ring (`IORING_MAX_REG_BUFFERS`).
const BUFFERS: u16 = 1 << 14;

/// Bit of the addresses of pinned memory, which no memory of a program has. The number
/// of the buffer is above the offset in it, which 1 GiB is the limit of.
const PINNED: u64 = 1 << 63;
const OFFSET_BITS: u32 = 32;

/// The pins of this process, if it has any.
static PINS: PerProcess<Mutex<Option<Pins>>> = PerProcess::new();

struct Pins {
    ring: Ring,
    /// Where the pages of each buffer were when they were pinned; `None` for a free one.
    starts: Vec<Option<u64>>,
    /// Through which bytes are copied.
    file: HiddenFile,
}

/// A pinned range.
#[derive(Debug)]
pub(crate) struct Pin(u16);

/// Prepares pinning.
///
/// # Errors
/// Returns the error of the kernel if it does not permit it.
pub(crate) fn open() -> io::Result<()> {
    let mut pins = PINS.get().lock();
    if pins.is_none() {
        // SAFETY: a C string.
        let file = unsafe { libc::memfd_create(c"mlx5emu-pinned".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor to us.
        let file = HiddenFile::new(unsafe { OwnedFd::from_raw_fd(file) });
        *pins = Some(Pins {
            ring: Ring::open(BUFFERS)?,
            starts: vec![None; BUFFERS.into()],
            file,
        });
    }
    Ok(())
}

impl Pin {
    /// Pins a range of whole pages.
    ///
    /// # Errors
    /// Returns the error of the kernel, `ENOSPC` if there are too many pins, `ENXIO`
    /// without [`open`].
    pub(crate) fn new(start: u64, bytes: u64) -> io::Result<Self> {
        let error = |code| move || io::Error::from_raw_os_error(code);
        let mut pins = PINS.get().lock();
        let pins = pins.as_mut().ok_or_else(error(libc::ENXIO))?;
        let free = pins.starts.iter().position(Option::is_none);
        let buffer = free.ok_or_else(error(libc::ENOSPC))?;
        pins.ring.set_buffer(buffer as u16, start, bytes)?;
        pins.starts[buffer] = Some(start);
        Ok(Self(buffer as u16))
    }

    /// Returns the address of a byte for [`read`] and the other functions.
    pub(super) fn address(&self, offset: u64) -> u64 {
        PINNED | u64::from(self.0) << OFFSET_BITS | offset
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(pins) = &mut *PINS.get().lock() {
            let _ = pins.ring.set_buffer(self.0, 0, 0);
            pins.starts[usize::from(self.0)] = None;
        }
    }
}

impl Pins {
    fn copy(&mut self, direction: Copy, address: u64, length: usize) -> Option<()> {
        let offset = address & ((1 << OFFSET_BITS) - 1);
        let buffer = ((address & !PINNED) >> OFFSET_BITS) as u16;
        let start = (*self.starts.get(usize::from(buffer))?)?;
        let (file, at) = (self.file.as_raw_fd(), start + offset);
        let length = length.try_into().ok()?;
        self.ring.copy(direction, file, buffer, at, length).ok()
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()> {
        self.copy(Copy::BufferToFile, address, into.len())?;
        self.file.read_exact_at(into, 0).ok()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        self.file.write_all_at(bytes, 0).ok()?;
        self.copy(Copy::FileToBuffer, address, bytes.len())
    }
}

/// Returns whether an address is one of pinned memory.
#[inline]
pub(crate) fn is_pinned(address: u64) -> bool {
    address >= PINNED
}

fn with_pins<T>(work: impl FnOnce(&mut Pins) -> Option<T>) -> Option<T> {
    PINS.get().lock().as_mut().and_then(work)
}

/// Reads pinned memory. Returns `None` if nothing is pinned there.
#[cold]
pub(crate) fn read(address: u64, into: &mut [u8]) -> Option<()> {
    with_pins(|pins| pins.read(address, into))
}

/// Writes pinned memory. Returns `None` if nothing is pinned there.
#[cold]
pub(crate) fn write(address: u64, bytes: &[u8]) -> Option<()> {
    with_pins(|pins| pins.write(address, bytes))
}

/// Changes 8 bytes. Returns what they were. Not atomic for the program, which only has
/// these bytes if it has moved them by `mremap`.
#[cold]
pub(crate) fn update(address: u64, to: impl FnOnce(u64) -> u64) -> Option<u64> {
    with_pins(|pins| {
        let mut bytes = [0; 8];
        pins.read(address, &mut bytes)?;
        let was = u64::from_ne_bytes(bytes);
        pins.write(address, &to(was).to_ne_bytes())?;
        Some(was)
    })
}
