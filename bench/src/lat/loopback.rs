//! Both sides in one thread: the measuring loop runs the responder at every
//! empty poll.

use super::interface::LocalPair;
use super::plan::{Pass, Plan, Recording};
use super::side::{Remote, Side};
use super::{pass, send, write};
use crate::cli::Operation;
use crate::ends::End;
use crate::failure::Failure;

/// Two connected sides: the initiator, which measures, and the responder.
pub(super) struct Loopback<E> {
    near: Side<E>,
    far: Side<E>,
}

impl<E: End> Loopback<E> {
    /// Wraps two connected ends.
    pub(super) fn new(near: E, far: E, plan: &Plan) -> Self {
        let side = |end| Side::new(end, plan.setup.tx_depth);
        Self {
            near: side(near),
            far: side(far),
        }
    }
}

impl<E: End> LocalPair for Loopback<E> {
    fn measure(
        &mut self,
        pass: Pass,
        plan: &Plan,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        let Self { near, far } = self;
        for side in [&mut *near, &mut *far] {
            side.set_size(pass.size);
            side.link.prepare(pass.size);
        }
        let mut watchdog = plan.watchdog(None);
        let served = plan.watchdog(None);
        match plan.setup.operation {
            Operation::Send => {
                let mut responder = send::Responder {
                    side: far,
                    watchdog: served,
                    answered: 0,
                };
                pass::run(near, &mut responder, pass, plan, recording, &mut watchdog)
            }
            Operation::Write => {
                let mut responder = write::Responder {
                    side: far,
                    watchdog: served,
                    answered: 0,
                };
                pass::run(near, &mut responder, pass, plan, recording, &mut watchdog)
            }
            Operation::Read => pass::run(near, &mut Remote, pass, plan, recording, &mut watchdog),
        }
        .and_then(|_| self.far.drain(&mut watchdog))
        .map_err(|stop| Failure::run(stop.to_string()))?;
        self.near.link.verify()?;
        if plan.setup.operation != Operation::Read {
            self.far.link.verify()?;
        }
        Ok(())
    }
}
