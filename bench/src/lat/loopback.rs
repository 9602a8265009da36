//! Both sides in one thread: the measuring loop runs the responder at every
//! empty poll.

use super::link::End;
use super::plan::{Leg, Plan};
use super::side::Side;
use super::way::Here;
use super::{read, send, write};
use crate::cli::Operation;
use crate::failure::Failure;
use crate::stats::Samples;

/// Two connected sides: the initiator, which measures, and the responder.
pub(super) struct Loopback<E> {
    near: Side<E>,
    far: Side<E>,
}

impl<E: End> Loopback<E> {
    /// Wraps two connected ends.
    pub(super) fn new(near: E, far: E, plan: &Plan) -> Self {
        let side = |end| Side::new(end, plan.tx_depth);
        Self {
            near: side(near),
            far: side(far),
        }
    }
}

impl<E: End> Here for Loopback<E> {
    fn measure(&mut self, leg: Leg, plan: &Plan, samples: &mut Samples) -> Result<(), Failure> {
        let Self { near, far } = self;
        for side in [&mut *near, &mut *far] {
            side.set_size(leg.size);
            side.link.prepare(leg.size);
        }
        let mut meter = plan.meter(leg, samples);
        let mut patience = plan.patience(None);
        let served = plan.patience(None);
        match plan.operation {
            Operation::Send => {
                let mut partner = send::Responder {
                    side: far,
                    patience: served,
                    answered: 0,
                };
                send::measure(near, &mut partner, &mut meter, &mut patience)
            }
            Operation::Write => {
                let mut partner = write::Responder {
                    side: far,
                    patience: served,
                    answered: 0,
                };
                write::measure(near, &mut partner, &mut meter, &mut patience)
            }
            Operation::Read => read::measure(near, &mut meter, &mut patience),
        }
        .and_then(|()| self.far.settle(&mut patience))
        .map_err(|stop| Failure::run(stop.to_string()))?;
        self.near.link.verify()?;
        if plan.operation != Operation::Read {
            self.far.link.verify()?;
        }
        Ok(())
    }
}
