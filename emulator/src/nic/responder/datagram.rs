//! Received datagrams: each is a complete message, from any sender with the queue
//! key (IBA 9.8.3).
//!
//! Decision: `docs/decisions/048-unreliable-transports-drop.md`

use super::super::core::Core;
use super::super::qp::Qp;
use crate::fabric::counters::Counter;
use crate::fabric::iba::network::GRH;
use crate::fabric::packet::{Header, Operation, PacketFlags};

impl Qp {
    /// Handles a datagram; silently drops an invalid one.
    pub(in crate::nic) fn receive_datagram(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) {
        let whole = PacketFlags::FIRST | PacketFlags::LAST;
        let has_grh = header.flags.contains(PacketFlags::GRH);
        let is_datagram = header.operation == Operation::Send
            && header.flags.contains(whole)
            && (!has_grh || data.len() >= GRH)
            && self.is_for_this_port(header);
        if !self.receives() {
            let state = self.state;
            return core.note_dropped(header, || format!("the queue pair is in {state:?}"));
        }
        if !is_datagram {
            let reason = || "it is not one SEND for this port".into();
            return core.note_dropped(header, reason);
        }
        if header.key != self.attr.qkey {
            let (sent, own) = (header.key, self.attr.qkey);
            return core.note_dropped(header, || {
                format!("its Q_Key is {sent:#x}, the queue pair has {own:#x}")
            });
        }
        if !self.take_receive(core) {
            core.count(self.port(), Counter::OutOfBuffer);
            return core.note_dropped(header, || "no receive is posted".into());
        }
        // A receive reserves space for the GRH whether there is one or not.
        let skip = if has_grh { 0 } else { GRH as u32 };
        let (pd, bytes) = (self.receive_pd(core), skip + data.len() as u32);
        let placed = core
            .check_scatter(&self.rq.sges, pd, bytes)
            .and_then(|()| core.scatter(&self.rq.sges, pd, skip, data));
        match placed {
            Ok(()) => self.complete_receive(core, header, bytes, None),
            Err(error) => self.fail_receive_and_qp(core, error),
        }
    }
}
