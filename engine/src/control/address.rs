//! The address of an endpoint, and the options of a connection.

use super::access::Access;
use super::limits::Bounded;
use super::port::LinkLayer;
use crate::error::ControlError;

/// The address of an endpoint: what its peer needs to connect to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointAddress {
    /// QP number, 24 bits.
    pub qpn: u32,
    /// The first packet sequence number that the endpoint sends, 24 bits.
    pub psn: u32,
    /// The LID of its port; 0 on Ethernet.
    pub lid: u16,
    /// The GID of its port.
    pub gid: [u8; 16],
    /// The index of that GID in the port's own table.
    pub gid_index: u8,
    /// The MTU of its port, as a code of `enum ibv_mtu`.
    pub mtu: u8,
    /// The link layer of its port.
    pub link: LinkLayer,
}

impl EndpointAddress {
    /// Returns an address with a QP number only, for a connection manager that
    /// finds the route itself (`rdma_cm`).
    #[must_use]
    pub fn of_number(qpn: u32) -> Self {
        Self {
            qpn,
            psn: 0,
            lid: 0,
            gid: [0; 16],
            gid_index: 0,
            mtu: 1,
            link: LinkLayer::InfiniBand,
        }
    }
}

/// The options of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The local port.
    pub port: u8,
    /// The index of the local GID; `None` lets [`super::GidChoice`] choose.
    pub gid_index: Option<u8>,
    /// The ACK timeout: 4.096 µs · 2^timeout; 0 is infinite. At most 31.
    pub timeout: u8,
    /// The number of retries after an ACK timeout: at most 7; at most 6 on devices
    /// other than mlx5, since some of them take 7 as infinite.
    pub retry: u8,
    /// The number of retries after an RNR NAK (the peer has no receive posted); 7
    /// is infinite.
    pub rnr_retry: u8,
    /// The delay that the peer has to wait after an RNR NAK of this side, as the
    /// code of the InfiniBand specification (12 is 0.64 ms; 0 is 655 ms). At most
    /// 31.
    pub min_rnr_timer: u8,
    /// The most RDMA reads of this side in flight; reduced to the device's limit.
    pub reads_issued: u8,
    /// The most RDMA reads of the peer served at a time; reduced to the device's
    /// limit.
    pub reads_served: u8,
    /// What the peer may do with local memory.
    pub access: Access,
    /// Service level, at most 15.
    pub sl: u8,
    /// Hop limit of routed packets.
    pub hop_limit: u8,
    /// Traffic class of routed packets; on RoCE v2 the DSCP is in its upper six bits.
    pub traffic_class: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            timeout: 14,
            retry: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            reads_issued: 16,
            reads_served: 16,
            access: Access::REMOTE,
            sl: 0,
            hop_limit: 64,
            traffic_class: 0,
        }
    }
}

impl ConnectOptions {
    /// Refuses values that do not fit their field, with a message in place of
    /// `EINVAL`.
    pub(super) fn check(&self, operation: &'static str) -> Result<(), ControlError> {
        let fields = [
            ("the timeout", self.timeout, 31),
            ("the retry count", self.retry, 7),
            ("the RNR retry count", self.rnr_retry, 7),
            ("the RNR timer", self.min_rnr_timer, 31),
            ("the service level", self.sl, 15),
        ];
        fields.into_iter().try_for_each(|(what, value, most)| {
            let bounded = Bounded {
                what,
                value: value.into(),
                least: 0,
                most,
                limit: "of its field",
            };
            bounded.check(operation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ControlErrorKind;

    #[test]
    fn options_that_do_not_fit_their_field_are_refused() {
        let good = ConnectOptions::default();
        assert!(good.check("connect").is_ok());
        let wrong = [
            ConnectOptions {
                timeout: 32,
                ..good
            },
            ConnectOptions { retry: 8, ..good },
            ConnectOptions {
                rnr_retry: 8,
                ..good
            },
            ConnectOptions {
                min_rnr_timer: 32,
                ..good
            },
            ConnectOptions { sl: 16, ..good },
        ];
        for options in wrong {
            let error = options.check("connect").unwrap_err();
            assert_eq!(error.kind(), ControlErrorKind::Limit, "{options:?}");
        }
    }
}
