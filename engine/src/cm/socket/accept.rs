//! The thread's part: connections that arrive at the listeners, up to their request.

use super::frame::Frame;
use super::network::{Listener, Tcp};
use super::open;
use super::silent::{Room, Silent};
use super::stream::{Message, Stream, peer_of};
use crate::cm::MAX_PRIVATE_DATA;
use crate::cm::wire::{Inbox, Incoming, Intake, Listening, Wire};
use crate::descriptors;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most connections accepted from one listener before others are served.
const TURN: usize = 64;
/// Unanswered requests leave one of this many descriptors free.
const SPARE: usize = 16;
/// How long to wait when no descriptor is left for a connection.
const STARVED: Duration = Duration::from_millis(100);

pub(super) struct Acceptor {
    tcp: Arc<Tcp>,
    /// Connections that have not sent their request.
    silent: Silent<Newcomer>,
    /// Listeners wait until a silent connection has had its time.
    held_back: bool,
    /// The reserve descriptor was closed for a connection.
    lent: bool,
    /// Listeners that may have more connections, and when to look.
    retries: Vec<(Instant, Token)>,
    /// Whether the shortage of descriptors was logged.
    starved: bool,
    /// Whether the flood of silent connections was logged.
    crowded: bool,
    /// Whether the last request was refused because too many are unanswered.
    refuses: bool,
}

/// A connection without a request.
struct Newcomer {
    stream: Stream,
    peer: SocketAddr,
    listening: Arc<Listening>,
}

impl Intake for Acceptor {
    fn ready(&mut self, token: Token, inbox: &mut dyn Inbox) -> io::Result<()> {
        if let Some(listener) = self.tcp.listener(token) {
            self.take(token, &listener, inbox);
        } else if !self.hear(token, inbox) {
            inbox.receive(token, None);
        }
        Ok(())
    }

    fn expire(&mut self, inbox: &mut dyn Inbox) -> Option<Instant> {
        self.restore_reserve();
        let now = Instant::now();
        while let Some((token, since)) = self.silent.first()
            && since
                .checked_add(self.tcp.request_timeout)
                .is_some_and(|at| at <= now)
        {
            if let Some(newcomer) = self.remove(token) {
                tracing::debug!(peer = %newcomer.peer, "connected, but requests nothing: dropped");
                newcomer.end();
            }
        }
        if !self.retries.is_empty() {
            let (due, later) = self.retries.drain(..).partition(|&(at, _)| at <= now);
            self.retries = later;
            let due: Vec<_> = due;
            for (_, token) in due {
                if let Some(listener) = self.tcp.listener(token) {
                    self.take(token, &listener, inbox);
                }
            }
        }
        let oldest = self.silent.first();
        let oldest = oldest.and_then(|(_, since)| since.checked_add(self.tcp.request_timeout));
        self.retries.iter().map(|&(at, _)| at).chain(oldest).min()
    }
}

impl Acceptor {
    pub(super) fn new(tcp: Arc<Tcp>) -> Self {
        Self {
            tcp,
            silent: Silent::new(),
            held_back: false,
            lent: false,
            retries: Vec::new(),
            starved: false,
            crowded: false,
            refuses: false,
        }
    }

    /// Accepts connections from a listener.
    fn take(&mut self, token: Token, listener: &Listener, inbox: &mut dyn Inbox) {
        let limit = descriptors::limit();
        self.restore_reserve();
        for turn in 0..TURN {
            if let Err(at) = self.make_room(inbox) {
                return self.hold_back(token, at);
            }
            let taken = accept(&listener.sockets.lock(), turn);
            match taken {
                Ok((stream, peer)) => {
                    self.starved = false;
                    self.silent.resize(limit, descriptor_of(&stream));
                    self.welcome(stream, peer, &listener.listening, inbox);
                }
                Err(error) => match error.raw_os_error() {
                    // Also if the handle has closed the sockets.
                    Some(libc::EAGAIN) => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        // The kernel allocates a descriptor before it checks
                        // whether a connection waits.
                        if !listener.has_waiting() {
                            return;
                        }
                        if let Err(at) = self.give_up_a_descriptor(&error, inbox) {
                            return self.hold_back(token, at);
                        }
                    }
                    // The error of one connection, which is gone.
                    _ => (),
                },
            }
        }
        self.retry_at(token, Instant::now());
    }

    /// Awaits the request of a connection.
    fn welcome(
        &mut self,
        mut stream: TcpStream,
        peer: SocketAddr,
        listening: &Arc<Listening>,
        inbox: &mut dyn Inbox,
    ) {
        let token = self.tcp.commands.token();
        open::taken(&stream, self.tcp.keepalive);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.tcp.register(&mut stream, token, interest) {
            tracing::warn!(%error, "a connection is dropped");
            return;
        }
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let newcomer = Newcomer {
            stream: Stream::accepted(Arc::clone(&self.tcp), stream, peer),
            peer,
            listening: Arc::clone(listening),
        };
        self.silent.insert(token, Instant::now(), newcomer);
        // Its first event may have come before the token was known.
        self.hear(token, inbox);
    }

    /// Reads what a silent connection has sent. Returns `false` if there is none with the
    /// token.
    fn hear(&mut self, token: Token, inbox: &mut dyn Inbox) -> bool {
        let Some(newcomer) = self.silent.get_mut(token) else {
            return false;
        };
        let message = newcomer.stream.first_message();
        if let Message::None = message {
            return true;
        }
        let Some(mut newcomer) = self.remove(token) else {
            return true;
        };
        match message {
            Message::Frame(Frame::Request {
                qualifier,
                parameters,
                private_data,
            }) if qualifier == newcomer.listening.qualifier
                && self.may_wait(newcomer.stream.descriptor(), inbox) =>
            {
                let incoming = Incoming {
                    qualifier,
                    requester: newcomer.peer,
                    peer: peer_of(&parameters),
                    private_data,
                    max_private_data: MAX_PRIVATE_DATA,
                    probe: Box::new(|| true),
                };
                inbox.request(
                    token,
                    &newcomer.listening,
                    Box::new(newcomer.stream),
                    incoming,
                );
                return true;
            }
            Message::Frame(Frame::Request { .. }) => newcomer.stream.reject(None),
            Message::Frame(frame) => {
                tracing::warn!(peer = %newcomer.peer, "connection ended: unexpected message {frame:?}");
            }
            Message::None | Message::End => (),
        }
        newcomer.end();
        true
    }

    /// Returns whether the request that came with this descriptor may wait for its answer. Each
    /// request keeps its descriptor until the application answers. If such requests take most
    /// of the descriptors, the next ones are refused at once, so that some stay free.
    fn may_wait(&mut self, newest: usize, inbox: &mut dyn Inbox) -> bool {
        let limit = descriptors::limit();
        let spare = (limit / SPARE).max(2);
        let has_room = newest < limit.saturating_sub(spare) || inbox.unanswered() <= spare;
        if !has_room && !self.refuses {
            tracing::warn!("unanswered requests take most of the descriptors: others are refused");
        }
        self.refuses = !has_room;
        has_room
    }

    /// Takes a connection out of the silent ones, which may make room for others.
    fn remove(&mut self, token: Token) -> Option<Newcomer> {
        let newcomer = self.silent.remove(token);
        if newcomer.is_some() && self.held_back {
            self.held_back = false;
            let now = Instant::now();
            self.retries.iter_mut().for_each(|(at, _)| *at = now);
        }
        newcomer
    }

    /// Opens the reserve descriptor again, if it was closed and there is one.
    fn restore_reserve(&mut self) {
        if self.lent {
            self.lent = self.tcp.keep_reserve().is_err();
        }
    }

    /// Makes room for a connection without a request. `Err` is the time to try
    /// again.
    fn make_room(&mut self, inbox: &mut dyn Inbox) -> Result<(), Instant> {
        loop {
            match self.silent.room(Instant::now()) {
                Room::Free => return Ok(()),
                Room::At(at) => return Err(at),
                Room::Instead(oldest) => self.drop_silent(oldest, inbox),
            }
        }
    }

    /// Drops a connection without a request, unless its request has arrived.
    fn drop_silent(&mut self, token: Token, inbox: &mut dyn Inbox) {
        self.hear(token, inbox);
        if self.silent.get_mut(token).is_none() {
            return;
        }
        self.silent.stayed_silent();
        // A flood of connections must not flood the log.
        if !self.crowded {
            self.crowded = true;
            tracing::warn!("too many connections without a request: the oldest are dropped");
        }
        if let Some(newcomer) = self.remove(token) {
            newcomer.end();
        }
    }

    /// Frees a descriptor for a waiting connection: the reserve, or that of the
    /// oldest connection without a request. `Err` is the time to try again.
    fn give_up_a_descriptor(
        &mut self,
        error: &io::Error,
        inbox: &mut dyn Inbox,
    ) -> Result<(), Instant> {
        if self.tcp.give_up_reserve() {
            self.lent = true;
            return Ok(());
        }
        let now = Instant::now();
        match self.silent.oldest(now) {
            Room::Instead(oldest) => {
                self.drop_silent(oldest, inbox);
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

    fn hold_back(&mut self, token: Token, at: Instant) {
        self.held_back = true;
        self.retry_at(token, at);
    }

    /// Records that a listener may have more connections; only once per listener.
    fn retry_at(&mut self, token: Token, at: Instant) {
        if self.retries.iter().all(|&(_, known)| known != token) {
            self.retries.push((at, token));
        }
    }
}

impl Newcomer {
    fn end(self) {
        Box::new(self.stream).end();
    }
}

/// Returns the number of a stream's descriptor.
pub(super) fn descriptor_of(stream: &TcpStream) -> usize {
    usize::try_from(stream.as_raw_fd()).unwrap_or(usize::MAX)
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
