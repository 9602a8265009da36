//! Runs with two processes: the client measures, the server answers, and the
//! control connection synchronizes them.
//!
//! ```text
//! client                                server
//!   hello ─────────────────────────────── hello      both compare the options
//!   ready ───────────────────────────────►           a client that is silent until here delays no other
//!                                                    for every interface, in order:
//!   address ─────────────────────────── address        queue pairs are connected (engine),
//!          ◄────────────────────────── service         or the service point to connect to (DAT, iWARP)
//!   ready ─────────────────────────────── ready
//!   order of data ─────────────── order of data      for -o write: how writes are noticed
//!   begin size ──────────────────────────►           for every pass, in the plan's order:
//!          ◄──────────────────────────── ready         memory is cleared
//!          ······ messages over RDMA ······
//!   done n ──────────────────────────────►
//!          ◄────────────────────────────── done n      both compare the counts; each says how long its
//!                                                      thread ran
//! ```
//!
//! A side that fails sends the reason (`abort`). A killed side closes the
//! connection, which the other one checks once in many empty polls.
//!
//! If a client fails before the first pass, the server reports the failure and
//! waits for another client.

use std::time::Duration;

use dat_engine::DataInOrder;

use super::interface::{Open, RemoteSide};
use super::kind::{self, Kind};
use super::plan::{Pass, Plan, Recording};
use super::side::{Remote, Side, serve as answer};
use super::{pass, send, write};
use crate::ends::{Connection, End, Opened, Role, Server, Watchdog, explain};
use crate::exchange::{Done, Peer};
use crate::failure::Failure;
use crate::lat::options::LatArgs;
use crate::noise::Watch;
use crate::options::Operation;
use crate::output;
use crate::report::{Arrival, Method};

/// Timeout for the end of a run of RDMA reads, in which a server only waits. TCP
/// keep-alive detects a client that is gone.
const READ_TIMEOUT: Duration = Duration::from_secs(3600 * 24 * 365);

/// Answers all passes, as the server.
fn answer_all(
    sides: &mut [Box<dyn RemoteSide>],
    peer: &mut Peer,
    plan: &Plan,
    args: &LatArgs,
) -> Result<(), Failure> {
    let arrival = match plan.setup.operation {
        Operation::Write => {
            let in_order = kind::agree(sides, peer)?;
            Some(Arrival::choose(args.last_byte(), in_order))
        }
        Operation::Send | Operation::Read => None,
    };
    for &size in &plan.amount.sizes {
        let mut answered = vec![0; plan.amount.apis.len()];
        for &rate in &plan.rates {
            for (round, turn) in plan.amount.passes() {
                let pass = Pass {
                    size,
                    round,
                    rate,
                    kind: plan.kind(arrival),
                };
                answered[turn] += sides[turn].answer(pass, plan, peer)?;
            }
        }
        for (api, answered) in plan.amount.apis.iter().zip(answered) {
            output::line(format_args!(
                " answered {answered} messages of {size} bytes through api {}; the client prints the results",
                api.name()
            ))?;
        }
    }
    Ok(())
}

/// Runs the server.
pub(super) fn serve(opened: &Opened<Open>, plan: &Plan, args: &LatArgs) -> Result<(), Failure> {
    let server = Server {
        args: &args.run,
        facts: opened.device_port.facts(),
        options: plan.options(),
        listen: opened.listen,
        timeout: plan.setup.timeout,
    };
    server.run(
        |peer| Connection::connect(&opened.interfaces, plan, peer, Role::Server),
        |mut connection| connection.run(|sides, peer| answer_all(sides, peer, plan, args)),
    )
}

impl<E: End> RemoteSide for Side<E> {
    fn data_in_order(&self) -> DataInOrder {
        self.link.data_in_order()
    }

    fn measure(
        &mut self,
        pass: Pass,
        plan: &Plan,
        peer: &mut Peer,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        self.set_size(pass.size);
        self.link.prepare(pass.size);
        peer.begin(pass.size)?;
        peer.await_ready()?;
        let mut watchdog = plan.watchdog(Some(peer));
        let sent = pass::run(self, &mut Remote, pass, plan, recording, &mut watchdog)
            .map_err(|stop| explain(stop, peer))?;
        peer.done(Done {
            messages: sent,
            ran: recording.noise.ran,
            ..Done::default()
        })?;
        let theirs = peer.await_done(plan.setup.timeout)?;
        // Reads are answered by the device, not by a thread.
        recording.noise.responder = (pass.kind != Kind::Read).then_some(theirs.ran);
        compare(sent, theirs.messages)?;
        self.link.verify()
    }

    fn answer(&mut self, pass: Pass, plan: &Plan, peer: &mut Peer) -> Result<u64, Failure> {
        peer.await_begin(pass.size)?;
        self.set_size(pass.size);
        self.link.prepare(pass.size);
        peer.send_ready()?;
        let watchdog = plan.watchdog(Some(peer));
        let watch = Watch::counting();
        let answered = match pass.kind {
            Kind::Send => {
                let mut responder = send::Responder {
                    side: self,
                    watchdog,
                    answered: 0,
                };
                answer(&mut responder).map(|()| Some(responder.answered))
            }
            Kind::Write(Method::LastByte) => {
                let mut responder = write::Responder::<_, false>::new(self, watchdog);
                answer(&mut responder).map(|()| Some(responder.answered))
            }
            Kind::Write(Method::SendBehind) => {
                let mut responder = write::Responder::<_, true>::new(self, watchdog);
                answer(&mut responder).map(|()| Some(responder.answered))
            }
            Kind::Read => Ok(None),
        }
        .map_err(|stop| explain(stop, peer))?;
        let ran = watch.end().ran;
        let sent = match answered {
            None => peer.await_done(READ_TIMEOUT)?,
            Some(_) => peer.await_done(plan.setup.timeout)?,
        }
        .messages;
        self.drain(&mut Watchdog::new(plan.setup.timeout, None))
            .map_err(|stop| explain(stop, peer))?;
        if pass.kind != Kind::Read {
            self.link.verify()?;
        }
        // The server cannot count reads, so it returns the client's count.
        let answered = answered.unwrap_or(sent);
        peer.done(Done {
            messages: answered,
            ran,
            ..Done::default()
        })?;
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
