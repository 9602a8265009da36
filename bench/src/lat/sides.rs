//! The passes of `lat` between two sides, in one process or in two: the client measures, the server
//! answers, and the control connection synchronizes them.
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

use super::arrival::Arrival;
use super::closed::{self, OtherSide, Remote, Responder};
use super::messages::{Messages, with_messages};
use super::open;
use super::outcome::{Open, Outcome};
use super::pass::{Pass, Recording};
use super::plan::Plan;
use super::side::{Side, drain};
use crate::ends::{End, Link, Role, Stop, Watchdog};
use crate::exchange::{Done, Options, Peer};
use crate::failure::Failure;
use crate::noise::{Noise, Watch};
use crate::options::{Api, Wait};
use crate::output::counted;
use crate::report::{Distribution, Series};
use crate::runs::{Command, CommonPlan, explain};
use crate::stats::pace::Pace;

/// Timeout for the end of a run of RDMA reads, in which a server only waits. TCP
/// keep-alive detects a client that is gone.
const READ_TIMEOUT: Duration = Duration::from_secs(3600 * 24 * 365);

impl Command for Plan {
    const SERVED: &'static str = "answered";
    const IS_PING_PONG: bool = true;

    /// Bytes, and messages per second of an open loop.
    type Case = (u32, Option<f64>);
    type Pass = Pass;
    type Recording = Recording;
    type Share = ();
    type Outcome = Outcome;
    /// The endpoints of a side, which take turns.
    type Side<E: End + 'static> = Vec<Side<E>>;

    fn common(&self) -> &CommonPlan {
        &self.common
    }

    fn options(&self) -> Options {
        let mut options = self.common.options("lat");
        let rate = |rate: &Option<f64>| rate.map_or("none".to_owned(), |rate| rate.to_string());
        let rates: Vec<_> = self.rates.iter().map(rate).collect();
        options.set("--rate", rates.join(","));
        if let Some(last_byte) = self.last_byte {
            options.set("--last-byte", last_byte.name());
        }
        options.set("-q", self.endpoints.to_string());
        options.set("--wait", self.wait.map_or("none", Wait::name));
        options
    }

    fn needs_order(&self) -> bool {
        self.last_byte.is_some()
    }

    fn set_order(&mut self, order: DataInOrder) {
        self.arrival = self.last_byte.map(|it| Arrival::choose(it, order));
    }

    fn cases(&self) -> Vec<(u32, Self::Case)> {
        let sizes = self.common.amount.sizes.iter();
        let rates = |&size| self.rates.iter().map(move |&rate| (size, (size, rate)));
        sizes.flat_map(rates).collect()
    }

    fn pass(&self, (size, rate): Self::Case, round: u32) -> Pass {
        Pass {
            size,
            round,
            rate,
            kind: self.kind(),
        }
    }

    fn recording(&self) -> Recording {
        Recording::new(|| self.samples(), self.timeline())
    }

    /// `lat` has one thread.
    fn share(_: &Recording) {}

    fn join(_: &mut Recording, (): ()) {}

    fn messages(recording: &Recording) -> u64 {
        recording.messages
    }

    fn outcome(&self, (size, rate): Self::Case, api: Api) -> Outcome {
        Outcome {
            size,
            api,
            open: rate.map(|rate| Open {
                rate,
                service: Distribution::new(self.samples()),
                pace: Pace::default(),
            }),
            times: Distribution::new(self.samples()),
            series: Series::default(),
            noise: Noise::default(),
            verified: self.common.setup.verifies,
        }
    }

    fn add(outcome: &mut Outcome, round: &Recording) {
        outcome.times.add(&round.samples);
        let reported = round.samples.reported();
        outcome.series.add(&round.timeline, reported, &round.noise);
        outcome.noise.add(&round.noise);
        if let Some(open) = &mut outcome.open {
            open.service.add(&round.service);
            open.pace.add(&round.pace);
        }
    }

    fn side<E: End + 'static>(&self, links: Vec<Link<E>>, _: Role) -> Vec<Side<E>> {
        let side = |link| Side::new(link, self.depth());
        links.into_iter().map(side).collect()
    }

    fn endpoints(&self) -> u32 {
        self.endpoints
    }

    fn measure_local<E: End + 'static>(
        &self,
        sides: [&mut Vec<Side<E>>; 2],
        pass: Pass,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        with_messages!(pass.kind, self.common.setup.is_numbered(), M => {
            let [near, far] = sides;
            local::<M, E>(self, [near, far], pass, recording)
        })
    }

    fn measure_remote<E: End + 'static>(
        &self,
        (sides, role): (&mut Vec<Side<E>>, Role),
        pass: Pass,
        peer: &mut Peer,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        with_messages!(pass.kind, self.common.setup.is_numbered(), M => match role {
            Role::Client => initiate::<M, E>(self, sides, pass, peer, recording),
            Role::Server => answer::<M, E>(self, sides, pass, peer, recording),
        })
    }
}

/// Both sides in one thread: the measuring loop runs the responder at every empty poll.
fn local<M: Messages, E: End>(
    plan: &Plan,
    [near, far]: [&mut [Side<E>]; 2],
    pass: Pass,
    recording: &mut Recording,
) -> Result<(), Failure> {
    prepare(near, pass);
    prepare(far, pass);
    let mut watchdog = plan.common.watchdog(None);
    let mut responder = Responder::<M, E>::new(far, plan.common.watchdog(None));
    timed::<M, E>(near, &mut responder, pass, plan, recording, &mut watchdog)
        .and_then(|()| drain(far, &mut watchdog))
        .map_err(|stop| Failure::run(stop.to_string()))?;
    verify(near, recording.messages)?;
    match M::ARE_ANSWERED {
        true => verify(far, recording.messages),
        false => Ok(()),
    }
}

/// Measures one pass as the client.
fn initiate<M: Messages, E: End>(
    plan: &Plan,
    sides: &mut [Side<E>],
    pass: Pass,
    peer: &mut Peer,
    recording: &mut Recording,
) -> Result<(), Failure> {
    prepare(sides, pass);
    peer.begin(pass.size)?;
    peer.await_ready()?;
    let mut watchdog = plan.common.watchdog(Some(peer));
    timed::<M, E>(sides, &mut Remote, pass, plan, recording, &mut watchdog)
        .map_err(|stop| explain(stop, peer))?;
    peer.done(Done {
        messages: recording.messages,
        ran: recording.noise.ran,
        ..Done::default()
    })?;
    let theirs = peer.await_done(plan.common.setup.timeout)?;
    let responds = M::ARE_ANSWERED && !peer.is_perftest();
    recording.noise.responder = responds.then_some(theirs.ran);
    compare(recording.messages, theirs.messages)?;
    verify(sides, recording.messages)
}

/// Answers one pass as the server.
fn answer<M: Messages, E: End>(
    plan: &Plan,
    sides: &mut [Side<E>],
    pass: Pass,
    peer: &mut Peer,
    recording: &mut Recording,
) -> Result<(), Failure> {
    peer.await_begin(pass.size)?;
    prepare(sides, pass);
    peer.send_ready()?;
    let (watch, timeout) = (Watch::counting(), plan.common.setup.timeout);
    // The device answers reads, and the client counts them.
    let mut answered = None;
    if plan.server_begins {
        let mut watchdog = plan.common.watchdog(Some(peer));
        recording.timeline.begin(plan.part(pass));
        let times = (&mut recording.samples, &mut recording.timeline);
        let mut meter = plan.meter(pass, times);
        closed::measure::<M, E>(sides, &mut Remote, &mut meter, &mut watchdog)
            .map_err(|stop| explain(stop, peer))?;
        answered = Some(meter.round_trips());
    } else if M::ARE_ANSWERED {
        let mut responder = Responder::<M, E>::new(sides, plan.common.watchdog(Some(peer)));
        let served = responder.serve();
        answered = Some(responder.answered);
        served.map_err(|stop| explain(stop, peer))?;
    }
    let ran = watch.end().ran;
    let within = if M::ARE_ANSWERED {
        timeout
    } else {
        READ_TIMEOUT
    };
    let sent = peer.await_done(within)?.messages;
    drain(sides, &mut Watchdog::new(timeout, None)).map_err(|stop| explain(stop, peer))?;
    if M::ARE_ANSWERED {
        verify(sides, answered.unwrap_or(sent))?;
    }
    recording.messages = answered.unwrap_or(sent);
    peer.done(Done {
        messages: recording.messages,
        ran,
        ..Done::default()
    })?;
    compare(sent, recording.messages)
}

/// Measures one pass: a look at the core, the loop, and the noise meanwhile. With `--rate`, the
/// closed loop is only the warm-up of the open one.
fn timed<M: Messages, E: End>(
    sides: &mut [Side<E>],
    other_side: &mut impl OtherSide,
    pass: Pass,
    plan: &Plan,
    recording: &mut Recording,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    recording.clear();
    let watch = Watch::begin(&plan.common.clock);
    recording.timeline.begin(plan.part(pass));
    let times = (&mut recording.samples, &mut recording.timeline);
    let mut meter = plan.meter(pass, times);
    let next = match plan.server_begins {
        true => closed::follow::<M, E>(sides, &mut meter, watchdog)?,
        false => closed::measure::<M, E>(sides, other_side, &mut meter, watchdog)?,
    };
    let mut trips = meter.round_trips();
    if let Some(schedule) = plan.schedule(pass) {
        trips += open::measure::<M, E>(sides, other_side, &schedule, next, recording, watchdog)?;
    }
    recording.noise = watch.end();
    recording.messages = trips;
    Ok(())
}

/// Prepares memory and requests of all endpoints.
fn prepare<E: End>(sides: &mut [Side<E>], pass: Pass) {
    sides.iter_mut().for_each(|side| side.prepare(pass.size));
}

/// Compares the bytes that have arrived with those sent, at the endpoints that have had one of this
/// many messages.
fn verify<E: End>(sides: &[Side<E>], messages: u64) -> Result<(), Failure> {
    let mut used = sides.iter().zip(0..messages);
    used.try_for_each(|(side, _)| side.link.verify())
}

fn compare(sent: u64, answered: u64) -> Result<(), Failure> {
    if answered == sent {
        return Ok(());
    }
    Err(Failure::run(format!(
        "sent {}, but {answered} answered: the data path loses or repeats messages",
        counted(sent, "message")
    )))
}
