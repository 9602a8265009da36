//! The ids of a listener.

use super::address::{addresses_of, no_address};
use super::id::{Channel, Id};
use super::network::Rdma;
use super::port::port_of;
use crate::cm::wire::{Bound, Listening};
use crate::cm::{CmError, Local, local};
use crate::control::Transport;
use mio::Token;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The most requests that wait to be delivered; the kernel reduces it to its limit.
const BACKLOG: i32 = 4096;
/// How many ports of the kernel's choice are tried; one of them must be free on
/// every address.
const TRIES: u32 = 16;

/// The ids of a listener: one, or one per address.
pub(super) struct Ids {
    rdma: Arc<Rdma>,
    token: Token,
    on: Option<IpAddr>,
    ids: Vec<Id>,
}

impl Ids {
    /// Binds ids to the port of a qualifier, or to one of the kernel's choice.
    pub(super) fn bind(
        rdma: Arc<Rdma>,
        token: Token,
        local: &Local,
        qualifier: Option<u64>,
    ) -> Result<(Self, u64), CmError> {
        let (port, on) = (qualifier.map_or(0, port_of), local.listen_on.address());
        let ids = match (on, local.transport) {
            (None, Transport::Iwarp) => on_each_address(&rdma.channel, token, local, port)?,
            _ => vec![
                bound(&rdma.channel, token, on, port).map_err(|error| refused(error, on, port))?,
            ],
        };
        // A port of the kernel's choice is its own qualifier.
        let qualifier = qualifier.unwrap_or_else(|| ids.first().map_or(0, Id::port).into());
        let ids = Self {
            rdma,
            token,
            on,
            ids,
        };
        Ok((ids, qualifier))
    }
}

impl Bound for Ids {
    fn listen(&mut self, listening: &Arc<Listening>) -> Result<(), CmError> {
        // The thread knows the listener before the first request.
        let mut listeners = self.rdma.listeners.lock();
        listeners.insert(self.token, Arc::clone(listening));
        drop(listeners);
        self.ids
            .iter()
            .try_for_each(|id| id.listen(BACKLOG))
            .map_err(|error| refused(error, self.on, port_of(listening.qualifier)))
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        self.ids.clear();
        self.rdma.listeners.lock().remove(&self.token);
    }
}

/// Creates an id that is bound to a port of all addresses, or of one.
fn bound(channel: &Arc<Channel>, token: Token, on: Option<IpAddr>, port: u16) -> io::Result<Id> {
    let id = Id::create(channel, token)?;
    if let Some(address) = on {
        id.bind((address, port).into())?;
        return Ok(id);
    }
    // One id for both families; a host without IPv6 has no such address.
    id.serve_both_families()?;
    match id.bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Ok(()) => Ok(id),
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            let id = Id::create(channel, token)?;
            id.bind((Ipv4Addr::UNSPECIFIED, port).into())?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

/// Creates ids on a port of each address of a device's port. An iWARP device does
/// not listen on another device's addresses: siw accepts only requests to the
/// addresses of its interface, and requests from this host only if it listens on
/// the address itself. The kernel also does not recognise an IPv4 address in IPv6
/// form (Linux, `siw_create_listen` and `rdma_translate_ip`).
fn on_each_address(
    channel: &Arc<Channel>,
    token: Token,
    local: &Local,
    port: u16,
) -> Result<Vec<Id>, CmError> {
    let addresses = addresses_of(channel, &local.device, local.port);
    if addresses.is_empty() {
        return Err(CmError::NotServed(no_address(&local.device, local.port)));
    }
    let bind = |port: u16| {
        let mut ids: Vec<Id> = Vec::new();
        for &address in &addresses {
            // A port of the kernel's choice is the same on all of them.
            let port = ids.first().map_or(port, Id::port);
            ids.push(bound(channel, token, Some(address), port)?);
        }
        Ok::<_, io::Error>(ids)
    };
    let mut tries = 0;
    loop {
        match bind(port) {
            Ok(ids) => return Ok(ids),
            Err(error) if port == 0 && tries < TRIES && is_taken(&error) => tries += 1,
            Err(error) => return Err(refused(error, addresses.first().copied(), port)),
        }
    }
}

/// Returns whether the error means that the port is in use on that address.
fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL)
    )
}

/// Returns the error for a port that cannot be listened on.
fn refused(error: io::Error, on: Option<IpAddr>, port: u16) -> CmError {
    match (error.raw_os_error(), on) {
        (Some(libc::EADDRINUSE), _) | (Some(libc::EADDRNOTAVAIL), None) => CmError::InUse,
        (Some(libc::EACCES), _) => CmError::Privileged { port },
        // Another listener has the port on all addresses.
        (Some(libc::EADDRNOTAVAIL), Some(address)) if local::is_ours(address) => CmError::InUse,
        (
            Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL | libc::ENODEV),
            Some(address),
        ) => CmError::Address(format!("cannot listen on {address}: {error}")),
        _ => CmError::Resources(error),
    }
}
