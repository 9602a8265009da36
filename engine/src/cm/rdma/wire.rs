//! The id of a session, and what is needed to create another id for it.

use super::conn_param::ConnParam;
use super::id::Id;
use super::payload;
use super::port::port_of;
use super::service::{Command, Shared};
use super::session::Wire;
use crate::cm::{CmError, Local, Target, service_thread};
use crate::control::{Route, TransportOptions};
use mio::Token;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The active side of a session.
pub(super) struct Active {
    shared: Arc<Shared>,
    /// Shared with [`Resolution`].
    id: Arc<Id>,
    token: Token,
    local: Local,
    to: SocketAddr,
    param: ConnParam,
    /// The local port; 0 until the route is known.
    port: Arc<AtomicU16>,
}

/// What is needed to resolve an address.
pub(super) struct Resolution {
    id: Arc<Id>,
    from: IpAddr,
    to: SocketAddr,
    options: TransportOptions,
}

impl Resolution {
    /// Starts to resolve the address; the result is an event.
    pub(super) fn resolve(&self) -> io::Result<()> {
        // The same timeout as with managers that exchange addresses. A kernel
        // without this option uses its own timeout.
        let _ = self.id.set_ack_timeout(self.options.timeout());
        if let Some(class) = self.options.traffic_class {
            self.id.set_traffic_class(class)?;
        }
        let from = SocketAddr::new(self.from, 0);
        let from = (from.is_ipv4() == self.to.is_ipv4()).then_some(from);
        self.id.resolve_address(from, self.to)
    }
}

impl Active {
    pub(super) fn new(
        shared: &Arc<Shared>,
        token: Token,
        local: &Local,
        target: &Target,
        param: ConnParam,
    ) -> Result<Self, CmError> {
        let mut to = target.host;
        to.set_port(port_of(target.qualifier));
        Ok(Self {
            shared: Arc::clone(shared),
            id: Arc::new(Id::create(&shared.channel, token).map_err(CmError::Resources)?),
            token,
            local: local.clone(),
            to,
            param,
            port: Arc::default(),
        })
    }

    pub(super) fn port(&self) -> &Arc<AtomicU16> {
        &self.port
    }

    pub(super) fn resolution(&self) -> Resolution {
        Resolution {
            id: Arc::clone(&self.id),
            from: self.local.address,
            to: self.to,
            options: self.local.options,
        }
    }
}

/// The id of a session.
pub(super) enum SessionId {
    Active(Active),
    /// Shared with the request, which checks whether the requester still waits.
    Passive(Arc<Id>),
}

impl SessionId {
    fn id(&self) -> &Id {
        match self {
            Self::Active(active) => &active.id,
            Self::Passive(id) => id,
        }
    }

    fn active(&mut self) -> io::Result<&mut Active> {
        match self {
            Self::Active(active) => Ok(active),
            Self::Passive(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Runs work that may block in the kernel on a separate thread.
pub(super) fn on_own_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    match service_thread::spawn(false, work) {
        // The thread is detached.
        Ok(_detached) => Ok(()),
        Err(CmError::Resources(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::Other.into()),
    }
}

impl SessionId {
    /// Destroys the id of a connection that may still be in progress. On iWARP the
    /// kernel blocks until the connection is established or has failed, for up to
    /// 10 seconds with siw (Linux, `destroy_cm_id` in
    /// drivers/infiniband/core/iwcm.c).
    pub(super) fn end(self) {
        if self.id().is_iwarp() {
            let _ = on_own_thread(move || drop(self));
        }
    }
}

impl Wire for SessionId {
    fn resolve_address(&mut self) -> io::Result<()> {
        self.active()?.resolution().resolve()
    }

    fn resolve_route(&mut self) -> io::Result<()> {
        let active = self.active()?;
        let wanted = (&*active.local.device, active.local.port);
        active.port.store(active.id.port(), Ordering::Release);
        match active.id.device() {
            Some((device, port)) if (&*device, port) == wanted => active.id.resolve_route(),
            found => {
                tracing::warn!(to = %active.to, ?wanted, ?found,
                    "the route to a peer is not through the device of the endpoint");
                Err(io::Error::from_raw_os_error(libc::EHOSTUNREACH))
            }
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        let active = self.active()?;
        if !active.id.is_iwarp() {
            return active.id.connect(&active.param);
        }
        // The call may block until TCP has an answer: siw does (Linux,
        // `siw_connect`).
        let (id, param, token) = (Arc::clone(&active.id), active.param.clone(), active.token);
        let shared = Arc::clone(&active.shared);
        on_own_thread(move || {
            if let Err(error) = id.connect(&param) {
                let _ = shared.commands.send(Command::Unconnected(token, error));
            }
        })
    }

    fn renew(&mut self) -> io::Result<()> {
        let active = self.active()?;
        active.id = Arc::new(Id::create(&active.shared.channel, active.token)?);
        Ok(())
    }

    fn route(&mut self) -> io::Result<Route> {
        self.id().route()
    }

    fn establish(&mut self) -> io::Result<()> {
        self.id().establish()
    }

    fn accept(&mut self, param: &ConnParam) -> io::Result<()> {
        self.id().accept(param)
    }

    fn reject(&mut self, private_data: Option<&[u8]>) -> io::Result<()> {
        let bytes = private_data.map(payload::refusal).unwrap_or_default();
        self.id().reject(&bytes)
    }

    fn disconnect(&mut self) -> io::Result<()> {
        self.id().disconnect()
    }
}
