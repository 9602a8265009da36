//! The loop of `-o read`: RDMA reads of the other side's memory, without its
//! processor.

use super::link::Link;
use super::meter::Meter;
use super::patience::{Patience, Stop};
use super::side::Side;

/// Measures until the goal is reached.
pub(super) fn measure<L: Link>(
    side: &mut Side<L>,
    meter: &mut Meter<'_>,
    patience: &mut Patience<'_>,
) -> Result<(), Stop> {
    while meter.lap() {
        side.link.post(true)?;
        meter.note();
        let done = loop {
            if let Some(done) = side.link.await_sent() {
                break done;
            }
            if patience.tick() {
                patience.look_up()?;
            }
        };
        patience.renew();
        side.expect_size(done)?;
    }
    meter.note();
    Ok(())
}
