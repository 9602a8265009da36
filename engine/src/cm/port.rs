//! Which port a qualifier means.

/// Least qualifier that is a port itself. Below are the privileged ports,
/// which most processes may not listen on.
const FIRST_PORT: u64 = 1024;
/// Where the other qualifiers go: below Linux' default range of ephemeral
/// ports (32768 to 60999). In that range any outgoing connection on the host
/// can hold a port, and a listener would fail now and then for no reason.
const BASE: u64 = 20_011;
/// How many ports they share: a prime, so that qualifiers with a regular
/// distance spread.
const SPREAD: u64 = 12_743;

/// The port that a qualifier is listened for on. Values from 1024 to 65535 are
/// the port itself; all others share 12743 ports from 20011 on.
///
/// Qualifiers that map to one port cannot be listened for at the same time on
/// one host: the second is [`super::CmError::InUse`]. A request for one never
/// reaches the listener of the other. Of the ports themselves, those that the
/// system gives to outgoing connections (from 32768 on, by default) may be
/// taken now and then by any of these, or for a minute after.
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
    fn unprivileged_ports_are_themselves() {
        for port in [1024_u16, 1025, 20_011, 32_768, 65_535] {
            assert_eq!(port_of(port.into()), port);
        }
    }

    #[test]
    fn all_others_map_below_the_ephemeral_ports() {
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
