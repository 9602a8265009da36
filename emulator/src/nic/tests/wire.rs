//! A queue of packets in place of the fabric, with a say in their fate.

use crate::fabric::packet::{Packet, Transmit};
use crate::nic::spec::Qpn;
use std::collections::VecDeque;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    IsLost,
    ArrivesTwice,
    /// It lets the next one pass.
    IsOvertaken,
}

pub(super) type Decide = Box<dyn FnMut(&Packet) -> Fate>;

/// Packets under way.
pub(super) struct Wire {
    pub(super) packets: VecDeque<Packet>,
    pub(super) decide: Decide,
    /// Packets it takes; above, senders are told to wait.
    pub(super) room: usize,
    /// The peer's NIC gets no turn: what was sent waits for it.
    pub(super) unheard: bool,
    /// Everything that was sent, lost or not.
    pub(super) sent: Vec<Packet>,
    held: Option<Packet>,
}

impl Wire {
    pub(super) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            decide: Box::new(|_| Fate::Arrives),
            room: usize::MAX,
            unheard: false,
            sent: Vec::new(),
            held: None,
        }
    }

    pub(super) fn next(&mut self) -> Option<Packet> {
        self.packets.pop_front().or_else(|| self.held.take())
    }
}

impl Transmit for Wire {
    fn has_room(&mut self, _destination: Qpn) -> bool {
        self.packets.len() < self.room
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.packets.len() >= self.room {
            return Err(packet);
        }
        self.sent.push(packet.clone());
        match (self.decide)(&packet) {
            Fate::IsLost => return Ok(()),
            Fate::IsOvertaken if self.held.is_none() => {
                self.held = Some(packet);
                return Ok(());
            }
            Fate::ArrivesTwice => {
                self.packets.push_back(packet.clone());
                self.packets.push_back(packet);
            }
            Fate::Arrives | Fate::IsOvertaken => self.packets.push_back(packet),
        }
        self.packets.extend(self.held.take());
        Ok(())
    }

    fn peer_is_busy(&mut self, _destination: Qpn) -> bool {
        self.unheard
    }
}
