//! The engine as a measured interface.

use dat_engine::{
    Access, AtomicOp, Completion, CompletionQueue, ConnectOptions, CqOptions, Device, Endpoint,
    EndpointOptions, ProtectionDomain, RecvRequest, RegisteredBuffer, Segment, SendFlags, SendOp,
    SendRequest, SharedReceiveQueue, SharedReceiveQueueHandle, SrqOptions, ThreadMode,
};

use super::end::{
    ATOMIC, BUFFER, COMPLETIONS, DEPTH, End, IN, Interface, MESSAGE, OUT, POLL_FAILED, ROOM, TARGET,
};
use super::operation::{BATCH, LIST};
use crate::failure::Failure;

/// The engine on a device.
pub(super) struct Engine {
    domain: ProtectionDomain,
    port: u8,
    single_threaded: bool,
}

impl Engine {
    pub(super) fn open(device: Device, port: u8, single_threaded: bool) -> Result<Self, Failure> {
        Ok(Self {
            domain: device.alloc_pd()?,
            port,
            single_threaded,
        })
    }

    /// Returns the access that the measured requests need.
    fn access(&self) -> Access {
        match self.domain.device().limits().atomics {
            true => Access::default() | Access::REMOTE_ATOMIC,
            false => Access::default(),
        }
    }

    fn pair<S: Source>(&self) -> Result<(EngineEnd<S>, EngineEnd<S>), Failure> {
        let (mut near, mut far) = (EngineEnd::create(self)?, EngineEnd::create(self)?);
        let options = ConnectOptions {
            port: self.port,
            access: self.access(),
            ..ConnectOptions::default()
        };
        let here = near.endpoint.local_address(self.port)?;
        let there = far.endpoint.local_address(self.port)?;
        near.endpoint.connect(&there, &options)?;
        far.endpoint.connect(&here, &options)?;
        Ok((near, far))
    }
}

impl Interface for Engine {
    type Own = EngineEnd<Own>;
    type Shared = EngineEnd<SharedReceiveQueue>;

    fn own(&self) -> Result<(Self::Own, Self::Own), Failure> {
        self.pair()
    }

    fn shared(&self) -> Result<(Self::Shared, Self::Shared), Failure> {
        self.pair()
    }
}

/// Where receives are posted. A type parameter, so that the measured loop has no branch for it.
pub(super) trait Source: Sized {
    fn create(domain: &ProtectionDomain) -> Result<Self, Failure>;
    fn shared(&self) -> Option<&SharedReceiveQueueHandle>;
    /// # Safety
    /// As for [`Endpoint::post_recv`].
    unsafe fn post(&mut self, endpoint: &mut Endpoint, request: &RecvRequest<'_>) -> bool;
    /// # Safety
    /// As for [`Endpoint::post_recv_list`].
    unsafe fn post_list(&mut self, endpoint: &mut Endpoint, list: &[RecvRequest<'_>]) -> bool;
}

/// The endpoint's own receive queue.
pub(super) struct Own;

impl Source for Own {
    fn create(_: &ProtectionDomain) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn shared(&self) -> Option<&SharedReceiveQueueHandle> {
        None
    }

    #[inline(always)]
    unsafe fn post(&mut self, endpoint: &mut Endpoint, request: &RecvRequest<'_>) -> bool {
        // SAFETY: the segments' memory outlives the requests.
        unsafe { endpoint.post_recv(request) }.is_ok()
    }

    #[inline(always)]
    unsafe fn post_list(&mut self, endpoint: &mut Endpoint, list: &[RecvRequest<'_>]) -> bool {
        // SAFETY: the segments' memory outlives the requests.
        unsafe { endpoint.post_recv_list(list) }.is_ok()
    }
}

impl Source for SharedReceiveQueue {
    fn create(domain: &ProtectionDomain) -> Result<Self, Failure> {
        Ok(domain.create_srq(&SrqOptions {
            depth: DEPTH,
            max_segments: 1,
        })?)
    }

    fn shared(&self) -> Option<&SharedReceiveQueueHandle> {
        Some(self.handle())
    }

    #[inline(always)]
    unsafe fn post(&mut self, _: &mut Endpoint, request: &RecvRequest<'_>) -> bool {
        // SAFETY: the segments' memory outlives the requests.
        unsafe { SharedReceiveQueue::post(self, request) }.is_ok()
    }

    #[inline(always)]
    unsafe fn post_list(&mut self, _: &mut Endpoint, list: &[RecvRequest<'_>]) -> bool {
        // SAFETY: the segments' memory outlives the requests.
        unsafe { SharedReceiveQueue::post_list(self, list) }.is_ok()
    }
}

/// An endpoint with its queues and memory.
pub(super) struct EngineEnd<S> {
    // Dropped in this order: the memory after all objects that write to it.
    endpoint: Endpoint,
    source: S,
    sent: CompletionQueue,
    received: CompletionQueue,
    _buffer: RegisteredBuffer,
    /// The memory that writes, reads and atomic operations are for.
    remote_addr: u64,
    rkey: u32,
    has_atomics: bool,
    out: &'static [Segment],
    short: &'static mut [Segment; 1],
    atomic: &'static [Segment],
    receives: Vec<RecvRequest<'static>>,
    sends: Vec<SendRequest<'static>>,
    inline_sends: Vec<SendRequest<'static>>,
    into: &'static [Segment],
    taken: [Completion; BATCH],
}

impl<S: Source> EngineEnd<S> {
    fn create(engine: &Engine) -> Result<Self, Failure> {
        let domain = &engine.domain;
        let buffer = domain.allocate(BUFFER, engine.access())?;
        let queue = || {
            domain.device().create_cq(&CqOptions {
                depth: COMPLETIONS,
                ..CqOptions::default()
            })
        };
        let (sent, received) = (queue()?, queue()?);
        let source = S::create(domain)?;
        let endpoint = domain.create_endpoint(&EndpointOptions {
            srq: source.shared(),
            send_depth: DEPTH,
            recv_depth: DEPTH,
            inline_bytes: MESSAGE,
            exclusive_register: engine.single_threaded,
            thread_mode: match engine.single_threaded {
                // SAFETY: one thread posts to all endpoints of this process.
                true => unsafe { ThreadMode::serialized() },
                false => ThreadMode::MULTI,
            },
            ..EndpointOptions::new(&sent, &received)
        })?;
        // Leaked, because requests refer to them and the process ends after the measurement.
        let segment = |at, length| {
            let segment = buffer
                .segment(at, length)
                .expect("both segments are within the buffer");
            Box::leak(Box::new([segment]))
        };
        let (out, into): (&[_], &[_]) = (segment(OUT, MESSAGE), segment(IN, ROOM));
        let send = |flags| SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags,
            segments: out,
        };
        let remote_addr = (buffer.as_ptr().addr().get() + TARGET) as u64;
        let rkey = buffer.region().rkey();
        Ok(Self {
            remote_addr,
            rkey,
            has_atomics: domain.device().limits().atomics,
            out,
            short: segment(OUT, MESSAGE),
            atomic: segment(IN, ATOMIC),
            receives: vec![
                RecvRequest {
                    wr_id: 0,
                    segments: into
                };
                LIST
            ],
            sends: vec![send(SendFlags::SIGNALED); LIST],
            inline_sends: vec![send(SendFlags::SIGNALED | SendFlags::INLINE); LIST],
            into,
            endpoint,
            source,
            sent,
            received,
            _buffer: buffer,
            taken: [Completion::default(); BATCH],
        })
    }

    #[inline(always)]
    fn post(&mut self, wr_id: u64, op: SendOp, flags: SendFlags, segments: &[Segment]) -> bool {
        let request = SendRequest {
            wr_id,
            op,
            flags,
            segments,
        };
        // SAFETY: the memory outlives the endpoint (order of fields), and there
        // are no references to it.
        unsafe { self.endpoint.post_send(&request) }.is_ok()
    }
}

impl<S: Source> End for EngineEnd<S> {
    const LISTS: bool = true;
    const BATCHES: bool = true;

    #[inline(always)]
    fn receive(&mut self, wr_id: u64) -> bool {
        let request = RecvRequest {
            wr_id,
            segments: self.into,
        };
        // SAFETY: as in `post`.
        unsafe { self.source.post(&mut self.endpoint, &request) }
    }

    #[inline(always)]
    fn receive_list(&mut self) -> bool {
        // SAFETY: as in `post`.
        unsafe { self.source.post_list(&mut self.endpoint, &self.receives) }
    }

    #[inline(always)]
    fn send(&mut self, wr_id: u64, inline: bool) -> bool {
        let flags = if inline {
            SendFlags::SIGNALED | SendFlags::INLINE
        } else {
            SendFlags::SIGNALED
        };
        self.post(wr_id, SendOp::Send, flags, self.out)
    }

    fn send_short(&mut self, wr_id: u64, length: u32) -> bool {
        self.short[0].length = length;
        let segments = *self.short;
        self.post(wr_id, SendOp::Send, SendFlags::SIGNALED, &segments)
    }

    #[inline(always)]
    fn send_list(&mut self, inline: bool) -> bool {
        let list = if inline {
            &self.inline_sends
        } else {
            &self.sends
        };
        // SAFETY: as in `post`.
        unsafe { self.endpoint.post_send_list(list) }.is_ok()
    }

    #[inline(always)]
    fn write(&mut self, wr_id: u64) -> bool {
        let &mut Self {
            remote_addr, rkey, ..
        } = self;
        let op = SendOp::Write { remote_addr, rkey };
        self.post(wr_id, op, SendFlags::SIGNALED, self.out)
    }

    #[inline(always)]
    fn read(&mut self, wr_id: u64) -> bool {
        let &mut Self {
            remote_addr, rkey, ..
        } = self;
        let op = SendOp::Read { remote_addr, rkey };
        self.post(wr_id, op, SendFlags::SIGNALED, self.out)
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    #[inline(always)]
    fn atomic(&mut self, wr_id: u64, op: AtomicOp) -> bool {
        let &mut Self {
            remote_addr, rkey, ..
        } = self;
        #[rustfmt::skip]
        let op = SendOp::Atomic { remote_addr, rkey, op };
        self.post(wr_id, op, SendFlags::SIGNALED, self.atomic)
    }

    #[inline(always)]
    fn received(&mut self, sum: &mut u64) -> usize {
        one(&mut self.received, sum)
    }

    #[inline(always)]
    fn received_batch(&mut self, sum: &mut u64) -> usize {
        several(&mut self.received, &mut self.taken, sum)
    }

    #[inline(always)]
    fn sent(&mut self, sum: &mut u64) -> usize {
        one(&mut self.sent, sum)
    }

    #[inline(always)]
    fn sent_batch(&mut self, sum: &mut u64) -> usize {
        several(&mut self.sent, &mut self.taken, sum)
    }
}

/// Polls one completion.
#[inline(always)]
fn one(queue: &mut CompletionQueue, sum: &mut u64) -> usize {
    match queue.poll() {
        None => 0,
        Some(completion) if completion.status.is_success() => {
            *sum = sum.wrapping_add(completion.wr_id + u64::from(completion.byte_len));
            1
        }
        Some(_) => POLL_FAILED,
    }
}

/// Polls up to [`BATCH`] completions.
#[inline(always)]
fn several(queue: &mut CompletionQueue, taken: &mut [Completion; BATCH], sum: &mut u64) -> usize {
    let count = queue.poll_batch(taken);
    for completion in &taken[..count] {
        if !completion.status.is_success() {
            return POLL_FAILED;
        }
        *sum = sum.wrapping_add(completion.wr_id + u64::from(completion.byte_len));
    }
    count
}
