//! librdmacm: the event channel and the ids. No other module of the connection
//! manager calls it.

use super::event::event_of;
use crate::cm::CmError;
use crate::cm::wire::{Event, PeerParameters};
use crate::control::{IwarpRoute, ManagedRoute, Route, forks};
use crate::sync::Mutex;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::{self, NonNull};
use dv_sys::rdmacm::{self, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use dv_sys::verbs::{ibv_get_device_name, ibv_node_type, ibv_qp_attr, ibv_qp_state};
use mio::Token;
use socket2::SockAddr;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel tries to find the route to a host: longer than its own
/// timeouts for neighbour discovery.
const RESOLVE: Duration = Duration::from_secs(4);

/// The event channel, closed with the last of its ids.
pub(super) struct Channel {
    raw: NonNull<rdma_event_channel>,
    forks: u32,
}

// SAFETY: librdmacm allows any thread to use a channel; the pointer is only passed
// to it, and `fd` never changes.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// An event and the id that it belongs to.
pub(super) struct ChannelEvent {
    /// The token of the id or, for a request, of the listener.
    pub(super) token: Token,
    pub(super) event: Event,
    /// The new id of a request. Dropping it rejects the request.
    pub(super) new: Option<Id>,
}

impl Channel {
    /// Opens a channel.
    ///
    /// # Errors
    /// `Missing` if the kernel has no rdma_cm; `Resources`.
    pub(super) fn open() -> Result<Arc<Self>, CmError> {
        // Checked first, since librdmacm would print a message.
        if !Path::new("/sys/class/misc/rdma_cm").exists()
            && !Path::new("/dev/infiniband/rdma_cm").exists()
        {
            return Err(CmError::Missing(io::Error::from_raw_os_error(libc::ENOENT)));
        }
        // SAFETY: takes no arguments.
        let raw = unsafe { rdmacm::rdma_create_event_channel() };
        let Some(raw) = NonNull::new(raw) else {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => CmError::Resources(error),
                _ => CmError::Missing(error),
            });
        };
        let channel = Arc::new(Self {
            raw,
            forks: forks(),
        });
        set_nonblocking(channel.fd()).map_err(CmError::Resources)?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel is open.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// Returns the next event, if there is one. Called by the service thread only:
    /// the data that the event points to is read before another thread may free it.
    pub(super) fn take(self: &Arc<Self>) -> io::Result<Option<ChannelEvent>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is open; the result is written.
        if unsafe { rdmacm::rdma_get_cm_event(self.raw.as_ptr(), &raw mut event) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the event is owned by this thread until it is acknowledged, and
        // its ids are not freed before that.
        let channel_event = unsafe { self.read(event) };
        // SAFETY: taken above, and acknowledged once. Acknowledged before anything
        // else: `rdma_destroy_id` waits for it.
        unsafe { rdmacm::rdma_ack_cm_event(event) };
        Ok(Some(channel_event))
    }

    /// Converts an event.
    ///
    /// # Safety
    /// `event` is one of this channel that was not acknowledged.
    unsafe fn read(self: &Arc<Self>, event: *const rdma_cm_event) -> ChannelEvent {
        // SAFETY: the event is not acknowledged yet; an event points to its ids, and contains
        // the private data. All members of the union begin with a pointer and a
        // length, and reliable connections have `conn`.
        let (event, id, listener, conn) = unsafe {
            (
                &*event,
                (*event).id,
                (*event).listen_id,
                (*event).param.conn,
            )
        };
        let private_data = match (conn.private_data, conn.private_data_len) {
            (data, length) if data.is_null() || length == 0 => Vec::new(),
            // SAFETY: as above.
            (data, length) => unsafe {
                core::slice::from_raw_parts(data.cast::<u8>(), length.into()).to_vec()
            },
        };
        let peer_parameters = PeerParameters {
            // The fields are from the local point of view: the reads that this side
            // may have in flight, and those that it has to serve.
            reads_served: conn.initiator_depth,
            reads_requested: conn.responder_resources,
            private_data,
        };
        let what = event_of(event.event, event.status, peer_parameters);
        let new = matches!(what, Event::Requested(_))
            .then(|| NonNull::new(id))
            .flatten()
            .map(|raw| Id::new(raw, Arc::clone(self)));
        let whose = if new.is_some() { listener } else { id };
        // SAFETY: as above; the context was written before the id was used.
        let context = unsafe { (*whose).context };
        ChannelEvent {
            token: Token(context.addr()),
            event: what,
            new,
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The kernel closes a forked child's copy of the descriptor when the child
        // ends.
        if self.forks == forks() {
            // SAFETY: the channel is open, and no id is left: each has an `Arc`.
            unsafe { rdmacm::rdma_destroy_event_channel(self.raw.as_ptr()) };
        }
    }
}

/// A connection, a listener, or an id that is only bound to an address; destroyed
/// on drop.
pub(super) struct Id {
    /// Locked for each call, since librdmacm writes some fields of an id.
    raw: Mutex<NonNull<rdma_cm_id>>,
    channel: Arc<Channel>,
}

// SAFETY: librdmacm allows any thread to use an id; the lock admits one at a time.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

impl Id {
    /// Creates an id for reliable connections, whose events have the token.
    pub(super) fn create(channel: &Arc<Channel>, token: Token) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open; the context is a number that only this
        // module reads.
        done(unsafe {
            rdmacm::rdma_create_id(
                channel.raw.as_ptr(),
                &raw mut raw,
                context_of(token),
                rdmacm::rdma_port_space::RDMA_PS_TCP,
            )
        })?;
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self::new(raw, Arc::clone(channel)))
    }

    fn new(raw: NonNull<rdma_cm_id>, channel: Arc<Channel>) -> Self {
        Self {
            raw: Mutex::new(raw),
            channel,
        }
    }

    fn call(&self, call: impl FnOnce(*mut rdma_cm_id) -> c_int) -> io::Result<()> {
        let raw = self.raw.lock();
        done(call(raw.as_ptr()))
    }

    /// Changes the token of a request's id, which had its listener's token. Called
    /// on the service thread, which reads the token.
    pub(super) fn set_token(&self, token: Token) {
        let raw = self.raw.lock();
        // SAFETY: the id lives, and only this thread reads the field.
        unsafe { (*raw.as_ptr()).context = context_of(token) };
    }

    /// Lets an IPv6 id serve IPv4 addresses too.
    pub(super) fn serve_both_families(&self) -> io::Result<()> {
        let no: c_int = 0;
        // SAFETY: the option is an `int`.
        unsafe { self.set(rdmacm::RDMA_OPTION_ID_AFONLY, no) }
    }

    /// Sets the ACK timeout of both queue pairs, in the code of
    /// [`crate::TransportOptions`]. On RoCE the kernels also take it as the lifetime
    /// of packets, and so remember a closed connection for as long. Without it both
    /// times are two seconds.
    pub(super) fn set_ack_timeout(&self, timeout: u8) -> io::Result<()> {
        // SAFETY: the option is a `uint8_t`.
        unsafe { self.set(rdmacm::RDMA_OPTION_ID_ACK_TIMEOUT, timeout) }
    }

    /// Sets the traffic class, which the kernel uses on RoCE for its messages and
    /// the route, and on InfiniBand as the QoS class of its query for the route.
    pub(super) fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        // SAFETY: the option is a `uint8_t`.
        unsafe { self.set(rdmacm::RDMA_OPTION_ID_TOS, class) }
    }

    /// Sets an option of the id.
    ///
    /// # Safety
    /// The option has the type `T`.
    unsafe fn set<T>(&self, option: c_int, mut value: T) -> io::Result<()> {
        self.call(|raw| {
            // SAFETY: the id lives, and the value lives through the call; the
            // caller promises its type.
            unsafe {
                rdmacm::rdma_set_option(
                    raw,
                    rdmacm::RDMA_OPTION_ID,
                    option,
                    (&raw mut value).cast(),
                    size_of::<T>(),
                )
            }
        })
    }

    pub(super) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let address = SockAddr::from(address);
        // SAFETY: the id lives, and the address lives through the call, which only
        // reads it.
        self.call(|raw| unsafe { rdmacm::rdma_bind_addr(raw, address.as_ptr().cast_mut().cast()) })
    }

    pub(super) fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: the id lives.
        self.call(|raw| unsafe { rdmacm::rdma_listen(raw, backlog) })
    }

    /// Returns the port that the id is bound to.
    pub(super) fn port(&self) -> u16 {
        let raw = self.raw.lock();
        // SAFETY: the id lives.
        u16::from_be(unsafe { rdmacm::rdma_get_src_port(raw.as_ptr()) })
    }

    /// Finds the device for an address; the result is an event.
    pub(super) fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<()> {
        let (from, to) = (from.map(SockAddr::from), SockAddr::from(to));
        let from = from.as_ref().map_or(ptr::null(), SockAddr::as_ptr);
        // SAFETY: the id lives, and the addresses live through the call, which only
        // reads them.
        self.call(|raw| unsafe {
            rdmacm::rdma_resolve_addr(
                raw,
                from.cast_mut().cast(),
                to.as_ptr().cast_mut().cast(),
                milliseconds(RESOLVE),
            )
        })
    }

    /// Finds the route to the address, which was resolved; the result is an event.
    pub(super) fn resolve_route(&self) -> io::Result<()> {
        // SAFETY: the id lives and has a device.
        self.call(|raw| unsafe { rdmacm::rdma_resolve_route(raw, milliseconds(RESOLVE)) })
    }

    pub(super) fn connect(&self, param: &ConnParam) -> io::Result<()> {
        let mut param = param.as_param();
        // SAFETY: the id lives and has a device; the private data lives through the
        // call.
        self.call(|raw| unsafe { rdmacm::rdma_connect(raw, &raw mut param) })
    }

    pub(super) fn accept(&self, param: &ConnParam) -> io::Result<()> {
        let mut param = param.as_param();
        // SAFETY: as in `connect`.
        self.call(|raw| unsafe { rdmacm::rdma_accept(raw, &raw mut param) })
    }

    pub(super) fn establish(&self) -> io::Result<()> {
        // SAFETY: the id lives.
        self.call(|raw| unsafe { rdmacm::rdma_establish(raw) })
    }

    /// Notifies the kernel that the requester is ready, since a message of the
    /// requester has arrived. The requester's own "ready" may be lost.
    pub(super) fn notify_established(&self) -> io::Result<()> {
        // SAFETY: the id lives.
        self.call(|raw| unsafe {
            rdmacm::rdma_notify(raw, rdmacm::ibv_event_type::IBV_EVENT_COMM_EST)
        })
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: the id lives; the data has at least `length` bytes.
        self.call(|raw| unsafe { rdmacm::rdma_reject(raw, private_data.as_ptr().cast(), length) })
    }

    pub(super) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the id lives and has a device.
        self.call(|raw| unsafe { rdmacm::rdma_disconnect(raw) })
    }

    /// Returns the attributes for the queue pair. Fails unless a connection is
    /// being established or is established.
    pub(super) fn route(&self) -> io::Result<Route> {
        let of = |state| {
            // SAFETY: integers and a union of byte arrays, for which zero is valid.
            let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
            attr.qp_state = state;
            let mut mask = 0;
            self.call(|raw| {
                // SAFETY: the id lives, and the call writes both results.
                unsafe { rdmacm::rdma_init_qp_attr(raw, &raw mut attr, &raw mut mask) }
            })?;
            Ok::<_, io::Error>(attr)
        };
        let rtr = of(ibv_qp_state::IBV_QPS_RTR)?;
        if self.is_iwarp() {
            return Ok(Route::Iwarp(IwarpRoute::default()));
        }
        let rts = of(ibv_qp_state::IBV_QPS_RTS)?;
        // The partition matters on InfiniBand only, whose routes have a LID. A RoCE
        // port has one partition.
        let pkey_index = match rtr.ah_attr.dlid {
            0 => 0,
            _ => of(ibv_qp_state::IBV_QPS_INIT)?.pkey_index,
        };
        let route = ManagedRoute::from_attributes(pkey_index, &rtr, &rts);
        Ok(Route::Managed(Box::new(route)))
    }

    /// Returns whether the id is bound to an iWARP device.
    pub(super) fn is_iwarp(&self) -> bool {
        let raw = self.raw.lock();
        // SAFETY: the id lives, and librdmacm keeps the device open while the id is
        // bound to it.
        unsafe {
            let verbs = (*raw.as_ptr()).verbs;
            !verbs.is_null() && (*(*verbs).device).node_type == ibv_node_type::IBV_NODE_RNIC
        }
    }

    /// Returns whether the kernel knows a connection that is being established or
    /// is established. There is no event for the end of a request that was not
    /// answered.
    pub(super) fn is_alive(&self) -> bool {
        self.route().is_ok()
    }

    /// Returns the device and port that the id is bound to, if any.
    pub(super) fn device(&self) -> Option<(String, u8)> {
        let raw = self.raw.lock();
        // SAFETY: the id lives.
        let (verbs, port) = unsafe { ((*raw.as_ptr()).verbs, (*raw.as_ptr()).port_num) };
        if verbs.is_null() {
            return None;
        }
        // SAFETY: librdmacm keeps the device open while an id is bound to it.
        let name = unsafe { ibv_get_device_name((*verbs).device) };
        // SAFETY: a string of the device, or null.
        let name = unsafe { (!name.is_null()).then(|| CStr::from_ptr(name)) }?;
        Some((name.to_string_lossy().into_owned(), port))
    }

    /// Returns the address of the peer.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        let raw = self.raw.lock();
        // SAFETY: the id lives; every bit pattern of the union is valid for each of
        // its members.
        let (family, v4, v6) = unsafe {
            let address = &(*raw.as_ptr()).route.addr.dst_addr_union;
            (
                c_int::from(address.dst_addr.sa_family),
                address.dst_sin,
                address.dst_sin6,
            )
        };
        match family {
            libc::AF_INET => {
                let ip = u32::from_be(v4.sin_addr.s_addr);
                Some(SocketAddrV4::new(ip.into(), u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                let address = SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id);
                let canonical = ip.to_canonical();
                Some(match canonical {
                    std::net::IpAddr::V4(_) => SocketAddr::new(canonical, port),
                    std::net::IpAddr::V6(_) => address.into(),
                })
            }
            _ => None,
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if self.channel.forks != forks() {
            return;
        }
        let raw = *self.raw.get_mut();
        // SAFETY: owned by this value, and destroyed once. The call waits for an
        // event that the service thread is reading.
        if unsafe { rdmacm::rdma_destroy_id(raw.as_ptr()) } != 0 {
            let error = io::Error::last_os_error();
            tracing::error!(%error, "cannot destroy an rdma_cm id");
        }
    }
}

fn context_of(token: Token) -> *mut c_void {
    ptr::without_provenance_mut(token.0)
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

fn done(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl with these commands accesses no memory of the program.
    let ok = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if ok {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The parameters of a connection that rdma_cm sends.
#[derive(Clone, Debug)]
pub(super) struct ConnParam {
    pub(super) qpn: u32,
    pub(super) reads_served: u8,
    pub(super) reads_requested: u8,
    /// The private data as it is sent.
    pub(super) private_data: Vec<u8>,
    /// The numbers of retries that the peer is asked for, after an ACK timeout and
    /// after an RNR NAK.
    pub(super) retries: (u8, u8),
}

impl ConnParam {
    /// Returns the parameters in C. They point to the private data of `self`.
    fn as_param(&self) -> rdmacm::rdma_conn_param {
        rdmacm::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.reads_served,
            initiator_depth: self.reads_requested,
            flow_control: 0,
            // Sent to the peer; the local values are set by `to_rts_by`.
            retry_count: self.retries.0,
            rnr_retry_count: self.retries.1,
            srq: 0,
            qp_num: self.qpn,
        }
    }
}
