//! Endpoints.
//!
//! Decision: `docs/decisions/081-memory-that-programs-own.md`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dat_engine::DataInOrder;

use super::memory::{Mappings, Message, posted};
use super::{Adapter, EventDispatcher, ProtectionZone, RemoteSegment, Segment, SharedReceiveQueue};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::ListError;
use crate::object::ep::{Connect, DEFAULT_REQUESTS, Ep, EpInfo, EpStatus, RecvQuery, kind};
use crate::refusal::{Refusal, checked};
use crate::status::{OwnCodes, ReturnType, Subtype};
use crate::types::{AtomicOp, CompletionFlags, EpAttributes};

/// How to create an [`Endpoint`]: [`EndpointOptions::new`] for one dispatcher, or the default, which
/// has none, and a dispatcher for each kind of events.
///
/// ```no_run
/// use dat_api::safe::{Endpoint, EndpointOptions, EventDispatcher, ProtectionZone};
///
/// # fn create(
/// #     zone: &ProtectionZone,
/// #     transfers: &EventDispatcher,
/// #     connections: &EventDispatcher,
/// # ) -> dat_api::Result<Endpoint> {
/// zone.create_endpoint(&EndpointOptions::new(transfers).connect_events(connections))
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointOptions<'a> {
    pub(super) recv: Option<&'a EventDispatcher>,
    pub(super) request: Option<&'a EventDispatcher>,
    pub(super) connect: Option<&'a EventDispatcher>,
    pub(super) shared: Option<&'a SharedReceiveQueue>,
    pub(super) attributes: Option<EpAttributes>,
}

impl<'a> EndpointOptions<'a> {
    /// Returns options with one dispatcher for all events, and the default attributes.
    #[must_use]
    pub fn new(events: &'a EventDispatcher) -> Self {
        Self::default()
            .recv_events(events)
            .request_events(events)
            .connect_events(events)
    }

    /// Sets the dispatcher for completions of receives; without one they are discarded.
    #[must_use]
    pub fn recv_events(mut self, events: &'a EventDispatcher) -> Self {
        self.recv = Some(events);
        self
    }

    /// Sets the dispatcher for completions of requests; without one they are discarded.
    #[must_use]
    pub fn request_events(mut self, events: &'a EventDispatcher) -> Self {
        self.request = Some(events);
        self
    }

    /// Sets the dispatcher for connection events. Connecting needs one.
    #[must_use]
    pub fn connect_events(mut self, events: &'a EventDispatcher) -> Self {
        self.connect = Some(events);
        self
    }

    /// Sets the shared queue that receives are taken from, instead of a queue of its own.
    #[must_use]
    pub fn shared(mut self, queue: &'a SharedReceiveQueue) -> Self {
        self.shared = Some(queue);
        self
    }

    /// Sets all other attributes. [`Adapter::endpoint_attributes`] returns some to begin with.
    #[must_use]
    pub fn attributes(mut self, attributes: EpAttributes) -> Self {
        self.attributes = Some(attributes);
        self
    }
}

impl EndpointOptions<'_> {
    fn dispatchers(&self) -> [Option<EventDispatcher>; 3] {
        [self.recv, self.request, self.connect].map(Option::<&EventDispatcher>::cloned)
    }
}

/// One end of a reliable connection, and the right to post to it. Dropping it disconnects.
#[derive(Debug)]
pub struct Endpoint {
    ep: Arc<Ep>,
    kept: Mappings,
    // Dropped after the endpoint, which uses them.
    dispatchers: [Option<EventDispatcher>; 3],
    shared: Option<SharedReceiveQueue>,
    _zone: ProtectionZone,
}

impl ProtectionZone {
    /// Creates an unconnected endpoint.
    ///
    /// # Errors
    /// Attributes beyond the adapter's limits, dispatchers that do not carry such events, or a
    /// device that has no more.
    pub fn create_endpoint(&self, options: &EndpointOptions<'_>) -> Result<Endpoint> {
        let object = |evd: Option<&EventDispatcher>| evd.map(EventDispatcher::evd).transpose();
        let recv = object(options.recv)?;
        let request = object(options.request)?;
        let connect = object(options.connect)?;
        let (ia, pz) = (self.adapter().ia(), Some(self.pz()));
        let evds = [recv.as_ref(), request.as_ref(), connect.as_ref()];
        let ep = match options.shared {
            None => Ep::create(
                ia,
                pz,
                evds[0],
                evds[1],
                evds[2],
                options.attributes.as_ref(),
            )?,
            Some(shared) => {
                let attributes = options
                    .attributes
                    .unwrap_or_else(|| default_attributes_with_srq(self.adapter()));
                Ep::create_with_srq(
                    ia,
                    pz,
                    evds[0],
                    evds[1],
                    evds[2],
                    &shared.srq(),
                    &attributes,
                )?
            }
        };
        Ok(Endpoint {
            ep,
            kept: Mappings::default(),
            dispatchers: options.dispatchers(),
            shared: options.shared.cloned(),
            _zone: self.clone(),
        })
    }
}

/// Returns the default attributes of an endpoint on a shared queue; DAT defines none.
fn default_attributes_with_srq(adapter: &Adapter) -> EpAttributes {
    const SEGMENTS: i32 = 4;
    const UNLIMITED: i32 = -1;
    let limits = adapter.query().ia;
    EpAttributes {
        service_type: 0,
        max_message_size: limits.max_message_size,
        max_rdma_size: limits.max_rdma_size,
        qos: 0,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos: UNLIMITED,
        max_request_dtos: DEFAULT_REQUESTS.min(limits.max_dto_per_ep),
        max_recv_iov: SEGMENTS,
        max_request_iov: SEGMENTS.min(limits.max_iov_segments_per_dto),
        max_rdma_read_in: limits.max_rdma_read_per_ep_in,
        max_rdma_read_out: limits.max_rdma_read_per_ep_out,
        srq_soft_hw: UNLIMITED,
        max_rdma_read_iov: SEGMENTS.min(limits.max_iov_segments_per_rdma_read),
        max_rdma_write_iov: SEGMENTS.min(limits.max_iov_segments_per_rdma_write),
    }
}

impl Endpoint {
    /// Returns the endpoint of a connection request, with its zone and dispatchers.
    pub(super) fn for_request(
        ep: Arc<Ep>,
        zone: &ProtectionZone,
        options: &EndpointOptions<'_>,
    ) -> Self {
        Self {
            ep,
            kept: Mappings::default(),
            dispatchers: options.dispatchers(),
            shared: None,
            _zone: zone.clone(),
        }
    }

    pub(super) fn ep(&self) -> &Arc<Ep> {
        &self.ep
    }

    /// Returns its DAT handle, which its events carry.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.ep.handle()
    }

    /// Attaches a number to it, which replaces the previous one (initially 0). [`Handle::context`]
    /// of an event's endpoint returns it, so that a program finds its data for the endpoint without
    /// a search.
    pub fn set_context(&self, context: u64) {
        // Fails only if the adapter was closed, and then the number is not used any more.
        let _ = self.handle().set_context(context);
    }

    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> EpInfo {
        self.ep.query()
    }

    /// Returns its state, and whether anything is outstanding.
    #[must_use]
    pub fn status(&self) -> EpStatus {
        self.ep.status()
    }

    /// Returns the private data of the peer's accept; empty on the side that accepted, and after
    /// [`Self::reset`].
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        self.ep.private_data()
    }

    /// Asks the device whether the last byte of an RDMA write of the peer arrives last, so that a
    /// program may poll that byte in memory instead of waiting for an event
    /// (`ibv_query_qp_data_in_order`). Unknown unless the endpoint is connected.
    ///
    /// A yes promises the order within one message only. It promises nothing about two messages,
    /// nor about memory that another device reads. Without a yes, let the peer use
    /// [`Self::post_rdma_write_immed`], or post a send behind the write: the event of the receive
    /// shows that the whole message is there.
    ///
    /// The call takes a command to the kernel: ask once for each connection.
    #[must_use]
    pub fn data_in_order(&self) -> DataInOrder {
        self.ep.data_in_order()
    }

    /// Returns the number of its posts that were refused because a queue was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.ep.refused_posts()
    }

    /// Returns how many receives it holds.
    #[must_use]
    pub fn recv_query(&self) -> RecvQuery {
        self.ep.recv_query()
    }

    /// Begins to connect to the service point at a qualifier; the port of the address is ignored.
    /// An event reports the result.
    ///
    /// # Errors
    /// It is connected or connecting, or the private data are too long.
    pub fn connect(
        &mut self,
        address: SocketAddr,
        qualifier: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        self.ep.connect(&Connect {
            address,
            qualifier,
            timeout,
            private_data,
            qos: 0,
            flags: 0,
        })
    }

    /// Begins to connect to the peer of another endpoint, which is connected and has connected
    /// actively. An event reports the result.
    ///
    /// # Errors
    /// It is connected or connecting, the model is not connected, or the private data are too long.
    pub fn dup_connect(
        &mut self,
        model: &Self,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        self.ep.dup_connect(&model.ep, timeout, private_data, 0)
    }

    /// Sets how many receives it may hold that messages have filled and whose events were not
    /// taken. Above the soft mark there is one asynchronous event; above the hard one the
    /// connection breaks. `None` turns a mark off. A mark that is already exceeded takes effect
    /// now.
    ///
    /// # Errors
    /// A mark above `i32::MAX`.
    pub fn set_watermarks(&mut self, soft: Option<u32>, hard: Option<u32>) -> Result<()> {
        const OFF: i32 = -1;
        // A value that DAT cannot express is refused as any other invalid one.
        let mark = |mark: Option<u32>| mark.map_or(OFF, |mark| mark.try_into().unwrap_or(i32::MIN));
        self.ep.set_watermarks(mark(soft), mark(hard))
    }

    /// Begins to disconnect gracefully: what is outstanding completes first. An event reports the
    /// end.
    ///
    /// # Errors
    /// It is not connected.
    pub fn disconnect(&mut self) -> Result<()> {
        // SAFETY: only this value posts to the endpoint, and it is borrowed mutably.
        unsafe { self.ep.disconnect(true) }
    }

    /// Disconnects at once, and flushes what is outstanding. An event reports the end.
    ///
    /// # Errors
    /// It is not connected.
    pub fn disconnect_abruptly(&mut self) -> Result<()> {
        // SAFETY: as in `disconnect`.
        unsafe { self.ep.disconnect(false) }
    }

    /// Makes a disconnected endpoint ready to connect again. Events that were not taken may be
    /// dropped.
    ///
    /// # Errors
    /// It is connected or connecting.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: as in `disconnect`.
        unsafe { self.ep.reset() }
    }

    /// Lets go of the memory that it has received or read into, so that
    /// [`Memory::into_inner`](super::Memory::into_inner) can return the owner of the bytes. While
    /// another thread waits on a dispatcher of the endpoint, the memory stays in use; call this
    /// again after the wait.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` while requests or receives are outstanding.
    pub fn release_memory(&mut self) -> Result<()> {
        let status = self.status();
        if !(status.recv_idle && status.request_idle) {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::NoSubtype,
                "requests or receives are outstanding, which use the memory: take their completions, or \
                 disconnect and take those of the flush",
            ));
        }
        self.leave_memory(None);
        Ok(())
    }

    /// Lets go of the memory, as soon as no other thread can be copying payload to it: one that owns
    /// a dispatcher at the moment may be.
    fn leave_memory(&mut self, shared: Option<SharedReceiveQueue>) {
        let remains = Arc::new(LingeringMemory {
            _kept: core::mem::take(&mut self.kept),
            _shared: shared,
        });
        let [recv, request, _] = &self.dispatchers;
        for dispatcher in [recv, request].into_iter().flatten() {
            dispatcher.keep(Arc::clone(&remains));
        }
    }

    /// Posts a receive, whose segments are filled in their order.
    ///
    /// # Errors
    /// Nothing is posted then.
    #[inline]
    pub fn post_recv(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        self.kept.keep(segments);
        // SAFETY: `&mut self` excludes other posts; the mappings are kept until the endpoint is
        // freed, and no references to them exist.
        checked(unsafe {
            let (count, segment) = posted(segments);
            self.ep
                .post_recv_with::<OwnCodes>(count, segment, cookie, flags)
        })
    }

    /// Posts several receives of one segment each: in the order of the list, and with one doorbell
    /// as far as they are in the same [`super::Memory`] and the queue has room. (A device that is
    /// used through libibverbs gets 8 at a time.)
    ///
    /// # Errors
    /// [`ListError`]; the receives before the refused one are posted.
    #[inline]
    pub fn post_recv_list(&mut self, receives: &[Message<'_>]) -> Result<(), ListError> {
        for receive in receives {
            self.kept.keep(core::slice::from_ref(&receive.segment));
        }
        // SAFETY: as in `post_recv`.
        unsafe { self.ep.post_recv_list(receives, Message::listed) }
    }

    /// Posts a send.
    ///
    /// # Errors
    /// Nothing is posted then.
    #[inline]
    pub fn post_send(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        // SAFETY: `&mut self` excludes other posts. The memory is mapped now, which is all that
        // inline data needs; later the device reads it, and fails the request once the region is
        // deregistered.
        checked(unsafe {
            let (count, segment) = posted(segments);
            self.ep
                .post_with::<OwnCodes>(kind::Send, count, segment, cookie, flags)
        })
    }

    /// Posts several sends as [`Self::post_recv_list`] posts receives. Each has an event, as a send
    /// without flags.
    ///
    /// ```no_run
    /// # use dat_api::safe::{Endpoint, ListError, Memory, Message};
    /// # fn burst(endpoint: &mut Endpoint, memory: &Memory) -> Result<(), ListError> {
    /// let sends: [Message<'_>; 3] = core::array::from_fn(|at| Message {
    ///     segment: memory.segment(64 * at..64 * (at + 1)),
    ///     cookie: at as u64,
    /// });
    /// endpoint.post_send_list(&sends)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ListError`]; the sends before the refused one are posted.
    #[inline]
    pub fn post_send_list(&mut self, sends: &[Message<'_>]) -> Result<(), ListError> {
        // SAFETY: as in `post_send`.
        unsafe { self.ep.post_send_list(sends, Message::listed) }
    }

    /// Posts an RDMA write of the segments to the peer's memory. The length of `remote` is ignored
    /// unless the adapter is strict; the peer's device checks its memory.
    ///
    /// # Errors
    /// Nothing is posted then.
    #[inline]
    pub fn post_rdma_write(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        remote: RemoteSegment,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        let remote = remote.into();
        // SAFETY: as in `post_send`.
        checked(unsafe {
            let (count, segment) = posted(segments);
            self.ep
                .post_with::<OwnCodes>(kind::Write(|| remote), count, segment, cookie, flags)
        })
    }

    /// Posts an RDMA read from the peer's memory into the segments, of as many bytes as they have
    /// (on a strict adapter: as `remote` has).
    ///
    /// # Errors
    /// Nothing is posted then.
    #[inline]
    pub fn post_rdma_read(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        remote: RemoteSegment,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        self.kept.keep(segments);
        let remote = remote.into();
        // SAFETY: as in `post_recv`.
        checked(unsafe {
            let (count, segment) = posted(segments);
            self.ep
                .post_with::<OwnCodes>(kind::Read(|| remote), count, segment, cookie, flags)
        })
    }

    /// Posts an RDMA write as [`Self::post_rdma_write`] does. It also takes a receive of the peer,
    /// whose event ([`crate::types::EventData::ExtendedDto`]) has `immediate`.
    ///
    /// # Errors
    /// Nothing is posted then. iWARP has no immediate data.
    #[inline]
    pub fn post_rdma_write_immed(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        remote: RemoteSegment,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        let remote = remote.into();
        // SAFETY: as in `post_send`.
        checked(unsafe {
            let (count, segment) = posted(segments);
            let kind = kind::WriteImmed(|| remote, immediate);
            self.ep
                .post_with::<OwnCodes>(kind, count, segment, cookie, flags)
        })
    }

    /// Posts an atomic operation on 64 bits of the peer's memory at the address of `remote`, which is a
    /// multiple of 8. The bits before it go to the first 8 bytes of the segment, in the order of the
    /// host.
    ///
    /// # Errors
    /// Nothing is posted then. Not all devices have atomic operations
    /// (`atomics` of [`super::IaAttributes`]).
    pub fn post_atomic(
        &mut self,
        op: AtomicOp,
        segment: Segment<'_>,
        cookie: u64,
        remote: RemoteSegment,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        let segments = [segment];
        self.kept.keep(&segments);
        let remote = remote.into();
        // SAFETY: as in `post_recv`.
        checked(unsafe {
            let (count, at) = posted(&segments);
            let kind = kind::Atomic(|| remote, || op);
            self.ep
                .post_with::<OwnCodes>(kind, count, at, cookie, flags)
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Freeing fails if a service point, or its request, holds the endpoint, which is then freed
        // anyway; and if the adapter was closed, which has freed it.
        // SAFETY: only this value posts to the endpoint.
        unsafe {
            if Ep::free(self.ep.handle()).is_err() {
                Ep::abort(self.ep.handle());
            }
        }
        let shared = self.shared.take();
        self.leave_memory(shared);
    }
}

/// Memory that completions of an endpoint may still be copied to.
#[derive(Debug)]
pub(super) struct LingeringMemory {
    _kept: Mappings,
    _shared: Option<SharedReceiveQueue>,
}
