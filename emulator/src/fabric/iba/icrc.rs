//! The invariant CRC (ICRC, IBA 7.8.1, annexes A16 and A17): Ethernet's CRC-32 over all
//! headers and the payload, in which the fields that change on the way count as ones.

use super::network::{LRH, Network};

/// Size of the CRC in bytes.
pub const LEN: usize = 4;

/// Returns the CRC of what lies between the network headers and the CRC itself, as bytes on
/// a link. The identification of IPv4 is 0.
#[must_use]
pub fn of(network: &Network, transport: &[u8]) -> [u8; LEN] {
    let mut hasher = crc32fast::Hasher::new();
    let mut headers = network.headers(transport.len() + LEN);
    let bytes = headers.bytes_mut();
    let global = match network {
        Network::InfiniBand { global, .. } => {
            let (local, behind) = bytes.split_at_mut(LRH);
            match global {
                // Routers replace the local route header.
                Some(_) => local.fill(0xff),
                // The virtual lane.
                None => local[0] |= 0xf0,
            }
            behind
        }
        Network::RoceV1(_) | Network::RoceV2 { .. } => {
            // In place of the local route header.
            hasher.update(&[0xff; LRH]);
            bytes
        }
    };
    if network.is_ipv4() {
        // Type of service, time to live, checksum.
        for at in [1, 8, 10, 11] {
            global[at] = 0xff;
        }
    } else if !global.is_empty() {
        // Traffic class, flow label, hop limit.
        global[0] |= 0x0f;
        global[1..4].fill(0xff);
        global[7] = 0xff;
    }
    if let Network::RoceV2 { .. } = network {
        // The checksum of UDP.
        let end = global.len();
        global[end - 2..].fill(0xff);
    }
    hasher.update(headers.bytes());
    // Congestion marks and the reserved bits beside them.
    let (before, behind) = transport.split_at(transport.len().min(4));
    hasher.update(before);
    if let Some((_, behind)) = behind.split_first() {
        hasher.update(&[0xff]);
        hasher.update(behind);
    }
    hasher.finalize().to_le_bytes()
}

/// Returns the identification in the IPv4 header with which the CRC at the end of `bytes`,
/// which begin behind the network headers, is right; 0 for other network headers. `None` if
/// the bytes are damaged.
///
/// A UDP socket does not show the identification. The CRC is linear: an error of these two
/// bytes changes it by their CRC, whatever the other bytes are. That leaves one damaged
/// packet in 2^16 unnoticed, instead of one in 2^32.
#[must_use]
pub fn identification(network: &Network, bytes: &[u8]) -> Option<u16> {
    let (transport, stored) = bytes.split_last_chunk::<LEN>()?;
    let computed = of(network, transport);
    let difference = u32::from_le_bytes(computed) ^ u32::from_le_bytes(*stored);
    if difference == 0 {
        return Some(0);
    }
    // From the identification to the end of the headers of IP and UDP.
    const BEHIND: usize = 28 - 4;
    let error = undo(difference, BEHIND + transport.len());
    let error = u16::try_from(error).ok().filter(|_| network.is_ipv4())?;
    Some(error.swap_bytes())
}

/// The polynomial of the CRC without its highest power; the lowest power is on the left.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// x^(-8·2^n) for each n, modulo the polynomial: what undoes 2^n bytes.
const UNDO: [u32; 16] = {
    let mut powers = [ONE; 16];
    let mut bit = 0;
    while bit < 8 {
        // Division by x.
        let odd = powers[0] >> 31;
        powers[0] = ((powers[0] ^ (odd * POLYNOMIAL)) << 1) | odd;
        bit += 1;
    }
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// Returns a register of the CRC as it was before `bytes` zero bytes, fewer than 2^16.
fn undo(register: u32, bytes: usize) -> u32 {
    let powers = UNDO.iter().enumerate();
    let powers = powers.filter(|(n, _)| bytes >> n & 1 == 1);
    powers.fold(register, |register, (_, &power)| multiply(register, power))
}

/// Returns the product of two polynomials.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut power = ONE;
    while power != 0 {
        if a & power != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ ((b & 1) * POLYNOMIAL);
        power >>= 1;
    }
    product
}
