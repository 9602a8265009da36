//! Both sides in one process and one thread: the measuring loop steps its
//! partner at every empty poll.

use super::patience::Patience;
use super::plan::Plan;
use super::rdma::{Ground, Rdma};
use super::side::Side;
use super::{read, send, write};
use crate::cli::Operation;
use crate::failure::Failure;
use crate::report::Outcome;

/// Two sides, connected to each other: the one that measures and the one that answers.
pub(super) struct Loopback {
    near: Side<Rdma>,
    far: Side<Rdma>,
}

/// Makes and connects both sides.
pub(super) fn connect(ground: &Ground, plan: &Plan) -> Result<Loopback, Failure> {
    let (mut near, mut far) = (Rdma::create(ground, plan)?, Rdma::create(ground, plan)?);
    let (here, there) = (near.address(), far.address());
    near.connect(&there)?;
    far.connect(&here)?;
    let side = |rdma| Side::new(rdma, plan.tx_depth);
    Ok(Loopback {
        near: side(near),
        far: side(far),
    })
}

/// Measures every size.
pub(super) fn measure(
    sides: Loopback,
    plan: &Plan,
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    let Loopback { mut near, mut far } = sides;
    for &size in &plan.sizes {
        near.set_size(size);
        far.set_size(size);
        near.link.prepare(size);
        far.link.prepare(size);
        let mut samples = plan.samples();
        let mut meter = plan.meter(&mut samples);
        let mut patience = Patience::new(plan.patience, None);
        let served = Patience::new(plan.patience, None);
        let (side, partner) = (&mut near, &mut far);
        match plan.operation {
            Operation::Send => {
                let mut partner = send::Responder {
                    side: partner,
                    patience: served,
                    answered: 0,
                };
                send::measure(side, &mut partner, &mut meter, &mut patience)
            }
            Operation::Write => {
                let mut partner = write::Responder {
                    side: partner,
                    patience: served,
                    answered: 0,
                };
                write::measure(side, &mut partner, &mut meter, &mut patience)
            }
            Operation::Read => read::measure(side, &mut meter, &mut patience),
        }
        .and_then(|()| far.settle(&mut patience))
        .map_err(|stop| Failure::run(stop.to_string()))?;
        near.link.verify()?;
        if plan.operation != Operation::Read {
            far.link.verify()?;
        }
        each(Outcome {
            size,
            samples,
            verified: true,
        });
    }
    Ok(())
}
