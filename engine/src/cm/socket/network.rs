//! What the handles and the thread share: the registry, the listeners, the reserve.

use super::accept::Acceptor;
use super::open;
use super::stream::Stream;
use crate::cm::commands::CommandQueue;
use crate::cm::wire::{Bound, Call, Intake, Listening, Network, Started};
use crate::cm::{CmError, Local, MAX_PRIVATE_DATA, ManagerOptions};
use crate::control::Transport;
use crate::sync::Mutex;
use mio::net::TcpListener;
use mio::{Interest, Poll, Registry, Token, event::Source};
use socket2::SockRef;
use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// TCP as the network of a manager.
pub(in crate::cm) struct Tcp {
    registry: Registry,
    pub(super) commands: Arc<CommandQueue>,
    pub(super) keepalive: Option<Duration>,
    /// How long a connection may take to send its request.
    pub(super) request_timeout: Duration,
    /// The reserve descriptor, from the first listener on.
    reserve: Mutex<Option<Registry>>,
    listeners: Mutex<HashMap<Token, Arc<Listener>>>,
}

/// A listener, as the thread sees it.
pub(super) struct Listener {
    pub(super) listening: Arc<Listening>,
    /// One socket per address. Empty once the handle has closed them, which frees
    /// the port at once.
    pub(super) sockets: Mutex<Vec<TcpListener>>,
}

/// The sockets of a listener that are bound.
struct Sockets {
    tcp: Arc<Tcp>,
    token: Token,
    /// Taken by [`Bound::listen`].
    sockets: Vec<TcpListener>,
}

impl Tcp {
    pub(in crate::cm) fn new(
        poll: &Poll,
        options: &ManagerOptions,
        commands: &Arc<CommandQueue>,
    ) -> Result<Self, CmError> {
        Ok(Self {
            registry: poll.registry().try_clone().map_err(CmError::Resources)?,
            commands: Arc::clone(commands),
            keepalive: options.keepalive,
            request_timeout: options.request_timeout,
            reserve: Mutex::new(None),
            listeners: Mutex::default(),
        })
    }

    /// Registers a socket for the thread. Events before the thread knows the token
    /// are lost, so the thread checks the socket of a new session.
    pub(super) fn register(
        &self,
        socket: &mut impl Source,
        token: Token,
        interest: Interest,
    ) -> Result<(), CmError> {
        let done = self.registry.register(socket, token, interest);
        done.map_err(CmError::Resources)
    }

    /// Removes a socket. Needed before it is closed: a copy of the descriptor in a
    /// forked child would keep it registered.
    pub(super) fn deregister(&self, socket: &mut impl Source) {
        let _ = self.registry.deregister(socket);
    }

    /// Opens a reserve descriptor, for a connection that arrives when no other
    /// descriptor is left: a copy of the registry's.
    pub(super) fn keep_reserve(&self) -> Result<(), CmError> {
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            *reserve = Some(self.registry.try_clone().map_err(CmError::Resources)?);
        }
        Ok(())
    }

    /// Closes the reserve descriptor. Returns `false` if there is none.
    pub(super) fn give_up_reserve(&self) -> bool {
        self.reserve.lock().take().is_some()
    }

    pub(super) fn listener(&self, token: Token) -> Option<Arc<Listener>> {
        self.listeners.lock().get(&token).map(Arc::clone)
    }
}

impl Network for Tcp {
    fn max_private_data(&self, _: Transport) -> usize {
        MAX_PRIVATE_DATA
    }

    fn require_served(&self, local: &Local) -> Result<(), CmError> {
        match local.transport {
            Transport::Iwarp => Err(CmError::OnlyRdma {
                device: local.device.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn bind(
        self: Arc<Self>,
        token: Token,
        local: &Local,
        qualifier: Option<u64>,
    ) -> Result<(Box<dyn Bound>, u64), CmError> {
        self.keep_reserve()?;
        let (sockets, qualifier) = open::listener(local.listen_on, qualifier)?;
        let bound = Sockets {
            tcp: self,
            token,
            sockets,
        };
        Ok((Box::new(bound), qualifier))
    }

    fn connect(self: Arc<Self>, token: Token, call: &Call<'_>) -> Result<Started, CmError> {
        Stream::connect(self, token, call)
    }

    fn intake(self: Arc<Self>) -> Box<dyn Intake> {
        Box::new(Acceptor::new(self))
    }
}

impl Bound for Sockets {
    fn listen(&mut self, listening: &Arc<Listening>) -> Result<(), CmError> {
        let listener = Arc::new(Listener {
            listening: Arc::clone(listening),
            sockets: Mutex::new(core::mem::take(&mut self.sockets)),
        });
        // The thread knows the listener before the first event.
        let mut listeners = self.tcp.listeners.lock();
        listeners.insert(self.token, Arc::clone(&listener));
        drop(listeners);
        let mut sockets = listener.sockets.lock();
        sockets.iter_mut().try_for_each(|socket| {
            let tcp = &self.tcp;
            tcp.register(socket, self.token, Interest::READABLE)
        })
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let Some(listener) = self.tcp.listeners.lock().remove(&self.token) else {
            return;
        };
        // Shut down, so that the port is also free if copies of the descriptor live in
        // forked children.
        for mut socket in listener.sockets.lock().drain(..) {
            let _ = SockRef::from(&socket).shutdown(Shutdown::Both);
            self.tcp.deregister(&mut socket);
        }
    }
}

impl Listener {
    /// Returns whether a connection waits to be accepted.
    pub(super) fn has_waiting(&self) -> bool {
        let sockets = self.sockets.lock();
        let polled = sockets.iter().map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let mut polled: Vec<_> = polled.collect();
        let count = polled.len() as libc::nfds_t;
        // SAFETY: that many structs, owned by this function, with descriptors that
        // are open as long as the lock is held. The call does not wait.
        unsafe { libc::poll(polled.as_mut_ptr(), count, 0) > 0 }
    }
}
