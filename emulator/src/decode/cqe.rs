//! CQEs as bytes: `mlx5_cqe64` and `mlx5_err_cqe`.
//!
//! A CQE is built here as a value; [`crate::nic`] writes it to the ring, the byte with
//! the owner bit last.

/// Size of a completion in bytes; in a 128-byte CQE it is the second half.
pub const CQE: usize = 64;
/// Offset of the byte that holds opcode, format, solicited and owner bits.
pub const OP_OWN: usize = 63;

/// CQE opcodes (upper half of `op_own`).
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
    /// The CQ was resized: the last CQE of the old ring.
    Resized = 5,
    /// A send request failed.
    RequestError = 13,
    /// A receive failed.
    ResponseError = 14,
}

/// Error syndromes (`MLX5_CQE_SYNDROME_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    /// A message does not fit into its buffer.
    LocalLength = 0x01,
    /// The WQE is not valid.
    LocalQpOperation = 0x02,
    /// Key, bounds or access flags do not permit the local access.
    LocalProtection = 0x04,
    /// Flushed because the QP is in error.
    Flushed = 0x05,
    /// A memory window could not be bound.
    WindowBind = 0x06,
    /// A response was not valid.
    BadResponse = 0x10,
    /// A local failure of a peer's request.
    LocalAccess = 0x11,
    /// The responder rejected the request as invalid.
    RemoteInvalidRequest = 0x12,
    /// Key, bounds or access flags do not permit the remote access.
    RemoteAccess = 0x13,
    /// The responder failed.
    RemoteOperation = 0x14,
    /// No response after all retries.
    TransportRetryExceeded = 0x15,
    /// No receive posted at the responder after all RNR retries.
    RnrRetryExceeded = 0x16,
    /// The responder aborted.
    RemoteAborted = 0x22,
}

impl Syndrome {
    /// Returns the vendor syndrome that a ConnectX reports with it.
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

/// The fields of a successful completion.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// Completion code.
    pub opcode: CqeOpcode,
    /// The opcode of the completed WQE (requests), else 0.
    pub wqe_opcode: u8,
    /// QP number.
    pub qpn: u32,
    /// User index or SRQ number, depending on the CQE version.
    pub resource: u32,
    /// Send: WQEBB counter of the WQE's start. Receive: counter. SRQ: WQE index.
    pub wqe_counter: u16,
    /// Bytes received or read.
    pub byte_count: u32,
    /// Immediate data in memory order.
    pub immediate: [u8; 4],
    /// QP number of the peer, for receives.
    pub remote_qpn: u32,
    /// Whether the packet had a GRH, for receives.
    pub has_grh: bool,
    /// Service level, for receives.
    pub service_level: u8,
    /// Source LID, for receives.
    pub source_lid: u16,
    /// Whether the sender requested a solicited event.
    pub solicited: bool,
    /// Device time, in ticks.
    pub timestamp: u64,
}

/// The fields of a failed completion.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// [`CqeOpcode::RequestError`] or [`CqeOpcode::ResponseError`].
    pub opcode: CqeOpcode,
    /// The opcode of the failed WQE (requests), else 0.
    pub wqe_opcode: u8,
    /// QP number.
    pub qpn: u32,
    /// User index or SRQ number, depending on the CQE version.
    pub resource: u32,
    /// The same as [`Success::wqe_counter`].
    pub wqe_counter: u16,
    /// Error syndrome.
    pub syndrome: Syndrome,
}

/// A CQE, complete except for its owner bit.
#[derive(Clone, Debug)]
pub struct Cqe {
    /// The first half of a 128-byte CQE: scattered data or zeros.
    pub head: [u8; CQE],
    /// The completion.
    pub body: [u8; CQE],
    /// Whether it fires a CQ that is armed for solicited completions.
    pub solicited: bool,
}

impl Cqe {
    /// Returns a successful completion.
    #[must_use]
    pub fn success(success: &Success) -> Self {
        let mut body = [0; CQE];
        body[22..24].copy_from_slice(&success.source_lid.to_be_bytes());
        let flags_rqpn = u32::from(success.has_grh) << 28
            | u32::from(success.service_level & 0xf) << 24
            | success.remote_qpn & 0x00ff_ffff;
        body[24..28].copy_from_slice(&flags_rqpn.to_be_bytes());
        body[32..36].copy_from_slice(&success.resource.to_be_bytes());
        body[36..40].copy_from_slice(&success.immediate);
        body[44..48].copy_from_slice(&success.byte_count.to_be_bytes());
        body[48..56].copy_from_slice(&success.timestamp.to_be_bytes());
        let qpn = u32::from(success.wqe_opcode) << 24 | success.qpn & 0x00ff_ffff;
        body[56..60].copy_from_slice(&qpn.to_be_bytes());
        body[60..62].copy_from_slice(&success.wqe_counter.to_be_bytes());
        body[OP_OWN] = (success.opcode as u8) << 4 | u8::from(success.solicited) << 1;
        Self {
            head: [0; CQE],
            body,
            solicited: success.solicited,
        }
    }

    /// Returns a failed completion, which counts as solicited.
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
            solicited: true,
        }
    }

    /// Returns the last CQE of a ring that the CQ leaves (`MLX5_CQE_RESIZE_CQ`).
    #[must_use]
    pub fn resized() -> Self {
        let mut body = [0; CQE];
        body[OP_OWN] = (CqeOpcode::Resized as u8) << 4;
        Self {
            head: [0; CQE],
            body,
            solicited: false,
        }
    }

    /// Returns the number of the completion's QP.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        u32::from_be_bytes([0, self.body[57], self.body[58], self.body[59]])
    }

    /// Changes the CQE to a failed completion of the same WQE with an unknown syndrome.
    pub fn corrupt(&mut self) {
        const NO_SYNDROME: u8 = 0xee;
        self.set_error(NO_SYNDROME, NO_SYNDROME);
    }

    /// Changes the CQE to a failed completion of the same WQE.
    pub fn fail(&mut self, syndrome: Syndrome) {
        self.set_error(syndrome as u8, syndrome.vendor());
    }

    /// Changes the CQE to a flushed completion, unless it has already failed.
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

    /// Returns the syndrome of a completion with an error.
    #[must_use]
    pub fn syndrome(&self) -> Option<u8> {
        let opcode = self.body[OP_OWN] >> 4;
        let failed = [CqeOpcode::RequestError, CqeOpcode::ResponseError];
        let is_error = failed.iter().any(|&it| it as u8 == opcode);
        is_error.then_some(self.body[55])
    }

    /// Returns whether the CQE is for a request, not for a receive.
    #[must_use]
    pub fn is_request(&self) -> bool {
        let opcode = self.body[OP_OWN] >> 4;
        opcode == CqeOpcode::Request as u8 || opcode == CqeOpcode::RequestError as u8
    }

    fn set_error(&mut self, syndrome: u8, vendor: u8) {
        let failed = match self.is_request() {
            true => CqeOpcode::RequestError,
            false => CqeOpcode::ResponseError,
        };
        fail(&mut self.body, syndrome, vendor);
        self.body[OP_OWN] = (failed as u8) << 4;
        self.solicited = true;
    }

    /// Scatters up to 32 bytes of data to the first bytes of the completion, whose
    /// fields they overwrite as on hardware.
    pub fn inline_32(&mut self, data: &[u8]) {
        self.body[..data.len()].copy_from_slice(data);
        self.body[OP_OWN] |= 0x4;
    }

    /// Scatters up to 64 bytes of data to the first half of a 128-byte CQE.
    pub fn inline_64(&mut self, data: &[u8]) {
        self.head[..data.len()].copy_from_slice(data);
        self.body[OP_OWN] |= 0x8;
    }
}

/// Writes the syndromes of an error CQE. They are at the place of the timestamp of a
/// good CQE. The rest of that field is filled with garbage that differs between WQEs,
/// so that software that reads it as a timestamp gets a wrong time.
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
    fn a_failed_completion_has_no_timestamp() {
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
        // Earlier or later than any time in a test.
        let day = 86_400 * 78_125_000;
        assert!(stamps.iter().all(|stamp| !(1..100 * day).contains(stamp)));
        assert!(!stamps.is_sorted());
    }

    #[test]
    fn a_successful_completion_has_the_layout_of_mlx5_cqe64() {
        let cqe = Cqe::success(&Success {
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
    fn a_corrupt_completion_is_a_failed_completion_of_the_same_wqe() {
        for (opcode, corrupt) in [(CqeOpcode::Request, 0xd0), (CqeOpcode::SendImmediate, 0xe0)] {
            let mut cqe = Cqe::success(&Success {
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
    fn a_failed_completion_has_the_layout_of_mlx5_err_cqe() {
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
        assert!(cqe.solicited);
    }
}
