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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_prints_without_panicking() {
        for seed in 0..64u64 {
            let unit = [seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), !seed];
            let _ = CtrlSegment::from_words(unit).to_string();
            let _ = DataSegment::from_words(unit).to_string();
            let _ = Cqe::from_words([!seed.rotate_left(13); 8]).to_string();
        }
    }
}
