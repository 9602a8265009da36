//! Queue pairs that connect again at once: the kernels remember their last
//! connection for a while, and refuse another one.

use super::{Ends, ends, host};
use crate::cm::support::parameters;
use std::time::{Duration, Instant};

/// Longer than the kernels are asked to remember, and shorter than they would
/// unasked, or than a request that was lost takes to be repeated.
const SOON: Duration = Duration::from_millis(1500);

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_pair_that_connects_again_at_once_is_connected_when_the_kernels_have_forgotten() {
    let host = host();
    let (active, passive) = ends();
    for round in 0..6 {
        let begun = Instant::now();
        Ends::connect(&host, active, passive).disconnect(round % 2 == 0);
        assert!(begun.elapsed() < SOON, "{round}: {:?}", begun.elapsed());
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn one_side_alone_may_come_again_at_once() {
    let host = host();
    let (active, passive) = ends();
    Ends::connect(&host, active, passive).disconnect(true);
    for round in 0..4 {
        let begun = Instant::now();
        let (again, other) = if round % 2 == 0 {
            (Ends::connect(&host, active, parameters(3)), "active")
        } else {
            (Ends::connect(&host, parameters(4), passive), "passive")
        };
        again.disconnect(false);
        assert!(begun.elapsed() < SOON, "{other}: {:?}", begun.elapsed());
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn new_pairs_do_not_wait() {
    let host = host();
    let begun = Instant::now();
    for _ in 0..10 {
        let (active, passive) = ends();
        Ends::connect(&host, active, passive).disconnect(true);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}
