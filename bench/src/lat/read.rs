//! The loop of `-o read`: RDMA reads of the other side's memory, without its
//! processor.

use super::meter::Meter;
use super::side::Side;
use crate::ends::{End, Stop, Watchdog};

/// Measures until the goal is reached.
pub(super) fn measure<E: End>(
    side: &mut Side<E>,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    while meter.lap() {
        side.link.post(true)?;
        meter.record();
        let done = loop {
            if let Some(done) = side.link.await_sent() {
                break done;
            }
            if watchdog.tick() {
                watchdog.check()?;
            }
        };
        watchdog.reset();
        side.expect_size(done)?;
    }
    meter.record();
    Ok(())
}
