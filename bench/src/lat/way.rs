//! One interface among several: opened, its ends made and connected, and run.
//!
//! [`Way`] is what each interface says of itself, with its own type of end.
//! Those who run several, one after the other, hold them as [`Opened`],
//! [`Here`] and [`There`]: calls through these happen once per run, and what
//! is behind them is compiled for the one interface.

use super::c::{self, Libdat};
use super::engine::{Engine, Managed};
use super::ground::Ground;
use super::link::End;
use super::loopback::Loopback;
use super::plan::{Leg, Plan};
use super::rust;
use super::side::Side;
use crate::cli::{Api, LatArgs};
use crate::exchange::Peer;
use crate::failure::Failure;
use crate::stats::Samples;

/// Who begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Measures.
    Client,
    /// Answers.
    Server,
}

/// An interface, opened.
pub(super) trait Way {
    /// One end of a connection.
    type End: End + 'static;

    /// Two ends in this process, connected: the client's and the server's.
    fn both(&self, plan: &Plan) -> Result<(Self::End, Self::End), Failure>;

    /// One end, connected to that of the other process, which says the same
    /// with the other role.
    fn one(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<Self::End, Failure>;
}

/// A [`Way`], whichever.
pub(super) trait Opened {
    fn here(&self, plan: &Plan) -> Result<Box<dyn Here>, Failure>;
    fn there(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<Box<dyn There>, Failure>;
}

/// Two connected sides in this thread.
pub(super) trait Here {
    /// Measures one leg.
    fn measure(&mut self, leg: Leg, plan: &Plan, samples: &mut Samples) -> Result<(), Failure>;
}

/// One side, connected to another process.
pub(super) trait There {
    /// The client: measures one leg.
    fn measure(
        &mut self,
        leg: Leg,
        plan: &Plan,
        peer: &mut Peer,
        samples: &mut Samples,
    ) -> Result<(), Failure>;

    /// The server: answers one leg; how many messages there were.
    fn answer(&mut self, leg: Leg, plan: &Plan, peer: &mut Peer) -> Result<u64, Failure>;
}

impl<W: Way> Opened for W {
    fn here(&self, plan: &Plan) -> Result<Box<dyn Here>, Failure> {
        let (near, far) = self.both(plan)?;
        Ok(Box::new(Loopback::new(near, far, plan)))
    }

    fn there(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<Box<dyn There>, Failure> {
        let end = self.one(plan, peer, role)?;
        Ok(Box::new(Side::new(end, plan.tx_depth)))
    }
}

/// Opens an interface. May start threads.
pub(super) fn open(
    api: Api,
    libdat: Option<&Libdat>,
    ground: &Ground,
    args: &LatArgs,
) -> Result<Box<dyn Opened>, Failure> {
    Ok(match (api, args.wait.is_some()) {
        (Api::Engine, _) if ground.is_iwarp() => Box::new(Managed::open(ground, args)?),
        (Api::Engine, _) => Box::new(Engine::open(ground, args)?),
        (Api::Rust, false) => Box::new(rust::Way::<false>::open(ground)?),
        (Api::Rust, true) => Box::new(rust::Way::<true>::open(ground)?),
        (Api::C, waits) => {
            let libdat = libdat.expect("it is loaded where it is asked for");
            if waits {
                Box::new(c::Way::<true>::open(libdat, ground)?)
            } else {
                Box::new(c::Way::<false>::open(libdat, ground)?)
            }
        }
    })
}
