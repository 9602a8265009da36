//! The id of a link, and what is needed to create another id for it.

use super::id::{ConnParam, Id};
use super::link::Calls;
use super::network::{Rdma, Remembered};
use super::payload;
use super::port::port_of;
use crate::cm::commands::CmCommand;
use crate::cm::wire::{Answer, Call, Event, Listening};
use crate::cm::{CmError, Local};
use crate::control::Route;
use crate::thread::{Thread, leave_pinned_cpus};
use mio::Token;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How much later than this side the peer's kernel may forget a connection.
const MARGIN: Duration = Duration::from_millis(50);

pub(super) struct Line {
    rdma: Arc<Rdma>,
    /// Shared with the request, which checks whether the requester still waits, and with
    /// the thread that connects on iWARP.
    id: Arc<Id>,
    token: Token,
    side: Side,
}

enum Side {
    Active(Active),
    Passive(Passive),
}

/// What the requester needs.
struct Active {
    local: Local,
    to: SocketAddr,
    param: ConnParam,
    /// The local port; 0 until the route is known.
    port: Arc<AtomicU16>,
}

/// What the accepting side needs.
pub(super) struct Passive {
    pub(super) listening: Arc<Listening>,
    pub(super) requester: IpAddr,
    /// The RDMA reads that the requester serves, and those that it wants in flight.
    pub(super) reads: (u8, u8),
    /// Whether the requester greets.
    pub(super) greets: bool,
    /// How long kernels remember a connection on this route, if they do.
    pub(super) memory: Option<Duration>,
    /// The number of the local queue pair, once the request is accepted.
    pub(super) qpn: Option<u32>,
}

impl Line {
    pub(super) fn active(rdma: Arc<Rdma>, token: Token, call: &Call<'_>) -> Result<Self, CmError> {
        let mut to = call.target.host;
        to.set_port(port_of(call.target.qualifier));
        let active = Active {
            local: call.local.clone(),
            to,
            param: ConnParam {
                qpn: call.endpoint.address.qpn,
                reads_served: call.endpoint.reads_served,
                reads_requested: call.endpoint.reads_requested,
                private_data: payload::request(
                    call.private_data,
                    call.local.transport,
                    call.greets,
                ),
                retries: retries(call.local),
            },
            port: Arc::clone(call.port),
        };
        Ok(Self {
            id: Arc::new(Id::create(&rdma.channel, token).map_err(CmError::Resources)?),
            rdma,
            token,
            side: Side::Active(active),
        })
    }

    pub(super) fn passive(rdma: Arc<Rdma>, id: Arc<Id>, token: Token, passive: Passive) -> Self {
        Self {
            rdma,
            id,
            token,
            side: Side::Passive(passive),
        }
    }

    fn as_active(&self) -> io::Result<&Active> {
        match &self.side {
            Side::Active(active) => Ok(active),
            Side::Passive(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Passive {
    fn remembered(&self, qpn: u32) -> Remembered {
        Remembered {
            local: self.listening.local.clone(),
            requester: self.requester,
            qpn,
        }
    }
}

/// Runs work that may block in the kernel on a separate thread.
fn on_own_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = Thread::start(c"engine-cm", move || {
        leave_pinned_cpus();
        work();
    })?;
    drop(thread);
    Ok(())
}

impl Calls for Line {
    fn resolve_address(&mut self) -> io::Result<()> {
        let Active { local, to, .. } = self.as_active()?;
        // The same timeout as with managers that exchange addresses. A kernel
        // without this option uses its own timeout.
        let _ = self.id.set_ack_timeout(local.options.timeout());
        if let Some(class) = local.options.traffic_class {
            self.id.set_traffic_class(class)?;
        }
        let from = SocketAddr::new(local.address, 0);
        let from = (from.is_ipv4() == to.is_ipv4()).then_some(from);
        self.id.resolve_address(from, *to)
    }

    fn resolve_route(&mut self) -> io::Result<()> {
        let Active {
            local, to, port, ..
        } = self.as_active()?;
        let wanted = (&*local.device, local.port);
        port.store(self.id.port(), Ordering::Release);
        match self.id.device() {
            Some((device, port)) if (&*device, port) == wanted => self.id.resolve_route(),
            found => {
                tracing::warn!(%to, ?wanted, ?found,
                    "the route to a peer is not through the device of the endpoint");
                Err(io::Error::from_raw_os_error(libc::EHOSTUNREACH))
            }
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        let active = self.as_active()?;
        if !self.id.is_iwarp() {
            return self.id.connect(&active.param);
        }
        // The call may block until TCP has an answer: siw does (Linux,
        // `siw_connect`).
        let (id, param, token) = (Arc::clone(&self.id), active.param.clone(), self.token);
        let commands = Arc::clone(&self.rdma.commands);
        on_own_thread(move || {
            if let Err(error) = id.connect(&param) {
                let event = Event::Unsent(error.raw_os_error());
                let _ = commands.send(CmCommand::Event(token, event));
            }
        })
    }

    fn renew(&mut self) -> io::Result<()> {
        self.id = Arc::new(Id::create(&self.rdma.channel, self.token)?);
        Ok(())
    }

    fn route(&mut self) -> io::Result<Route> {
        self.id.route()
    }

    fn establish(&mut self) -> io::Result<()> {
        self.id.establish()
    }

    fn notify_established(&mut self) -> io::Result<()> {
        match self.side {
            Side::Active(_) => Ok(()),
            Side::Passive(_) => self.id.notify_established(),
        }
    }

    fn held_until(&mut self, answer: &Answer) -> Option<Instant> {
        let Side::Passive(passive) = &self.side else {
            return None;
        };
        let remembered = passive.remembered(answer.endpoint.address.qpn);
        self.rdma.resting.lock().get(&remembered).copied()
    }

    fn greets(&self) -> bool {
        matches!(&self.side, Side::Passive(passive) if passive.greets)
    }

    fn accept(&mut self, answer: &Answer) -> io::Result<()> {
        let Side::Passive(passive) = &mut self.side else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let (endpoint, local) = (&answer.endpoint, &passive.listening.local);
        let (served, requested) = passive.reads;
        let place = answer.greeting.as_ref().map(|greeting| greeting.place());
        self.id.accept(&ConnParam {
            qpn: endpoint.address.qpn,
            // At most the number that the requester requests and supports.
            reads_served: endpoint.reads_served.min(requested),
            reads_requested: endpoint.reads_requested.min(served),
            private_data: payload::reply(&answer.private_data, local.transport, place),
            retries: retries(local),
        })?;
        passive.qpn = Some(endpoint.address.qpn);
        Ok(())
    }

    fn reject(&mut self, private_data: Option<&[u8]>) -> io::Result<()> {
        let bytes = private_data.map(payload::refusal).unwrap_or_default();
        self.id.reject(&bytes)
    }

    fn disconnect(&mut self) -> io::Result<()> {
        self.id.disconnect()
    }

    /// On iWARP the kernel blocks until the connection is established or has failed, for up
    /// to 10 seconds with siw (Linux, `destroy_cm_id` in drivers/infiniband/core/iwcm.c).
    fn end(self, connecting: bool) {
        if let Side::Passive(passive) = &self.side
            && let (Some(qpn), Some(memory)) = (passive.qpn, passive.memory)
        {
            self.rdma.remember(passive.remembered(qpn), memory);
        }
        if connecting && self.id.is_iwarp() {
            let _ = on_own_thread(move || drop(self));
        }
    }
}

/// Returns the numbers of retries that a peer is asked for.
fn retries(local: &Local) -> (u8, u8) {
    (local.options.retry(), local.options.rnr_retry())
}

/// Returns how long kernels remember a connection (TIMEWAIT): until its packets
/// must have been acknowledged or lost, which they count in units of 1.05 ms. The
/// packets of iWARP connections are TCP's, and an iWARP queue pair has only one
/// connection.
pub(super) fn memory(route: &Route) -> Option<Duration> {
    let Route::Managed(route) = route else {
        return None;
    };
    let time = Duration::from_millis(1 << route.timeout().saturating_sub(8).min(31));
    Some(time + time / 16 + MARGIN)
}
