//! Queue pairs that connect again at once: the kernels remember their last
//! connection for a while, and reject another one.

use super::{Ends, ends, host};
use crate::cm::support::parameters;
use std::time::{Duration, Instant};

/// Longer than the kernels are asked to remember, and shorter than their own
/// default and than the repetition of a lost request.
const SOON: Duration = Duration::from_millis(1500);

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn two_queue_pairs_reconnect_when_the_kernels_allow_it() {
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
fn one_side_alone_may_reconnect_at_once() {
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
