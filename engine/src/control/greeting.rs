//! The greeting: the first message on an iWARP connection of siw.
//!
//! MPA requires the accepting side to stay silent until the other side has sent. A
//! message that it sends earlier may overtake the requester's kernel, which takes
//! the message for a part of the answer and ends the connection. The enhanced setup
//! (RFC 6581) sends a first frame for that. Among Linux's drivers, irdma always
//! requests it (`irdma_build_mpa_v2` in drivers/infiniband/hw/irdma/cm.c), cxgb4
//! does by default (`peer2peer` in drivers/infiniband/hw/cxgb4/cm.c), and siw never
//! does (`peer_to_peer` in drivers/infiniband/sw/siw/siw_main.c).
//!
//! So on siw, between two endpoints of this engine, the accepting side registers a
//! word and puts its address into the answer. It reports
//! [`crate::cm::ConnectionEvent::Established`] when the requester has written to
//! the word. The key gives the peer access to nothing else.

use super::access::Access;
use super::buffer::RegisteredBuffer;
use super::domain::ProtectionDomain;
use super::qp::VerbsQp;
use super::quirks::Quirks;
use crate::error::{ControlError, last_errno};
use core::fmt;
use dv_sys::inline;
use dv_sys::verbs::{ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t, wr_t};

/// A word that the requester of a connection writes to.
pub struct Greeting(Word);

enum Word {
    Registered(RegisteredBuffer),
    #[cfg(test)]
    Simulated(core::sync::atomic::AtomicBool),
}

/// The address and key of a [`Greeting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreetingPlace {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// The value that is written.
const WORD: u32 = 0x6865_6c6f;
/// The `wr_id` of the greeting's work request, which is not a tag of the verbs path
/// (`path/verbs/table.rs`), so that its completion is not reported.
pub(crate) const GREETING_WR_ID: u64 = 3 << 62 | WORD as u64;

impl Greeting {
    /// Registers a word.
    fn new(domain: &ProtectionDomain) -> Result<Self, ControlError> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let word = domain.allocate(size_of::<u32>(), access)?;
        Ok(Self(Word::Registered(word)))
    }

    /// Returns a greeting that arrives when the test calls [`Self::arrive`].
    #[cfg(test)]
    pub(crate) fn simulated() -> Self {
        Self(Word::Simulated(false.into()))
    }

    #[cfg(test)]
    pub(crate) fn arrive(&self) {
        if let Word::Simulated(arrived) = &self.0 {
            arrived.store(true, core::sync::atomic::Ordering::Release);
        }
    }

    /// Returns where the requester has to write.
    pub(crate) fn place(&self) -> GreetingPlace {
        match &self.0 {
            Word::Registered(word) => GreetingPlace {
                address: word.as_ptr().addr().get() as u64,
                key: word.region().rkey(),
            },
            #[cfg(test)]
            Word::Simulated(_) => GreetingPlace { address: 1, key: 2 },
        }
    }

    /// Returns whether the requester has written.
    pub(crate) fn has_arrived(&self) -> bool {
        match &self.0 {
            // SAFETY: the mapping is aligned and alive; the device may write to it
            // at any time, so no reference is made.
            Word::Registered(word) => unsafe { word.as_ptr().cast::<u32>().read_volatile() != 0 },
            #[cfg(test)]
            Word::Simulated(arrived) => arrived.load(core::sync::atomic::Ordering::Acquire),
        }
    }
}

impl fmt::Debug for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Greeting").field(&self.place()).finish()
    }
}

impl VerbsQp {
    /// Returns whether the requester greets: its device does not send a first frame
    /// itself.
    pub(crate) fn greets(&self) -> bool {
        self.quirks() == Quirks::Siw
    }

    /// Returns a word for the greeting of the requester, if its device needs one.
    pub(crate) fn greeting(&self) -> Result<Option<Greeting>, ControlError> {
        match self.greets() {
            true => Greeting::new(&self.domain).map(Some),
            false => Ok(None),
        }
    }

    /// Writes to the peer's word. Nothing else is posted meanwhile: the send queue
    /// has one entry for it beyond the granted depth.
    pub(crate) fn greet(&self, place: GreetingPlace) -> Result<(), ControlError> {
        let word = WORD;
        let mut segment = ibv_sge {
            addr: (&raw const word).addr() as u64,
            length: size_of_val(&word) as u32,
            lkey: 0,
        };
        // SAFETY: integers, pointers and unions of them, for which zero is valid.
        let mut work: ibv_send_wr = unsafe { core::mem::zeroed() };
        work.wr_id = GREETING_WR_ID;
        work.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        work.send_flags = ibv_send_flags::IBV_SEND_INLINE.0;
        work.sg_list = &raw mut segment;
        work.num_sge = 1;
        work.wr = wr_t {
            rdma: rdma_t {
                remote_addr: place.address,
                rkey: place.key,
            },
        };
        let mut bad = core::ptr::null_mut();
        // SAFETY: the queue pair is alive; the call copies the word.
        match unsafe { inline::ibv_post_send(self.as_ptr(), &raw mut work, &raw mut bad) } {
            0 => Ok(()),
            errno => {
                let errno = if errno == -1 { last_errno() } else { errno };
                Err(ControlError::verbs("greet the accepting side", errno.abs()))
            }
        }
    }
}
