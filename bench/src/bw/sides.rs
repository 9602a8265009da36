//! The passes of `bw` between two sides, in one process or in two, synchronized by the control
//! connection.
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

use super::flow::Flow;
use super::meter::Meter;
use super::outcome::Outcome;
use super::pass::{Pass, Recording};
use super::plan::Plan;
use super::side::{Sending, Side, drive};
use crate::ends::{End, Link, Role, Stop, Watchdog};
use crate::exchange::{Done, Options, Peer, Transfer};
use crate::failure::Failure;
use crate::noise::{Noise, Watch};
use crate::options::Api;
use crate::output::counted;
use crate::runs::{Command, CommonPlan, explain};

/// Timeout for a side that only waits. TCP keep-alive detects a peer that is gone.
const PASSIVE_TIMEOUT: Duration = Duration::from_secs(3600 * 24 * 365);

impl Command for Plan {
    const SERVED: &'static str = "finished";
    const IS_PING_PONG: bool = false;

    /// Bytes.
    type Case = u32;
    type Pass = Pass;
    type Recording = Recording;
    type Share = Recording;
    type Outcome = Outcome;
    type Side<E: End + 'static> = Side<E>;

    fn common(&self) -> &CommonPlan {
        &self.common
    }

    fn options(&self) -> Options {
        let operation = self.common.setup.operation;
        let mut options = self.common.options(self.what.name());
        options.set("-q", self.args.endpoints.to_string());
        options.set("--threads", self.args.threads.to_string());
        options.set("-b", if self.args.both { "given" } else { "not given" });
        if operation.takes_receives() {
            // The sender counts with the receives and lists of the other side.
            options.set("-r", self.common.setup.receives.to_string());
            options.set("-l", self.args.list.to_string());
        }
        options
    }

    fn endpoints(&self) -> u32 {
        self.args.endpoints
    }

    fn cases(&self) -> Vec<(u32, u32)> {
        let sizes = self.common.amount.sizes.iter();
        sizes.map(|&size| (size, size)).collect()
    }

    fn pass(&self, size: u32, round: u32) -> Pass {
        let moderation = self.args.moderation(size);
        Pass {
            size,
            round,
            moderation,
        }
    }

    fn recording(&self) -> Recording {
        Recording::default()
    }

    fn share(recording: &Recording) -> Recording {
        recording.clone()
    }

    fn join(recording: &mut Recording, share: Recording) {
        recording.sides.extend(share.sides);
        recording.noise.add(&share.noise);
        recording.messages = recording.messages.saturating_add(share.messages);
    }

    fn messages(recording: &Recording) -> u64 {
        recording.messages
    }

    fn outcome(&self, size: u32, api: Api) -> Outcome {
        Outcome::new(size, api)
    }

    fn add(outcome: &mut Outcome, round: &Recording) {
        outcome.add(round);
    }

    fn side<E: End + 'static>(&self, links: Vec<Link<E>>, role: Role) -> Side<E> {
        let setup = &self.common.setup;
        let fetches = setup.operation.fetches();
        // perftest gives no grants: its messages wait for a receive in the sender's device.
        let granted = if setup.verifies { setup.receives } else { 0 };
        let flow = |link| Flow::new(link, setup.tx_depth, granted, fetches);
        Side {
            flows: links.into_iter().map(flow).collect(),
            receives: setup.operation.takes_receives() && (self.args.both || role == Role::Server),
        }
    }

    fn measure_local<E: End + 'static>(
        &self,
        [near, far]: [&mut Side<E>; 2],
        pass: Pass,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        near.prepare(pass, self.args.list);
        far.prepare(pass, self.args.list);
        let mut watchdog = self.common.watchdog(None);
        let of = |messages| (messages, if self.args.both { messages } else { 0 });
        let watch = Watch::begin(&self.common.clock);
        let phase = match self.common.setup.is_numbered() {
            true => phase::<E, true>,
            false => phase::<E, false>,
        };
        let of = [self.warmup(pass), self.messages(pass)].map(of);
        let warmed = phase([near, far], of[0], &|| self.warmup_meter(), &mut watchdog);
        let measured =
            warmed.and_then(|_| phase([near, far], of[1], &|| self.meter(pass), &mut watchdog));
        let transfers = measured.map_err(|stop| Failure::run(stop.to_string()))?;
        recording.noise = watch.end();
        let fetches = self.common.setup.operation.fetches();
        if self.args.both || !fetches {
            far.verify()?;
        }
        if self.args.both || fetches {
            near.verify()?;
        }
        recording.sides = transfers[..if self.args.both { 2 } else { 1 }].to_vec();
        Ok(())
    }

    fn measure_remote<E: End + 'static>(
        &self,
        (side, role): (&mut Side<E>, Role),
        pass: Pass,
        peer: &mut Peer,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        let plan = self;
        let mut remote = Remote {
            side,
            role,
            plan,
            peer,
        };
        match plan.common.setup.is_numbered() {
            true => remote.run::<true>(pass, recording),
            false => remote.run::<false>(pass, recording),
        }
    }
}

/// Sends messages from the near side and from the far side, both in one thread, which makes a turn
/// of each in turns, and takes them. Returns what each side has sent.
pub(super) fn phase<E: End, const NUMBERED: bool>(
    [near, far]: [&mut Side<E>; 2],
    (ours, theirs): (u64, u64),
    meter: &dyn Fn() -> Meter,
    watchdog: &mut Watchdog<'_>,
) -> Result<[Transfer; 2], Stop> {
    let sendings = (near.begin(ours, meter()), far.begin(theirs, meter()));
    let mut state = ([near, far], sendings);
    drive(
        &mut state,
        watchdog,
        |([near, far], (ours, theirs))| {
            Ok(near.turn::<NUMBERED>(ours)? | far.turn::<NUMBERED>(theirs)?)
        },
        |([near, far], (ours, theirs))| {
            ours.is_over() && theirs.is_over() && has_taken_all(near, far)
        },
    )?;
    let (_, (ours, theirs)) = state;
    Ok([ours.meter.transfer(), theirs.meter.transfer()])
}

/// Returns whether all messages are taken, and no grant is outstanding.
fn has_taken_all<E: End>(near: &Side<E>, far: &Side<E>) -> bool {
    let has_taken = |to: &Side<E>, from: &Side<E>| !to.receives || to.taken() == from.posted();
    has_taken(far, near) && has_taken(near, far) && near.is_idle() && far.is_idle()
}

/// The endpoints of this process, and the other process.
struct Remote<'a, E: End> {
    side: &'a mut Side<E>,
    role: Role,
    plan: &'a Plan,
    peer: &'a mut Peer,
}

impl<E: End> Remote<'_, E> {
    /// Runs one pass, in which both processes call this with their role.
    fn run<const NUMBERED: bool>(
        &mut self,
        pass: Pass,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        let plan = self.plan;
        let is_client = self.role == Role::Client;
        let (sends, operation) = (is_client || plan.args.both, plan.common.setup.operation);
        if is_client {
            self.side.prepare(pass, plan.args.list);
            self.peer.begin(pass.size)?;
            self.peer.await_ready()?;
        } else {
            self.peer.await_begin(pass.size)?;
            self.side.prepare(pass, plan.args.list);
            self.peer.send_ready()?;
        }
        let watch = match sends {
            true => Watch::begin(&plan.common.clock),
            false => Watch::counting(),
        };
        let mut theirs = None;
        if sends {
            let warmup = self.side.begin(plan.warmup(pass), plan.warmup_meter());
            self.drive::<NUMBERED>(warmup, &mut theirs, |_, it, _| it.is_over())?;
            let measured = self.side.begin(plan.messages(pass), plan.meter(pass));
            let measured =
                self.drive::<NUMBERED>(measured, &mut theirs, |_, it, _| it.is_over())?;
            let (noise, transfer) = (watch.end(), measured.meter.transfer());
            self.peer.done(Done {
                messages: self.side.posted(),
                ran: noise.ran,
                transfer,
            })?;
            let theirs = self.take_all::<NUMBERED>(theirs)?;
            recording.noise = Noise {
                responder: (responds(plan) && !self.peer.is_perftest()).then_some(theirs.ran),
                ..noise
            };
            recording.messages = theirs.messages;
            // With one direction, the server has sent nothing.
            let sides = [transfer, theirs.transfer].into_iter();
            recording.sides = sides.filter(|it| it.messages > 0).collect();
        } else {
            let theirs = self.take_all::<NUMBERED>(theirs)?;
            recording.messages = theirs.messages;
            self.peer.done(Done {
                messages: theirs.messages,
                ran: watch.end().ran,
                ..Done::default()
            })?;
        }
        let has_arrived = if operation.fetches() {
            sends
        } else {
            plan.args.both || !is_client
        };
        if has_arrived {
            self.side.verify()?;
        }
        self.peer.barrier()
    }

    /// Makes turns until `is_over`, which is also told whether `theirs` is known: what
    /// the other side has done, which it may say meanwhile.
    fn drive<const NUMBERED: bool>(
        &mut self,
        mut sending: Sending,
        theirs: &mut Option<Done>,
        is_over: impl Fn(&Side<E>, &Sending, bool) -> bool,
    ) -> Result<Sending, Failure> {
        loop {
            let is_known = theirs.is_some();
            let peer = (!is_known).then_some(&*self.peer);
            let mut watchdog = self.plan.common.watchdog(peer);
            let ended = drive(
                &mut (&mut *self.side, &mut sending),
                &mut watchdog,
                |(side, sending)| side.turn::<NUMBERED>(sending),
                |(side, sending)| is_over(side, sending, is_known),
            );
            // With one direction, only the server expects the other side's message.
            let expects = !is_known && (self.plan.args.both || self.role == Role::Server);
            match ended {
                Ok(()) => return Ok(sending),
                Err(Stop::ControlMessage) if expects => {
                    *theirs = Some(self.peer.await_done(self.timeout())?);
                }
                Err(stop) => return Err(explain(stop, self.peer)),
            }
        }
    }

    /// Takes the messages of the other side until all have arrived that it says it
    /// has sent. Returns what it has done.
    fn take_all<const NUMBERED: bool>(
        &mut self,
        mut theirs: Option<Done>,
    ) -> Result<Done, Failure> {
        if self.side.receives {
            let nothing = self.side.begin(0, self.plan.warmup_meter());
            self.drive::<NUMBERED>(nothing, &mut theirs, |_, _, is_known| is_known)?;
        }
        let is_client = self.role == Role::Client;
        let theirs = match theirs {
            Some(theirs) => theirs,
            None if is_client && !self.plan.args.both => self.peer.await_done(self.timeout())?,
            None => self.peer.await_done(PASSIVE_TIMEOUT)?,
        };
        if self.side.receives && self.peer.is_perftest() {
            // All messages have arrived before perftest says that they are complete.
            let mut nothing = self.side.begin(0, self.plan.warmup_meter());
            while self
                .side
                .turn::<NUMBERED>(&mut nothing)
                .map_err(|stop| explain(stop, self.peer))?
            {}
            self.peer.require_messages(self.side.taken())?;
        }
        if self.side.receives {
            let nothing = self.side.begin(0, self.plan.warmup_meter());
            let sent = theirs.messages;
            let has_all = |side: &Side<E>, _: &Sending, _| side.taken() >= sent && side.is_idle();
            self.drive::<NUMBERED>(nothing, &mut Some(theirs), has_all)?;
            if self.side.taken() > sent {
                return Err(Failure::run(format!(
                    "sent {}, but {} arrived: the data path repeats messages",
                    counted(sent, "message"),
                    self.side.taken()
                )));
            }
        }
        Ok(theirs)
    }

    fn timeout(&self) -> Duration {
        self.plan.common.setup.timeout
    }
}

/// Returns whether a thread of the server takes part in the measurement.
fn responds(plan: &Plan) -> bool {
    plan.args.both || plan.common.setup.operation.takes_receives()
}
