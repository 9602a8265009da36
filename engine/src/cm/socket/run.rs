//! The service thread: events, commands, deadlines.

use super::frame::MAX_FRAME;
use super::open;
use super::service::{Command, Listening, Shared};
use super::session::{Session, SessionContext, SessionStatus};
use super::silent::{Room, Silent};
use crate::cm::service_thread::WAKE;
use crate::descriptors;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most connections accepted from one listener before others are served.
const TURN: usize = 64;
/// How long to wait when no descriptor is left for a connection.
const STARVED: Duration = Duration::from_millis(100);

/// Runs the thread until a stop command.
pub(super) fn run(shared: &Shared, poll: Poll) {
    let runner = Runner {
        shared,
        listeners: HashMap::new(),
        sessions: HashMap::new(),
        deadlines: BTreeSet::new(),
        silent: Silent::new(),
        held_back: false,
        lent: false,
        retries: Vec::new(),
        scratch: vec![0; 4 * MAX_FRAME],
        starved: false,
        crowded: false,
    };
    runner.run(poll);
}

struct Runner<'a> {
    shared: &'a Shared,
    listeners: HashMap<Token, Arc<Listening>>,
    sessions: HashMap<Token, Entry>,
    /// The sessions' deadlines, earliest first.
    deadlines: BTreeSet<(Instant, Token)>,
    /// Sessions that have not sent a request.
    silent: Silent,
    /// Listeners wait until a silent session has had its time.
    held_back: bool,
    /// The reserve descriptor was closed for a connection.
    lent: bool,
    /// Listeners that may have more connections, and when to look.
    retries: Vec<(Instant, Token)>,
    /// The buffer that streams are read into.
    scratch: Vec<u8>,
    /// Whether the shortage of descriptors was logged.
    starved: bool,
    /// Whether the flood of silent connections was logged.
    crowded: bool,
}

struct Entry {
    session: Session,
    /// The session's entry in `deadlines`.
    armed: Option<Instant>,
}

impl Runner<'_> {
    fn run(mut self, mut poll: Poll) {
        let mut events = Events::with_capacity(256);
        loop {
            if self.execute_commands() {
                return;
            }
            if let Err(error) = poll.poll(&mut events, self.next_timeout())
                && error.kind() != io::ErrorKind::Interrupted
            {
                // The program has closed descriptors of this library: nothing can
                // be served any more.
                tracing::error!(%error, "the connection manager cannot wait for events");
                for entry in self.sessions.values_mut() {
                    let _ = entry.session.ended(None);
                }
                return;
            }
            for event in &events {
                let token = event.token();
                if self.listeners.contains_key(&token) {
                    self.take(token);
                } else if token != WAKE {
                    self.drive(token);
                }
            }
            self.retry_listeners();
            self.expire();
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
                match command {
                    Command::Listen(token, listening) => {
                        self.listeners.insert(token, listening);
                        self.take(token);
                    }
                    Command::Unlisten(token) => drop(self.listeners.remove(&token)),
                    Command::Connect(token, connecting) => {
                        if let Some(session) = Session::active(connecting) {
                            self.add_session(token, session);
                        }
                    }
                    Command::Accept(token, gate, answer) => {
                        if let Some(entry) = self.sessions.get_mut(&token) {
                            entry.session.accept(gate, &answer, &self.shared.options);
                            self.update_tables(token, SessionStatus::Continues);
                        } else {
                            // The requester has given up meanwhile.
                            let event = crate::cm::ConnectionEvent::AcceptFailed;
                            let _ = gate.call(true, |sink| sink.event(event));
                        }
                    }
                    Command::Reject(token, reason, _executed) => {
                        self.with(token, |session| session.reject(&reason));
                    }
                    Command::Disconnect(token) => {
                        let options = &self.shared.options;
                        self.with(token, |session| session.disconnect(options));
                    }
                    Command::Abort(token) => self.with(token, Session::abort),
                    Command::Fail(token) => self.with(token, Session::fail),
                    // All handles were dropped, so only connections without a
                    // request are left.
                    Command::Stop => return true,
                }
            }
        }
    }

    /// Returns the time until the next deadline; `None` if there is none.
    fn next_timeout(&self) -> Option<Duration> {
        let deadline = self.deadlines.first().map(|&(at, _)| at);
        let next = self.retries.iter().map(|&(at, _)| at).chain(deadline).min();
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Accepts connections from a listener.
    fn take(&mut self, token: Token) {
        let Some(listening) = self.listeners.get(&token).map(Arc::clone) else {
            return;
        };
        let limit = descriptors::limit();
        self.restore_reserve();
        for turn in 0..TURN {
            if let Err(at) = self.make_room() {
                self.held_back = true;
                self.retry_at(token, at);
                return;
            }
            let taken = accept(&listening.sockets.lock(), turn);
            match taken {
                Ok((stream, peer)) => {
                    self.starved = false;
                    let newest = usize::try_from(stream.as_raw_fd()).unwrap_or(usize::MAX);
                    self.silent.resize(limit, newest);
                    self.deliver_request(stream, peer, &listening);
                }
                Err(error) => match error.raw_os_error() {
                    // Also if the handle has closed the sockets.
                    Some(libc::EAGAIN) => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        // The kernel allocates a descriptor before it checks
                        // whether a connection waits.
                        if !listening.has_waiting() {
                            return;
                        }
                        if let Err(at) = self.give_up_a_descriptor(&error) {
                            self.held_back = true;
                            self.retry_at(token, at);
                            return;
                        }
                    }
                    // The error of one connection, which is gone.
                    _ => (),
                },
            }
        }
        self.retry_at(token, Instant::now());
    }

    fn deliver_request(
        &mut self,
        mut stream: TcpStream,
        peer: SocketAddr,
        listening: &Arc<Listening>,
    ) {
        let (token, options) = (self.shared.commands.token(), &self.shared.options);
        open::taken(&stream, options);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.shared.register(&mut stream, token, interest) {
            tracing::warn!(%error, "a connection is dropped");
            return;
        }
        let now = Instant::now();
        let deadline = now.checked_add(options.request_timeout);
        let session = Session::passive(stream, peer, Arc::clone(listening), deadline);
        self.silent.insert(token, now);
        self.add_session(token, session);
    }

    /// Opens the reserve descriptor again, if it was closed and there is one.
    fn restore_reserve(&mut self) {
        if self.lent {
            self.lent = self.shared.keep_reserve().is_err();
        }
    }

    /// Makes room for a connection without a request. `Err` is the time to try
    /// again.
    fn make_room(&mut self) -> Result<(), Instant> {
        loop {
            match self.silent.room(Instant::now()) {
                Room::Free => return Ok(()),
                Room::At(at) => return Err(at),
                Room::Instead(oldest) => self.drop_silent(oldest),
            }
        }
    }

    /// Drops a session without a request, unless its request has arrived.
    fn drop_silent(&mut self, token: Token) {
        self.drive(token);
        if !self.silent.contains(token) {
            return;
        }
        self.silent.stayed_silent();
        // A flood of connections must not flood the log.
        if !self.crowded {
            self.crowded = true;
            tracing::warn!("too many connections without a request: the oldest are dropped");
        }
        self.update_tables(token, SessionStatus::Ended);
    }

    /// Frees a descriptor for a waiting connection: the reserve, or that of the
    /// oldest session without a request. `Err` is the time to try again.
    fn give_up_a_descriptor(&mut self, error: &io::Error) -> Result<(), Instant> {
        if self.shared.give_up_reserve() {
            self.lent = true;
            return Ok(());
        }
        let now = Instant::now();
        match self.silent.oldest(now) {
            Room::Instead(oldest) => {
                self.drop_silent(oldest);
                Ok(())
            }
            Room::At(at) => Err(at),
            Room::Free => {
                if !self.starved {
                    self.starved = true;
                    tracing::warn!(%error, "requests for connections have to wait");
                }
                Err(now + STARVED)
            }
        }
    }

    fn add_session(&mut self, token: Token, session: Session) {
        let entry = Entry {
            session,
            armed: None,
        };
        self.sessions.insert(token, entry);
        // Its first event may have come before the session was known.
        self.drive(token);
    }

    fn drive(&mut self, token: Token) {
        let Some(entry) = self.sessions.get_mut(&token) else {
            return;
        };
        let around = SessionContext {
            service: self.shared.service(),
            token,
        };
        let status = entry.session.drive(&around, &mut self.scratch);
        self.update_tables(token, status);
    }

    fn with(&mut self, token: Token, change: impl FnOnce(&mut Session) -> SessionStatus) {
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
        let deadline = entry.session.deadline.filter(|_| !has_ended);
        if entry.armed != deadline {
            if let Some(old) = entry.armed {
                self.deadlines.remove(&(old, token));
            }
            if let Some(new) = deadline {
                self.deadlines.insert((new, token));
            }
            entry.armed = deadline;
        }
        let has_requested = has_ended || !entry.session.is_silent();
        if has_requested && self.silent.remove(token) && self.held_back {
            // There is room for waiting connections.
            self.held_back = false;
            let now = Instant::now();
            self.retries.iter_mut().for_each(|(at, _)| *at = now);
        }
        if has_ended && let Some(mut entry) = self.sessions.remove(&token) {
            entry.session.close();
            self.shared.deregister(&mut entry.session.stream);
            drop(entry);
            self.restore_reserve();
        }
    }

    /// Records that a listener may have more connections; only once per listener.
    fn retry_at(&mut self, token: Token, at: Instant) {
        if self.retries.iter().all(|&(_, known)| known != token) {
            self.retries.push((at, token));
        }
    }

    fn retry_listeners(&mut self) {
        if self.retries.is_empty() {
            return;
        }
        let now = Instant::now();
        let (due, remaining) = self.retries.drain(..).partition(|&(at, _)| at <= now);
        self.retries = remaining;
        let due: Vec<_> = due;
        for (_, token) in due {
            self.take(token);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(at, token)) = self.deadlines.first()
            && at <= now
        {
            self.with(token, Session::expire);
        }
    }
}

/// Accepts a connection from one of the sockets. Starts with another socket at each
/// turn, so that all of them are served.
fn accept(sockets: &[TcpListener], turn: usize) -> io::Result<(TcpStream, SocketAddr)> {
    for number in 0..sockets.len() {
        match sockets[(turn + number) % sockets.len()].accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            taken => return taken,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}
