//! The location of a queue pair's rings, and their content in a form that is
//! comparable between queue pairs.

use super::store_tracer::{Store, coalesced};

/// Size in bytes of a doorbell register: two halves.
const REGISTER: usize = 512;
const WQEBB: usize = 64;

/// The memory through which a completion queue's driver communicates with the device.
#[derive(Clone, Copy, Debug)]
pub struct CompletionRing {
    /// Address of the ring.
    pub buf: usize,
    pub cqe_count: u32,
    /// In bytes.
    pub cqe_size: u32,
    /// Address of the arm word of the doorbell record.
    pub arm_record: usize,
    /// Address of the page on which the queue is armed.
    pub page: usize,
    pub cqn: u32,
}

/// The memory through which a queue pair's driver communicates with the device.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    pub qpn: u32,
    /// Address, and length in bytes.
    pub send: (usize, usize),
    /// Address, and length in bytes, of its own receive ring or of the shared
    /// one.
    pub recv: (usize, usize),
    /// Bytes from one WQE of the shared ring to the next, if receives come from one.
    pub shared_stride: Option<usize>,
    /// Address of the send word of the doorbell record.
    pub send_record: usize,
    /// Address of the receive word, or of the shared queue's record.
    pub recv_record: usize,
    /// Address of the doorbell register.
    pub register: usize,
    /// The rings of the CQs {send, receive}.
    pub cqs: [CompletionRing; 2],
}

/// The target of a store, in terms that are comparable between queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Offset in bytes in the send ring.
    SendRing(usize),
    /// Offset in bytes in the receive ring.
    RecvRing(usize),
    /// The receive or the send word of the doorbell record.
    RecvRecord,
    SendRecord,
    /// Offset in bytes in the register.
    Register(usize),
    /// Anywhere else on a watched page.
    Elsewhere,
}

/// A store in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub place: Place,
    pub bytes: Vec<u8>,
}

impl Rings {
    /// Returns the send ring.
    pub fn send_bytes(&self) -> Vec<u8> {
        self.bytes(self.send)
    }

    /// Zeroes a byte of the send ring; the offset wraps.
    pub fn clear_send_byte(&self, offset: usize) {
        let (addr, len) = self.send;
        let byte = (addr + offset % len) as *mut u8;
        // SAFETY: inside the ring, which lives with the queue pair and is not in
        // use now.
        unsafe { byte.write_volatile(0) };
    }

    /// Returns the receive ring.
    pub fn recv_bytes(&self) -> Vec<u8> {
        self.bytes(self.recv)
    }

    /// Returns the doorbell records {receive, send}.
    pub fn records(&self) -> [u32; 2] {
        // SAFETY: records are aligned words that live with their queue.
        let word = |at: usize| u32::from_be(unsafe { (at as *const u32).read_volatile() });
        [word(self.recv_record), word(self.send_record)]
    }

    fn bytes(&self, (addr, len): (usize, usize)) -> Vec<u8> {
        // SAFETY: the ring lives with the queue pair, and no code writes it now.
        unsafe { std::slice::from_raw_parts(addr as *const u8, len) }.to_vec()
    }

    /// Returns `ours` with the QP number of `theirs` wherever both have their own
    /// number in the place of a control segment. Compares byte by byte, because
    /// only part of an old WQE may be left.
    pub fn translated(&self, ours: &[u8], theirs: &[u8], peer: &Rings) -> Vec<u8> {
        if ours == theirs {
            return ours.to_vec();
        }
        let numbers = [self.qpn, peer.qpn].map(|qpn| (qpn << 8).to_be_bytes());
        let translate = |(i, (&our, &their)): (usize, (&u8, &u8))| {
            let place = (i % WQEBB).wrapping_sub(4);
            let number = place < 3 && our == numbers[0][place] && their == numbers[1][place];
            if number { their } else { our }
        };
        ours.iter().zip(theirs).enumerate().map(translate).collect()
    }

    /// Returns the stores to the record and the register, with a copy as one
    /// write, and the stores to ring pages if they were watched.
    pub fn seen(&self, stores: Vec<Store>) -> Vec<Seen> {
        let seen = |store: Store| Seen {
            place: self.place(store.addr),
            bytes: store.bytes,
        };
        coalesced(stores).into_iter().map(seen).collect()
    }

    fn place(&self, addr: usize) -> Place {
        let within = |start: usize, len: usize| (start..start + len).contains(&addr);
        if within(self.register, REGISTER) {
            Place::Register(addr - self.register)
        } else if addr == self.recv_record {
            Place::RecvRecord
        } else if addr == self.send_record {
            Place::SendRecord
        } else if within(self.send.0, self.send.1) {
            Place::SendRing(addr - self.send.0)
        } else if within(self.recv.0, self.recv.1) {
            Place::RecvRing(addr - self.recv.0)
        } else {
            Place::Elsewhere
        }
    }
}
