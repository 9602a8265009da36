//! Runs with two processes, synchronized by the control connection.
//!
//! ```text
//! client                                server
//!   hello ─────────────────────────────── hello      both compare the options
//!   ready ───────────────────────────────►           a client that is silent until here delays no other
//!                                                    for every interface, in order:
//!   address or service ──── for every endpoint ────     endpoints are connected
//!   ready ─────────────────────────────── ready
//!   begin size ──────────────────────────►           for every pass, in the plan's order:
//!          ◄──────────────────────────── ready         memory is cleared
//!          ······ messages over RDMA ······              with -b both ways
//!   done ────────────────────────────────►              all requests of this side are complete;
//!          ◄──────────────────────────── done           with -b in any order
//!   ready ─────────────────────────────── ready         all messages are taken and grants complete
//! ```

use std::time::Duration;

use super::interface::{Open, Recording, RemoteSide};
use super::plan::{Pass, Plan};
use super::side::{Sending, Side, drive};
use crate::bw::options::BwArgs;
use crate::ends::{Connection, End, Opened, Role, Server, Stop, explain};
use crate::exchange::{Done, Peer};
use crate::failure::Failure;
use crate::noise::{Noise, Watch};
use crate::options::Operation;
use crate::output;

/// Timeout for a side that only waits. TCP keep-alive detects a peer that is gone.
const PASSIVE_TIMEOUT: Duration = Duration::from_secs(3600 * 24 * 365);

/// Runs all passes, as the server.
fn answer(
    sides: &mut [Box<dyn RemoteSide>],
    peer: &mut Peer,
    plan: &Plan,
    args: &BwArgs,
) -> Result<(), Failure> {
    for &size in &plan.amount.sizes {
        let moderation = args.moderation(size);
        for (round, turn) in plan.amount.passes() {
            sides[turn].run(Pass { size, round }, plan, moderation, peer)?;
        }
        output::line(format_args!(
            " finished messages of {size} bytes; the client prints the results"
        ))?;
    }
    Ok(())
}

/// Runs the server.
pub(super) fn serve(opened: &Opened<Open>, plan: &Plan, args: &BwArgs) -> Result<(), Failure> {
    let server = Server {
        args: &args.run,
        facts: opened.device_port.facts(),
        options: plan.options(),
        listen: opened.listen,
        timeout: plan.setup.timeout,
    };
    server.run(
        |peer| Connection::connect(&opened.interfaces, plan, peer, Role::Server),
        |mut connection| connection.run(|sides, peer| answer(sides, peer, plan, args)),
    )
}

/// The endpoints of this process.
pub(super) struct Remote<E: End> {
    pub(super) side: Side<E>,
    pub(super) role: Role,
}

impl<E: End> RemoteSide for Remote<E> {
    fn run(
        &mut self,
        pass: Pass,
        plan: &Plan,
        moderation: u32,
        peer: &mut Peer,
    ) -> Result<Recording, Failure> {
        let is_client = self.role == Role::Client;
        let (sends, operation) = (is_client || plan.both, plan.setup.operation);
        if !is_client {
            peer.await_begin(pass.size)?;
        }
        self.side.prepare(pass, plan, moderation);
        if is_client {
            peer.begin(pass.size)?;
            peer.await_ready()?;
        } else {
            peer.send_ready()?;
        }
        let watch = match sends {
            true => Watch::begin(plan.clock()),
            false => Watch::counting(),
        };
        let mut theirs = None;
        let (noise, transfer) = if sends {
            let warmup = self.side.begin(plan.warmup(pass), plan.warmup_meter());
            self.drive(warmup, plan, peer, &mut theirs, |_, it, _| it.is_over())?;
            let measured = self.side.begin(plan.messages(pass), plan.meter(pass));
            let measured =
                self.drive(measured, plan, peer, &mut theirs, |_, it, _| it.is_over())?;
            let (noise, transfer) = (watch.end(), measured.meter.transfer());
            peer.done(Done {
                messages: self.side.posted(),
                ran: noise.ran,
                transfer,
            })?;
            let theirs = self.take_all(theirs, plan, peer)?;
            (
                Noise {
                    responder: responds(plan).then_some(theirs.ran),
                    ..noise
                },
                vec![transfer, theirs.transfer],
            )
        } else {
            let theirs = self.take_all(theirs, plan, peer)?;
            let noise = watch.end();
            peer.done(Done {
                messages: theirs.messages,
                ran: noise.ran,
                ..Done::default()
            })?;
            (noise, vec![])
        };
        // With one direction, the server has sent nothing.
        let sides = transfer.into_iter().filter(|it| it.messages > 0).collect();
        let has_arrived = if operation == Operation::Read {
            sends
        } else {
            plan.both || !is_client
        };
        if has_arrived {
            self.side.verify()?;
        }
        peer.barrier()?;
        Ok(Recording { sides, noise })
    }
}

/// Returns whether a thread of the server takes part in the measurement.
fn responds(plan: &Plan) -> bool {
    plan.both || plan.setup.operation == Operation::Send
}

impl<E: End> Remote<E> {
    /// Makes turns until `is_over`, which is also told whether `theirs` is known: what
    /// the other side has done, which it may say meanwhile.
    fn drive(
        &mut self,
        mut sending: Sending,
        plan: &Plan,
        peer: &mut Peer,
        theirs: &mut Option<Done>,
        is_over: impl Fn(&Side<E>, &Sending, bool) -> bool,
    ) -> Result<Sending, Failure> {
        loop {
            let is_known = theirs.is_some();
            let mut watchdog = plan.watchdog((!is_known).then_some(&*peer));
            let ended = drive(
                &mut (&mut self.side, &mut sending),
                &mut watchdog,
                |(side, sending)| side.turn(sending),
                |(side, sending)| is_over(side, sending, is_known),
            );
            // With one direction, only the server expects the other side's message.
            let expects = !is_known && (plan.both || self.role == Role::Server);
            match ended {
                Ok(()) => return Ok(sending),
                Err(Stop::ControlMessage) if expects => {
                    *theirs = Some(peer.await_done(plan.setup.timeout)?);
                }
                Err(stop) => return Err(explain(stop, peer)),
            }
        }
    }

    /// Takes the messages of the other side until all have arrived that it says it
    /// has sent. Returns what it has done.
    fn take_all(
        &mut self,
        mut theirs: Option<Done>,
        plan: &Plan,
        peer: &mut Peer,
    ) -> Result<Done, Failure> {
        if self.side.receives {
            let nothing = self.side.begin(0, plan.warmup_meter());
            self.drive(nothing, plan, peer, &mut theirs, |_, _, is_known| is_known)?;
        }
        let is_client = self.role == Role::Client;
        let theirs = match theirs {
            Some(theirs) => theirs,
            None if is_client && !plan.both => peer.await_done(plan.setup.timeout)?,
            None => peer.await_done(PASSIVE_TIMEOUT)?,
        };
        if self.side.receives {
            let nothing = self.side.begin(0, plan.warmup_meter());
            let sent = theirs.messages;
            let has_all = |side: &Side<E>, _: &Sending, _| side.taken() >= sent && side.is_idle();
            self.drive(nothing, plan, peer, &mut Some(theirs), has_all)?;
            if self.side.taken() > sent {
                return Err(Failure::run(format!(
                    "{sent} messages were sent, but {} have arrived: the data path repeats messages",
                    self.side.taken()
                )));
            }
        }
        Ok(theirs)
    }
}
