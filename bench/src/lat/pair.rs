//! Runs with two processes: the client measures, the server answers, and the
//! control connection synchronizes them.
//!
//! ```text
//! client                                server
//!   hello ─────────────────────────────── hello      both compare the options
//!                                                    for every interface, in order:
//!   address ─────────────────────────── address        queue pairs are connected (engine),
//!          ◄────────────────────────── service         or the service point to connect to (DAT, iWARP)
//!   ready ─────────────────────────────── ready
//!   begin size ──────────────────────────►           for every leg, in the plan's order:
//!          ◄──────────────────────────── ready         memory is cleared
//!          ······ messages over RDMA ······
//!   done n ──────────────────────────────►
//!          ◄────────────────────────────── done n      both compare the counts
//! ```
//!
//! A side that fails sends the reason (`abort`). A killed side closes the
//! connection, which the other one checks once in many empty polls.
//!
//! If a client fails before the first leg, the server reports the failure and
//! waits for another client.

use std::time::Duration;

use super::link::End;
use super::patience::{Patience, Stop};
use super::plan::{Leg, Plan};
use super::side::{Remote, Side, serve as answer};
use super::way::{Opened, Role, There};
use super::{read, send, write};
use crate::cli::{LatArgs, Operation};
use crate::exchange::{Door, Lobby, Peer};
use crate::failure::Failure;
use crate::output;
use crate::report::DeviceFacts;
use crate::stats::Samples;

/// How long to wait for the other side's failure after one on this side.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Timeout for the end of a run of RDMA reads, in which a server only waits. TCP
/// keep-alive detects a client that is gone.
const WHILE_READ: Duration = Duration::from_secs(3600 * 24 * 365);

/// The control connection, and one connected side per interface.
pub(super) struct Pair {
    peer: Peer,
    sides: Vec<Box<dyn There>>,
}

impl Pair {
    /// Compares the options with the server's, and connects to it, as the client.
    pub(super) fn meet(
        opened: &[Box<dyn Opened>],
        plan: &Plan,
        mut peer: Peer,
    ) -> Result<Self, Failure> {
        let agreed = peer.agree(&plan.options());
        tell(&mut peer, agreed)?;
        Self::connect(opened, plan, peer, Role::Client)
    }

    /// Connects an endpoint of every interface. The options must have been
    /// compared before.
    fn connect(
        opened: &[Box<dyn Opened>],
        plan: &Plan,
        mut peer: Peer,
        role: Role,
    ) -> Result<Self, Failure> {
        let connected = connect(opened, plan, &mut peer, role);
        let sides = tell(&mut peer, connected)?;
        Ok(Self { peer, sides })
    }

    /// Measures one leg through one interface, as the client.
    pub(super) fn measure(
        &mut self,
        turn: usize,
        leg: Leg,
        plan: &Plan,
        samples: &mut Samples,
    ) -> Result<(), Failure> {
        let measured = self.sides[turn].measure(leg, plan, &mut self.peer, samples);
        tell(&mut self.peer, measured)
    }

    /// Answers all legs, as the server.
    fn answer(&mut self, plan: &Plan) -> Result<(), Failure> {
        let answered = self.answer_sizes(plan);
        tell(&mut self.peer, answered)
    }

    fn answer_sizes(&mut self, plan: &Plan) -> Result<(), Failure> {
        for &size in &plan.sizes {
            let mut answered = vec![0; plan.apis.len()];
            for round in 0..plan.rounds() {
                for turn in plan.turns(round) {
                    let leg = Leg { size, round };
                    answered[turn] += self.sides[turn].answer(leg, plan, &mut self.peer)?;
                }
            }
            for (api, answered) in plan.apis.iter().zip(answered) {
                output::line(format_args!(
                    " answered {answered} messages of {size} bytes through api {}; the client prints the results",
                    api.name()
                ))?;
            }
        }
        Ok(())
    }
}

/// Runs the server: waits for a client and answers it, with `--persist` one
/// client after another. Reports every connection that is not a client with the
/// same options.
pub(super) fn serve(
    opened: &[Box<dyn Opened>],
    facts: &DeviceFacts,
    plan: &Plan,
    args: &LatArgs,
) -> Result<(), Failure> {
    let door = Door::open(plan.listen, args.port)?;
    output::line(format_args!(" {}", facts.what_is_emulated()))?;
    output::line(format_args!(
        " waiting on TCP port {} for a client, {}; no client is authenticated",
        door.port()?,
        door.place()
    ))?;
    let mut lobby = Lobby::new(door, plan.options(), plan.limit);
    let mut served = 0_u64;
    let mut still_waiting = |cause: &str| output::line(format_args!(" {cause}; still waiting"));
    loop {
        let Some(peer) = lobby.wait(args.timeout, &mut still_waiting)? else {
            return nobody_came(args.timeout.unwrap_or_default(), served);
        };
        let name = peer.name().to_owned();
        output::line(format_args!(" client {name}"))?;
        let answered = match Pair::connect(opened, plan, peer, Role::Server) {
            Ok(mut pair) => pair.answer(plan),
            // A failure of this host would repeat with every client.
            Err(failure @ Failure::Environment(_)) => Err(failure),
            Err(failure) => {
                still_waiting(&format!("{name}: {failure}"))?;
                continue;
            }
        };
        match answered {
            Ok(()) if args.persist => {
                served += 1;
                output::line(" done; waiting for the next client")?;
            }
            Err(failure) if args.persist => still_waiting(&format!("{name}: {failure}"))?,
            ended => return ended,
        }
    }
}

/// Ends a server after the timeout for a client.
fn nobody_came(limit: Duration, served: u64) -> Result<(), Failure> {
    let seconds = limit.as_secs_f64();
    if served > 0 {
        return output::line(format_args!(
            " no further client came within {seconds} s; {served} were served"
        ));
    }
    Err(Failure::run(format!(
        "no client came within {seconds} s; start one with this host's name as last argument, or wait longer with --timeout"
    )))
}

/// Connects one endpoint per interface. On return both sides are ready.
fn connect(
    opened: &[Box<dyn Opened>],
    plan: &Plan,
    peer: &mut Peer,
    role: Role,
) -> Result<Vec<Box<dyn There>>, Failure> {
    opened
        .iter()
        .map(|way| {
            let side = way.there(plan, peer, role)?;
            peer.meet()?;
            Ok(side)
        })
        .collect()
}

impl<E: End> There for Side<E> {
    fn measure(
        &mut self,
        leg: Leg,
        plan: &Plan,
        peer: &mut Peer,
        samples: &mut Samples,
    ) -> Result<(), Failure> {
        self.set_size(leg.size);
        self.link.prepare(leg.size);
        peer.begin(leg.size)?;
        peer.await_ready()?;
        let mut meter = plan.meter(leg, samples);
        let mut patience = plan.patience(Some(peer));
        match plan.operation {
            Operation::Send => send::measure(self, &mut Remote, &mut meter, &mut patience),
            Operation::Write => write::measure(self, &mut Remote, &mut meter, &mut patience),
            Operation::Read => read::measure(self, &mut meter, &mut patience),
        }
        .map_err(|stop| explain(stop, peer))?;
        let sent = meter.round_trips();
        peer.done(sent)?;
        let answered = peer.await_done(plan.limit)?;
        compare(sent, answered)?;
        self.link.verify()
    }

    fn answer(&mut self, leg: Leg, plan: &Plan, peer: &mut Peer) -> Result<u64, Failure> {
        peer.await_begin(leg.size)?;
        self.set_size(leg.size);
        self.link.prepare(leg.size);
        peer.say_ready()?;
        let patience = plan.patience(Some(peer));
        let answered = match plan.operation {
            Operation::Send => {
                let mut partner = send::Responder {
                    side: self,
                    patience,
                    answered: 0,
                };
                answer(&mut partner).map(|()| Some(partner.answered))
            }
            Operation::Write => {
                let mut partner = write::Responder {
                    side: self,
                    patience,
                    answered: 0,
                };
                answer(&mut partner).map(|()| Some(partner.answered))
            }
            Operation::Read => Ok(None),
        }
        .map_err(|stop| explain(stop, peer))?;
        let sent = match answered {
            None => peer.await_done(WHILE_READ)?,
            Some(_) => peer.await_done(plan.limit)?,
        };
        self.settle(&mut Patience::new(plan.limit, None))
            .map_err(|stop| explain(stop, peer))?;
        if plan.operation != Operation::Read {
            self.link.verify()?;
        }
        // The server cannot count reads, so it returns the client's count.
        let answered = answered.unwrap_or(sent);
        peer.done(answered)?;
        compare(sent, answered)?;
        Ok(answered)
    }
}

fn compare(sent: u64, answered: u64) -> Result<(), Failure> {
    if answered == sent {
        return Ok(());
    }
    Err(Failure::run(format!(
        "{sent} messages were sent, but {answered} were answered: the data path loses or repeats messages"
    )))
}

/// Returns the other side's failure, if it sends one, with the failure of this
/// side. A failed request is often only the result of a failure on the other
/// side.
fn explain(stop: Stop, peer: &mut Peer) -> Failure {
    match (peer.last_words(LAST_WORDS), stop) {
        (Some(words), Stop::News) => words,
        (Some(words), _) => Failure::run(format!("{words}\n  on this side: {stop}")),
        (None, _) => Failure::run(stop.to_string()),
    }
}

/// Sends a failure of this side to the other side.
fn tell<T>(peer: &mut Peer, result: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(failure) = &result {
        peer.abort(&failure.to_string());
    }
    result
}
