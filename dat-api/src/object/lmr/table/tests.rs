use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::status::ReturnType;

const LOCAL: MemPrivileges = MemPrivileges::LOCAL_READ.union(MemPrivileges::LOCAL_WRITE);

fn table(rest: usize) -> Box<Table> {
    Box::new(Table::new(rest))
}

fn contents(key: u32) -> Contents {
    Contents {
        address: 0x1000,
        length: 0x100,
        key,
        pz: 7,
        privileges: LOCAL,
        handle: 0,
    }
}

/// Returns the key of the LMR that is found.
fn lookup(
    table: &Table,
    context: u32,
    address: u64,
    length: u64,
    pz: usize,
    need: MemPrivileges,
) -> Result<u32, Unusable> {
    let found = table.lookup(context, address, length, pz, need)?;
    Ok(found.key)
}

fn kind_of(answer: Result<u32, Unusable>) -> Option<ReturnType> {
    answer.expect_err("refused").code().kind()
}

#[test]
fn r10_r11_r12_segments_need_bounds_zone_and_privileges_of_the_lmr() {
    let table = table(1);
    let context = table.insert(&contents(42)).expect("room");
    let ask = |address, length, pz, need| lookup(&table, context, address, length, pz, need);
    assert_eq!(ask(0x1000, 0x100, 7, LOCAL), Ok(42));
    assert_eq!(ask(0x10ff, 1, 7, MemPrivileges::LOCAL_READ), Ok(42));
    for (address, length) in [
        (0xfff, 1),
        (0xfff, 2),
        (0x1100, 1),
        (0x10ff, 2),
        (0x1000, 0x101),
        (0, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (0x1001, u64::MAX),
    ] {
        let answer = ask(address, length, 7, LOCAL);
        assert_eq!(
            kind_of(answer),
            Some(ReturnType::InvalidParameter),
            "{address:#x} {length:#x}"
        );
    }
    assert_eq!(
        kind_of(ask(0x1000, 1, 8, LOCAL)),
        Some(ReturnType::ProtectionViolation)
    );
    for need in [
        MemPrivileges::REMOTE_READ,
        LOCAL | MemPrivileges::REMOTE_WRITE,
    ] {
        assert_eq!(
            kind_of(ask(0x1000, 1, 7, need)),
            Some(ReturnType::PrivilegesViolation)
        );
    }
    table.remove(context);
    assert_eq!(
        kind_of(ask(0x1000, 1, 7, LOCAL)),
        Some(ReturnType::PrivilegesViolation)
    );
}

#[test]
fn r12_zero_and_unknown_contexts_name_no_lmr() {
    let table = table(1);
    let context = table.insert(&contents(42)).expect("room");
    let others = [
        0,
        1,
        u32::MAX,
        context + 1,
        context ^ (1 << ROW_BITS),
        context & CAPACITY,
    ];
    for wrong in others {
        let answer = lookup(&table, wrong, 0x1000, 1, 7, LOCAL);
        let expected = if wrong == context {
            None
        } else {
            Some(ReturnType::PrivilegesViolation)
        };
        assert_eq!(
            answer.err().and_then(|why| why.code().kind()),
            expected,
            "{wrong:#x}"
        );
    }
}

#[test]
fn a_stale_context_is_recognised_until_its_bits_repeat() {
    let table = table(1);
    let stale = table.insert(&contents(0)).expect("room");
    table.remove(stale);
    // Always the same row, because at most one row rests.
    for key in 1..1 << (32 - ROW_BITS) {
        let context = table.insert(&contents(key)).expect("room");
        assert_eq!(context & CAPACITY, stale & CAPACITY);
        assert_ne!(context, stale);
        assert_eq!(lookup(&table, context, 0x1000, 1, 7, LOCAL), Ok(key));
        assert!(lookup(&table, stale, 0x1000, 1, 7, LOCAL).is_err());
        table.remove(context);
    }
    assert_eq!(
        table.insert(&contents(1)),
        Some(stale),
        "they repeat, as documented"
    );
}

#[test]
fn a_freed_row_is_reused_after_others() {
    let table = table(RESTING);
    let first = table.insert(&contents(0)).expect("room");
    table.remove(first);
    for _ in 1..RESTING {
        let other = table.insert(&contents(0)).expect("room");
        assert_ne!(other & CAPACITY, first & CAPACITY);
        table.remove(other);
    }
    let again = table.insert(&contents(0)).expect("room");
    assert_eq!(again & CAPACITY, first & CAPACITY);
}

#[test]
fn a_full_table_refuses_and_recovers() {
    if cfg!(miri) {
        return;
    }
    let table = table(RESTING);
    let all: Vec<u32> = (0..CAPACITY)
        .map_while(|key| table.insert(&contents(key)))
        .collect();
    assert_eq!(all.len(), CAPACITY as usize);
    assert_eq!(table.insert(&contents(0)), None);
    table.remove(all[5]);
    let again = table.insert(&contents(99)).expect("the freed row, at once");
    assert_eq!(again & CAPACITY, all[5] & CAPACITY);
    assert_eq!(lookup(&table, again, 0x1000, 1, 7, LOCAL), Ok(99));
    assert_eq!(lookup(&table, all[6], 0x1000, 1, 7, LOCAL), Ok(6));
}

/// Returns the n-th LMR, with a key of its own and otherwise like the others: only the tag shows
/// that a key is not the one that was asked for.
fn nth(n: u32) -> Contents {
    contents(n.wrapping_mul(0x9e37_79b1))
}

#[test]
fn lookups_that_race_with_free_and_create_of_the_row_never_mix_two_lmrs() {
    let rounds: u32 = if cfg!(miri) { 300 } else { 2_000_000 };
    let table = table(1);
    // The LMR that was inserted last: n, and its context.
    let latest = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let publish = |n: u32, context: u32| {
        latest.store(u64::from(n) << 32 | u64::from(context), Ordering::Release);
    };
    publish(0, table.insert(&nth(0)).expect("room"));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut hits, mut misses) = (0_u64, 0_u64);
                    while !done.load(Ordering::Relaxed) || hits == 0 {
                        let word = latest.load(Ordering::Acquire);
                        let (n, context) = ((word >> 32) as u32, word as u32);
                        let c = nth(n);
                        match lookup(&table, context, c.address, c.length, c.pz, LOCAL) {
                            Ok(key) => {
                                // Contexts repeat, and a reader may sleep for as long as that
                                // takes.
                                let now = (latest.load(Ordering::Acquire) >> 32) as u32;
                                let fresh = now - n < (1 << (32 - ROW_BITS)) - 2;
                                assert!(
                                    key == c.key || !fresh,
                                    "LMR {n} with the key of another, at {now}"
                                );
                                hits += 1;
                            }
                            Err(_) => misses += 1,
                        }
                    }
                    (hits, misses)
                })
            })
            .collect();
        let mut context = latest.load(Ordering::Relaxed) as u32;
        for n in 1..rounds {
            table.remove(context);
            context = table.insert(&nth(n)).expect("room");
            publish(n, context);
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            let (hits, _) = reader.join().expect("no reader found a mixture");
            assert!(hits > 0);
        }
    });
    // All LMRs used one row; otherwise the test has tested nothing.
    assert_eq!(table.free.lock().used, 2);
}

#[test]
fn concurrent_inserts_get_different_rows() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let table = table(4);
    thread::scope(|scope| {
        for writer in 0..3_u32 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..rounds {
                    let n = writer << 24 | round;
                    let c = nth(n);
                    let context = table.insert(&c).expect("room");
                    assert_eq!(lookup(table, context, c.address, 1, c.pz, LOCAL), Ok(c.key));
                    table.remove(context);
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r10_exactly_the_segments_inside_an_lmr_are_found(
        address in any::<u64>(),
        length in 1_u64..,
        asked in any::<u64>(),
        bytes in 1_u64..,
        near in any::<bool>(),
    ) {
        let length = length.min(u64::MAX - address).max(1);
        prop_assume!(address.checked_add(length).is_some());
        // Half of the cases are around the LMR; otherwise none would be inside.
        let (asked, bytes) = if near {
            (address.wrapping_add(asked % length), bytes % length + 1)
        } else {
            (asked, bytes)
        };
        let table = table(1);
        let c = Contents { address, length, ..contents(3) };
        let context = table.insert(&c).expect("room");
        let end = u128::from(asked) + u128::from(bytes);
        let inside = asked >= address && end <= u128::from(address) + u128::from(length);
        let answer = lookup(&table, context, asked, bytes, 7, LOCAL);
        prop_assert_eq!(answer.is_ok(), inside);
    }
}
