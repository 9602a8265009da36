//! What handles and the service thread share, and how the thread starts and ends.

use super::id::{Channel, Id, Offer};
use super::run;
use super::session::ConnectionGate;
use super::wire::Active;
use crate::cm::gate::Gate;
use crate::cm::post::{self, End, Post};
use crate::cm::{CmError, DeviceSink, ListenSink, Local, ManagerOptions};
use crate::sync::Mutex;
use mio::{Poll, Token};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Keeps the thread: all handles have one, the thread itself only a `Weak`.
pub(in crate::cm) struct Service {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Also the thread's.
pub(super) struct Shared {
    pub(super) options: ManagerOptions,
    pub(super) post: Post<Command>,
    pub(super) channel: Arc<Channel>,
    /// For the requests that the thread makes.
    service: OnceLock<Weak<Service>>,
}

/// What handles want of the thread.
pub(super) enum Command {
    /// Take the requests of a listener.
    Listen(Token, Arc<Listening>),
    Unlisten(Token),
    /// Tell whether a device goes.
    Watch(Token, Arc<Gate<dyn DeviceSink>>),
    Unwatch(Token),
    /// Make a connection. The address is being resolved.
    Connect(Token, Connecting),
    /// The address could not even be asked about.
    Unresolved(Token, io::Error),
    /// The kernel could not even ask the peer.
    Unconnected(Token, io::Error),
    /// Answer a request: accept.
    Accept(Token, Arc<ConnectionGate>, Offer),
    /// Answer a request: refuse; `true` as the application.
    Reject(Token, bool),
    Disconnect(Token),
    /// The gate is shut: say goodbye and forget.
    Abort(Token),
    Stop,
}

/// A listener, as its handle and the thread know it.
pub(super) struct Listening {
    pub(super) qualifier: u64,
    pub(super) local: Local,
    /// None once the handle destroyed them, which frees the port at once.
    pub(super) ids: Mutex<Vec<Id>>,
    pub(super) gate: Gate<dyn ListenSink>,
}

/// A connection to be made.
pub(super) struct Connecting {
    pub(super) line: Active,
    pub(super) gate: Arc<ConnectionGate>,
    pub(super) deadline: Option<Instant>,
}

impl Service {
    pub(in crate::cm) fn start(options: ManagerOptions) -> Result<Arc<Self>, CmError> {
        let channel = Channel::open()?;
        let poll = Poll::new().map_err(CmError::Resources)?;
        watch(&poll, &channel).map_err(CmError::Resources)?;
        let keep_affinity = options.keep_affinity;
        let shared = Arc::new(Shared {
            options,
            post: Post::new(&poll)?,
            channel,
            service: OnceLock::new(),
        });
        let its = Arc::clone(&shared);
        let thread = post::spawn(keep_affinity, move || {
            let _end = End(&its.post);
            run::run(&its, poll);
        })?;
        shared.post.serve(&thread);
        let service = Arc::new(Self {
            shared,
            thread: Some(thread),
        });
        let _ = service.shared.service.set(Arc::downgrade(&service));
        Ok(service)
    }

    pub(in crate::cm) fn options(&self) -> &ManagerOptions {
        &self.shared.options
    }
}

/// Has a poll tell of events as long as there are any. (`mio` itself would tell
/// once, and after each event one would have to ask for another in vain.)
fn watch(poll: &Poll, channel: &Channel) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: run::EVENTS.0 as u64,
    };
    // SAFETY: two open descriptors, and an event that is read.
    match unsafe {
        libc::epoll_ctl(
            poll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            channel.fd(),
            &raw mut event,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.post.end(thread, Command::Stop);
        }
    }
}

impl Shared {
    /// What keeps the thread, unless it ends.
    pub(super) fn service(&self) -> Option<Arc<Service>> {
        self.service.get().and_then(Weak::upgrade)
    }
}
