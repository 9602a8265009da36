//! The kinds of objects that handles name.

/// The kinds of objects, with the numbers of `DAT_HANDLE_TYPE` (`dat/dat.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Connection request.
    Cr = 0,
    /// Endpoint.
    Ep = 1,
    /// Event dispatcher.
    Evd = 2,
    /// Interface adapter.
    Ia = 3,
    /// Local memory region.
    Lmr = 4,
    /// Public service point.
    Psp = 5,
    /// Protection zone.
    Pz = 6,
    /// Remote memory region.
    Rmr = 7,
    /// Reserved service point.
    Rsp = 8,
    /// Notification object.
    Cno = 9,
    /// Shared receive queue.
    Srq = 10,
}

impl Kind {
    /// All kinds, ordered by number.
    pub const ALL: [Self; 11] = [
        Self::Cr,
        Self::Ep,
        Self::Evd,
        Self::Ia,
        Self::Lmr,
        Self::Psp,
        Self::Pz,
        Self::Rmr,
        Self::Rsp,
        Self::Cno,
        Self::Srq,
    ];
}
