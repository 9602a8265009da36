//! The syndrome of an ack (AETH, IBA 9.7.5.2.1).

/// The kind of an ack or NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nic) enum Ack {
    /// A positive ack.
    Acknowledge,
    /// RNR NAK with a timer code.
    RnrNak(u8),
    /// NAK: PSN sequence error.
    SequenceError,
    /// NAK: invalid request.
    InvalidRequest,
    /// NAK: remote access error.
    AccessError,
    /// NAK: remote operational error.
    OperationalError,
    /// A reserved code.
    Reserved,
}

/// The credit count for "no end-to-end credits".
const NO_CREDITS: u8 = 0x1f;

impl Ack {
    pub(in crate::nic) fn parse(syndrome: u8) -> Self {
        match (syndrome >> 5, syndrome & 0x1f) {
            (0, _) => Self::Acknowledge,
            (1, code) => Self::RnrNak(code),
            (3, 0) => Self::SequenceError,
            (3, 1) => Self::InvalidRequest,
            (3, 2) => Self::AccessError,
            (3, 3) => Self::OperationalError,
            _ => Self::Reserved,
        }
    }

    pub(in crate::nic) fn syndrome(self) -> u8 {
        match self {
            Self::Acknowledge => NO_CREDITS,
            Self::RnrNak(code) => 0x20 | code & 0x1f,
            Self::SequenceError => 0x60,
            Self::InvalidRequest => 0x61,
            Self::AccessError => 0x62,
            Self::OperationalError => 0x63,
            Self::Reserved => 0x7f,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ack_kind_is_parsed_from_its_syndrome() {
        let mut all = vec![
            Ack::Acknowledge,
            Ack::SequenceError,
            Ack::InvalidRequest,
            Ack::AccessError,
            Ack::OperationalError,
        ];
        all.extend((0..32).map(Ack::RnrNak));
        for ack in all {
            assert_eq!(Ack::parse(ack.syndrome()), ack);
        }
        assert_eq!(Ack::parse(0), Ack::Acknowledge);
        assert_eq!(Ack::parse(0x40), Ack::Reserved);
    }
}
