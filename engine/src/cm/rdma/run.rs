//! The service thread: events, commands, deadlines.
//!
//! When a device is removed, rdma_cm reports that to each id bound to it. Each IA has an id for this
//! purpose only: when it gets the report, connections are reported as broken, and the IA reports its
//! asynchronous event once. The kernel's `rdma link del` may block until the program ends, because
//! librdmacm never closes a device that it has opened. Soft-RoCE removes no device.

use super::event::{Event, PeerParameters};
use super::handle::{Answering, Request, retries};
use super::id::{ChannelEvent, Id};
use super::payload;
use super::service::{Command, Listening, Shared};
use super::session::{AnswerTimes, Session, SessionStatus};
use super::wire::SessionId;
use crate::cm::gate::Gate;
use crate::cm::manager::{Details, RequestOf};
use crate::cm::{ConnectionEvent, DeviceSink, Local, Peer};
use crate::control::Route;
use mio::{Events, Poll, Token};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The token of the channel's events. Not a token of an id, since those are counted
/// up.
pub(super) const EVENTS: Token = Token(usize::MAX);
/// How much later than this side the peer's kernel may forget a connection.
const MARGIN: Duration = Duration::from_millis(50);

/// Runs the thread until a stop command.
pub(super) fn run(shared: &Shared, poll: Poll) {
    let runner = Runner {
        shared,
        listeners: HashMap::new(),
        watches: HashMap::new(),
        sessions: HashMap::new(),
        deadlines: BTreeSet::new(),
        resting: HashMap::new(),
    };
    runner.run(poll);
}

struct Runner<'a> {
    shared: &'a Shared,
    listeners: HashMap<Token, Arc<Listening>>,
    watches: HashMap<Token, Arc<Gate<dyn DeviceSink>>>,
    sessions: HashMap<Token, Entry>,
    /// The sessions' deadlines, earliest first.
    deadlines: BTreeSet<(Instant, Token)>,
    /// Queue pairs that the kernel of a requester remembers, and until when.
    resting: HashMap<Remembered, Instant>,
}

struct Entry {
    session: Session<SessionId>,
    /// The session's entry in `deadlines`.
    armed: Option<Instant>,
    /// For a request: what its requester's kernel will remember.
    passive: Option<Passive>,
}

struct Passive {
    local: Arc<Listening>,
    requester: IpAddr,
    /// The number of the local queue pair, once known.
    qpn: Option<u32>,
    /// How long kernels remember a connection on this route, if they do.
    memory: Option<Duration>,
}

#[derive(PartialEq, Eq, Hash)]
struct Remembered {
    local: Local,
    requester: IpAddr,
    qpn: u32,
}

impl Passive {
    fn remembered(&self, qpn: u32) -> Remembered {
        Remembered {
            local: self.local.local.clone(),
            requester: self.requester,
            qpn,
        }
    }
}

impl Runner<'_> {
    fn run(mut self, mut poll: Poll) {
        let mut events = Events::with_capacity(4);
        loop {
            if self.execute_commands() {
                return;
            }
            let next_timeout = self.expire();
            let ready = match poll.poll(&mut events, next_timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                Err(error) => Err(error),
                Ok(()) => Ok(events.iter().any(|event| event.token() == EVENTS)),
            };
            let channel_event = ready.and_then(|ready| match ready {
                true => self.shared.channel.take(),
                // A command or a deadline woke the thread.
                false => Ok(None),
            });
            match channel_event {
                Ok(None) => (),
                Ok(Some(channel_event)) => {
                    // A queued command may announce the id of the event.
                    if self.execute_commands() {
                        return;
                    }
                    self.dispatch(channel_event);
                }
                Err(error) => {
                    // The program has closed descriptors of this library: nothing
                    // can be served any more.
                    tracing::error!(%error, "the connection manager cannot take events");
                    for entry in self.sessions.values_mut() {
                        entry.session.fail();
                    }
                    return;
                }
            }
        }
    }

    /// Executes commands until there are none. Returns whether to stop.
    fn execute_commands(&mut self) -> bool {
        loop {
            let commands = self.shared.commands.take_commands();
            if commands.is_empty() {
                return false;
            }
            for command in commands {
                if matches!(command, Command::Stop) {
                    return true;
                }
                self.command(command);
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Listen(token, listening) => drop(self.listeners.insert(token, listening)),
            Command::Unlisten(token) => drop(self.listeners.remove(&token)),
            Command::Watch(token, gate) => drop(self.watches.insert(token, gate)),
            Command::Unwatch(token) => drop(self.watches.remove(&token)),
            Command::Connect(token, connecting) => {
                let line = SessionId::Active(connecting.line);
                let session = Session::active(line, connecting.gate, connecting.deadline);
                self.add_session(token, session, None);
            }
            Command::Unresolved(token, error) => {
                self.with(token, |session| session.unresolved(&error));
            }
            Command::Unconnected(token, error) => {
                self.with(token, |session| session.unconnected(&error));
            }
            Command::Accept(token, gate, param) => {
                let Some(entry) = self.sessions.get_mut(&token) else {
                    // The requester has given up meanwhile.
                    let event = ConnectionEvent::AcceptFailed;
                    let _ = gate.call(true, |sink| sink.event(event));
                    return;
                };
                let mut times = AnswerTimes {
                    now: Instant::now(),
                    not_before: None,
                    timeout: self.shared.options.accept_timeout,
                };
                if let Some(passive) = &mut entry.passive {
                    passive.qpn = Some(param.qpn);
                    let until = self.resting.get(&passive.remembered(param.qpn));
                    times.not_before = until.copied().filter(|&until| until > times.now);
                }
                let status = entry.session.accept(gate, param, &times);
                self.update_tables(token, status);
            }
            Command::Reject(token, private_data, _executed) => {
                self.with(token, |session| session.reject(private_data.as_deref()));
            }
            Command::Disconnect(token) => {
                let timeout = self.shared.options.disconnect_timeout;
                let deadline = Instant::now().checked_add(timeout);
                self.with(token, |session| session.disconnect(deadline));
            }
            Command::Abort(token) => self.with(token, Session::abort),
            // All handles were dropped, so only connections without a request are
            // left.
            Command::Stop => (),
        }
    }

    fn dispatch(&mut self, channel_event: ChannelEvent) {
        let ChannelEvent { token, event, new } = channel_event;
        match (event, new) {
            (Event::Requested(peer_parameters), Some(id)) => {
                if let Some(listening) = self.listeners.get(&token).map(Arc::clone) {
                    self.deliver_request(&listening, id, peer_parameters);
                }
            }
            (Event::DeviceRemoved, _) if self.watches.contains_key(&token) => {
                if let Some(gate) = self.watches.remove(&token) {
                    let _ = gate.call(true, DeviceSink::removed);
                }
            }
            (Event::DeviceRemoved, _) if self.listeners.contains_key(&token) => {
                tracing::warn!("a device was removed; the listener on its address has ended");
            }
            (event, _) => self.with(token, |session| session.handle(event, Instant::now)),
        }
    }

    /// Passes a request to the application.
    fn deliver_request(
        &mut self,
        listening: &Arc<Listening>,
        id: Id,
        peer_parameters: PeerParameters,
    ) {
        let Local { device, port, .. } = &listening.local;
        let found = id.device();
        if found
            .as_ref()
            .is_none_or(|(on, at)| (on, at) != (device, port))
        {
            tracing::warn!(wanted = ?(device, port), ?found,
                "a request is refused: it came through another device");
            return;
        }
        let (requester, route) = match (id.peer(), id.route()) {
            (Some(requester), Ok(route)) => (requester, route),
            // The requester has given up meanwhile.
            (requester, route) => {
                let error = route.err();
                tracing::debug!(?requester, ?error, "a request is refused");
                return;
            }
        };
        let Some(service) = self.shared.service() else {
            return;
        };
        let (private_data, greets) = payload::of_request(peer_parameters.private_data, &route);
        let (token, id) = (self.shared.commands.token(), Arc::new(id));
        id.set_token(token);
        let alive = Arc::new(AtomicBool::new(true));
        let reads = (
            peer_parameters.reads_served,
            peer_parameters.reads_requested,
        );
        let request = Request::new(
            service,
            token,
            Arc::clone(&alive),
            Arc::clone(&id),
            Answering {
                reads,
                transport: listening.local.transport,
                retries: retries(&listening.local),
                greets,
            },
        );
        let passive = Passive {
            local: Arc::clone(listening),
            requester: requester.ip(),
            qpn: None,
            memory: memory(&route),
        };
        let session = Session::passive(SessionId::Passive(id), alive);
        self.add_session(token, session, Some(passive));
        let peer = Peer {
            route,
            reads_served: reads.0,
            reads_requested: reads.1,
        };
        let details = Details {
            qualifier: listening.qualifier,
            requester,
            peer,
            private_data,
        };
        // If no sink takes the request, dropping it rejects it.
        let request = crate::cm::Request::new(details, RequestOf::Rdma(request));
        let _ = listening.gate.call(false, |sink| sink.request(request));
    }

    fn add_session(&mut self, token: Token, session: Session<SessionId>, passive: Option<Passive>) {
        let entry = Entry {
            session,
            armed: None,
            passive,
        };
        self.sessions.insert(token, entry);
        self.update_tables(token, SessionStatus::Continues);
    }

    fn with(
        &mut self,
        token: Token,
        change: impl FnOnce(&mut Session<SessionId>) -> SessionStatus,
    ) {
        if let Some(entry) = self.sessions.get_mut(&token) {
            let status = change(&mut entry.session);
            self.update_tables(token, status);
        }
    }

    /// Updates the thread's tables after a session has changed.
    fn update_tables(&mut self, token: Token, status: SessionStatus) {
        let Some(entry) = self.sessions.get_mut(&token) else {
            return;
        };
        let has_ended = status == SessionStatus::Ended;
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
        if has_ended && let Some(entry) = self.sessions.remove(&token) {
            self.remember(&entry);
            // This drops its id too, unless a request is using it just now.
            if entry.session.is_connecting() {
                entry.session.wire.end();
            }
        }
    }

    /// Records what the requester's kernel will remember.
    fn remember(&mut self, entry: &Entry) {
        let (true, Some(passive)) = (entry.session.is_remembered(), &entry.passive) else {
            return;
        };
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
        let until = passive.memory.and_then(|memory| now.checked_add(memory));
        if let (Some(qpn), Some(until)) = (passive.qpn, until) {
            self.resting.insert(passive.remembered(qpn), until);
        }
    }

    /// Handles everything that is due. Returns the time until the next deadline;
    /// `None` if there is none.
    fn expire(&mut self) -> Option<Duration> {
        self.deadlines.first()?;
        let now = Instant::now();
        while let Some(&(at, token)) = self.deadlines.first() {
            if at > now {
                return Some(at - now);
            }
            self.with(token, |session| session.expire(now));
        }
        None
    }
}

/// Returns how long kernels remember a connection (TIMEWAIT): until its packets
/// must have been acknowledged or lost, which they count in units of 1.05 ms. The
/// packets of iWARP connections are TCP's, and an iWARP queue pair has only one
/// connection.
fn memory(route: &Route) -> Option<Duration> {
    let Route::Managed(route) = route else {
        return None;
    };
    let time = Duration::from_millis(1 << route.timeout().saturating_sub(8).min(31));
    Some(time + time / 16 + MARGIN)
}
