//! The PCI configuration space: a ConnectX-6 Dx with an InfiniBand port.

/// Size in bytes.
pub const SIZE: usize = 4096;
/// Mellanox Technologies, and the ConnectX-6 Dx.
const VENDOR: u16 = 0x15b3;
const DEVICE: u16 = 0x101d;
/// Offsets of the capabilities.
const PCIE: usize = 0x60;
const MSIX: usize = 0x9c;
const POWER: usize = 0xb0;
/// Where the table of interrupts and the bits of pending ones are in BAR 0.
const MSIX_TABLE: u32 = 0x2000;
const MSIX_PENDING: u32 = 0x3000;

/// Returns the configuration space of a device with this number of interrupts.
#[must_use]
pub fn new(interrupts: usize) -> [u8; SIZE] {
    let mut space = [0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| space[at..][..bytes.len()].copy_from_slice(bytes);
    put(0x00, &VENDOR.to_le_bytes());
    put(0x02, &DEVICE.to_le_bytes());
    // There is a list of capabilities.
    put(0x06, &0x0010_u16.to_le_bytes());
    // Network controller, InfiniBand.
    put(0x0a, &[0x07, 0x02]);
    // BAR 0: 64 bits, prefetchable.
    put(0x10, &[0x0c]);
    put(0x2c, &VENDOR.to_le_bytes());
    put(0x2e, &0x0001_u16.to_le_bytes());
    put(0x34, &[PCIE as u8]);
    // PCI Express, version 2: an endpoint, 8 GT/s, 16 lanes.
    put(PCIE, &[0x10, MSIX as u8, 0x02, 0x00]);
    put(PCIE + 0x04, &0x0000_8fe2_u32.to_le_bytes());
    put(PCIE + 0x0c, &0x0000_0103_u32.to_le_bytes());
    put(PCIE + 0x12, &0x0103_u16.to_le_bytes());
    let last = interrupts as u16 - 1;
    put(MSIX, &[0x11, POWER as u8]);
    put(MSIX + 2, &last.to_le_bytes());
    put(MSIX + 4, &MSIX_TABLE.to_le_bytes());
    put(MSIX + 8, &MSIX_PENDING.to_le_bytes());
    // Power management, version 3.
    put(POWER, &[0x01, 0x00, 0x03, 0x00]);
    space
}

/// Returns whether a guest may change the byte at an offset: not the identity, the addresses
/// (which the client keeps) and the list of capabilities.
#[must_use]
pub fn is_writable(at: usize) -> bool {
    matches!(at, 0x04..=0x05 | 0x0c | 0x3c)
        || at == PCIE + 0x08
        || at == PCIE + 0x09
        || at == MSIX + 3
        || at == POWER + 4
}
