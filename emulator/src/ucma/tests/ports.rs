//! Ports of one process, and locks of another one.

use super::*;

/// The locks of another process.
struct Other(Vec<(Range<i64>, bool)>);

impl HostLocks for Other {
    fn lock(&mut self, range: &Range<i64>, shared: bool) -> Result<Option<i64>> {
        let overlaps = |other: &Range<i64>| other.start < range.end && range.start < other.end;
        let found = self
            .0
            .iter()
            .find(|(other, is_shared)| overlaps(other) && !(shared && *is_shared));
        Ok(found.map(|(other, _)| other.end - other.start))
    }

    fn unlock(&mut self, _: &Range<i64>) {}
}

const TCP: Space = Space::Tcp;
const IN_USE: Result<()> = Err(Errno(EADDRINUSE));
const NOT_AVAILABLE: Result<()> = Err(Errno(EADDRNOTAVAIL));

fn ports(others: Vec<(Range<i64>, bool)>) -> Ports {
    Ports::new(Box::new(Other(others)), (100, 103), 2)
}

fn at(id: u32, ip: [u8; 4]) -> Claim {
    Claim {
        id,
        address: Address::V4 {
            ip: ip.into(),
            port: 0,
        },
        is_any: ip == [0; 4],
        family_only: true,
        shared: false,
    }
}

fn any_v6(id: u32, family_only: bool) -> Claim {
    Claim {
        id,
        address: Address::unspecified(Family::V6),
        is_any: true,
        family_only,
        shared: false,
    }
}

#[test]
fn the_same_address_is_in_use_and_all_addresses_are_not_available() {
    let mut ports = ports(Vec::new());
    assert_eq!(ports.claim(TCP, 7, at(1, [10, 0, 0, 1])), Ok(()));
    assert_eq!(ports.claim(TCP, 7, at(2, [10, 0, 0, 1])), IN_USE);
    assert_eq!(ports.claim(TCP, 7, at(2, [0; 4])), NOT_AVAILABLE);
    assert_eq!(ports.claim(TCP, 7, at(2, [10, 0, 0, 2])), Ok(()));
    assert_eq!(ports.claim(Space::Udp, 7, at(3, [10, 0, 0, 1])), Ok(()));
    assert_eq!(ports.claim(TCP, 8, at(4, [0; 4])), Ok(()));
    assert_eq!(ports.claim(TCP, 8, any_v6(5, false)), NOT_AVAILABLE);
    assert_eq!(ports.claim(TCP, 8, any_v6(5, true)), Ok(()));
    ports.release(TCP, 8, 4);
    assert_eq!(ports.claim(TCP, 8, at(6, [0; 4])), Ok(()));
}

#[test]
fn shared_claims_become_exclusive_only_without_others() {
    let shared = |claim: Claim| Claim {
        shared: true,
        ..claim
    };
    let mut ports = ports(Vec::new());
    assert_eq!(ports.claim(TCP, 7, shared(at(1, [0; 4]))), Ok(()));
    assert_eq!(ports.claim(TCP, 7, shared(at(2, [0; 4]))), Ok(()));
    assert_eq!(ports.claim(TCP, 7, at(3, [0; 4])), NOT_AVAILABLE);
    assert_eq!(ports.make_exclusive(TCP, 7, 1), NOT_AVAILABLE);
    ports.release(TCP, 7, 2);
    assert_eq!(ports.make_exclusive(TCP, 7, 1), Ok(()));
    assert_eq!(ports.claim(TCP, 7, shared(at(2, [0; 4]))), NOT_AVAILABLE);
}

#[test]
fn claims_of_other_processes_conflict_as_those_of_this_one() {
    let one = at(1, [10, 0, 0, 1]);
    let mut taken = ports(vec![(range_of(TCP, 7, &one), false)]);
    assert_eq!(taken.claim(TCP, 7, one), IN_USE);
    assert_eq!(taken.claim(TCP, 7, at(1, [0; 4])), NOT_AVAILABLE);
    assert_eq!(taken.claim(TCP, 7, at(1, [10, 0, 0, 2])), Ok(()));
    assert_eq!(taken.claim(TCP, 8, one), Ok(()));
    let all = range_of(TCP, 7, &any_v6(1, false));
    let mut taken = ports(vec![(all, false)]);
    assert_eq!(taken.claim(TCP, 7, one), NOT_AVAILABLE);
    assert_eq!(taken.claim(Space::Ib, 7, one), Ok(()));
}

#[test]
fn ports_are_assigned_in_turn_until_none_is_left() {
    let mut ports = ports(vec![(range_of(TCP, 103, &at(9, [0; 4])), false)]);
    let mut next = |id| ports.claim_any(TCP, at(id, [0; 4]));
    assert_eq!([next(1), next(2), next(3)], [Ok(102), Ok(100), Ok(101)]);
    assert_eq!(next(4), Err(Errno(EADDRNOTAVAIL)));
    ports.release(TCP, 100, 2);
    assert_eq!(ports.claim_any(TCP, at(5, [0; 4])), Ok(100));
}
