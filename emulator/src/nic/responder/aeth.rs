//! The syndrome of an acknowledge (AETH, IBA 9.7.5.2.1).

/// What an acknowledge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nic) enum Answer {
    /// All is well.
    Acknowledge,
    /// Wait for the time of this code.
    ReceiverNotReady(u8),
    /// A packet is missing.
    SequenceError,
    /// The request is not valid here.
    InvalidRequest,
    /// Key, bounds or rights.
    AccessError,
    /// The responder failed.
    OperationalError,
    /// Not defined.
    Reserved,
}

/// No end-to-end credits are used.
const NO_CREDITS: u8 = 0x1f;

impl Answer {
    pub(in crate::nic) fn parse(syndrome: u8) -> Self {
        match (syndrome >> 5, syndrome & 0x1f) {
            (0, _) => Self::Acknowledge,
            (1, code) => Self::ReceiverNotReady(code),
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
            Self::ReceiverNotReady(code) => 0x20 | code & 0x1f,
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
    fn every_answer_survives_its_syndrome() {
        let mut all = vec![
            Answer::Acknowledge,
            Answer::SequenceError,
            Answer::InvalidRequest,
            Answer::AccessError,
            Answer::OperationalError,
        ];
        all.extend((0..32).map(Answer::ReceiverNotReady));
        for answer in all {
            assert_eq!(Answer::parse(answer.syndrome()), answer);
        }
        assert_eq!(Answer::parse(0), Answer::Acknowledge);
        assert_eq!(Answer::parse(0x40), Answer::Reserved);
    }
}
