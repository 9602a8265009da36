//! The options of connections, checked against the device, its port and the connection manager.
//!
//! What a connection manager cannot apply is refused when the adapter is opened.

use core::net::Ipv6Addr;

use dat_engine::cm::ManagerKind;
use dat_engine::{Transport, TransportOptions};

use super::attributes::NamedAttribute;
use super::open::Opening;
use crate::error::{DatError, Result};
use crate::options::Options;
use crate::status::{ReturnType, Subtype};

/// The default ACK timeout: 4.096 µs · 2^16 = 268 ms, as in OFED's DAPL. With seven retries, a
/// connection survives a pause of the network of 2 s. Devices may wait up to four times as long.
const TIMEOUT: u8 = 16;
/// The value of an attribute that the kernel determines for each connection.
const ROUTE: &str = "route";
/// The value of an attribute that connections do not have.
const NONE: &str = "none";

impl Opening<'_> {
    /// Returns the options that connections use.
    ///
    /// # Errors
    /// `DAT_INVALID_ADDRESS` if the port does not have the GID or the P_Key;
    /// `DAT_INVALID_PARAMETER` if the device does not support a value; `DAT_MODEL_NOT_SUPPORTED` if
    /// the connection manager or the transport does not have the option.
    pub(super) fn transport(&self) -> Result<TransportOptions> {
        let configured = self.options.transport;
        if self.is_iwarp() {
            return match self.keys().first() {
                None => Ok(configured),
                Some(key) => Err(refused(format!(
                    "the key {key} cannot be used: {} is an iWARP device, whose connections are \
                     TCP connections; leave the key out",
                    self.name()
                ))),
            };
        }
        self.check_gid()?;
        self.check_partition()?;
        self.check_times()?;
        if self.is_rdma_cm() {
            self.check_mtu()?;
            return Ok(configured);
        }
        Ok(TransportOptions {
            timeout: Some(configured.timeout.unwrap_or_else(|| self.default_timeout())),
            ..configured
        })
    }

    /// Returns the options that connections use, as attributes that are named after the keys.
    pub(super) fn named(&self, resolved: &TransportOptions) -> Vec<NamedAttribute> {
        let number = |value: u8| value.to_string();
        let or_route = |value: Option<u8>, default: Option<u8>| match (value, self.is_rdma_cm()) {
            (Some(value), _) => number(value),
            (None, true) => ROUTE.to_owned(),
            (None, false) => default.map_or(NONE.to_owned(), number),
        };
        let gid = self.port.gid().ok().map(|choice| choice.entry.index);
        let mtu = match self.is_rdma_cm() {
            true => ROUTE.to_owned(),
            false => {
                let active = self.port.active_mtu;
                let most = resolved.mtu.unwrap_or(active);
                most.min(active).bytes().to_string()
            }
        };
        let pkey = match (self.is_rdma_cm(), resolved.pkey) {
            (true, None) => ROUTE.to_owned(),
            (_, wanted) => self
                .device
                .partition_key(self.port.number, wanted)
                .map_or(NONE.to_owned(), |entry| format!("{:#06x}", entry.value)),
        };
        let retry = resolved.retry.unwrap_or_else(|| self.device.max_retry());
        let values = [
            ("gid", or_route(self.options.gid, gid)),
            ("pkey", pkey),
            ("sl", or_route(resolved.sl, Some(0))),
            ("traffic_class", or_route(resolved.traffic_class, Some(0))),
            ("mtu", mtu),
            ("timeout", or_route(resolved.timeout, None)),
            ("retry", number(retry)),
            ("rnr_retry", number(resolved.rnr_retry())),
            ("rnr_timer", number(resolved.rnr_timer())),
        ];
        let values = values.into_iter().map(|(name, value)| NamedAttribute {
            name,
            value: match self.is_iwarp() {
                true => NONE.to_owned(),
                false => value,
            },
        });
        values.collect()
    }

    fn is_iwarp(&self) -> bool {
        self.device.info().transport == Transport::Iwarp
    }

    fn is_rdma_cm(&self) -> bool {
        self.manager.kind() == ManagerKind::Rdma
    }

    fn name(&self) -> &str {
        &self.device.info().name
    }

    /// Returns the keys that are set, with their values.
    fn keys(&self) -> Vec<String> {
        let Options { gid, transport, .. } = self.options;
        let small = |key: &str, value: Option<u8>| value.map(|value| format!("{key}={value}"));
        let TransportOptions {
            sl,
            traffic_class,
            mtu,
            timeout,
            retry,
            rnr_retry,
            rnr_timer,
            pkey,
        } = *transport;
        [
            small("gid", *gid),
            pkey.map(|value| format!("pkey={value:#06x}")),
            small("sl", sl),
            small("traffic_class", traffic_class),
            mtu.map(|mtu| format!("mtu={}", mtu.bytes())),
            small("timeout", timeout),
            small("retry", retry),
            small("rnr_retry", rnr_retry),
            small("rnr_timer", rnr_timer),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn check_gid(&self) -> Result<()> {
        let Some(index) = self.options.gid else {
            return Ok(());
        };
        let (port, name) = (self.port.number, self.name());
        let Some(entry) = self.port.gids.iter().find(|entry| entry.index == index) else {
            return Err(unknown(format!(
                "the key gid={index}: port {port} of {name} has no GID {index} (show_gids lists \
                 them)"
            )));
        };
        // On RoCE a GID is an address of the network interface.
        let of_gid = Ipv6Addr::from(entry.gid.0).to_canonical();
        let roce = self.device.info().transport == Transport::Roce;
        if self.is_rdma_cm() && roce && of_gid != self.address.ip().to_canonical() {
            return Err(refused(format!(
                "the key gid={index} cannot be used: rdma_cm connects from the address {}, and \
                 GID {index} is that of {of_gid}; name that address in the instance data, or \
                 leave the key out, or add cm=socket",
                self.address.ip()
            )));
        }
        Ok(())
    }

    fn check_partition(&self) -> Result<()> {
        let Some(pkey) = self.options.transport.pkey else {
            return Ok(());
        };
        if self.is_rdma_cm() && self.device.info().transport == Transport::InfiniBand {
            return Err(refused(format!(
                "the key pkey={pkey:#06x} cannot be used: rdma_cm connects in the partition of \
                 the network interface; name the interface of that partition in the instance \
                 data, or add cm=socket"
            )));
        }
        match self.device.partition_key(self.port.number, Some(pkey)) {
            Ok(_) => Ok(()),
            Err(error) => {
                let cause = error.to_string().replace('\n', "; ");
                Err(unknown(format!("the key pkey={pkey:#06x}: {cause}")))
            }
        }
    }

    fn check_times(&self) -> Result<()> {
        let TransportOptions { timeout, retry, .. } = self.options.transport;
        let (name, delay) = (self.name(), self.device.limits().ack_delay);
        match timeout {
            Some(timeout) if timeout != 0 && timeout < delay => {
                return Err(unsupported(format!(
                    "the key timeout={timeout}: {name} may take longer to acknowledge \
                     (local_ca_ack_delay is {delay}); use {delay} to 31, or 0 for no timeout"
                )));
            }
            _ => {}
        }
        let most = self.device.max_retry();
        match retry {
            Some(retry) if retry > most => Err(unsupported(format!(
                "the key retry={retry}: use 0 to {most} with {name}, since some devices other \
                 than mlx5 retry for ever with {retry}"
            ))),
            _ => Ok(()),
        }
    }

    /// The messages of rdma_cm carry the MTU of the route. A side with a smaller one would refuse
    /// the peer's packets.
    fn check_mtu(&self) -> Result<()> {
        match self.options.transport.mtu {
            Some(mtu) if mtu < self.port.active_mtu => Err(refused(format!(
                "the key mtu={} cannot be used: rdma_cm connects with the MTU of the route, up to \
                 {} bytes here; reduce the MTU of the network interface, or add cm=socket",
                mtu.bytes(),
                self.port.active_mtu.bytes()
            ))),
            _ => Ok(()),
        }
    }

    /// A shorter timeout than the device's delay would retry what is about to be acknowledged.
    fn default_timeout(&self) -> u8 {
        self.device.limits().ack_delay.clamp(TIMEOUT, 31)
    }
}

/// Returns the error for an option that the connection manager or the transport does not have.
fn refused(cause: String) -> DatError {
    DatError::new(ReturnType::ModelNotSupported, Subtype::NoSubtype, cause)
}

/// Returns the error for what the port does not have.
fn unknown(cause: String) -> DatError {
    DatError::new(
        ReturnType::InvalidAddress,
        Subtype::InvalidAddressUnsupported,
        cause,
    )
}

/// Returns the error for a value that the device does not support.
fn unsupported(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::NoSubtype, cause)
}
