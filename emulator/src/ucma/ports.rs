//! The port spaces of rdma_cm, which all processes of the host share.
//!
//! A claim on a port is checked against the claims of this process as the
//! kernel does (`cma_check_port`), and against those of other processes by a
//! lock on a range of numbers: one number for one address, a longer range for
//! all addresses of a family, or for all.

use std::collections::HashMap;
use std::ops::Range;

use libc::{EADDRINUSE, EADDRNOTAVAIL};

use super::address::{Address, Family};
use crate::refusal::refuse;
use crate::spec::{Errno, Result};

/// A port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// `RDMA_PS_IPOIB`.
    Ipoib,
    /// `RDMA_PS_TCP`.
    Tcp,
    /// `RDMA_PS_UDP`.
    Udp,
    /// `RDMA_PS_IB`.
    Ib,
}

impl Space {
    /// Returns the space with a number of the kernel's `enum rdma_ucm_port_space`.
    pub(crate) fn from_number(number: u16) -> Option<Self> {
        let all = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];
        all.into_iter().find(|space| space.number() == number)
    }

    /// Returns the number in the kernel's interface, which is a part of service IDs.
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Ipoib => 0x0002,
            Self::Tcp => 0x0106,
            Self::Udp => 0x0111,
            Self::Ib => 0x013f,
        }
    }
}

/// Locks that conflict with those of other processes. Tests implement them for
/// one process.
pub(crate) trait HostLocks: Send {
    /// Locks a range, for this process alone or shared with others. Returns the
    /// length of the range that another process has locked if they conflict;
    /// 0 means up to the end.
    ///
    /// # Errors
    /// Returns the error number of the system.
    fn lock(&mut self, range: &Range<i64>, shared: bool) -> Result<Option<i64>>;
    /// Releases a range.
    fn unlock(&mut self, range: &Range<i64>);
}

/// A claim of an id on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: u32,
    pub(crate) address: Address,
    /// Whether the address stands for all addresses.
    pub(crate) is_any: bool,
    /// Whether the claim is for addresses of the family only.
    pub(crate) family_only: bool,
    /// Whether the port may be shared with claims that also allow it.
    pub(crate) shared: bool,
}

/// The claims of this process.
pub(crate) struct Ports {
    claims: HashMap<(Space, u16), Vec<Claim>>,
    locks: Box<dyn HostLocks>,
    /// The ports that are assigned automatically, and the next to try.
    ephemeral: (u16, u16),
    next: u16,
}

impl Ports {
    /// Returns ports without claims. `start` selects the first port to assign.
    pub(crate) fn new(locks: Box<dyn HostLocks>, ephemeral: (u16, u16), start: u64) -> Self {
        let (low, high) = ephemeral;
        let count = u64::from(high - low) + 1;
        Self {
            claims: HashMap::new(),
            locks,
            ephemeral,
            next: low + (start % count) as u16,
        }
    }

    /// Claims a port.
    ///
    /// # Errors
    /// `EADDRINUSE` if the same address and port is claimed, `EADDRNOTAVAIL` if
    /// one of both claims is for all addresses, as in the kernel.
    pub(crate) fn claim(&mut self, space: Space, port: u16, claim: Claim) -> Result<()> {
        let claims = self.claims.entry((space, port)).or_default();
        check(claims, &claim)?;
        let range = range_of(space, port, &claim);
        if let Some(len) = self.locks.lock(&range, claim.shared)? {
            let is_any = claim.is_any || len != 1;
            return Err(conflict(is_any));
        }
        claims.push(claim);
        Ok(())
    }

    /// Claims a port that is not in use, and returns it.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if there is none.
    pub(crate) fn claim_any(&mut self, space: Space, claim: Claim) -> Result<u16> {
        let (low, high) = self.ephemeral;
        for _ in low..=high {
            let port = self.next;
            self.next = if port == high { low } else { port + 1 };
            let is_free = self.claims.get(&(space, port)).is_none_or(Vec::is_empty);
            if is_free {
                match self.claim(space, port, claim) {
                    Err(Errno(code)) if [EADDRINUSE, EADDRNOTAVAIL].contains(&code) => {}
                    done => return done.map(|()| port),
                }
            }
        }
        Err(refuse(
            EADDRNOTAVAIL,
            "all ports that are assigned automatically are in use",
        ))
    }

    /// Makes the claim of an id on a port exclusive, as an id that listens must
    /// be the only one.
    ///
    /// # Errors
    /// The same as for [`claim`](Self::claim); the claim then stays as it was.
    pub(crate) fn make_exclusive(&mut self, space: Space, port: u16, id: u32) -> Result<()> {
        let Some(claims) = self.claims.get_mut(&(space, port)) else {
            return Ok(());
        };
        let Some(index) = claims.iter().position(|claim| claim.id == id) else {
            return Ok(());
        };
        let exclusive = Claim {
            shared: false,
            ..claims[index]
        };
        check(claims, &exclusive)?;
        let range = range_of(space, port, &exclusive);
        if let Some(len) = self.locks.lock(&range, false)? {
            return Err(conflict(exclusive.is_any || len != 1));
        }
        claims[index] = exclusive;
        Ok(())
    }

    /// Releases the claim of an id on a port.
    pub(crate) fn release(&mut self, space: Space, port: u16, id: u32) {
        let Some(claims) = self.claims.get_mut(&(space, port)) else {
            return;
        };
        let Some(index) = claims.iter().position(|claim| claim.id == id) else {
            return;
        };
        let claim = claims.swap_remove(index);
        self.locks.unlock(&range_of(space, port, &claim));
        // The ranges of this process are one to the kernel: lock again what the
        // others have lost.
        for other in claims.iter() {
            let range = range_of(space, port, other);
            let _ = self.locks.lock(&range, other.shared);
        }
        if claims.is_empty() {
            self.claims.remove(&(space, port));
        }
    }
}

fn conflict(is_any: bool) -> Errno {
    if is_any {
        refuse(
            EADDRNOTAVAIL,
            "another id uses the port, and one of both is bound to all addresses (127.0.0.1 and ::1 count as all)",
        )
    } else {
        refuse(EADDRINUSE, "another id uses the port on this address")
    }
}

fn check(claims: &[Claim], new: &Claim) -> Result<()> {
    for old in claims.iter().filter(|old| old.id != new.id) {
        let both_shared = new.shared && old.shared;
        let families_differ = new.address.family() != old.address.family();
        if both_shared || new.family_only && old.family_only && families_differ {
            continue;
        }
        if new.is_any || old.is_any {
            return Err(conflict(true));
        }
        if new.address.same_host(&old.address) {
            return Err(conflict(false));
        }
    }
    Ok(())
}

/// Bits of a lock's position for the address.
const ADDRESS_BITS: u32 = 40;
const END: i64 = 1 << ADDRESS_BITS;
const V4_END: i64 = 1 << 32;
const IB_START: i64 = 1 << 38;
const V6_START: i64 = 1 << 39;

/// Returns the range of a claim. Addresses that are longer than their part of
/// the range are hashed, so two of them may be taken for one.
fn range_of(space: Space, port: u16, claim: &Claim) -> Range<i64> {
    let space = match space {
        Space::Ipoib => 0,
        Space::Tcp => 1,
        Space::Udp => 2,
        Space::Ib => 3_i64,
    };
    let base = (space << 16 | i64::from(port)) << ADDRESS_BITS;
    let family = match claim.address.family() {
        Family::V4 => 0..V4_END,
        Family::Ib => IB_START..V6_START,
        Family::V6 => V6_START..END,
    };
    let range = match (claim.is_any, claim.family_only) {
        (true, false) => 0..END,
        (true, true) => family,
        (false, _) => {
            let octets = claim.address.octets();
            let at = match claim.address {
                Address::V4 { ip, .. } => i64::from(u32::from(ip)),
                _ => family.start + (hash(&octets) % (family.end - family.start) as u64) as i64,
            };
            at..at + 1
        }
    };
    base + range.start..base + range.end
}

/// FNV-1a: every process computes the same.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
#[path = "tests/ports.rs"]
mod tests;
