//! The bytes of a message in the payload of a packet.
//!
//! Both ends run the same version of this crate, which the version of the
//! fabric's segment ensures, so the layout is our own and not that of a MAD.
//! Decoding checks every field and the length, since every process of the user
//! can write to the fabric.

use super::message::{
    Body, CommId, Ece, Message, Path, Rej, RejReason, Rep, Req, SidrRep, SidrReq, SidrStatus,
};

/// Largest 24-bit number: queue pairs and PSNs.
const MAX_24: u32 = 0xff_ffff;

/// Encodes a message.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(256));
    out.u32(message.sender.0);
    out.u32(message.receiver.0);
    match &message.body {
        Body::Req(req) => {
            out.u8(0);
            out.req(req);
        }
        Body::Mra(time) => {
            out.u8(1);
            out.u8(*time);
        }
        Body::Rep(rep) => {
            out.u8(2);
            out.rep(rep);
        }
        Body::Rtu => out.u8(3),
        Body::Rej(rej) => {
            out.u8(4);
            out.u16(rej.reason.0);
            out.bytes(&rej.private_data);
        }
        Body::Dreq => out.u8(5),
        Body::Drep => out.u8(6),
        Body::SidrReq(req) => {
            out.u8(7);
            out.u64(req.service_id);
            out.u16(req.pkey);
            out.bytes(&req.private_data);
        }
        Body::SidrRep(rep) => {
            out.u8(8);
            out.u8(rep.status.0);
            out.u32(rep.qpn);
            out.u32(rep.qkey);
            out.ece(rep.ece);
            out.bytes(&rep.private_data);
        }
    }
    out.0
}

/// Decodes a message. Returns `None` if a field or the length is invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
    let mut from = Reader(bytes);
    let (sender, receiver) = (CommId(from.u32()?), CommId(from.u32()?));
    let body = match from.u8()? {
        0 => Body::Req(Box::new(from.req()?)),
        1 => Body::Mra(from.five_bits()?),
        2 => Body::Rep(Box::new(from.rep()?)),
        3 => Body::Rtu,
        4 => Body::Rej(Box::new(Rej {
            reason: RejReason(from.u16()?),
            private_data: from.array()?,
        })),
        5 => Body::Dreq,
        6 => Body::Drep,
        7 => Body::SidrReq(Box::new(SidrReq {
            service_id: from.u64()?,
            pkey: from.u16()?,
            private_data: from.array()?,
        })),
        8 => Body::SidrRep(Box::new(SidrRep {
            status: SidrStatus(from.u8()?),
            qpn: from.number_24()?,
            qkey: from.u32()?,
            ece: from.ece()?,
            private_data: from.array()?,
        })),
        _ => return None,
    };
    let is_whole = from.0.is_empty() && sender != CommId::NONE;
    is_whole.then_some(Message {
        sender,
        receiver,
        body,
    })
}

struct Writer(Vec<u8>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    fn ece(&mut self, ece: Ece) {
        self.u32(ece.vendor_id);
        self.u32(ece.options);
    }

    fn path(&mut self, path: &Path) {
        self.bytes(&path.sgid);
        self.bytes(&path.dgid);
        self.u16(path.slid);
        self.u16(path.dlid);
        self.u16(path.pkey);
        self.u32(path.flow_label);
        let (class, hops, sl) = (path.traffic_class, path.hop_limit, path.sl);
        self.bytes(&[class, hops, sl, path.mtu, path.rate, path.packet_life_time]);
    }

    fn req(&mut self, req: &Req) {
        self.u64(req.service_id);
        self.u32(req.qpn);
        self.u32(req.starting_psn);
        self.bytes(&[
            req.qp_type,
            req.responder_resources,
            req.initiator_depth,
            req.flow_control.into(),
            req.retry_count,
            req.rnr_retry_count,
            req.srq.into(),
            req.max_cm_retries,
            req.response_timeout,
        ]);
        self.path(&req.path);
        self.ece(req.ece);
        self.bytes(&req.private_data);
    }

    fn rep(&mut self, rep: &Rep) {
        self.u32(rep.qpn);
        self.u32(rep.starting_psn);
        self.bytes(&[
            rep.responder_resources,
            rep.initiator_depth,
            rep.flow_control.into(),
            rep.rnr_retry_count,
            rep.srq.into(),
            rep.target_ack_delay,
        ]);
        self.ece(rep.ece);
        self.bytes(&rep.private_data);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn below(&mut self, limit: u8) -> Option<u8> {
        self.u8().filter(|&value| value < limit)
    }

    fn five_bits(&mut self) -> Option<u8> {
        self.below(32)
    }

    fn flag(&mut self) -> Option<bool> {
        self.below(2).map(|value| value == 1)
    }

    fn number_24(&mut self) -> Option<u32> {
        self.u32().filter(|&value| value <= MAX_24)
    }

    fn ece(&mut self) -> Option<Ece> {
        Some(Ece {
            vendor_id: self.u32()?,
            options: self.u32()?,
        })
    }

    fn path(&mut self) -> Option<Path> {
        Some(Path {
            sgid: self.array()?,
            dgid: self.array()?,
            slid: self.u16()?,
            dlid: self.u16()?,
            pkey: self.u16()?,
            flow_label: self.u32()?,
            traffic_class: self.u8()?,
            hop_limit: self.u8()?,
            sl: self.below(16)?,
            mtu: self.below(6)?,
            rate: self.below(64)?,
            packet_life_time: self.below(64)?,
        })
    }

    fn req(&mut self) -> Option<Req> {
        Some(Req {
            service_id: self.u64()?,
            qpn: self.number_24()?,
            starting_psn: self.number_24()?,
            qp_type: self.u8()?,
            responder_resources: self.u8()?,
            initiator_depth: self.u8()?,
            flow_control: self.flag()?,
            retry_count: self.below(8)?,
            rnr_retry_count: self.below(8)?,
            srq: self.flag()?,
            max_cm_retries: self.below(16)?,
            response_timeout: self.five_bits()?,
            path: self.path()?,
            ece: self.ece()?,
            private_data: self.array()?,
        })
    }

    fn rep(&mut self) -> Option<Rep> {
        Some(Rep {
            qpn: self.number_24()?,
            starting_psn: self.number_24()?,
            responder_resources: self.u8()?,
            initiator_depth: self.u8()?,
            flow_control: self.flag()?,
            rnr_retry_count: self.below(8)?,
            srq: self.flag()?,
            target_ack_delay: self.five_bits()?,
            ece: self.ece()?,
            private_data: self.array()?,
        })
    }
}
