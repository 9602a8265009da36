//! What the handles and the thread share: the channel, listeners, watches.
//!
//! When a device is removed, rdma_cm reports that to each id bound to it. Each IA has an id for this
//! purpose only: when it gets the report, connections are reported as broken, and the IA reports its
//! asynchronous event once. The kernel's `rdma link del` may block until the program ends, because
//! librdmacm never closes a device that it has opened. Soft-RoCE removes no device.

use super::id::{Channel, ChannelEvent, Id};
use super::line::{Line, Passive, memory};
use super::link::Link;
use super::listen::Ids;
use super::payload;
use crate::cm::commands::CommandQueue;
use crate::cm::gate::Gate;
use crate::cm::wire::{
    Bound, Call, Event, Inbox, Incoming, Intake, Listening, Network, PeerParameters, Started,
};
use crate::cm::{CmError, DeviceSink, Local, Peer};
use crate::control::Transport;
use crate::sync::Mutex;
use mio::{Poll, Token};
use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The token of the channel's events. Not a token of an id, since those are counted
/// up.
const EVENTS: Token = Token(usize::MAX);

/// rdma_cm as the network of a manager.
pub(in crate::cm) struct Rdma {
    pub(super) channel: Arc<Channel>,
    pub(super) commands: Arc<CommandQueue>,
    pub(super) listeners: Mutex<HashMap<Token, Arc<Listening>>>,
    watches: Mutex<HashMap<Token, Arc<Gate<dyn DeviceSink>>>>,
    /// Queue pairs that the kernel of a requester remembers, and until when.
    pub(super) resting: Mutex<HashMap<Remembered, Instant>>,
}

/// What a requester's kernel remembers of a connection.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    pub(super) local: Local,
    pub(super) requester: IpAddr,
    pub(super) qpn: u32,
}

impl Rdma {
    pub(in crate::cm) fn open(poll: &Poll, commands: &Arc<CommandQueue>) -> Result<Self, CmError> {
        let channel = Channel::open()?;
        watch(poll, &channel).map_err(CmError::Resources)?;
        Ok(Self {
            channel,
            commands: Arc::clone(commands),
            listeners: Mutex::default(),
            watches: Mutex::default(),
            resting: Mutex::default(),
        })
    }

    /// Records what a requester's kernel will remember, from now on.
    pub(super) fn remember(&self, what: Remembered, memory: Duration) {
        let now = Instant::now();
        let mut resting = self.resting.lock();
        resting.retain(|_, until| *until > now);
        if let Some(until) = now.checked_add(memory) {
            resting.insert(what, until);
        }
    }

    /// Passes a request to the application.
    fn deliver_request(
        self: &Arc<Self>,
        listening: &Arc<Listening>,
        id: Id,
        parameters: PeerParameters,
        inbox: &mut dyn Inbox,
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
        let reads = (parameters.reads_served, parameters.reads_requested);
        let (private_data, greets) = payload::of_request(parameters.private_data, &route);
        let (token, id) = (self.commands.token(), Arc::new(id));
        id.set_token(token);
        let passive = Passive {
            listening: Arc::clone(listening),
            requester: requester.ip(),
            reads,
            greets,
            memory: memory(&route),
            qpn: None,
        };
        let line = Line::passive(Arc::clone(self), Arc::clone(&id), token, passive);
        let incoming = Incoming {
            qualifier: listening.qualifier,
            requester,
            peer: Peer {
                route,
                reads_served: reads.0,
                reads_requested: reads.1,
            },
            private_data,
            max_private_data: payload::max_private_data(listening.local.transport),
            probe: Box::new(move || id.is_alive()),
        };
        inbox.request(token, listening, Box::new(Link::passive(line)), incoming);
    }
}

/// Registers the channel so that a poll reports events as long as there are any
/// (level-triggered). `mio` registers edge-triggered, which would need one failing
/// read after each event.
fn watch(poll: &Poll, channel: &Channel) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: EVENTS.0 as u64,
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

impl Network for Rdma {
    fn max_private_data(&self, transport: Transport) -> usize {
        payload::max_private_data(transport)
    }

    fn bind(
        self: Arc<Self>,
        token: Token,
        local: &Local,
        qualifier: Option<u64>,
    ) -> Result<(Box<dyn Bound>, u64), CmError> {
        let (ids, qualifier) = Ids::bind(self, token, local, qualifier)?;
        Ok((Box::new(ids), qualifier))
    }

    fn connect(self: Arc<Self>, token: Token, call: &Call<'_>) -> Result<Started, CmError> {
        let line = Line::active(self, token, call)?;
        Ok(Ok(Box::new(Link::active(line))))
    }

    fn watch(
        self: Arc<Self>,
        token: Token,
        local: &Local,
        gate: &Arc<Gate<dyn DeviceSink>>,
    ) -> Result<Option<Box<dyn Any + Send + Sync>>, CmError> {
        let id = Id::create(&self.channel, token).map_err(CmError::Resources)?;
        self.watches.lock().insert(token, Arc::clone(gate));
        let watched = Watched {
            rdma: self,
            token,
            id,
        };
        watched.bind(local)?;
        Ok(Some(Box::new(watched)))
    }

    fn intake(self: Arc<Self>) -> Box<dyn Intake> {
        Box::new(ChannelEvents(self))
    }
}

/// The thread's part.
struct ChannelEvents(Arc<Rdma>);

impl Intake for ChannelEvents {
    fn ready(&mut self, _: Token, inbox: &mut dyn Inbox) -> io::Result<()> {
        // One event at a time: a callback may send commands, which come first.
        let Some(ChannelEvent { token, event, new }) = self.0.channel.take()? else {
            return Ok(());
        };
        match (event, new) {
            (Event::Requested(parameters), Some(id)) => {
                let listening = self.0.listeners.lock().get(&token).map(Arc::clone);
                if let Some(listening) = listening {
                    self.0.deliver_request(&listening, id, parameters, inbox);
                }
            }
            (event @ Event::DeviceRemoved, _) => {
                let watch = self.0.watches.lock().remove(&token);
                if let Some(gate) = watch {
                    let _ = gate.call(true, DeviceSink::removed);
                } else if self.0.listeners.lock().contains_key(&token) {
                    tracing::warn!("a device was removed; the listener on its address has ended");
                } else {
                    inbox.receive(token, Some(event));
                }
            }
            (event, _) => inbox.receive(token, Some(event)),
        }
        Ok(())
    }
}

/// An id that exists only to get the removal of its device.
struct Watched {
    rdma: Arc<Rdma>,
    token: Token,
    id: Id,
}

impl Watched {
    fn bind(&self, local: &Local) -> Result<(), CmError> {
        let Local {
            device,
            port,
            address,
            ..
        } = local;
        self.id.bind((*address, 0).into()).map_err(|error| {
            let cause = match error.raw_os_error() {
                Some(libc::EADDRNOTAVAIL) => {
                    "no network interface of this host has this address".to_owned()
                }
                Some(libc::ENODEV) => "there is no RDMA device on its network interface".to_owned(),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    return CmError::Resources(error);
                }
                _ => error.to_string(),
            };
            CmError::NotServed(format!(
                "rdma_cm does not serve the address {address}: {cause}"
            ))
        })?;
        match self.id.device() {
            Some((found, number)) if found == *device && number == *port => Ok(()),
            Some((found, number)) => Err(CmError::NotServed(format!(
                "rdma_cm assigns the address {address} to {found} port {number}, \
                 not of {device} port {port}"
            ))),
            None => Err(CmError::NotServed(format!(
                "rdma_cm assigns the address {address} to no device"
            ))),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.rdma.watches.lock().remove(&self.token);
    }
}
