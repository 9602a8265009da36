//! The interfaces as trait objects, whose methods are called once per pass; the
//! loops behind them are compiled for each interface.

use super::flow::Flow;
use super::loopback::Loopback;
use super::pair::Remote;
use super::plan::{Pass, Plan};
use super::side::Side;
use crate::ends::{End, Link, OpenInterface, RemoteInterface, Role};
use crate::exchange::{Peer, Transfer};
use crate::failure::Failure;
use crate::noise::Noise;
use crate::options::Operation;

/// What one pass records.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    /// The messages of each side that has sent.
    pub(super) sides: Vec<Transfer>,
    pub(super) noise: Noise,
}

/// An open interface as a trait object.
pub(super) type Open = dyn OpenInterface<Plan, Box<dyn LocalPair>, Box<dyn RemoteSide>>;

/// Two connected sides in this thread, as a trait object.
pub(super) trait LocalPair {
    /// Measures one pass; `moderation` is for its size.
    fn measure(&mut self, pass: Pass, plan: &Plan, moderation: u32) -> Result<Recording, Failure>;
}

/// One side, connected to another process, as a trait object.
pub(super) trait RemoteSide {
    /// Runs one pass, in which both processes call this with their role.
    fn run(
        &mut self,
        pass: Pass,
        plan: &Plan,
        moderation: u32,
        peer: &mut Peer,
    ) -> Result<Recording, Failure>;
}

impl<W: RemoteInterface> OpenInterface<Plan, Box<dyn LocalPair>, Box<dyn RemoteSide>> for W {
    fn connect_local(&self, plan: &Plan) -> Result<Box<dyn LocalPair>, Failure> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..plan.endpoints {
            let [one, two] = self.connect_pair::<false>(&plan.setup.shape())?;
            near.push(Link::new(one, &plan.setup)?);
            far.push(Link::new(two, &plan.setup)?);
        }
        Ok(Box::new(Loopback {
            near: side(near, plan, Role::Client),
            far: side(far, plan, Role::Server),
        }))
    }

    fn connect_remote(
        &self,
        plan: &Plan,
        peer: &mut Peer,
        role: Role,
    ) -> Result<Box<dyn RemoteSide>, Failure> {
        let ends: Vec<_> = (0..plan.endpoints)
            .map(|_| {
                let end = self.connect_end(&plan.setup.shape(), peer, role)?;
                Link::new(end, &plan.setup)
            })
            .collect::<Result<_, Failure>>()?;
        Ok(Box::new(Remote {
            side: side(ends, plan, role),
            role,
        }))
    }
}

fn side<E: End>(links: Vec<Link<E>>, plan: &Plan, role: Role) -> Side<E> {
    let setup = &plan.setup;
    let reads = setup.operation == Operation::Read;
    let flow = |link| Flow::new(link, setup.tx_depth, setup.receives, reads);
    Side {
        flows: links.into_iter().map(flow).collect(),
        receives: setup.operation == Operation::Send && (plan.both || role == Role::Server),
    }
}

impl<E: End> Side<E> {
    /// Prepares the memory and the counters of all endpoints for a pass.
    pub(super) fn prepare(&mut self, pass: Pass, plan: &Plan, moderation: u32) {
        for flow in &mut self.flows {
            flow.link.prepare(pass.size);
            flow.reset(pass.size, plan.list, moderation);
        }
    }

    /// Compares the bytes that have arrived at all endpoints with those sent.
    pub(super) fn verify(&mut self) -> Result<(), Failure> {
        self.flows
            .iter_mut()
            .try_for_each(|flow| flow.link.verify())
    }
}
