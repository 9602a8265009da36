use super::*;
use crate::path::direct::record::Receives;
use mlx5_rings::send::SendConsumer;
use mlx5_rings::wire::RequestQpn;

fn record(qpn: u32) -> Arc<Record> {
    let context = u64::from(qpn) << 32;
    let sends = SendConsumer::none();
    Arc::new(Record::new(
        qpn,
        context,
        Receives::None,
        sends,
        Arc::new(()),
    ))
}

fn context(table: &Table, qpn: u32) -> Option<u64> {
    // SAFETY: this thread alone uses the table.
    unsafe { table.lookup.find(RequestQpn(qpn)) }.map(|found| found.context())
}

#[test]
fn queue_pairs_with_numbers_in_sequence_all_have_their_places() {
    let mut table = Table::new();
    let (first, count) = (0x1_0007, if cfg!(miri) { 60 } else { 10_000 });
    for qpn in first..first + count {
        table.insert(record(qpn));
    }
    assert_eq!(table.places().count(), count.next_power_of_two() as usize);
    for qpn in first..first + count {
        assert_eq!(context(&table, qpn), Some(u64::from(qpn) << 32));
    }
    assert_eq!(context(&table, first + count), None);
}

/// Numbers that differ in high bits only want one place, which growing does not help.
#[test]
fn a_queue_pair_without_its_place_is_searched_until_the_place_is_free() {
    let mut table = Table::new();
    let [a, b, c] = [0x10_0003, 0x20_0003, 0x30_0003].map(record);
    for record in [&a, &b, &c] {
        table.insert(Arc::clone(record));
    }
    assert!(table.places().count() <= 16 * 3);
    let found = |table: &Table| [&a, &b, &c].map(|record| context(table, record.qpn()).is_some());
    assert_eq!(found(&table), [true, false, false]);
    for record in [&a, &b, &c] {
        assert!(Arc::ptr_eq(table.search(record.qpn()).unwrap(), record));
    }
    table.remove(&b);
    table.remove(&a);
    assert_eq!(found(&table), [false, false, true]);
    assert_eq!(table.len(), 1);
    assert!(table.search(a.qpn()).is_none());
}

#[test]
fn a_retired_queue_pair_is_found_by_a_search_only() {
    let mut table = Table::new();
    let (live, retired) = (record(3), record(4));
    table.insert(Arc::clone(&live));
    table.insert(Arc::clone(&retired));
    table.places().retire(4);
    assert_eq!(context(&table, 4), None);
    assert!(table.search(4).is_some());
    // Retired before it was inserted, and when the table grows.
    retired.retire();
    let late = record(5);
    late.retire();
    table.insert(late);
    for qpn in 6..40 {
        table.insert(record(qpn));
    }
    assert_eq!(
        [3, 4, 5].map(|qpn| context(&table, qpn).is_some()),
        [true, false, false]
    );
}

#[test]
fn only_the_record_itself_is_removed() {
    let mut table = Table::new();
    let (old, new) = (record(7), record(7));
    table.insert(Arc::clone(&new));
    assert!(table.remove(&old).is_none());
    assert!(context(&table, 7).is_some());
    assert!(table.remove(&new).is_some());
    assert_eq!((context(&table, 7), table.len()), (None, 0));
}

/// Random insertions and removals against a map.
#[test]
fn the_table_agrees_with_a_map() {
    let mut table = Table::new();
    let mut expected: HashMap<u32, Arc<Record>> = HashMap::new();
    let mut seed = 1_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let (rounds, lows) = if cfg!(miri) { (100, 8) } else { (20_000, 64) };
    for _ in 0..rounds {
        // Few low bits and few high bits, so that many want one place.
        let qpn = (random(lows.into()) | random(4) << 16) as u32;
        match expected.remove(&qpn) {
            Some(known) => assert!(table.remove(&known).is_some()),
            None => {
                let new = record(qpn);
                table.insert(Arc::clone(&new));
                expected.insert(qpn, new);
            }
        }
        assert_eq!(table.len(), expected.len());
        for low in 0..lows {
            let same = (0..4).map(|high| low | high << 16);
            let there: Vec<u32> = same.filter(|qpn| expected.contains_key(qpn)).collect();
            let found = there.iter().filter(|&&qpn| context(&table, qpn).is_some());
            // At the largest size, the low numbers have places of their own.
            if table.places().count() >= 64 {
                assert_eq!(found.count(), usize::from(!there.is_empty()), "{there:?}");
            }
            for qpn in there {
                assert!(Arc::ptr_eq(table.search(qpn).unwrap(), &expected[&qpn]));
            }
        }
    }
}
