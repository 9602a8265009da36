//! Addresses, routes and listening (the kernel's `rdma_bind_addr`,
//! `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_listen`).

use std::net::IpAddr;
use std::time::Duration;

use libc::{EACCES, EADDRNOTAVAIL, EINVAL, ENODEV, ENOMEM, EPROTONOSUPPORT, ETIMEDOUT};

use super::abi::event;
use super::address::{Address, Family};
use super::events::Content;
use super::id::{Id, IdState};
use super::ports::{Claim, Space};
use super::rdma_cm::{NO_DEVICE, RdmaCm};
use crate::cm::Path;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::gid::gid_of_ip;
use crate::spec::{Nanos, PortAddress, Result};

const NO_PORT: &str = "no port of an InfiniBand link has this GID";
const NO_LOCAL_ADDRESS: &str = "the id has no local address";
const NO_ROUTE_WANTED: &str =
    "the id has no resolved address (rdma_resolve_addr and its event), or it has a route already";

/// The largest backlog, and the default: the kernel's
/// `net.rdma_ucm.max_backlog`.
const MAX_BACKLOG: u32 = 1024;
/// How often a route that is being resolved looks for a listener, in nanoseconds.
const LOOK_INTERVAL: Nanos = 1_000_000;
/// The first port that needs no rights.
const FIRST_FREE_PORT: u16 = 1024;
/// The bits of a service ID that select a port space (`RDMA_IB_IP_PS_MASK`).
const SPACE_MASK: u64 = !0xffff;

impl RdmaCm {
    /// Binds an id to a local address.
    ///
    /// # Errors
    /// `EINVAL` if the id is bound or the address needs an interface,
    /// `EADDRNOTAVAIL` if it is not an address of the host or the port is in use,
    /// `EADDRINUSE`, `EACCES` for a low port.
    pub(super) fn bind(&mut self, number: u32, address: Address) -> Result<()> {
        let id = self.known(number)?;
        refuse_if(
            id.state != IdState::Idle,
            EINVAL,
            "the id is bound already, or listens or connects",
        )?;
        refuse_if(
            address.link_local_scope() == Some(0),
            EINVAL,
            "a link-local address needs the interface it belongs to (its scope id)",
        )?;
        let is_any = self.is_any(&address);
        let port = match address.ip() {
            // Programs that look for the device of an address find one, unlike in
            // the kernel (docs/decisions/064-rdma-cm-between-processes.md).
            Some(ip) if is_any && ip.is_loopback() => Some(self.network.port_of(ip)),
            _ if is_any => None,
            _ => Some(self.local_port(&address)?),
        };
        let family_only = id.family_only.unwrap_or_else(|| match address.family() {
            Family::V4 => true,
            Family::V6 => self.host.is_ipv6_only(),
            Family::Ib => false,
        });
        let (space, address) = match address {
            Address::Ib { .. } => ib_space(id.space, address).or_refuse(
                EPROTONOSUPPORT,
                "the service id of the address is in another port space than the id",
            )?,
            _ => (id.space, address),
        };
        let claim = Claim {
            id: number,
            address,
            is_any,
            family_only,
            shared: id.reuse,
        };
        let mut local = address;
        if address.port() == 0 {
            local.set_port(self.ports.claim_any(space, claim)?);
        } else {
            refuse_if(
                address.port() < FIRST_FREE_PORT && !self.host.may_use_low_ports(),
                EACCES,
                "ports below 1024 need the capability CAP_NET_BIND_SERVICE",
            )?;
            self.ports.claim(space, address.port(), claim)?;
        }
        let id = self.known_mut(number)?;
        id.state = IdState::AddrBound;
        id.claim = Some((space, local.port()));
        id.family_only = Some(family_only);
        id.local = Some(local);
        id.remote = Some(Address::unspecified(local.family()));
        id.port = port;
        Ok(())
    }

    /// Returns the device port of an address of this host.
    fn local_port(&self, address: &Address) -> Result<PortAddress> {
        match address {
            Address::Ib { gid, .. } => self.ib_port(gid),
            other => {
                let ip = other
                    .ip()
                    .or_refuse(EINVAL, "the address is no IP address")?;
                let scope = other.link_local_scope().unwrap_or(0);
                if self.is_here(ip, scope) {
                    Ok(self.network.port_of(ip))
                } else {
                    Err(refuse(
                        EADDRNOTAVAIL,
                        "the local address is that of no network interface of this host",
                    ))
                }
            }
        }
    }

    /// Returns whether an address is this host's. On the UDP wire, other users of the machine
    /// have addresses of their own.
    fn is_here(&self, ip: IpAddr, scope: u32) -> bool {
        match self.network.is_elsewhere(ip) {
            true => false,
            false => self.host.has(ip, scope),
        }
    }

    /// Returns the port with a GID. Only InfiniBand links have such addresses.
    fn ib_port(&self, gid: &[u8; 16]) -> Result<PortAddress> {
        let port = self.network.port_of_gid(gid);
        port.filter(|_| !self.network.is_roce())
            .or_refuse(ENODEV, NO_PORT)
    }

    /// Resolves the address of a peer, and selects the local address and the
    /// device. The result is an event.
    ///
    /// # Errors
    /// `EINVAL` in another state or if the families differ; the errors of
    /// [`bind`](Self::bind); `ENETUNREACH` without a route.
    pub(super) fn resolve_address(
        &mut self,
        number: u32,
        from: Option<Address>,
        to: Address,
        timeout_ms: u32,
    ) -> Result<()> {
        let state = self.ids.get(&number).map(|id| id.state);
        if state != Some(IdState::AddrBound) {
            let mut any = Address::unspecified(to.family());
            if let (Address::V6 { scope, .. }, Address::V6 { scope: other, .. }) = (&mut any, &to) {
                *scope = *other;
            }
            self.bind(number, from.unwrap_or(any))?;
        }
        let id = self.known_mut(number)?;
        refuse_if(
            id.local.map(|local| local.family()) != Some(to.family()),
            EINVAL,
            "the local address and that of the peer are of different families",
        )?;
        id.remote = Some(to);
        if self.is_any(&to) {
            return self.resolve_loopback(number);
        }
        let remote_port = match &to {
            Address::Ib { gid, .. } => Some(self.ib_port(gid)?),
            _ => None,
        };
        let Some(ip) = to.ip() else {
            let port = remote_port.or_refuse(ENODEV, NO_PORT)?;
            return self.address_is_resolved(number, to, port);
        };
        let scope = to.link_local_scope().unwrap_or(0);
        if self.is_here(ip, scope) {
            let port = self.network.port_of(ip);
            return self.address_is_resolved(number, to, port);
        }
        // Another host. Without a route the command fails; otherwise nothing
        // answers there.
        let source = self.host.source_for(ip, scope);
        let source = source
            .map_err(|code| refuse(code, "the host has no route to the address of the peer"))?;
        if self.network.reaches_others() {
            return self.host_is_resolved(number, ip, source);
        }
        if let Some(id) = self.ids.get_mut(&number) {
            id.state = IdState::AddrQuery;
        }
        let duration = Nanos::from(timeout_ms) * 1_000_000;
        self.resolutions.start(number, duration);
        Ok(())
    }

    /// Completes the resolution of an address of another host, which the packets from
    /// `source` reach.
    fn host_is_resolved(&mut self, number: u32, ip: IpAddr, source: IpAddr) -> Result<()> {
        let chosen = self.network.source_toward(ip, source).or_refuse(
            ENODEV,
            "no device has an address of the family of the peer's: see --wire udp=ADDRESS",
        )?;
        let (port, source) = chosen;
        let host = self
            .network
            .host(ip)
            .or_refuse(ENOMEM, "there are too many hosts")?;
        let id = self.known_mut(number)?;
        if id.port.is_none() {
            let local = id.local.or_refuse(EINVAL, NO_LOCAL_ADDRESS)?;
            id.local = Some(local.with_ip(source));
            id.port = Some(port);
        }
        id.remote_port = Some(host);
        self.resolved(number);
        Ok(())
    }

    /// Selects the first port, for connections from the host to itself.
    fn resolve_loopback(&mut self, number: u32) -> Result<()> {
        let id = self.known_mut(number)?;
        let local = id.local.or_refuse(EINVAL, NO_LOCAL_ADDRESS)?;
        if id.port.is_none() {
            id.local = Some(loopback(local));
        }
        let port = id.port.unwrap_or(PortAddress { device: 0, port: 1 });
        id.port = Some(port);
        id.remote_port = Some(port);
        self.resolved(number);
        Ok(())
    }

    /// Completes the resolution of an address of this host. An id without a
    /// local address gets the address itself, as local routes do.
    fn address_is_resolved(&mut self, number: u32, to: Address, port: PortAddress) -> Result<()> {
        let gid = self.network.gid(port);
        let id = self.known_mut(number)?;
        if id.port.is_none() {
            let local = id.local.or_refuse(EINVAL, NO_LOCAL_ADDRESS)?;
            id.local = Some(match (local, to.ip()) {
                (_, Some(ip)) => local.with_ip(ip),
                (
                    Address::Ib {
                        flow,
                        sid,
                        mask,
                        scope,
                        ..
                    },
                    None,
                ) => Address::Ib {
                    pkey: super::abi::PKEY,
                    flow,
                    gid,
                    sid,
                    mask,
                    scope,
                },
                (other, None) => other,
            });
            id.port = Some(port);
        }
        id.remote_port = Some(port);
        self.resolved(number);
        Ok(())
    }

    fn resolved(&mut self, number: u32) {
        if let Some(id) = self.ids.get_mut(&number) {
            id.state = IdState::AddrResolved;
        }
        self.notify(number, event::ADDR_RESOLVED, 0, &Content::empty());
    }

    /// Handles the resolutions that have waited for another host, or for a path, in
    /// vain; and completes those of routes whose time is over.
    pub(super) fn expire_resolutions(&mut self, now: Nanos) -> Option<Nanos> {
        self.resolutions.begin(now);
        while let Some(number) = self.resolutions.expire(now) {
            let Some(id) = self.ids.get_mut(&number) else {
                continue;
            };
            if id.state == IdState::RouteQuery && id.path.is_some() {
                self.look_for_listener(number);
                self.resolutions.begin(now);
                continue;
            }
            let (state, failure) = match id.state {
                IdState::RouteQuery => (IdState::AddrResolved, event::ROUTE_ERROR),
                IdState::AddrQuery => (IdState::AddrBound, event::ADDR_ERROR),
                // The device was removed.
                _ => continue,
            };
            id.state = state;
            self.notify(number, failure, -ETIMEDOUT, &Content::empty());
        }
        self.resolutions.next()
    }

    /// Finds the path to the peer. The result is an event.
    ///
    /// # Errors
    /// `EINVAL` in another state, or if no time is given.
    pub(super) fn resolve_route(&mut self, number: u32, timeout_ms: u32) -> Result<()> {
        let id = self.known(number)?;
        refuse_if(timeout_ms == 0, EINVAL, "the timeout is 0 ms")?;
        refuse_if(id.state != IdState::AddrResolved, EINVAL, NO_ROUTE_WANTED)?;
        let ports = id.port.zip(id.remote_port);
        let (from, to) = ports.or_refuse(EINVAL, NO_DEVICE)?;
        if !self.network.is_roce() && self.down.contains(from) {
            // The subnet manager is not reached.
            self.known_mut(number)?.state = IdState::RouteQuery;
            let duration = Nanos::from(timeout_ms) * 1_000_000;
            self.resolutions.start(number, duration);
            return Ok(());
        }
        let mut path = self.network.path(from, to);
        if self.network.is_roce() {
            path.traffic_class = id.tos;
            path.flow_label = flow_label(id);
            // Of several addresses of the interface, the one that the id is bound to.
            let bound = id.local.and_then(|local| local.ip()).map(gid_of_ip);
            if let Some(gid) = bound.filter(|gid| self.network.has_gid(from, gid)) {
                path.sgid = gid;
            }
            if let Some(timeout) = id.ack_timeout.filter(|timeout| *timeout != 0) {
                path.packet_life_time = (timeout - 1).min(31);
            }
        }
        let time = self
            .resolve_time
            .min(Duration::from_millis(timeout_ms.into()));
        let id = self.known_mut(number)?;
        id.path = Some(path);
        id.looks = (time.as_nanos() as Nanos).div_ceil(LOOK_INTERVAL);
        id.state = IdState::RouteQuery;
        self.look_for_listener(number);
        Ok(())
    }

    /// Completes the resolution of a route if a process listens at the address of the
    /// peer, or if it has taken as long as it may. Otherwise looks again later.
    ///
    /// In the kernel, a work queue and on InfiniBand a query of the subnet manager come
    /// between the command and the event (`cma_resolve_iboe_route`,
    /// `cma_resolve_ib_route`). Programs that connect a second time rely on the server
    /// listening again by then (perftest's `create_rdma_cm_connection`).
    fn look_for_listener(&mut self, number: u32) {
        let Some(id) = self.ids.get(&number) else {
            return;
        };
        let is_over = id.looks == 0;
        let is_elsewhere = id.remote_port.is_some_and(|port| port.host().is_some());
        let target = id.remote.map(|remote| id.target(&remote));
        let is_there =
            || is_elsewhere || target.is_none_or(|target| self.find_listener(&target).is_some());
        let is_resolved = is_over || is_there();
        let Some(id) = self.ids.get_mut(&number) else {
            return;
        };
        if is_resolved {
            id.state = IdState::RouteResolved;
            self.notify(number, event::ROUTE_RESOLVED, 0, &Content::empty());
        } else {
            id.looks -= 1;
            self.resolutions.start(number, LOOK_INTERVAL);
        }
    }

    /// Sets the path to the peer, as `RDMA_OPTION_IB_PATH` does.
    ///
    /// # Errors
    /// `EINVAL` in another state.
    pub(super) fn set_path(&mut self, number: u32, path: Path) -> Result<()> {
        let id = self.known_mut(number)?;
        refuse_if(id.state != IdState::AddrResolved, EINVAL, NO_ROUTE_WANTED)?;
        id.path = Some(path);
        id.state = IdState::RouteResolved;
        self.notify(number, event::ROUTE_RESOLVED, 0, &Content::empty());
        Ok(())
    }

    /// Lets an id listen, with a backlog as the application gives it.
    ///
    /// # Errors
    /// `EINVAL` in another state; the errors of [`bind`](Self::bind) if the id
    /// is not bound or shares its port.
    pub(super) fn listen(&mut self, number: u32, backlog: u32) -> Result<()> {
        let state = self.ids.get(&number).map(|id| id.state);
        if state != Some(IdState::AddrBound) {
            self.bind(number, Address::unspecified(Family::V4))?;
        }
        let id = self.known_mut(number)?;
        id.backlog = match backlog {
            1..=MAX_BACKLOG => backlog,
            _ => MAX_BACKLOG,
        };
        let claim = id.claim.filter(|_| id.reuse);
        if let Some((space, port)) = claim {
            self.ports.make_exclusive(space, port, number)?;
        }
        let id = self.known_mut(number)?;
        id.reuse = false;
        id.state = IdState::Listen;
        self.listeners.insert(number);
        self.publish().inspect_err(|_| {
            self.listeners.remove(&number);
            if let Some(id) = self.ids.get_mut(&number) {
                id.state = IdState::AddrBound;
            }
        })
    }
}

/// Returns the port space of an InfiniBand address, and the address with that
/// space in its service ID (`cma_select_ib_ps`).
fn ib_space(of_id: Space, address: Address) -> Option<(Space, Address)> {
    let Address::Ib {
        pkey,
        flow,
        gid,
        sid,
        mask,
        scope,
    } = address
    else {
        return None;
    };
    let space_mask = mask & SPACE_MASK;
    let found = [Space::Ib, Space::Tcp, Space::Udp]
        .into_iter()
        .find(|&it| {
            let allowed = of_id == Space::Ib || of_id == it;
            let number = u64::from(it.number()) << 16;
            allowed && sid & space_mask == number & space_mask
        })?;
    let port = sid & mask & 0xffff;
    let address = Address::Ib {
        pkey,
        flow,
        gid,
        sid: u64::from(found.number()) << 16 | port,
        mask: mask | SPACE_MASK,
        scope,
    };
    Some((found, address))
}

fn loopback(address: Address) -> Address {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match address {
        Address::V4 { .. } => address.with_ip(Ipv4Addr::LOCALHOST.into()),
        Address::V6 { .. } => address.with_ip(Ipv6Addr::LOCALHOST.into()),
        Address::Ib {
            pkey,
            flow,
            sid,
            mask,
            scope,
            ..
        } => Address::Ib {
            pkey,
            flow,
            gid: Ipv6Addr::LOCALHOST.octets(),
            sid,
            mask,
            scope,
        },
    }
}

/// Returns the flow label of a connection on Ethernet
/// (`cma_get_roce_udp_flow_label`).
fn flow_label(id: &Id) -> u32 {
    const MASK: u32 = 0xf_ffff;
    let given = match id.local {
        Some(Address::V6 { flow, .. }) => u32::from_be_bytes(flow) & MASK,
        _ => 0,
    };
    if given != 0 {
        return given;
    }
    let port = |address: Option<Address>| address.map_or(0, |it| u32::from(it.port()));
    (port(id.local) * 31 + port(id.remote)) & MASK
}
