//! The server of a run: waits for clients and answers them, with `--persist` one after another;
//! and what a side makes of the other's failure.

use std::sync::mpsc::Sender;
use std::time::Duration;

use super::opened::Opened;
use super::sides::{Command, Sides, perftest};
use crate::ends::{Role, Stop};
use crate::exchange::{ClientListener, ControlPort, Peer};
use crate::failure::Failure;
use crate::options::RunArgs;
use crate::output;
use crate::output::counted;

/// How long to wait for the other side's failure after one on this side.
const REMOTE_FAILURE_WAIT: Duration = Duration::from_millis(500);

/// Waits for a client, connects to it and answers it, with `--persist` one client after another.
/// Reports every connection that is not a client with the same options. If connecting the sides
/// fails, the server waits for another client.
pub(crate) fn serve<P: Command>(
    opened: &Opened<P>,
    plan: &mut P,
    args: &RunArgs,
    threads: &[Sender<Peer>],
) -> Result<(), Failure> {
    let control_port = ControlPort::open(opened.listen, args.port)?;
    let note = opened.device_port.facts().emulation_note();
    output::line(format_args!(" {note}"))?;
    output::line(format_args!(
        " waiting on TCP port {} for a client, {}; no client is authenticated",
        control_port.port()?,
        control_port.addresses()
    ))?;
    let timeout = plan.common().setup.timeout;
    let listener = ClientListener::new(control_port, plan.options(), timeout);
    let mut listener = listener.speaking(perftest(plan, args));
    let mut served = 0_u64;
    let mut still_waiting = |cause: &str| output::line(format_args!(" {cause}; still waiting"));
    loop {
        let Some(peer) = listener.wait(args.timeout, &mut still_waiting)? else {
            return no_client_came(args.timeout.unwrap_or_default(), served);
        };
        let name = peer.name().to_owned();
        output::line(format_args!(" client {name}"))?;
        let sides = admit(peer, opened, plan, threads)
            .and_then(|peer| Sides::with(&opened.interfaces, plan, Some(peer), Role::Server, None));
        let answered = match sides {
            Ok(sides) => answer_all(sides, plan, true),
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

/// Waits for the control connections of a client's other threads, on a port that only this client
/// is told, and gives one to each thread of this side.
fn admit<P: Command>(
    mut peer: Peer,
    opened: &Opened<P>,
    plan: &P,
    threads: &[Sender<Peer>],
) -> Result<Peer, Failure> {
    if threads.is_empty() {
        return Ok(peer);
    }
    let control_port = ControlPort::open(opened.listen, 0)?;
    peer.send_port(control_port.port()?)?;
    let timeout = plan.common().setup.timeout;
    let mut listener = ClientListener::new(control_port, plan.options(), timeout);
    for thread in threads {
        let mut ignored = |cause: &str| {
            tracing::debug!("{cause}");
            Ok(())
        };
        let Some(other) = listener.wait(Some(timeout), &mut ignored)? else {
            return Err(Failure::timed_out(
                "the control connection of another thread of the client",
                timeout,
            ));
        };
        let sent = thread.send(other);
        sent.map_err(|_| Failure::run("a thread of this side has ended"))?;
    }
    Ok(peer)
}

/// Answers all cases.
pub(super) fn answer_all<P: Command>(
    mut sides: Sides<'_, P>,
    plan: &P,
    prints: bool,
) -> Result<(), Failure> {
    let amount = &plan.common().amount;
    let mut recording = plan.recording();
    for (size, case) in plan.cases() {
        let mut messages = vec![0; amount.apis.len()];
        for (round, turn) in amount.passes() {
            sides.measure(turn, plan, plan.pass(case, round), &mut recording)?;
            messages[turn] = P::messages(&recording).saturating_add(messages[turn]);
        }
        for (api, messages) in amount.apis.iter().zip(messages).filter(|_| prints) {
            output::line(format_args!(
                " {} {} of {} through api {}; the client prints the results",
                P::SERVED,
                counted(messages, "message"),
                counted(size, "byte"),
                api.name()
            ))?;
        }
    }
    Ok(())
}

/// Ends a server after the timeout for a client.
fn no_client_came(limit: Duration, served: u64) -> Result<(), Failure> {
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

/// Returns the other side's failure, if it sends one, with the failure of this
/// side. A failed request is often only the result of a failure on the other
/// side.
pub(crate) fn explain(stop: Stop, peer: &mut Peer) -> Failure {
    if peer.is_perftest() {
        return Failure::run(match stop {
            Stop::ControlMessage => "perftest ended before the last message: see its output; it needs the same test, -s and -n".to_owned(),
            Stop::Length { expected, received } => format!(
                "perftest sent a message of {received} bytes, but this side expects {expected}: give both sides the same -s"
            ),
            other => format!("{other}; perftest needs the same test, -s and -n"),
        });
    }
    match (peer.remote_failure(REMOTE_FAILURE_WAIT), stop) {
        (Some(remote), Stop::ControlMessage) => remote,
        (Some(remote), _) => Failure::run(format!("{remote}\n  on this side: {stop}")),
        (None, _) => Failure::run(stop.to_string()),
    }
}
