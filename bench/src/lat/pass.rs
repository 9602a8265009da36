//! One pass of the measuring side: a look at the core, the loop of the
//! operation, and the noise meanwhile. With `--rate`, the closed loop is only the
//! warm-up of the open one.

use super::kind::Kind;
use super::plan::{Pass, Plan, Recording};
use super::side::{OtherSide, Side};
use super::{open, read, send, write};
use crate::ends::{End, Stop, Watchdog};
use crate::noise::Watch;
use crate::report::Method;

/// Measures one pass. Returns the number of round trips, warm-up included.
pub(super) fn run<E: End>(
    side: &mut Side<E>,
    other_side: &mut impl OtherSide,
    pass: Pass,
    plan: &Plan,
    recording: &mut Recording,
    watchdog: &mut Watchdog<'_>,
) -> Result<u64, Stop> {
    let watch = Watch::begin(plan.clock());
    let mut meter = plan.meter(pass, &mut recording.samples);
    match pass.kind {
        Kind::Send => send::measure(side, other_side, &mut meter, watchdog),
        Kind::Write(Method::LastByte) => {
            write::measure::<_, false>(side, other_side, &mut meter, watchdog)
        }
        Kind::Write(Method::SendBehind) => {
            write::measure::<_, true>(side, other_side, &mut meter, watchdog)
        }
        Kind::Read => read::measure(side, &mut meter, watchdog),
    }?;
    let mut trips = meter.round_trips();
    if let Some(schedule) = plan.schedule(pass) {
        trips += open::measure(
            side, other_side, pass.kind, &schedule, trips, recording, watchdog,
        )?;
    }
    recording.noise = watch.end();
    Ok(trips)
}
