//! A session's id, and what it needs to make another one.

use super::id::{Id, Offer};
use super::payload;
use super::port::port_of;
use super::service::{Command, Shared};
use super::session::Wire;
use crate::cm::{CmError, Local, Target, post};
use crate::control::{ConnectOptions, Route};
use mio::Token;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Of the active side.
pub(super) struct Active {
    shared: Arc<Shared>,
    /// Also of [`Way`].
    id: Arc<Id>,
    token: Token,
    local: Local,
    to: SocketAddr,
    offer: Offer,
    /// That it goes out from; 0 until the way is known.
    port: Arc<AtomicU16>,
}

/// What it takes to ask where an address is.
pub(super) struct Way {
    id: Arc<Id>,
    from: IpAddr,
    to: SocketAddr,
}

impl Way {
    /// The answer comes as an event.
    pub(super) fn resolve(&self) -> io::Result<()> {
        // As the managers do that exchange addresses. A kernel that does not
        // know the option has its own opinion.
        let _ = self.id.set_ack_timeout(ConnectOptions::default().timeout);
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
        offer: Offer,
    ) -> Result<Self, CmError> {
        let mut to = target.host;
        to.set_port(port_of(target.qualifier));
        Ok(Self {
            shared: Arc::clone(shared),
            id: Arc::new(Id::create(&shared.channel, token).map_err(CmError::Resources)?),
            token,
            local: local.clone(),
            to,
            offer,
            port: Arc::default(),
        })
    }

    pub(super) fn port(&self) -> &Arc<AtomicU16> {
        &self.port
    }

    pub(super) fn way(&self) -> Way {
        Way {
            id: Arc::clone(&self.id),
            from: self.local.address,
            to: self.to,
        }
    }
}

/// A session's id.
pub(super) enum Line {
    Active(Active),
    /// Also the request's, which asks whether it lives.
    Passive(Arc<Id>),
}

impl Line {
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

/// Does on a thread of its own what may wait in the kernel.
pub(super) fn aside(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    match post::spawn(false, work) {
        // Nobody waits for it.
        Ok(_detached) => Ok(()),
        Err(CmError::Resources(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::Other.into()),
    }
}

impl Line {
    /// Destroys the id of a connection that may still be in the making. On iWARP
    /// that waits until it is made or has failed, which siw gives 10 seconds
    /// (Linux, `destroy_cm_id` in drivers/infiniband/core/iwcm.c).
    pub(super) fn end(self) {
        if self.id().is_iwarp() {
            let _ = aside(move || drop(self));
        }
    }
}

impl Wire for Line {
    fn resolve_address(&mut self) -> io::Result<()> {
        self.active()?.way().resolve()
    }

    fn resolve_route(&mut self) -> io::Result<()> {
        let active = self.active()?;
        let wanted = (&*active.local.device, active.local.port);
        active.port.store(active.id.port(), Ordering::Release);
        match active.id.device() {
            Some((device, port)) if (&*device, port) == wanted => active.id.resolve_route(),
            found => {
                tracing::warn!(to = %active.to, ?wanted, ?found,
                    "the way to a peer is not through the device that is to be used");
                Err(io::Error::from_raw_os_error(libc::EHOSTUNREACH))
            }
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        let active = self.active()?;
        if !active.id.is_iwarp() {
            return active.id.connect(&active.offer);
        }
        // It may wait for TCP's answer: siw does (Linux, `siw_connect`).
        let (id, offer, token) = (Arc::clone(&active.id), active.offer.clone(), active.token);
        let shared = Arc::clone(&active.shared);
        aside(move || {
            if let Err(error) = id.connect(&offer) {
                let _ = shared.post.command(Command::Unconnected(token, error));
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

    fn accept(&mut self, offer: &Offer) -> io::Result<()> {
        self.id().accept(offer)
    }

    fn reject(&mut self, as_the_application: bool) -> io::Result<()> {
        self.id().reject(if as_the_application {
            &payload::REFUSAL
        } else {
            &[]
        })
    }

    fn disconnect(&mut self) -> io::Result<()> {
        self.id().disconnect()
    }
}
