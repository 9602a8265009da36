//! Completions as bytes: `mlx5_cqe64` and `mlx5_err_cqe`.
//!
//! A CQE is built here as a value; [`crate::nic`] writes it into the ring,
//! the byte with the owner bit last.

/// Bytes of the completion proper; a 128-byte CQE has it in its second half.
pub const CQE: usize = 64;
/// Offset of the byte that holds opcode, format, solicited and owner bits.
pub const OP_OWN: usize = 63;

/// Completion codes (upper half of `op_own`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CqeOpcode {
    /// A send request completed.
    Request = 0,
    /// RDMA WRITE with immediate arrived.
    WriteImmediate = 1,
    /// SEND arrived.
    Send = 2,
    /// SEND with immediate arrived.
    SendImmediate = 3,
    /// SEND with invalidate arrived.
    SendInvalidate = 4,
    /// The last CQE of a ring that the queue has left.
    Resized = 5,
    /// A send request failed.
    RequestError = 13,
    /// A receive failed.
    ResponseError = 14,
}

/// Why a request failed (`MLX5_CQE_SYNDROME_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    /// A message does not fit.
    LocalLength = 0x01,
    /// The WQE makes no sense.
    LocalQpOperation = 0x02,
    /// Key, bounds or rights of local memory.
    LocalProtection = 0x04,
    /// Flushed because the QP is in error.
    Flushed = 0x05,
    /// A window could not be bound.
    WindowBind = 0x06,
    /// A response made no sense.
    BadResponse = 0x10,
    /// What a peer asked for failed here.
    LocalAccess = 0x11,
    /// The responder refused the request.
    RemoteInvalidRequest = 0x12,
    /// Key, bounds or rights of remote memory.
    RemoteAccess = 0x13,
    /// The responder failed.
    RemoteOperation = 0x14,
    /// No answer.
    TransportRetryExceeded = 0x15,
    /// The responder had no receive posted for too long.
    RnrRetryExceeded = 0x16,
    /// The responder aborted.
    RemoteAborted = 0x22,
}

impl Syndrome {
    /// The vendor syndrome ConnectX reports with it.
    #[must_use]
    pub fn vendor(self) -> u8 {
        match self {
            Self::LocalLength => 0x32,
            Self::LocalQpOperation => 0x68,
            Self::LocalProtection => 0x51,
            Self::Flushed => 0xf9,
            Self::WindowBind => 0x79,
            Self::BadResponse => 0x8b,
            Self::LocalAccess => 0x8d,
            Self::RemoteInvalidRequest => 0x8a,
            Self::RemoteAccess => 0x88,
            Self::RemoteOperation => 0x89,
            Self::TransportRetryExceeded => 0x81,
            Self::RnrRetryExceeded => 0x87,
            Self::RemoteAborted => 0x8c,
        }
    }
}

/// What a good completion says.
#[derive(Clone, Copy, Debug)]
pub struct Good {
    /// Completion code.
    pub opcode: CqeOpcode,
    /// The completed WQE's opcode (requests), else 0.
    pub wqe_opcode: u8,
    /// QP.
    pub qpn: u32,
    /// User index or SRQ number, by the CQE version.
    pub resource: u32,
    /// Send: WQEBB counter of the WQE's start. Receive: counter. SRQ: WQE index.
    pub wqe_counter: u16,
    /// Bytes received, or read.
    pub byte_count: u32,
    /// Immediate data in memory order.
    pub immediate: [u8; 4],
    /// Peer's QP, for receives.
    pub remote_qpn: u32,
    /// A global route header came with it, for receives.
    pub has_grh: bool,
    /// Service level, for receives.
    pub service_level: u8,
    /// Source LID, for receives.
    pub source_lid: u16,
    /// A solicited event was asked for.
    pub solicited: bool,
    /// Device time, in ticks.
    pub timestamp: u64,
}

/// What a failed completion says.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// [`CqeOpcode::RequestError`] or [`CqeOpcode::ResponseError`].
    pub opcode: CqeOpcode,
    /// The failed WQE's opcode (requests), else 0.
    pub wqe_opcode: u8,
    /// QP.
    pub qpn: u32,
    /// User index or SRQ number, by the CQE version.
    pub resource: u32,
    /// As in [`Good::wqe_counter`].
    pub wqe_counter: u16,
    /// Cause.
    pub syndrome: Syndrome,
}

/// A completion ready for the ring, all but its owner bit.
#[derive(Clone, Debug)]
pub struct Cqe {
    /// The first half of a 128-byte CQE: inline data or zeros.
    pub head: [u8; CQE],
    /// The completion proper.
    pub body: [u8; CQE],
    /// Notifies a CQ that is armed for solicited completions.
    pub notifies: bool,
}

impl Cqe {
    /// A good completion.
    #[must_use]
    pub fn good(good: &Good) -> Self {
        let mut body = [0; CQE];
        body[22..24].copy_from_slice(&good.source_lid.to_be_bytes());
        let flags_rqpn = u32::from(good.has_grh) << 28
            | u32::from(good.service_level & 0xf) << 24
            | good.remote_qpn & 0x00ff_ffff;
        body[24..28].copy_from_slice(&flags_rqpn.to_be_bytes());
        body[32..36].copy_from_slice(&good.resource.to_be_bytes());
        body[36..40].copy_from_slice(&good.immediate);
        body[44..48].copy_from_slice(&good.byte_count.to_be_bytes());
        body[48..56].copy_from_slice(&good.timestamp.to_be_bytes());
        let qpn = u32::from(good.wqe_opcode) << 24 | good.qpn & 0x00ff_ffff;
        body[56..60].copy_from_slice(&qpn.to_be_bytes());
        body[60..62].copy_from_slice(&good.wqe_counter.to_be_bytes());
        body[OP_OWN] = (good.opcode as u8) << 4 | u8::from(good.solicited) << 1;
        Self {
            head: [0; CQE],
            body,
            notifies: good.solicited,
        }
    }

    /// A failed completion; it always notifies.
    #[must_use]
    pub fn failed(failed: &Failed) -> Self {
        let mut body = [0; CQE];
        body[32..36].copy_from_slice(&failed.resource.to_be_bytes());
        let qpn = u32::from(failed.wqe_opcode) << 24 | failed.qpn & 0x00ff_ffff;
        body[56..60].copy_from_slice(&qpn.to_be_bytes());
        body[60..62].copy_from_slice(&failed.wqe_counter.to_be_bytes());
        fail(&mut body, failed.syndrome as u8, failed.syndrome.vendor());
        body[OP_OWN] = (failed.opcode as u8) << 4;
        Self {
            head: [0; CQE],
            body,
            notifies: true,
        }
    }

    /// The end of a ring that the queue leaves (`MLX5_CQE_RESIZE_CQ`).
    #[must_use]
    pub fn resized() -> Self {
        let mut body = [0; CQE];
        body[OP_OWN] = (CqeOpcode::Resized as u8) << 4;
        Self {
            head: [0; CQE],
            body,
            notifies: false,
        }
    }

    /// Whose completion it is.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        u32::from_be_bytes([0, self.body[57], self.body[58], self.body[59]])
    }

    /// Makes it a failed completion of the same WQE, with a syndrome that
    /// means nothing.
    pub fn corrupt(&mut self) {
        const NO_SYNDROME: u8 = 0xee;
        self.spoil(NO_SYNDROME, NO_SYNDROME);
    }

    /// Makes it a failed completion of the same WQE.
    pub fn fail(&mut self, syndrome: Syndrome) {
        self.spoil(syndrome as u8, syndrome.vendor());
    }

    /// Makes it one that was flushed, unless it has failed by itself.
    pub fn flush(&mut self) {
        let opcode = self.body[OP_OWN] >> 4;
        let failed = [
            CqeOpcode::RequestError as u8,
            CqeOpcode::ResponseError as u8,
        ];
        if !failed.contains(&opcode) {
            self.fail(Syndrome::Flushed);
        }
    }

    /// Whether it is of a request, and not of a receive.
    #[must_use]
    pub fn is_of_request(&self) -> bool {
        let opcode = self.body[OP_OWN] >> 4;
        opcode == CqeOpcode::Request as u8 || opcode == CqeOpcode::RequestError as u8
    }

    fn spoil(&mut self, syndrome: u8, vendor: u8) {
        let failed = match self.is_of_request() {
            true => CqeOpcode::RequestError,
            false => CqeOpcode::ResponseError,
        };
        fail(&mut self.body, syndrome, vendor);
        self.body[OP_OWN] = (failed as u8) << 4;
        self.notifies = true;
    }

    /// Puts up to 32 bytes of data into the first bytes of the completion.
    /// They overwrite the fields there, as on hardware.
    pub fn inline_32(&mut self, data: &[u8]) {
        self.body[..data.len()].copy_from_slice(data);
        self.body[OP_OWN] |= 0x4;
    }

    /// Puts up to 64 bytes of data into the first half of a 128-byte CQE.
    pub fn inline_64(&mut self, data: &[u8]) {
        self.head[..data.len()].copy_from_slice(data);
        self.body[OP_OWN] |= 0x8;
    }
}

/// Writes the syndromes of an error CQE. They are where a good CQE has its time
/// stamp; what is left of that gets bytes that mean nothing, other ones for each
/// WQE: taken for a stamp, they are before or after the time.
fn fail(body: &mut [u8; CQE], syndrome: u8, vendor: u8) {
    let wqe = u64::from_be_bytes([0, 0, 0, body[57], body[58], body[59], body[60], body[61]]);
    // The multiplier of Fibonacci hashing.
    let garbage = (wqe + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    body[48..56].copy_from_slice(&garbage.to_be_bytes());
    body[54] = vendor;
    body[55] = syndrome;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_completion_has_no_time_stamp() {
        let failed = |wqe_counter| {
            let cqe = Cqe::failed(&Failed {
                opcode: CqeOpcode::RequestError,
                wqe_opcode: 0x0a,
                qpn: 7,
                resource: 3,
                wqe_counter,
                syndrome: Syndrome::Flushed,
            });
            u64::from_be_bytes(cqe.body[48..56].try_into().expect("eight bytes"))
        };
        let stamps: Vec<u64> = (0..20).map(failed).collect();
        // Before and after any time that a test has.
        let day = 86_400 * 78_125_000;
        assert!(stamps.iter().all(|stamp| !(1..100 * day).contains(stamp)));
        assert!(!stamps.is_sorted());
    }

    #[test]
    fn a_good_completion_has_its_fields_where_mlx5_cqe64_has_them() {
        let cqe = Cqe::good(&Good {
            opcode: CqeOpcode::SendImmediate,
            wqe_opcode: 0,
            qpn: 0x01_0203,
            resource: 0x0a0b0c,
            wqe_counter: 0x1234,
            byte_count: 99,
            immediate: [9, 8, 7, 6],
            remote_qpn: 0x04_0506,
            has_grh: true,
            service_level: 5,
            source_lid: 0x77,
            solicited: true,
            timestamp: 0x55,
        });
        assert_eq!(cqe.body[22..28], [0, 0x77, 0x15, 4, 5, 6]);
        assert_eq!(cqe.body[32..40], [0, 0x0a, 0x0b, 0x0c, 9, 8, 7, 6]);
        assert_eq!(cqe.body[44..56], [0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0x55]);
        assert_eq!(cqe.body[56..], [0, 1, 2, 3, 0x12, 0x34, 0, 0x32]);
    }

    #[test]
    fn a_corrupt_completion_is_a_failed_one_of_the_same_wqe() {
        for (opcode, corrupt) in [(CqeOpcode::Request, 0xd0), (CqeOpcode::SendImmediate, 0xe0)] {
            let mut cqe = Cqe::good(&Good {
                opcode,
                wqe_opcode: 0x0a,
                qpn: 0x01_0203,
                resource: 5,
                wqe_counter: 0x1234,
                byte_count: 99,
                immediate: [0; 4],
                remote_qpn: 0,
                has_grh: false,
                service_level: 0,
                source_lid: 0,
                solicited: true,
                timestamp: 0,
            });
            cqe.inline_32(&[1; 32]);
            cqe.corrupt();
            assert_eq!(cqe.qpn(), 0x01_0203);
            assert_eq!(cqe.body[32..36], [0, 0, 0, 5][..]);
            assert_eq!(
                cqe.body[54..],
                [0xee, 0xee, 0x0a, 1, 2, 3, 0x12, 0x34, 0, corrupt]
            );
        }
    }

    #[test]
    fn a_failed_completion_has_its_fields_where_mlx5_err_cqe_has_them() {
        let cqe = Cqe::failed(&Failed {
            opcode: CqeOpcode::RequestError,
            wqe_opcode: 0x0a,
            qpn: 7,
            resource: 3,
            wqe_counter: 0xfffe,
            syndrome: Syndrome::Flushed,
        });
        assert_eq!(cqe.body[32..36], [0, 0, 0, 3]);
        assert_eq!(
            cqe.body[54..],
            [0xf9, 0x05, 0x0a, 0, 0, 7, 0xff, 0xfe, 0, 0xd0]
        );
        assert!(cqe.notifies);
    }
}
