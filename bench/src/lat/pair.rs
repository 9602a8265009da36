//! Two processes: the client measures, the server answers, and both speak
//! over TCP about what to do next.
//!
//! ```text
//! client                                server
//!   hello ─────────────────────────────── hello      options compared by both
//!   address ─────────────────────────── address      queue pairs connected
//!   ready ─────────────────────────────── ready
//!   begin size ──────────────────────────►           for every size:
//!          ◄──────────────────────────── ready         memory cleared
//!          ······ messages over RDMA ······
//!   done n ──────────────────────────────►
//!          ◄────────────────────────────── done n      counts compared
//! ```
//!
//! Who gives up says why (`abort`); who is killed is noticed by the closed
//! connection, which both sides look at in between empty polls.

use std::io::Write;
use std::time::Duration;

use super::patience::{Patience, Stop};
use super::plan::Plan;
use super::rdma::{Ground, Rdma};
use super::side::{Remote, Side, serve as answer};
use super::{read, send, write};
use crate::cli::{LatArgs, Operation};
use crate::exchange::{Door, Peer};
use crate::failure::Failure;
use crate::report::Outcome;

/// How long to wait for the other side's own words once a run has failed here.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// While its memory is read a server has nothing to do but to hear of the end;
/// that the client lives is TCP's business.
const WHILE_READ: Duration = Duration::from_secs(3600 * 24 * 365);

/// A client that is connected to its server.
pub(super) struct Client {
    peer: Peer,
    side: Side<Rdma>,
}

/// The client: agrees with the server on the run, and connects to it.
pub(super) fn meet(ground: &Ground, plan: &Plan, mut peer: Peer) -> Result<Client, Failure> {
    let connected = connect(ground, plan, &mut peer);
    let side = tell(&mut peer, connected)?;
    Ok(Client { peer, side })
}

/// The client: measures every size.
pub(super) fn measure(
    client: Client,
    plan: &Plan,
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    let Client { mut peer, mut side } = client;
    let measured = measure_sizes(&mut side, plan, &mut peer, each);
    tell(&mut peer, measured)
}

fn measure_sizes(
    side: &mut Side<Rdma>,
    plan: &Plan,
    peer: &mut Peer,
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    for &size in &plan.sizes {
        side.set_size(size);
        side.link.prepare(size);
        peer.begin(size)?;
        peer.await_ready()?;
        let mut samples = plan.samples();
        let mut meter = plan.meter(&mut samples);
        let mut patience = Patience::new(plan.patience, Some(peer));
        match plan.operation {
            Operation::Send => send::measure(side, &mut Remote, &mut meter, &mut patience),
            Operation::Write => write::measure(side, &mut Remote, &mut meter, &mut patience),
            Operation::Read => read::measure(side, &mut meter, &mut patience),
        }
        .map_err(|stop| explain(stop, peer))?;
        let sent = meter.round_trips();
        peer.done(sent)?;
        let answered = peer.await_done(plan.patience)?;
        if answered != sent {
            return Err(Failure::run(format!(
                "{sent} messages were sent, {answered} answered"
            )));
        }
        side.link.verify()?;
        each(Outcome {
            size,
            samples,
            verified: true,
        });
    }
    Ok(())
}

/// The server: waits for a client, answers it, and says so.
pub(super) fn serve(ground: &Ground, plan: &Plan, args: &LatArgs) -> Result<(), Failure> {
    let door = Door::open(args.port)?;
    println!(" {}", ground.facts().what_is_emulated());
    println!(" waiting on TCP port {} for a client", door.port()?);
    // Whoever waits for this line through a pipe must see it now.
    let _ = std::io::stdout().flush();
    let mut peer = door.wait(args.timeout, plan.patience)?;
    println!(" client {}", peer.name());
    let served = serve_sizes(ground, plan, &mut peer);
    tell(&mut peer, served)
}

fn serve_sizes(ground: &Ground, plan: &Plan, peer: &mut Peer) -> Result<(), Failure> {
    let mut side = connect(ground, plan, peer)?;
    for &size in &plan.sizes {
        peer.await_begin(size)?;
        side.set_size(size);
        side.link.prepare(size);
        peer.say_ready()?;
        let patience = Patience::new(plan.patience, Some(peer));
        let answered = match plan.operation {
            Operation::Send => {
                let mut partner = send::Responder {
                    side: &mut side,
                    patience,
                    answered: 0,
                };
                answer(&mut partner).map(|()| Some(partner.answered))
            }
            Operation::Write => {
                let mut partner = write::Responder {
                    side: &mut side,
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
            Some(_) => peer.await_done(plan.patience)?,
        };
        side.settle(&mut Patience::new(plan.patience, None))
            .map_err(|stop| explain(stop, peer))?;
        if plan.operation != Operation::Read {
            side.link.verify()?;
        }
        // Nobody here counts reads: they are as many as the client says.
        let answered = answered.unwrap_or(sent);
        peer.done(answered)?;
        if answered != sent {
            return Err(Failure::run(format!(
                "{sent} messages were sent, {answered} answered"
            )));
        }
        println!(" answered {answered} messages of {size} bytes; the client has the figures");
    }
    Ok(())
}

/// Options compared, queue pairs connected, both sides ready.
fn connect(ground: &Ground, plan: &Plan, peer: &mut Peer) -> Result<Side<Rdma>, Failure> {
    peer.agree(&plan.options())?;
    let mut rdma = Rdma::create(ground, plan)?;
    let theirs = peer.exchange(rdma.address())?;
    rdma.connect(&theirs)?;
    peer.meet()?;
    Ok(Side::new(rdma, plan.tx_depth))
}

/// The cause as the other side knows it, if it does; a failed request is often
/// only the echo of a process that ended there.
fn explain(stop: Stop, peer: &mut Peer) -> Failure {
    match (peer.last_words(LAST_WORDS), stop) {
        (Some(words), Stop::News) => words,
        (Some(words), _) => Failure::run(format!("{words}\n  seen here: {stop}")),
        (None, _) => Failure::run(stop.to_string()),
    }
}

/// Lets the other side know why this one ends.
fn tell<T>(peer: &mut Peer, result: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(failure) = &result {
        peer.abort(&failure.to_string());
    }
    result
}
