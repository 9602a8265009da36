//! The cause of a failure in an error CQE (`MLX5_CQE_SYNDROME_*`).

use crate::status::Status;

/// The `syndrome` byte of an error CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u8);

impl Syndrome {
    /// Returns the status of verbs for this syndrome.
    pub const fn status(self) -> Status {
        match self.0 {
            0x01 => Status::LocalLength,
            0x02 => Status::LocalQpOperation,
            0x04 => Status::LocalProtection,
            0x05 => Status::WrFlush,
            0x06 => Status::MwBind,
            0x10 => Status::BadResponse,
            0x11 => Status::LocalAccess,
            0x12 => Status::RemoteInvalidRequest,
            0x13 => Status::RemoteAccess,
            0x14 => Status::RemoteOperation,
            0x15 => Status::RetryExceeded,
            0x16 => Status::RnrRetryExceeded,
            0x22 => Status::RemoteAborted,
            _ => Status::General,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_status_has_exactly_one_syndrome_and_the_rest_are_general() {
        for status in Status::ALL {
            let count = (0..=255)
                .filter(|&s| Syndrome(s).status() == status)
                .count();
            let expected = match status {
                Status::Success => 0,
                Status::General => 256 - 13,
                _ => 1,
            };
            assert_eq!(count, expected, "{status:?}");
        }
    }
}
