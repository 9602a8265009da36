//! State shared by handles and the service thread; start and end of the thread.

use super::conn_param::ConnParam;
use super::id::{Channel, Id};
use super::run;
use super::session::ConnectionGate;
use super::wire::Active;
use crate::cm::gate::Gate;
use crate::cm::service_thread::{self, CommandQueue, End, Executed};
use crate::cm::{CmError, DeviceSink, ListenSink, Local, ManagerOptions};
use crate::sync::Mutex;
use mio::{Poll, Token};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Keeps the thread running: every handle has one, the thread itself only a `Weak`.
pub(in crate::cm) struct Service {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread shares with the handles.
pub(super) struct Shared {
    pub(super) options: ManagerOptions,
    pub(super) commands: CommandQueue<Command>,
    pub(super) channel: Arc<Channel>,
    /// For the requests that the thread creates.
    service: OnceLock<Weak<Service>>,
}

/// A command of a handle to the service thread.
pub(super) enum Command {
    /// Deliver the requests of a listener.
    Listen(Token, Arc<Listening>),
    Unlisten(Token),
    /// Report the removal of a device.
    Watch(Token, Arc<Gate<dyn DeviceSink>>),
    Unwatch(Token),
    /// Establish a connection, whose address is being resolved.
    Connect(Token, Connecting),
    /// The address could not even be submitted for resolution.
    Unresolved(Token, io::Error),
    /// The kernel could not even send the request.
    Unconnected(Token, io::Error),
    /// Accept a request.
    Accept(Token, Arc<ConnectionGate>, ConnParam),
    /// Reject a request, with the private data of the application; `None` if it gave no
    /// answer.
    Reject(Token, Option<Vec<u8>>, Option<Executed>),
    Disconnect(Token),
    /// Disconnect and drop the session; its gate is closed.
    Abort(Token),
    Stop,
}

/// A listener, shared by its handle and the thread.
pub(super) struct Listening {
    pub(super) qualifier: u64,
    pub(super) local: Local,
    /// Empty once the handle has destroyed them, which frees the port at once.
    pub(super) ids: Mutex<Vec<Id>>,
    pub(super) gate: Gate<dyn ListenSink>,
}

/// A connection to be established.
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
            commands: CommandQueue::new(&poll)?,
            channel,
            service: OnceLock::new(),
        });
        let its = Arc::clone(&shared);
        let thread = service_thread::spawn(keep_affinity, move || {
            let _end = End(&its.commands);
            run::run(&its, poll);
        })?;
        shared.commands.serve(&thread);
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

/// Registers the channel so that a poll reports events as long as there are any
/// (level-triggered). `mio` registers edge-triggered, which would need one failing
/// read after each event.
fn watch(poll: &Poll, channel: &Channel) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: run::EVENTS.0 as u64,
    };
    // SAFETY: two open descriptors, and an event that is only read.
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
            self.shared.commands.end(thread, Command::Stop);
        }
    }
}

impl Shared {
    /// Returns what keeps the thread running, unless it is ending.
    pub(super) fn service(&self) -> Option<Arc<Service>> {
        self.service.get().and_then(Weak::upgrade)
    }
}
