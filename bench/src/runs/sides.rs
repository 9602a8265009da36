//! The connected sides of a run: for each interface two in this process, or one whose
//! other side is in another process.

use std::time::Duration;

use super::Role;
use super::serve::abort_on_failure;
use crate::exchange::{Options, Peer};
use crate::failure::Failure;
use crate::options::RunArgs;

/// An open interface as a trait object of a command with the plan `P`: `L` are two sides
/// in this process, `R` is one that is connected to another process.
pub(crate) trait OpenInterface<P, L, R> {
    fn connect_local(&self, plan: &P) -> Result<L, Failure>;
    fn connect_remote(&self, plan: &P, peer: &mut Peer, role: Role) -> Result<R, Failure>;
}

/// The sides, one or two per interface.
pub(crate) enum Sides<L, R> {
    Local(Vec<L>),
    Remote(Connection<R>),
}

impl<L, R> Sides<L, R> {
    /// Connects within this process, or as the client to the server of `args`, which must
    /// have the same options.
    pub(crate) fn connect<P>(
        interfaces: &[Box<dyn OpenInterface<P, L, R>>],
        plan: &P,
        options: &Options,
        args: &RunArgs,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let Some(host) = &args.host else {
            let local = interfaces.iter().map(|it| it.connect_local(plan));
            return local.collect::<Result<_, _>>().map(Self::Local);
        };
        let mut peer = Peer::connect(host, args.port, timeout)?;
        let agreed = peer.agree(options);
        abort_on_failure(&mut peer, agreed)?;
        Connection::connect(interfaces, plan, peer, Role::Client).map(Self::Remote)
    }

    /// Tells the other process why the run ends.
    pub(crate) fn abort(&mut self, failure: &Failure) {
        if let Self::Remote(Connection { peer, .. }) = self {
            peer.abort(&failure.to_string());
        }
    }
}

/// The control connection, and one connected side per interface.
pub(crate) struct Connection<R> {
    peer: Peer,
    sides: Vec<R>,
}

impl<R> Connection<R> {
    /// Connects one side per interface. The options must have been compared before. On
    /// return both processes are ready.
    pub(crate) fn connect<P, L>(
        interfaces: &[Box<dyn OpenInterface<P, L, R>>],
        plan: &P,
        mut peer: Peer,
        role: Role,
    ) -> Result<Self, Failure> {
        let sides = interfaces
            .iter()
            .map(|interface| {
                let side = interface.connect_remote(plan, &mut peer, role)?;
                peer.barrier()?;
                Ok(side)
            })
            .collect();
        let sides = abort_on_failure(&mut peer, sides)?;
        Ok(Self { peer, sides })
    }

    /// Does something with the sides. Tells the other process of a failure.
    pub(crate) fn run<T>(
        &mut self,
        work: impl FnOnce(&mut [R], &mut Peer) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let done = work(&mut self.sides, &mut self.peer);
        abort_on_failure(&mut self.peer, done)
    }
}
