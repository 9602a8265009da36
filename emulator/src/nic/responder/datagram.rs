//! Datagrams: each is a message of its own, from whoever knows the queue key
//! (IBA 9.8.3).

use super::super::core::Core;
use super::super::grh;
use super::super::qp::Qp;
use crate::fabric::packet::{Header, Operation, PacketFlags};

impl Qp {
    /// Takes a datagram, or drops it in silence.
    pub(super) fn take_datagram(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        let whole = PacketFlags::FIRST | PacketFlags::LAST;
        let has_grh = header.flags.contains(PacketFlags::GRH);
        let is_datagram = header.operation == Operation::Send
            && header.flags.contains(whole)
            && (!has_grh || data.len() >= grh::BYTES)
            && self.is_for_this_port(header);
        if !self.receives() || !is_datagram || header.key != self.attr.qkey {
            return core.note(|| format!("datagram from {header:?} dropped"));
        }
        if !self.take_receive(core) {
            return core.note(|| format!("no receive for the datagram from {header:?}"));
        }
        // A receive has room for a global route header whether there is one
        // or not.
        let skip = if has_grh { 0 } else { grh::BYTES as u32 };
        let (pd, bytes) = (self.receive_pd(core), skip + data.len() as u32);
        let placed = core
            .check_scatter(&self.rq.list, pd, bytes)
            .and_then(|()| core.scatter(&self.rq.list, pd, skip, data));
        match placed {
            Ok(()) => self.complete_receive(core, header, bytes, None),
            Err(refused) => self.fail_with_receive(core, refused),
        }
    }
}
