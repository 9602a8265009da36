//! The remote address segment of RDMA reads and writes (`mlx5_wqe_raddr_seg`).

use super::{Be32, Be64};

/// 16 bytes: address, key, reserved.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    addr: Be64,
    rkey: Be32,
    reserved: Be32,
}

const _: () = assert!(size_of::<RemoteSegment>() == 16);

impl RemoteSegment {
    /// Returns the segment of the peer's memory at `addr` under `rkey`.
    #[inline(always)]
    pub const fn new(addr: u64, rkey: u32) -> Self {
        Self {
            addr: Be64::new(addr),
            rkey: Be32::new(rkey),
            reserved: Be32::new(0),
        }
    }

    /// Returns both words as they lie in memory.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 2] {
        [
            self.addr.to_bits(),
            Be64::new((self.rkey.get() as u64) << 32).to_bits(),
        ]
    }

    /// Returns the peer's address.
    pub const fn addr(&self) -> u64 {
        self.addr.get()
    }

    /// Returns the peer's key.
    pub const fn rkey(&self) -> u32 {
        self.rkey.get()
    }
}
