//! The TCP port of a connection qualifier.
//!
//! A qualifier has 64 bits and a TCP port 16, the first 1024 need privileges, and outgoing
//! connections of the host occupy the ephemeral ports. The request carries the whole qualifier, and
//! the listener compares it.

/// The least qualifier that is a port itself. Smaller ones would be privileged
/// ports, which most processes may not listen on.
const FIRST_PORT: u64 = 1024;
/// The first port of the other qualifiers: below Linux' default range of ephemeral
/// ports (32768 to 60999), in which any outgoing connection of the host can occupy
/// a port, so that a listener would fail now and then.
const BASE: u64 = 20_011;
/// The number of ports that they share: a prime, so that qualifiers at regular
/// distances are spread.
const SPREAD: u64 = 12_743;

/// Returns the port that a qualifier is listened for on. Values from 1024 to 65535
/// are the port itself; all others share 12743 ports from 20011 on.
///
/// Qualifiers that map to one port cannot be listened for at the same time on one
/// host: the second listener fails with [`crate::cm::CmError::InUse`]. A request for
/// one never reaches the listener of the other. Ports from 32768 on (by default)
/// are also assigned to outgoing connections, so a listener on such a port may fail
/// while one uses it, and for a minute after.
#[must_use]
pub fn port_of(qualifier: u64) -> u16 {
    match u16::try_from(qualifier) {
        Ok(port) if qualifier >= FIRST_PORT => port,
        _ => u16::try_from(BASE + qualifier % SPREAD).unwrap_or(u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_from_1024_to_65535_are_ports() {
        for port in [1024_u16, 1025, 20_011, 32_768, 65_535] {
            assert_eq!(port_of(port.into()), port);
        }
    }

    #[test]
    fn other_qualifiers_map_below_the_ephemeral_ports() {
        let edge = [0, 1, 80, 1023, 0x1_0000, 1 << 32, u64::MAX, u64::MAX - 1];
        let many = (0..40_000_u64).map(|n| 0x1_0000 + n * 0x1_0001);
        for qualifier in edge.into_iter().chain(many) {
            let port = port_of(qualifier);
            assert!((20_011..32_768).contains(&port), "{qualifier:#x}: {port}");
        }
    }

    #[test]
    fn the_spread_is_prime() {
        assert!(
            (2..SPREAD)
                .take_while(|n| n * n <= SPREAD)
                .all(|n| !SPREAD.is_multiple_of(n))
        );
    }
}
