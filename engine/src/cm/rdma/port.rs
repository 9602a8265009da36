//! The rdma_cm port of a connection qualifier.

/// The number and the first of the ports that qualifiers beyond 16 bits share:
/// those of OFED's DAT provider, so that both can connect.
const SPREAD: u64 = 32_001;
const BASE: u64 = 33_534;

/// Returns the port that a qualifier is listened for on, in rdma_cm's own port
/// space: values from 1 to 65535 are the port itself.
pub(super) fn port_of(qualifier: u64) -> u16 {
    match u16::try_from(qualifier) {
        // To the kernel, port 0 means any port.
        Ok(port) if port != 0 => port,
        _ => u16::try_from(BASE + qualifier % SPREAD).unwrap_or(u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_of_16_bits_are_the_port() {
        for port in [1_u16, 80, 1024, 45_248, 65_535] {
            assert_eq!(port_of(port.into()), port);
        }
    }

    #[test]
    fn other_qualifiers_map_to_the_ports_of_ofed() {
        assert_eq!(port_of(0), 33_534);
        assert_eq!(port_of(0x1_0000), 33_534 + 1534);
        assert_eq!(port_of(32_001 * 1_000_003), 33_534);
        assert_eq!(port_of(32_001 * 1_000_003 - 1), 65_534);
        for qualifier in (0..40_000_u64).map(|n| 0x1_0000 + n * 0x1_0001) {
            assert!(
                (33_534..=65_534).contains(&port_of(qualifier)),
                "{qualifier:#x}"
            );
        }
    }
}
