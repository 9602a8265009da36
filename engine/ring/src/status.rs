//! How a request ended: the statuses of the verbs, with their causes.

use core::fmt;

/// How a request ended. The order is not that of `ibv_wc_status`; see
/// [`Status::ibv_wc_status`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// Completed.
    #[default]
    Success,
    /// The message is longer than the receive's segments, or than allowed.
    LocalLength,
    /// The queue pair is not consistent with the request.
    LocalQpOperation,
    /// A segment is not inside a memory region of its key, or the region lacks the access right.
    LocalProtection,
    /// Not executed: the queue pair was in the error state before.
    WrFlush,
    /// A memory window could not be bound.
    MwBind,
    /// The peer's answer was not what the protocol expects.
    BadResponse,
    /// A protection fault while the message was being placed.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer's key does not allow this access to this memory.
    RemoteAccess,
    /// The peer could not complete the operation.
    RemoteOperation,
    /// The peer did not acknowledge, in spite of all retries.
    RetryExceeded,
    /// The peer had no receive posted, in spite of all retries.
    RnrRetryExceeded,
    /// The peer aborted the operation.
    RemoteAborted,
    /// The device reported an error that has no other status.
    General,
}

impl Status {
    /// Every status, once.
    pub const ALL: [Self; 15] = [
        Self::Success,
        Self::LocalLength,
        Self::LocalQpOperation,
        Self::LocalProtection,
        Self::WrFlush,
        Self::MwBind,
        Self::BadResponse,
        Self::LocalAccess,
        Self::RemoteInvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperation,
        Self::RetryExceeded,
        Self::RnrRetryExceeded,
        Self::RemoteAborted,
        Self::General,
    ];

    /// Returns whether the request was carried out.
    #[inline]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }

    /// Returns the number of the same status in `enum ibv_wc_status` (`verbs.h`).
    pub const fn ibv_wc_status(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::LocalLength => 1,
            Self::LocalQpOperation => 2,
            Self::LocalProtection => 4,
            Self::WrFlush => 5,
            Self::MwBind => 6,
            Self::BadResponse => 7,
            Self::LocalAccess => 8,
            Self::RemoteInvalidRequest => 9,
            Self::RemoteAccess => 10,
            Self::RemoteOperation => 11,
            Self::RetryExceeded => 12,
            Self::RnrRetryExceeded => 13,
            Self::RemoteAborted => 16,
            Self::General => 21,
        }
    }

    /// Returns the status of a number in `enum ibv_wc_status`;
    /// [`Self::General`] for an unknown number.
    pub const fn from_ibv_wc_status(number: u32) -> Self {
        match number {
            0 => Self::Success,
            1 => Self::LocalLength,
            2 => Self::LocalQpOperation,
            4 => Self::LocalProtection,
            5 => Self::WrFlush,
            6 => Self::MwBind,
            7 => Self::BadResponse,
            8 => Self::LocalAccess,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetryExceeded,
            13 => Self::RnrRetryExceeded,
            16 => Self::RemoteAborted,
            _ => Self::General,
        }
    }

    /// Returns the likely cause and what to look at next.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Success => "the request was carried out",
            Self::LocalLength => {
                "the message did not fit: the receive's segments are shorter than what the peer \
                 sent, or a send is longer than the port's maximum; compare the sizes on both sides"
            }
            Self::LocalQpOperation => {
                "the device refused the request as built: check segment lengths, the read limits \
                 agreed at connect, and that inline sends are not reads"
            }
            Self::LocalProtection => {
                "a local segment is outside its memory region, its lkey is wrong or deregistered, \
                 or the region lacks local write access for a receive or read"
            }
            Self::WrFlush => {
                "the queue pair was already in the error state; the first completion with another \
                 status names the cause, or it was disconnected on purpose"
            }
            Self::MwBind => {
                "the window could not be bound: check that the region was registered with window \
                 binding allowed and covers the range"
            }
            Self::BadResponse => {
                "the peer's answer broke the protocol: check that both sides agree on the packet \
                 sequence numbers and MTU given to connect"
            }
            Self::LocalAccess => {
                "a protection fault while placing an incoming message: the receive's memory was \
                 deregistered or its region is too small"
            }
            Self::RemoteInvalidRequest => {
                "the peer refused the request: its receive is too short, the operation is not \
                 enabled there, or it allows fewer outstanding reads than this side requests"
            }
            Self::RemoteAccess => {
                "the peer's key does not cover the remote address and length, or does not grant \
                 this access; compare rkey, address and rights with what the peer registered"
            }
            Self::RemoteOperation => {
                "the peer failed to carry it out; its own completion queue names the reason"
            }
            Self::RetryExceeded => {
                "no acknowledgement: the peer is gone, its queue pair is not ready, or the path is \
                 broken; check that it runs and that both address records are current"
            }
            Self::RnrRetryExceeded => {
                "the peer had no receive posted in time: post receives earlier there, or raise \
                 rnr_retry (7 waits for ever)"
            }
            Self::RemoteAborted => "the peer aborted the operation; check the errors on its side",
            Self::General => {
                "the device reported a code that has no verbs name; note vendor_syndrome and the \
                 firmware version"
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLength => "local length error",
            Self::LocalQpOperation => "local queue pair operation error",
            Self::LocalProtection => "local protection error",
            Self::WrFlush => "flushed",
            Self::MwBind => "memory window bind error",
            Self::BadResponse => "bad response",
            Self::LocalAccess => "local access error",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "transport retry count exceeded",
            Self::RnrRetryExceeded => "receiver-not-ready retry count exceeded",
            Self::RemoteAborted => "remote aborted",
            Self::General => "general error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_distinct_verbs_numbers_names_and_hints() {
        for (i, a) in Status::ALL.into_iter().enumerate() {
            for b in &Status::ALL[i + 1..] {
                assert_ne!(a.ibv_wc_status(), b.ibv_wc_status());
                assert_ne!(a.to_string(), b.to_string());
                assert_ne!(a.hint(), b.hint());
            }
        }
    }

    #[test]
    fn a_status_is_found_again_by_its_number() {
        for status in Status::ALL {
            let number = status.ibv_wc_status();
            assert_eq!(Status::from_ibv_wc_status(number), status);
        }
        for unnamed in [3, 14, 15, 17, 22, u32::MAX] {
            assert_eq!(Status::from_ibv_wc_status(unnamed), Status::General);
        }
    }
}
