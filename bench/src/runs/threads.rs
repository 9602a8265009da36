//! The threads of `--threads` but the first: each does what the first one does, and prints nothing.

use std::sync::mpsc::Receiver;
use std::thread;

use super::opened::Opened;
use super::serve::answer_all;
use super::sides::{Command, Member, Sides};
use super::team::Team;
use crate::ends::Role;
use crate::exchange::Peer;
use crate::failure::Failure;
use crate::options::RunArgs;

/// Runs a thread until the first one ends. `open` opens the device and makes the plan; it is called
/// when the first thread has done so. `clients` has the control connections of a server.
pub(crate) fn follow<P: Command>(
    (team, thread): Member<'_, P>,
    args: &RunArgs,
    clients: &Receiver<Peer>,
    open: impl FnOnce() -> Result<(Opened<P>, P), Failure>,
) {
    // The others do not wait for a thread that panics.
    let _guard = EndsWithPanic(team);
    let followed = team.meet().and_then(|()| {
        let (opened, mut plan) = open()?;
        match args.is_server() {
            true => answer(&opened, &mut plan, clients),
            false => measure(&opened, &mut plan, args, (team, thread)),
        }
    });
    if let Err(failure) = followed {
        team.end(&failure.to_string());
    }
}

struct EndsWithPanic<'t, R>(&'t Team<R>);

impl<R> Drop for EndsWithPanic<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end("it panicked");
        }
    }
}

fn measure<P: Command>(
    opened: &Opened<P>,
    plan: &mut P,
    args: &RunArgs,
    member: Member<'_, P>,
) -> Result<(), Failure> {
    let mut sides = Sides::connect(&opened.interfaces, plan, args, Some(member))?;
    let mut recording = plan.recording();
    for (_, case) in plan.cases() {
        for (round, turn) in plan.common().amount.passes() {
            sides.measure(turn, plan, plan.pass(case, round), &mut recording)?;
        }
    }
    Ok(())
}

/// Answers clients until there are no more.
fn answer<P: Command>(
    opened: &Opened<P>,
    plan: &mut P,
    clients: &Receiver<Peer>,
) -> Result<(), Failure> {
    while let Ok(peer) = clients.recv() {
        let sides = Sides::with(&opened.interfaces, plan, Some(peer), Role::Server, None);
        // The client's thread is told why, and ends the run.
        if let Err(failure) = sides.and_then(|sides| answer_all(sides, plan, false)) {
            tracing::debug!("a thread of the server ended: {failure}");
        }
    }
    Ok(())
}
