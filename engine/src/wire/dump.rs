//! WQEs and CQEs as text, for error reports, traces and failing tests.

use core::fmt;

use super::{Cqe, CtrlSegment, DataSegment, InlineHeader, InlineScatter, RemoteSegment, WqeOpcode};

impl fmt::Display for CtrlSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WqeOpcode::from_bits(self.opcode_bits()) {
            Some(opcode) => f.write_str(opcode.name())?,
            None => write!(f, "opcode 0x{:02x}", self.opcode_bits())?,
        }
        write!(
            f,
            " index 0x{:04x} qpn 0x{:06x} ds {} fm_ce_se 0x{:02x} imm 0x{:08x}",
            self.index(),
            self.qpn(),
            self.units(),
            self.flag_bits(),
            self.imm()
        )
    }
}

impl fmt::Display for RemoteSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "remote 0x{:016x} rkey 0x{:08x}",
            self.addr(),
            self.rkey()
        )
    }
}

impl fmt::Display for DataSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = self.segment();
        if *self == Self::TERMINATOR {
            f.write_str("end of list")
        } else if segment.length & InlineHeader::MARK != 0 {
            write!(f, "inline {} bytes", segment.length & !InlineHeader::MARK)
        } else {
            write!(
                f,
                "data 0x{:016x} length {} lkey 0x{:08x}",
                segment.addr, segment.length, segment.lkey
            )
        }
    }
}

impl fmt::Display for Cqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = self.tail();
        let own_op = tail.own_op();
        write!(
            f,
            "{} qpn 0x{:06x} counter 0x{:04x} bytes {} srqn/uidx 0x{:06x} imm 0x{:08x}",
            own_op.opcode().name(),
            tail.qpn(),
            tail.wqe_counter(),
            self.byte_count(),
            self.srqn_uidx(),
            self.imm()
        )?;
        if matches!(own_op.opcode().0, 13 | 14) {
            write!(
                f,
                " syndrome 0x{:02x} ({}) vendor 0x{:02x}",
                self.syndrome().0,
                self.syndrome().status(),
                self.vendor_syndrome()
            )?;
        }
        match own_op.inline_scatter() {
            InlineScatter::None => {}
            InlineScatter::First32 => f.write_str(" payload in CQE (32)")?,
            InlineScatter::Before64 => f.write_str(" payload in CQE (64)")?,
        }
        if own_op.solicited() {
            f.write_str(" solicited")?;
        }
        write!(f, " owner {}", own_op.0 & 1)
    }
}

/// The segments of a send WQE, one per line, from its 16-byte units in order.
///
/// The units are copied out of the ring by the caller, the wrap undone.
pub struct SendWqe<'a>(pub &'a [[u64; 2]]);

impl fmt::Display for SendWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((ctrl, mut rest)) = self.0.split_first() else {
            return f.write_str("(empty)");
        };
        let ctrl = CtrlSegment::from_words(*ctrl);
        write!(f, "{ctrl}")?;
        let remote = WqeOpcode::from_bits(ctrl.opcode_bits());
        if let (true, Some((words, tail))) = (
            remote.is_some_and(WqeOpcode::has_remote_address),
            rest.split_first(),
        ) {
            write!(f, "\n  {}", RemoteSegment::from_words(*words))?;
            rest = tail;
        }
        while let Some((words, tail)) = rest.split_first() {
            let data = DataSegment::from_words(*words);
            write!(f, "\n  {data}")?;
            let length = data.segment().length;
            let skip = if length & InlineHeader::MARK != 0 {
                super::inline_units(length & !InlineHeader::MARK).saturating_sub(1) as usize
            } else {
                0
            };
            rest = tail.get(skip..).unwrap_or_default();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Segment;
    use crate::wire::CtrlFlags;

    #[test]
    fn a_write_prints_every_segment() {
        let ctrl = CtrlSegment::new(
            WqeOpcode::RdmaWrite,
            0xfff1,
            0x12 << 8,
            4,
            CtrlFlags::CQ_UPDATE,
            0,
        );
        let data = Segment {
            addr: 0x1000,
            length: 64,
            lkey: 7,
        };
        let units = [
            ctrl.to_words(),
            RemoteSegment::new(0xabc, 9).to_words(),
            DataSegment::new(&data).to_words(),
            DataSegment::TERMINATOR.to_words(),
        ];
        assert_eq!(
            SendWqe(&units).to_string(),
            "RDMA_WRITE index 0xfff1 qpn 0x000012 ds 4 fm_ce_se 0x08 imm 0x00000000\n  \
             remote 0x0000000000000abc rkey 0x00000009\n  \
             data 0x0000000000001000 length 64 lkey 0x00000007\n  end of list"
        );
    }

    #[test]
    fn garbage_prints_without_panicking() {
        for seed in 0..64u64 {
            let units = [[seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), !seed]; 5];
            let _ = SendWqe(&units).to_string();
            let _ = Cqe::from_words([!seed.rotate_left(13); 8]).to_string();
        }
    }
}
