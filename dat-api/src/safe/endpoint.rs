//! Endpoints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::memory::{Kept, posted};
use super::{Adapter, EventDispatcher, ProtectionZone, RemoteSegment, Segment, SharedReceiveQueue};
use crate::error::Result;
use crate::handle::Handle;
use crate::object::ep::{Connect, DEFAULT_REQUESTS, Ep, EpInfo, EpStatus, RecvQuery};
use crate::status::DatReturn;
use crate::types::{CompletionFlags, EpAttributes};

/// How to make an [`Endpoint`]; begin with [`EndpointOptions::new`].
#[derive(Clone, Copy, Debug)]
pub struct EndpointOptions<'a> {
    /// Where finished receives are reported; without it nobody learns of them.
    pub recv: Option<&'a EventDispatcher>,
    /// Where finished requests are reported.
    pub request: Option<&'a EventDispatcher>,
    /// Where connection events are reported. Connecting needs it.
    pub connect: Option<&'a EventDispatcher>,
    /// Where receives come from, instead of a queue of its own.
    pub shared: Option<&'a SharedReceiveQueue>,
    /// Everything else; without it the defaults.
    pub attributes: Option<EpAttributes>,
}

impl<'a> EndpointOptions<'a> {
    /// All events to one dispatcher, the default attributes.
    #[must_use]
    pub fn new(events: &'a EventDispatcher) -> Self {
        Self {
            recv: Some(events),
            request: Some(events),
            connect: Some(events),
            shared: None,
            attributes: None,
        }
    }
}

impl EndpointOptions<'_> {
    fn dispatchers(&self) -> [Option<EventDispatcher>; 3] {
        [self.recv, self.request, self.connect].map(Option::<&EventDispatcher>::cloned)
    }
}

/// One end of a reliable connection, and the right to post to it. Dropped, it
/// disconnects.
#[derive(Debug)]
pub struct Endpoint {
    ep: Arc<Ep>,
    kept: Kept,
    // What it uses goes after it.
    dispatchers: [Option<EventDispatcher>; 3],
    shared: Option<SharedReceiveQueue>,
    _zone: ProtectionZone,
}

impl ProtectionZone {
    /// Makes an endpoint, not connected.
    ///
    /// # Errors
    /// Attributes beyond the adapter's limits, dispatchers that do not carry
    /// such events, or a device that has no more.
    pub fn endpoint(&self, options: &EndpointOptions<'_>) -> Result<Endpoint> {
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
                    .unwrap_or_else(|| usual_on_shared(self.adapter()));
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
            kept: Kept::default(),
            dispatchers: options.dispatchers(),
            shared: options.shared.cloned(),
            _zone: self.clone(),
        })
    }
}

/// What an endpoint on a shared queue is like if nothing is said: DAT has no
/// defaults for it.
fn usual_on_shared(adapter: &Adapter) -> EpAttributes {
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
    /// Of an endpoint that a request has brought, with its zone and its
    /// dispatchers.
    pub(super) fn brought(
        ep: Arc<Ep>,
        zone: &ProtectionZone,
        options: &EndpointOptions<'_>,
    ) -> Self {
        Self {
            ep,
            kept: Kept::default(),
            dispatchers: options.dispatchers(),
            shared: None,
            _zone: zone.clone(),
        }
    }

    pub(super) fn ep(&self) -> &Arc<Ep> {
        &self.ep
    }

    /// Its name among DAT objects: that of its events.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.ep.handle()
    }

    /// Attaches a number to it, in place of the one before (0 at first).
    /// [`Handle::context`] of an event's endpoint tells it, so that what the
    /// event is about is found without a search.
    pub fn set_context(&self, context: u64) {
        // Fails only if the adapter was closed, and nobody asks any more.
        let _ = self.handle().set_context(context);
    }

    /// Everything that can be asked of it.
    #[must_use]
    pub fn query(&self) -> EpInfo {
        self.ep.query()
    }

    /// Its state, and whether something is outstanding.
    #[must_use]
    pub fn status(&self) -> EpStatus {
        self.ep.status()
    }

    /// What the peer sent along when it accepted: empty on the side that
    /// accepted, and after [`Self::reset`].
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        self.ep.private_data()
    }

    /// Posts to it that were refused because a queue was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.ep.refused_posts()
    }

    /// Its receives that have no completion yet.
    #[must_use]
    pub fn recv_query(&self) -> RecvQuery {
        self.ep.recv_query()
    }

    /// Begins to connect to the service point at a qualifier; the port of the
    /// address does not count. An event tells how it went.
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

    /// Begins to connect to the peer of another endpoint, which is connected
    /// and has asked for that itself. An event tells how it went.
    ///
    /// # Errors
    /// It is connected or connecting, the model is not connected, or the private
    /// data are too long.
    pub fn connect_like(
        &mut self,
        model: &Self,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        self.ep.dup_connect(&model.ep, timeout, private_data, 0)
    }

    /// Sets how many receives it may hold that messages have filled and whose
    /// events were not taken: above the soft mark there is one asynchronous
    /// event, above the hard one the connection breaks. `None` is off. What is
    /// exceeded already takes effect now.
    ///
    /// # Errors
    /// A mark above `i32::MAX`.
    pub fn set_watermarks(&mut self, soft: Option<u32>, hard: Option<u32>) -> Result<()> {
        const OFF: i32 = -1;
        // What is no count of DAT's is refused as any other bad one.
        let mark = |mark: Option<u32>| mark.map_or(OFF, |mark| mark.try_into().unwrap_or(i32::MIN));
        self.ep.set_watermarks(mark(soft), mark(hard))
    }

    /// Begins to disconnect: gracefully after what is outstanding has been
    /// tried, otherwise at once. An event tells when it is done.
    ///
    /// # Errors
    /// It is not connected.
    pub fn disconnect(&mut self, graceful: bool) -> Result<()> {
        // SAFETY: only this value posts to the endpoint, and it is borrowed.
        unsafe { self.ep.disconnect(graceful) }
    }

    /// Makes a disconnected endpoint ready to connect again. Events that were
    /// not taken may go.
    ///
    /// # Errors
    /// It is connected or connecting.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: as in `disconnect`.
        unsafe { self.ep.reset() }
    }

    /// Posts a receive, filled in the order of the segments.
    ///
    /// # Errors
    /// The code names the reason; nothing is posted then.
    #[inline]
    pub fn post_recv(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.kept.keep(segments);
        // SAFETY: `&mut self` serialises; the mappings are kept until the
        // endpoint is gone, and nobody has references to them.
        unsafe {
            let (count, segment) = posted(segments);
            self.ep.post_recv_with(count, segment, cookie, flags)
        }
        .into_result()
    }

    /// Posts a send.
    ///
    /// # Errors
    /// The code names the reason; nothing is posted then.
    #[inline]
    pub fn post_send(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: `&mut self` serialises. The memory is mapped now, which is
        // all that copying into the request takes; later the device reads it,
        // and fails the request once the region is gone.
        unsafe {
            let (count, segment) = posted(segments);
            self.ep.post_send_with(count, segment, cookie, flags)
        }
        .into_result()
    }

    /// Posts a write to the peer's memory.
    ///
    /// # Errors
    /// The code names the reason; nothing is posted then.
    #[inline]
    pub fn post_rdma_write(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        remote: RemoteSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let remote = remote.into();
        // SAFETY: as `post_send`.
        unsafe {
            let (count, segment) = posted(segments);
            self.ep
                .post_rdma_write_with(count, segment, cookie, || remote, flags)
        }
        .into_result()
    }

    /// Posts a read from the peer's memory into the segments.
    ///
    /// # Errors
    /// The code names the reason; nothing is posted then.
    #[inline]
    pub fn post_rdma_read(
        &mut self,
        segments: &[Segment<'_>],
        cookie: u64,
        remote: RemoteSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.kept.keep(segments);
        let remote = remote.into();
        // SAFETY: as `post_recv`.
        unsafe {
            let (count, segment) = posted(segments);
            self.ep
                .post_rdma_read_with(count, segment, cookie, || remote, flags)
        }
        .into_result()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Fails if a service point, or its request, holds it: those find it
        // gone; and if the adapter was closed, which ended it as well.
        // SAFETY: only this value posts to the endpoint.
        unsafe {
            if Ep::free(self.ep.handle()).is_err() {
                Ep::abort(self.ep.handle());
            }
        }
        // A completion that carries its payload may be on its way to memory
        // on another thread, which has the dispatcher at the moment.
        let remains = Arc::new(Remains {
            _kept: core::mem::take(&mut self.kept),
            _shared: self.shared.take(),
        });
        let [recv, request, _] = &self.dispatchers;
        for dispatcher in [recv, request].into_iter().flatten() {
            dispatcher.keep(Arc::clone(&remains));
        }
    }
}

/// Memory that completions of an endpoint that is gone may still be placed in.
#[derive(Debug)]
pub(super) struct Remains {
    _kept: Kept,
    _shared: Option<SharedReceiveQueue>,
}
