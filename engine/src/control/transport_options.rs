//! What a site may set of its connections: service level, traffic class, MTU,
//! timeouts and retries, partition.

use super::limits::Bounded;
use super::port::Mtu;
use crate::error::ControlError;

/// The transport attributes of a connection that depend on the network rather than
/// on the application. `None` leaves a value to the default, or with rdma_cm to the
/// route that the kernel has found.
///
/// Each side sets its own values for what it sends; only the path MTU must be that
/// of the peer, see [`Self::mtu`]. iWARP connections have none of these attributes
/// and ignore all of them: TCP carries their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransportOptions {
    /// The service level: at most 15; 0 by default. On RoCE its lower three bits are
    /// the priority (PCP) of VLAN-tagged packets.
    pub sl: Option<u8>,
    /// The traffic class of packets with a global route header, which all packets
    /// on RoCE have; 0 by default. On RoCE v2 it is the byte of the IP header with
    /// the DSCP in its upper six bits and ECN in the lower two.
    pub traffic_class: Option<u8>,
    /// The most payload of a packet; by default what the port uses. Both sides use
    /// the smaller of their values, which they exchange with their addresses
    /// ([`super::EndpointAddress::mtu`]). With rdma_cm, whose messages carry the
    /// MTU of the route, a smaller value is refused.
    pub mtu: Option<Mtu>,
    /// The ACK timeout: 4.096 µs · 2^timeout, at most 31; 0 is infinite. By default
    /// [`Self::TIMEOUT`].
    pub timeout: Option<u8>,
    /// The number of retries after an ACK timeout: at most, and by default,
    /// [`super::Device::max_retry`].
    pub retry: Option<u8>,
    /// The number of retries after an RNR NAK (the peer has no receive posted): at
    /// most 7, which is infinite and the default.
    pub rnr_retry: Option<u8>,
    /// The delay that the peer has to wait after an RNR NAK of this side, as the
    /// code of the InfiniBand specification (1 is 0.01 ms, 12 is 0.64 ms, 0 is
    /// 655.36 ms): at most 31. By default [`Self::RNR_TIMER`].
    pub rnr_timer: Option<u8>,
    /// The partition: a P_Key of the port's table
    /// ([`super::Device::partition_key`]). By default the first of the table. With
    /// rdma_cm the partition is that of the network interface; on InfiniBand this
    /// option is refused there.
    pub pkey: Option<u16>,
}

impl TransportOptions {
    /// The default of the timeout: 67 ms.
    pub const TIMEOUT: u8 = 14;
    /// The number of RNR retries that means infinitely many; the default.
    pub const RNR_RETRY_INFINITE: u8 = 7;
    /// The default of [`Self::rnr_timer`]: 0.64 ms.
    pub const RNR_TIMER: u8 = 12;
    /// The most retries that the field holds.
    pub(super) const RETRY: u8 = 7;

    /// Returns the service level of an address without a route.
    pub(super) fn sl(&self) -> u8 {
        self.sl.unwrap_or(0)
    }

    /// Returns the traffic class of an address without a route.
    pub(super) fn traffic_class(&self) -> u8 {
        self.traffic_class.unwrap_or(0)
    }

    /// Returns the ACK timeout without a route.
    pub(crate) fn timeout(&self) -> u8 {
        self.timeout.unwrap_or(Self::TIMEOUT)
    }

    /// Returns the retries after an ACK timeout, before the device's limit.
    pub(crate) fn retry(&self) -> u8 {
        self.retry.unwrap_or(Self::RETRY)
    }

    /// Returns the retries after an RNR NAK.
    #[must_use]
    pub fn rnr_retry(&self) -> u8 {
        self.rnr_retry.unwrap_or(Self::RNR_RETRY_INFINITE)
    }

    /// Returns the code of the delay after an RNR NAK.
    #[must_use]
    pub fn rnr_timer(&self) -> u8 {
        self.rnr_timer.unwrap_or(Self::RNR_TIMER)
    }

    /// Returns the smaller of an MTU and the configured one.
    pub(super) fn at_most(&self, mtu: Mtu) -> Mtu {
        self.mtu.map_or(mtu, |most| most.min(mtu))
    }

    /// Refuses values that do not fit their field, with a message in place of
    /// `EINVAL`.
    pub(super) fn check(&self, operation: &'static str) -> Result<(), ControlError> {
        let fields = [
            ("the timeout", self.timeout, 31),
            ("the retry count", self.retry, Self::RETRY),
            ("the RNR retry count", self.rnr_retry, 7),
            ("the RNR timer", self.rnr_timer, 31),
            ("the service level", self.sl, 15),
        ];
        fields.into_iter().try_for_each(|(what, value, most)| {
            let bounded = Bounded {
                what,
                value: value.unwrap_or(0).into(),
                least: 0,
                most: most.into(),
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
        let good = TransportOptions {
            sl: Some(15),
            traffic_class: Some(255),
            timeout: Some(31),
            retry: Some(7),
            rnr_retry: Some(7),
            rnr_timer: Some(31),
            ..TransportOptions::default()
        };
        assert!(good.check("connect").is_ok());
        assert!(TransportOptions::default().check("connect").is_ok());
        let wrong = [
            TransportOptions {
                timeout: Some(32),
                ..good
            },
            TransportOptions {
                retry: Some(8),
                ..good
            },
            TransportOptions {
                rnr_retry: Some(8),
                ..good
            },
            TransportOptions {
                rnr_timer: Some(32),
                ..good
            },
            TransportOptions {
                sl: Some(16),
                ..good
            },
        ];
        for options in wrong {
            let error = options.check("connect").unwrap_err();
            assert_eq!(error.kind(), ControlErrorKind::Limit, "{options:?}");
        }
    }
}
