//! Both sides in one thread, which makes a turn of each in turns.

use super::interface::{LocalPair, Recording};
use super::meter::Meter;
use super::plan::{Pass, Plan};
use super::side::{Side, drive};
use crate::ends::{End, Stop, Watchdog};
use crate::exchange::Transfer;
use crate::failure::Failure;
use crate::noise::Watch;
use crate::options::Operation;

/// Two connected sides: the client, which sends, and the server, which sends with
/// `-b`.
pub(super) struct Loopback<E: End> {
    pub(super) near: Side<E>,
    pub(super) far: Side<E>,
}

impl<E: End> Loopback<E> {
    /// Sends `ours` messages from the near side and `theirs` from the far side, and takes
    /// them. Returns what each side has sent.
    pub(super) fn phase(
        &mut self,
        (ours, theirs): (u64, u64),
        meter: impl Fn() -> Meter,
        watchdog: &mut Watchdog<'_>,
    ) -> Result<[Transfer; 2], Stop> {
        let near = self.near.begin(ours, meter());
        let far = self.far.begin(theirs, meter());
        let mut state = (self, near, far);
        drive(
            &mut state,
            watchdog,
            |(both, near, far)| Ok(both.near.turn(near)? | both.far.turn(far)?),
            |(both, near, far)| near.is_over() && far.is_over() && both.has_taken_all(),
        )?;
        let (_, near, far) = state;
        Ok([near.meter.transfer(), far.meter.transfer()])
    }

    /// Returns whether all messages are taken, and no grant is outstanding.
    fn has_taken_all(&self) -> bool {
        let has_taken = |to: &Side<E>, from: &Side<E>| !to.receives || to.taken() == from.posted();
        has_taken(&self.far, &self.near)
            && has_taken(&self.near, &self.far)
            && self.near.is_idle()
            && self.far.is_idle()
    }
}

impl<E: End> LocalPair for Loopback<E> {
    fn measure(&mut self, pass: Pass, plan: &Plan, moderation: u32) -> Result<Recording, Failure> {
        self.near.prepare(pass, plan, moderation);
        self.far.prepare(pass, plan, moderation);
        let mut watchdog = plan.watchdog(None);
        let of = |messages| (messages, if plan.both { messages } else { 0 });
        let watch = Watch::begin(plan.clock());
        let warmed = self.phase(of(plan.warmup(pass)), || plan.warmup_meter(), &mut watchdog);
        let measured = warmed.and_then(|_| {
            let messages = of(plan.messages(pass));
            self.phase(messages, || plan.meter(pass), &mut watchdog)
        });
        let [near, far] = measured.map_err(|stop| Failure::run(stop.to_string()))?;
        let noise = watch.end();
        let is_read = plan.setup.operation == Operation::Read;
        if plan.both || !is_read {
            self.far.verify()?;
        }
        if plan.both || is_read {
            self.near.verify()?;
        }
        let sides = match plan.both {
            true => vec![near, far],
            false => vec![near],
        };
        Ok(Recording { sides, noise })
    }
}
