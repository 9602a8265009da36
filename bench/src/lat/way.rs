//! The measured interfaces: opening them, connecting their ends, and running
//! legs on them.
//!
//! Each interface implements [`Way`] with its own type of end. Callers that run
//! several interfaces in turns use the trait objects [`Opened`], [`Here`] and
//! [`There`], whose methods are called once per leg; the loops behind them
//! are compiled for each interface.

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

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Measures; connects to the server.
    Client,
    /// Answers messages.
    Server,
}

/// An open interface.
pub(super) trait Way {
    /// One end of a connection.
    type End: End + 'static;

    /// Creates and connects two ends in this process: the client's and the server's.
    fn both(&self, plan: &Plan) -> Result<(Self::End, Self::End), Failure>;

    /// Creates one end and connects it to that of the other process, which calls
    /// this with the other role.
    fn one(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<Self::End, Failure>;
}

/// An open interface as a trait object.
pub(super) trait Opened {
    fn here(&self, plan: &Plan) -> Result<Box<dyn Here>, Failure>;
    fn there(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<Box<dyn There>, Failure>;
}

/// Two connected sides in this thread, as a trait object.
pub(super) trait Here {
    /// Measures one leg.
    fn measure(&mut self, leg: Leg, plan: &Plan, samples: &mut Samples) -> Result<(), Failure>;
}

/// One side, connected to another process, as a trait object.
pub(super) trait There {
    /// Measures one leg, as the client.
    fn measure(
        &mut self,
        leg: Leg,
        plan: &Plan,
        peer: &mut Peer,
        samples: &mut Samples,
    ) -> Result<(), Failure>;

    /// Answers one leg, as the server. Returns the number of messages.
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

/// Opens an interface, which may start threads.
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
