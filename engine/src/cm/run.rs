//! The service thread: commands, events, deadlines.

use super::commands::{CmCommand, WAKE};
use super::manager::Request;
use super::service::Shared;
use super::session::{self, Session, SessionStatus};
use super::wire::{ConnectionGate, Event, Inbox, Incoming, Listening, Started, Wire};
use super::{ConnectionEvent, Target};
use mio::{Events, Poll, Token};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Runs the thread until a stop command.
pub(super) fn run(shared: &Shared, mut poll: Poll) {
    let mut intake = Arc::clone(&shared.network).intake();
    let mut sessions = Sessions {
        shared,
        entries: HashMap::new(),
        deadlines: BTreeSet::new(),
    };
    let mut events = Events::with_capacity(256);
    loop {
        sessions.expire();
        let next = intake.expire(&mut sessions);
        // Also those that a sink has sent on this thread, which nothing wakes the thread for.
        if sessions.execute_commands() {
            return;
        }
        let due = [next, sessions.due()].into_iter().flatten().min();
        let timeout = due.map(|at| at.saturating_duration_since(Instant::now()));
        let served = match poll.poll(&mut events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
            Ok(()) => events
                .iter()
                .map(mio::event::Event::token)
                .filter(|&token| token != WAKE)
                .try_for_each(|token| intake.ready(token, &mut sessions)),
        };
        if let Err(error) = served {
            // The program has closed descriptors of this library: nothing can be served any
            // more.
            tracing::error!(%error, "the connection manager cannot take events");
            for entry in sessions.entries.values_mut() {
                entry.session.give_up();
            }
            return;
        }
    }
}

/// The sessions of the thread.
struct Sessions<'a> {
    shared: &'a Shared,
    entries: HashMap<Token, TimedSession>,
    /// The sessions' deadlines, earliest first.
    deadlines: BTreeSet<(Instant, Token)>,
}

struct TimedSession {
    session: Session,
    /// The session's entry in `deadlines`.
    armed: Option<Instant>,
}

impl Sessions<'_> {
    /// Executes commands until there are none. Returns whether to stop.
    fn execute_commands(&mut self) -> bool {
        loop {
            let commands = self.shared.commands.take_commands();
            if commands.is_empty() {
                return false;
            }
            for command in commands {
                // All handles were dropped, so only connections without a request are left.
                if matches!(command, CmCommand::Stop) {
                    return true;
                }
                self.execute(command);
            }
        }
    }

    fn execute(&mut self, command: CmCommand) {
        match command {
            CmCommand::Connect(token, to, started, gate, deadline) => {
                self.connect(token, to, started, gate, deadline);
            }
            CmCommand::Accept(token, gate, answer) => {
                if self.entries.contains_key(&token) {
                    self.with(token, |session| {
                        session.accept(gate, answer, Instant::now())
                    });
                } else {
                    // The requester has given up meanwhile.
                    let event = ConnectionEvent::AcceptFailed;
                    let _ = gate.call(true, |sink| sink.event(event));
                }
            }
            CmCommand::Reject(token, private_data, _executed) => {
                self.with(token, |session| session.reject(private_data.as_deref()));
            }
            CmCommand::MessageReceived(token) => self.with(token, |session| {
                session.wire.message_received();
                SessionStatus::Continues
            }),
            CmCommand::Event(token, event) => self.receive(token, Some(event)),
            CmCommand::Disconnect(token) => {
                let timeout = self.shared.options.disconnect_timeout;
                let deadline = Instant::now().checked_add(timeout);
                self.with(token, |session| session.disconnect(deadline));
            }
            CmCommand::Abort(token) => self.with(token, Session::abort),
            CmCommand::Fail(token) => self.with(token, Session::fail),
            CmCommand::Flush(executed) => drop(executed),
            CmCommand::Stop => (),
        }
    }

    fn connect(
        &mut self,
        token: Token,
        to: Target,
        started: Started,
        gate: Arc<ConnectionGate>,
        deadline: Option<Instant>,
    ) {
        match started {
            Ok(wire) => {
                self.add(token, Session::active(wire, gate, deadline).to(to));
                self.with(token, Session::begin);
                // Its first event may have come before the session was known.
                self.receive(token, None);
            }
            Err(event) => {
                let why = match event {
                    ConnectionEvent::NonPeerRejected => {
                        "nothing listens on the qualifier's TCP port there"
                    }
                    _ => "",
                };
                session::warn_of_failure(&to, &event, why, "");
                let _ = gate.call(true, |sink| sink.event(event));
            }
        }
    }

    fn add(&mut self, token: Token, session: Session) {
        let entry = TimedSession {
            session,
            armed: None,
        };
        self.entries.insert(token, entry);
    }

    /// Changes a session, and updates the tables.
    fn with(&mut self, token: Token, change: impl FnOnce(&mut Session) -> SessionStatus) {
        let Some(entry) = self.entries.get_mut(&token) else {
            return;
        };
        let has_ended = change(&mut entry.session) == SessionStatus::Ended;
        let due = entry.session.due().filter(|_| !has_ended);
        if entry.armed != due {
            if let Some(old) = entry.armed {
                self.deadlines.remove(&(old, token));
            }
            if let Some(new) = due {
                self.deadlines.insert((new, token));
            }
            entry.armed = due;
        }
        if has_ended && let Some(entry) = self.entries.remove(&token) {
            entry.session.wire.end();
        }
    }

    /// Returns when the next deadline is.
    fn due(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Handles everything that is due.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(at, token)) = self.deadlines.first()
            && at <= now
        {
            self.with(token, |session| session.expire(now));
        }
    }
}

impl Inbox for Sessions<'_> {
    fn unanswered(&self) -> usize {
        let sessions = self.entries.values();
        sessions.filter(|entry| entry.session.is_pending()).count()
    }

    fn request(
        &mut self,
        token: Token,
        listening: &Listening,
        mut wire: Box<dyn Wire>,
        incoming: Incoming,
    ) {
        let Some(service) = self.shared.service() else {
            wire.reject(None);
            return wire.end();
        };
        let alive = Arc::new(AtomicBool::new(true));
        let accept_timeout = self.shared.options.accept_timeout;
        self.add(
            token,
            Session::passive(wire, Arc::clone(&alive), accept_timeout),
        );
        // If no sink takes the request, dropping it rejects it.
        let request = Request::new(service, token, alive, incoming);
        let _ = listening.gate.call(false, |sink| sink.request(request));
        self.receive(token, None);
    }

    fn receive(&mut self, token: Token, event: Option<Event>) {
        self.with(token, |session| session.receive(event, Instant::now));
    }
}
