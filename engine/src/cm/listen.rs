//! The addresses of this host that a listener listens on.

use super::CmError;
use super::local::require_one_host;
use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The addresses of this host that a listener listens on. The kernel refuses
/// requests to other addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListenOn {
    /// All addresses.
    #[default]
    All,
    /// `127.0.0.1` and `::1`: only programs of this host can connect. With rdma_cm
    /// only `127.0.0.1`, which most kernels refuse.
    Loopback,
    /// One address.
    One(IpAddr),
}

impl ListenOn {
    /// Returns the address by which peers reach the listener; `None` if they can
    /// use any address of this host.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::All => None,
            Self::Loopback => Some(Ipv4Addr::LOCALHOST.into()),
            Self::One(address) => Some(address),
        }
    }

    /// Checks that this host has the address.
    ///
    /// # Errors
    /// [`CmError::Address`] names the address and the cause.
    pub fn require_here(self) -> Result<(), CmError> {
        let Self::One(address) = self else {
            return Ok(());
        };
        match UdpSocket::bind((address, 0)) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL)
                ) =>
            {
                Err(CmError::Address(format!(
                    "cannot listen on {address}: {error}"
                )))
            }
            // Too few descriptors is not a failure of the address.
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ListenOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Loopback => f.write_str("loopback"),
            Self::One(address) => address.fmt(f),
        }
    }
}

/// The error for a text that is not a [`ListenOn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid listen address \"{0}\": expected all, loopback or one IP address of this host")]
pub struct InvalidListenOn(String);

impl FromStr for ListenOn {
    type Err = InvalidListenOn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidListenOn(text.to_owned());
        match text {
            "all" => Ok(Self::All),
            "loopback" => Ok(Self::Loopback),
            _ => {
                let address = text.parse().map_err(|_| invalid())?;
                require_one_host(address).map_err(|_| invalid())?;
                Ok(Self::One(address))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_displayed_as_it_was_parsed() {
        for text in ["all", "loopback", "127.0.0.2", "192.0.2.9", "2001:db8::7"] {
            let parsed: ListenOn = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let parsed: ListenOn = "::1".parse().unwrap();
        assert_eq!(parsed.address(), Some("::1".parse().unwrap()));
    }

    #[test]
    fn texts_that_are_not_one_host_address_are_refused_with_the_accepted_values() {
        let none = [
            "",
            "eth0",
            "localhost",
            "127.0.0.1:4000",
            "10.0.0.0/8",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1%eth0",
            "Loopback",
        ];
        for text in none {
            let error = text.parse::<ListenOn>().unwrap_err().to_string();
            for part in [text, "all", "loopback", "IP address"] {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    #[test]
    fn an_address_of_another_host_is_refused() {
        for here in [
            ListenOn::All,
            ListenOn::Loopback,
            ListenOn::One("127.0.0.2".parse().unwrap()),
        ] {
            here.require_here().unwrap();
        }
        let elsewhere = ListenOn::One("203.0.113.7".parse().unwrap());
        let error = elsewhere.require_here().unwrap_err().to_string();
        assert!(error.contains("cannot listen on 203.0.113.7"), "{error}");
    }
}
