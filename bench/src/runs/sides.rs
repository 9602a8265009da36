//! The connected sides of a run: for each API two in this process, or one whose other side is in
//! another process.
//!
//! A run takes turns between APIs, so their sides are behind a function that is called once per
//! pass; the loops in it are compiled for each API.

use std::fmt::Debug;

use dat_engine::DataInOrder;

use super::common::CommonPlan;
use super::team::Team;
use crate::ends::{End, Link, RemoteInterface, Role};
use crate::exchange::{Options, Peer, Test, Verb};
use crate::failure::Failure;
use crate::options::{Api, Operation, RunArgs};
use crate::report::Goal;

/// A command with two sides, as its plan.
pub(crate) trait Command: Sized + 'static {
    /// What the server says of the messages of a case.
    const SERVED: &'static str;
    /// Whether each message is answered before the next one is sent: perftest's latency tests.
    const IS_PING_PONG: bool;

    /// A size, and what else distinguishes results of one API.
    type Case: Copy + Debug;
    /// One uninterrupted measurement: one case in one round, through one API.
    type Pass: Copy;
    /// What a pass records.
    type Recording;
    /// What the threads of a side hand over to the first one after a pass.
    type Share: Send;
    /// The results of a case through one API.
    type Outcome;
    /// One side of an API.
    type Side<E: End + 'static>: 'static;

    fn common(&self) -> &CommonPlan;

    /// Returns the options that both sides must have in common.
    fn options(&self) -> Options;

    /// Returns the number of endpoints of a side.
    fn endpoints(&self) -> u32 {
        1
    }

    /// Returns whether the run needs to know what the devices of both sides promise about the
    /// order of data.
    fn needs_order(&self) -> bool {
        false
    }

    /// Sets what they promise, once the sides are connected.
    fn set_order(&mut self, _: DataInOrder) {}

    /// Returns the cases in the order of measurement, with the size of each in bytes.
    fn cases(&self) -> Vec<(u32, Self::Case)>;

    fn pass(&self, case: Self::Case, round: u32) -> Self::Pass;

    fn recording(&self) -> Self::Recording;

    /// Returns what a thread hands over to the first one.
    fn share(recording: &Self::Recording) -> Self::Share;

    /// Adds what another thread has handed over.
    fn join(recording: &mut Self::Recording, share: Self::Share);

    /// Returns the number of messages that the last pass has exchanged.
    fn messages(recording: &Self::Recording) -> u64;

    /// Returns an outcome without rounds.
    fn outcome(&self, case: Self::Case, api: Api) -> Self::Outcome;

    /// Adds a round.
    fn add(outcome: &mut Self::Outcome, round: &Self::Recording);

    /// Makes a side of its connected endpoints.
    fn side<E: End + 'static>(&self, links: Vec<Link<E>>, role: Role) -> Self::Side<E>;

    /// Measures one pass between two sides in this thread, the client's and the server's.
    fn measure_local<E: End + 'static>(
        &self,
        sides: [&mut Self::Side<E>; 2],
        pass: Self::Pass,
        recording: &mut Self::Recording,
    ) -> Result<(), Failure>;

    /// Runs one pass with the other process, which calls this with the other role.
    fn measure_remote<E: End + 'static>(
        &self,
        side: (&mut Self::Side<E>, Role),
        pass: Self::Pass,
        peer: &mut Peer,
        recording: &mut Self::Recording,
    ) -> Result<(), Failure>;
}

/// Returns what is measured together with perftest, if it is the other side.
pub(super) fn perftest<P: Command>(plan: &P, args: &RunArgs) -> Option<Test> {
    if !args.is_with_perftest() {
        return None;
    }
    let CommonPlan { setup, amount, .. } = plan.common();
    let (verb, exposed) = match setup.operation {
        Operation::Send => (Verb::Send, 0),
        Operation::Write => (Verb::Write, setup.layout.incoming(0).start),
        Operation::Read => (Verb::Read, 0),
        // Refused by `RunArgs::check_peer`.
        Operation::WriteImm | Operation::FetchAdd | Operation::CompareSwap => return None,
    };
    let messages = match amount.goal {
        Goal::Iterations(count) => {
            let each = count.saturating_add(amount.warmup);
            each.saturating_mul(plan.endpoints().into())
        }
        Goal::Duration(_) => u64::MAX,
    };
    Some(Test {
        verb,
        is_ping_pong: P::IS_PING_PONG,
        is_client: args.host.is_some(),
        with_gid: args.gid_index.is_some(),
        exposed: exposed as u64,
        size: amount.sizes[0],
        messages,
    })
}

/// Runs one pass between the connected sides of one API. The third argument is the other process,
/// if there is one.
pub(crate) type RunPass<P> = Box<
    dyn FnMut(
        &P,
        <P as Command>::Pass,
        Option<&mut Peer>,
        &mut <P as Command>::Recording,
    ) -> Result<(), Failure>,
>;

/// An open API of a run.
pub(crate) trait OpenInterface<P: Command> {
    /// Connects two sides in this process, or one to another process. Also returns what the
    /// device promises about the order of data.
    fn connect(
        &self,
        plan: &P,
        other: Option<(&mut Peer, Role)>,
    ) -> Result<(RunPass<P>, DataInOrder), Failure>;
}

impl<I: RemoteInterface, P: Command> OpenInterface<P> for I {
    fn connect(
        &self,
        plan: &P,
        mut other: Option<(&mut Peer, Role)>,
    ) -> Result<(RunPass<P>, DataInOrder), Failure> {
        let setup = &plan.common().setup;
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..plan.endpoints() {
            match &mut other {
                None => {
                    let [one, two] = self.connect_pair::<false>(&setup.shape())?;
                    near.push(Link::new(one, setup)?);
                    far.push(Link::new(two, setup)?);
                }
                Some((peer, role)) => {
                    let end = self.connect_end(&setup.shape(), peer, *role)?;
                    near.push(Link::new(end, setup)?);
                }
            }
        }
        let order = match plan.needs_order() {
            true => {
                let all = near.iter().chain(&far).map(Link::data_in_order);
                all.fold(DataInOrder::Yes, DataInOrder::and)
            }
            false => DataInOrder::Unknown,
        };
        let run: RunPass<P> = match other {
            None => {
                let near = plan.side(near, Role::Client);
                let mut sides = [near, plan.side(far, Role::Server)];
                Box::new(move |plan, pass, _, recording| {
                    plan.measure_local(sides.each_mut(), pass, recording)
                })
            }
            Some((_, role)) => {
                let mut side = plan.side(near, role);
                Box::new(move |plan, pass, peer, recording| {
                    let peer = peer.expect("the control connection lives as long as the side");
                    plan.measure_remote((&mut side, role), pass, peer, recording)
                })
            }
        };
        Ok((run, order))
    }
}

/// The connected sides of every API, in the order of `--api`.
pub(crate) struct Sides<'t, P: Command> {
    each: Vec<RunPass<P>>,
    /// The control connection to the other process; none with `--loopback`.
    peer: Option<Peer>,
    /// The other threads of this side, and the number of this one; none if there is one thread.
    team: Option<Member<'t, P>>,
}

/// A thread of a team: its number, from 0.
pub(crate) type Member<'t, P> = (&'t Team<<P as Command>::Share>, u32);

impl<'t, P: Command> Sides<'t, P> {
    /// Connects within this process, or as the client to the server of `args`, which must have
    /// the same options.
    pub(crate) fn connect(
        interfaces: &[Box<dyn OpenInterface<P>>],
        plan: &mut P,
        args: &RunArgs,
        team: Option<Member<'t, P>>,
    ) -> Result<Self, Failure> {
        let Some(host) = &args.host else {
            if let Some((team, _)) = team {
                team.meet()?;
            }
            return Self::with(interfaces, plan, None, Role::Client, team);
        };
        // All threads but the first wait for the port that the server tells the first one.
        let port = match team {
            Some((team, 1..)) => {
                team.meet()?;
                team.port()
            }
            _ => args.port,
        };
        let peer = Peer::connect(host, port, plan.common().setup.timeout)?;
        let mut peer = peer.speaking(perftest(plan, args))?;
        let agreed = peer.agree(&plan.options()).and_then(|()| match team {
            Some((team, 0)) => {
                team.set_port(peer.await_port()?);
                team.meet()
            }
            _ => Ok(()),
        });
        abort_on_failure(&mut peer, agreed)?;
        Self::with(interfaces, plan, Some(peer), Role::Client, team)
    }

    /// Connects one side or two per API. With another process, the options must have been
    /// compared before, and on return both processes are ready.
    pub(super) fn with(
        interfaces: &[Box<dyn OpenInterface<P>>],
        plan: &mut P,
        peer: Option<Peer>,
        role: Role,
        team: Option<Member<'t, P>>,
    ) -> Result<Self, Failure> {
        let each = Vec::with_capacity(interfaces.len());
        let mut sides = Self { each, peer, team };
        sides.run(|each, mut peer| {
            let mut order = DataInOrder::Yes;
            for interface in interfaces {
                let other = peer.as_deref_mut().map(|peer| (peer, role));
                let (connected, promised) = interface.connect(plan, other)?;
                each.push(connected);
                order = order.and(promised);
                if let Some(peer) = &mut peer {
                    peer.barrier()?;
                }
            }
            if plan.needs_order() {
                plan.set_order(match peer {
                    Some(peer) => peer.exchange_order(order)?,
                    None => order,
                });
            }
            Ok(())
        })?;
        Ok(sides)
    }

    /// Runs one pass of one API, at the same time as the other threads. The first thread's
    /// recording then has those of all.
    pub(super) fn measure(
        &mut self,
        turn: usize,
        plan: &P,
        pass: P::Pass,
        recording: &mut P::Recording,
    ) -> Result<(), Failure> {
        let Some((team, thread)) = self.team else {
            return self.run(|each, peer| each[turn](plan, pass, peer, recording));
        };
        self.run(|each, peer| {
            team.meet()?;
            each[turn](plan, pass, peer, recording)?;
            if thread > 0 {
                team.give(thread, P::share(recording));
            }
            team.meet()
        })?;
        if thread == 0 {
            let shares = team.take().into_iter();
            shares.for_each(|share| P::join(recording, share));
        }
        Ok(())
    }

    /// Does something with the sides. Tells the other process of a failure.
    fn run(
        &mut self,
        work: impl FnOnce(&mut Vec<RunPass<P>>, Option<&mut Peer>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let done = work(&mut self.each, self.peer.as_mut());
        if let (Err(failure), Some((team, _))) = (&done, self.team) {
            team.end(&failure.to_string());
        }
        match &mut self.peer {
            Some(peer) => abort_on_failure(peer, done),
            None => done,
        }
    }

    /// Tells the other process why the run ends.
    pub(super) fn abort(&mut self, failure: &Failure) {
        if let Some(peer) = &mut self.peer {
            peer.abort(&failure.to_string());
        }
    }
}

fn abort_on_failure(peer: &mut Peer, result: Result<(), Failure>) -> Result<(), Failure> {
    if let Err(failure) = &result {
        peer.abort(&failure.to_string());
    }
    result
}
