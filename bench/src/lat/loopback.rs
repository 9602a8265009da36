//! Both sides in one thread: the measuring loop runs the responder at every
//! empty poll.

use dat_engine::DataInOrder;

use super::interface::LocalPair;
use super::kind::Kind;
use super::plan::{Pass, Plan, Recording};
use super::side::{Remote, Side};
use super::{pass, send, write};
use crate::ends::{End, Link};
use crate::failure::Failure;
use crate::report::Method;

/// Two connected sides: the initiator, which measures, and the responder.
pub(super) struct Loopback<E: End> {
    near: Side<E>,
    far: Side<E>,
}

impl<E: End> Loopback<E> {
    /// Wraps two connected ends.
    pub(super) fn new(near: Link<E>, far: Link<E>, plan: &Plan) -> Self {
        let side = |link| Side::new(link, plan.depth());
        Self {
            near: side(near),
            far: side(far),
        }
    }
}

impl<E: End> LocalPair for Loopback<E> {
    fn data_in_order(&self) -> DataInOrder {
        let (near, far) = (&self.near.link, &self.far.link);
        near.data_in_order().and(far.data_in_order())
    }

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
        match pass.kind {
            Kind::Send => {
                let mut responder = send::Responder {
                    side: far,
                    watchdog: served,
                    answered: 0,
                };
                pass::run(near, &mut responder, pass, plan, recording, &mut watchdog)
            }
            Kind::Write(Method::LastByte) => {
                let mut responder = write::Responder::<_, false>::new(far, served);
                pass::run(near, &mut responder, pass, plan, recording, &mut watchdog)
            }
            Kind::Write(Method::SendBehind) => {
                let mut responder = write::Responder::<_, true>::new(far, served);
                pass::run(near, &mut responder, pass, plan, recording, &mut watchdog)
            }
            Kind::Read => pass::run(near, &mut Remote, pass, plan, recording, &mut watchdog),
        }
        .and_then(|_| self.far.drain(&mut watchdog))
        .map_err(|stop| Failure::run(stop.to_string()))?;
        self.near.link.verify()?;
        if pass.kind != Kind::Read {
            self.far.link.verify()?;
        }
        Ok(())
    }
}
