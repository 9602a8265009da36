//! The bytes of a message: a management datagram (MAD) as the kernel's communication
//! manager writes it (IBA vol. 1, 13.4.2 and 12.6; `ibta_vol1_c12.h` of Linux).
//!
//! Alternate paths and private data of MRA, RTU, DREQ and DREP are left out, as rdma_cm
//! leaves them out. Decoding ignores reserved fields and transaction IDs, and checks
//! everything else, since every process of the user can write to the fabric.

use super::endpoint::ack_timeout;
use super::message::{
    ACK_DELAY, Answers, Body, CommId, Ece, Message, Path, Rej, RejReason, Rep, Req, SidrRep,
    SidrReq, SidrStatus,
};

/// Size of a management datagram in bytes, and of its header.
const LEN: usize = 256;
const HEADER: usize = 24;
/// Base version, class (communication management), class version, method (Send).
const KIND: [u8; 4] = [1, 7, 2, 3];
/// LIDs that routed paths have.
const PERMISSIVE_LID: u16 = 0xffff;
/// `enum ibv_qp_type`.
const RC: u8 = 2;
const UC: u8 = 3;
const XRC_INI: u8 = 9;
const XRC_TGT: u8 = 10;
/// The transport services of a REQ: reliable and unreliable connections, and others, of
/// which the extended transport type 1 is XRC.
const RELIABLE: u8 = 0;
const UNRELIABLE: u8 = 1;
const EXTENDED: u8 = 3;
const XRC: u8 = 1;

// Attributes.
const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

/// Encodes a message.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    let Message {
        sender,
        receiver,
        body,
    } = message;
    let mut mad = Mad([0; LEN]);
    let mut options = 0;
    mad.u32(0, sender.0);
    mad.u32(4, receiver.0);
    // The transaction is named by the manager that began it.
    let (attribute, transaction) = match body {
        Body::Req(req) => {
            options = req.ece.options;
            mad.req(req);
            (REQ, sender)
        }
        Body::Mra { answers, time } => {
            mad.u8(8, (*answers as u8) << 6);
            mad.u8(9, time << 3);
            (MRA, answers.transaction(sender, receiver))
        }
        Body::Rep(rep) => {
            options = rep.ece.options;
            mad.rep(rep);
            (REP, receiver)
        }
        Body::Rtu => (RTU, sender),
        Body::Rej(rej) => {
            mad.u8(8, (rej.answers as u8) << 6);
            mad.u16(10, rej.reason.0);
            if let Some(guid) = rej.guid {
                mad.u8(9, (guid.len() as u8) << 1);
                mad.put(12, &guid);
            }
            mad.put(84, &rej.private_data);
            (REJ, rej.answers.transaction(sender, receiver))
        }
        Body::Dreq { qpn } => {
            mad.u24(8, *qpn);
            (DREQ, sender)
        }
        Body::Drep => (DREP, receiver),
        Body::SidrReq(req) => {
            mad.u32(4, u32::from(req.pkey) << 16);
            mad.u64(8, req.service_id);
            mad.put(16, &req.private_data);
            (SIDR_REQ, sender)
        }
        Body::SidrRep(rep) => {
            options = rep.ece.options;
            mad.u32(0, receiver.0);
            mad.u32(
                4,
                u32::from(rep.status.0) << 24 | rep.ece.vendor_id >> 8 & 0xffff,
            );
            mad.u24(8, rep.qpn);
            mad.u8(11, rep.ece.vendor_id as u8);
            mad.u64(12, rep.service_id);
            mad.u32(20, rep.qkey);
            mad.put(96, &rep.private_data);
            (SIDR_REP, receiver)
        }
    };
    let Mad(mut bytes) = mad;
    bytes[..4].copy_from_slice(&KIND);
    bytes[12..16].copy_from_slice(&transaction.0.to_be_bytes());
    bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
    bytes[20..24].copy_from_slice(&options.to_be_bytes());
    bytes.to_vec()
}

/// Decodes a message. Returns `None` if a field or the length is invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
    let mad = Mad(bytes.try_into().ok()?);
    if !bytes.starts_with(&KIND) {
        return None;
    }
    let attribute = u16::from_be_bytes([bytes[16], bytes[17]]);
    let options = u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
    let (mut sender, mut receiver) = (CommId(mad.get_u32(0)), CommId(mad.get_u32(4)));
    let body = match attribute {
        REQ => {
            receiver = CommId::NONE;
            Body::Req(Box::new(mad.get_req(options)?))
        }
        MRA => Body::Mra {
            answers: Answers::of(mad.get_u8(8) >> 6)?,
            time: mad.get_u8(9) >> 3,
        },
        REP => Body::Rep(Box::new(mad.get_rep(options))),
        RTU => Body::Rtu,
        REJ => Body::Rej(Box::new(Rej {
            answers: Answers::of(mad.get_u8(8) >> 6)?,
            reason: RejReason(mad.get_u16(10)),
            guid: (mad.get_u8(9) >> 1 == 8).then(|| mad.get(12)),
            private_data: mad.get(84),
        })),
        DREQ => Body::Dreq {
            qpn: mad.get_u24(8),
        },
        DREP => Body::Drep,
        SIDR_REQ => {
            receiver = CommId::NONE;
            Body::SidrReq(Box::new(SidrReq {
                service_id: mad.get_u64(8),
                pkey: mad.get_u16(4),
                private_data: mad.get(16),
            }))
        }
        SIDR_REP => {
            (sender, receiver) = (CommId::NONE, sender);
            let [high, middle] = mad.get(6);
            Body::SidrRep(Box::new(SidrRep {
                status: SidrStatus(mad.get_u8(4)),
                qpn: mad.get_u24(8),
                service_id: mad.get_u64(12),
                qkey: mad.get_u32(20),
                ece: Ece {
                    vendor_id: u32::from_be_bytes([0, high, middle, mad.get_u8(11)]),
                    options,
                },
                private_data: mad.get(96),
            }))
        }
        _ => return None,
    };
    // A refusal need not name a connection of its sender.
    let is_anonymous = matches!(body, Body::Rej(_) | Body::SidrRep(_));
    (sender != CommId::NONE || is_anonymous).then_some(Message {
        sender,
        receiver,
        body,
    })
}

/// A management datagram. Offsets are those of the specification, without the header.
struct Mad([u8; LEN]);

impl Mad {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[HEADER + at..HEADER + at + bytes.len()].copy_from_slice(bytes);
    }

    fn u8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_be_bytes());
    }

    /// Puts the lower 24 bits.
    fn u24(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes()[1..]);
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_be_bytes());
    }

    fn req(&mut self, req: &Req) {
        let path = &req.path;
        let (transport, extended) = match req.qp_type {
            UC => (UNRELIABLE, 0),
            XRC_INI => (EXTENDED, XRC),
            _ => (RELIABLE, 0),
        };
        self.u24(5, req.ece.vendor_id);
        self.u64(8, req.service_id);
        self.put(16, &req.guid);
        self.u24(32, req.qpn);
        self.u8(35, req.responder_resources);
        self.u8(39, req.initiator_depth);
        let bits = req.response_timeout << 3;
        self.u8(43, bits | transport << 1 | u8::from(req.flow_control));
        self.u24(44, req.starting_psn);
        self.u8(47, bits | req.retry_count);
        self.u16(48, path.pkey);
        self.u8(50, path.mtu << 4 | req.rnr_retry_count);
        self.u8(
            51,
            req.max_cm_retries << 4 | u8::from(req.srq) << 3 | extended,
        );
        let is_local = is_local(path.hop_limit);
        for (at, lid) in [(52, path.slid), (54, path.dlid)] {
            self.u16(at, if is_local { lid } else { PERMISSIVE_LID });
        }
        self.put(56, &path.sgid);
        self.put(72, &path.dgid);
        self.u32(88, path.flow_label << 12 | u32::from(path.rate));
        self.u8(92, path.traffic_class);
        self.u8(93, path.hop_limit);
        self.u8(94, path.sl << 4 | u8::from(is_local) << 3);
        self.u8(95, ack_timeout(ACK_DELAY, path.packet_life_time) << 3);
        self.put(140, &req.private_data);
    }

    fn rep(&mut self, rep: &Rep) {
        let [_, high, middle, low] = rep.ece.vendor_id.to_be_bytes();
        self.u24(12, rep.qpn);
        self.u8(15, high);
        self.u8(19, middle);
        self.u24(20, rep.starting_psn);
        self.u8(23, low);
        self.u8(24, rep.responder_resources);
        self.u8(25, rep.initiator_depth);
        self.u8(26, rep.target_ack_delay << 3 | u8::from(rep.flow_control));
        self.u8(27, rep.rnr_retry_count << 5 | u8::from(rep.srq) << 4);
        self.put(28, &rep.guid);
        self.put(36, &rep.private_data);
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|index| self.0[HEADER + at + index])
    }

    fn get_u8(&self, at: usize) -> u8 {
        self.0[HEADER + at]
    }

    fn get_u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.get(at))
    }

    fn get_u24(&self, at: usize) -> u32 {
        let [high, middle, low] = self.get(at);
        u32::from_be_bytes([0, high, middle, low])
    }

    fn get_u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.get(at))
    }

    fn get_u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.get(at))
    }

    fn get_req(&self, options: u32) -> Option<Req> {
        let [transport, counts, sizes, bits] = [43, 47, 50, 51].map(|at| self.get_u8(at));
        let is_local = is_local(self.get_u8(93));
        let lid = |at| if is_local { self.get_u16(at) } else { 0 };
        let label_rate = self.get_u32(88);
        let life_time = (self.get_u8(95) >> 3).saturating_sub(1);
        let mtu = sizes >> 4;
        Some(Req {
            service_id: self.get_u64(8),
            guid: self.get(16),
            qpn: self.get_u24(32),
            qp_type: match (transport >> 1 & 3, bits & 7) {
                (RELIABLE, _) => RC,
                (UNRELIABLE, _) => UC,
                (EXTENDED, XRC) => XRC_TGT,
                _ => return None,
            },
            starting_psn: self.get_u24(44),
            responder_resources: self.get_u8(35),
            initiator_depth: self.get_u8(39),
            flow_control: transport & 1 != 0,
            retry_count: counts & 7,
            rnr_retry_count: sizes & 7,
            srq: bits & 8 != 0,
            max_cm_retries: bits >> 4,
            response_timeout: counts >> 3,
            path: (mtu < 6).then(|| Path {
                sgid: self.get(56),
                dgid: self.get(72),
                slid: lid(52),
                dlid: lid(54),
                pkey: self.get_u16(48),
                flow_label: label_rate >> 12,
                traffic_class: self.get_u8(92),
                hop_limit: self.get_u8(93),
                sl: self.get_u8(94) >> 4,
                mtu,
                rate: label_rate as u8 & 0x3f,
                packet_life_time: life_time,
            })?,
            ece: Ece {
                vendor_id: self.get_u24(5),
                options,
            },
            private_data: self.get(140),
        })
    }

    fn get_rep(&self, options: u32) -> Rep {
        let [delay, bits] = self.get(26);
        let vendor = [0, self.get_u8(15), self.get_u8(19), self.get_u8(23)];
        Rep {
            qpn: self.get_u24(12),
            guid: self.get(28),
            starting_psn: self.get_u24(20),
            responder_resources: self.get_u8(24),
            initiator_depth: self.get_u8(25),
            flow_control: delay & 1 != 0,
            rnr_retry_count: bits >> 5,
            srq: bits & 0x10 != 0,
            target_ack_delay: delay >> 3,
            ece: Ece {
                vendor_id: u32::from_be_bytes(vendor),
                options,
            },
            private_data: self.get(36),
        }
    }
}

/// Returns whether a path stays in its subnet.
fn is_local(hop_limit: u8) -> bool {
    hop_limit <= 1
}
