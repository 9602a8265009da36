//! The engine's endpoints.

use dat_engine::{
    Access, CompletionQueue, ConnectOptions, CqOptions, Device, Endpoint, EndpointOptions,
    RecvRequest, RegisteredBuffer, Segment, SendFlags, SendOp, SendRequest, SharedReceiveQueue,
    SrqOptions,
};

use super::messages::{
    COMPLETIONS, Endpoints, INTO, MEMORY, MESSAGE, RECEIVES, SENDS, receive_refused,
};
use crate::failure::Failure;
use crate::select::Selected;

/// Endpoints and their queues.
pub(super) struct Engine {
    // Dropped in this order: the memory after all objects that write to it.
    endpoints: Vec<Endpoint>,
    srq: SharedReceiveQueue,
    sent: CompletionQueue,
    received: CompletionQueue,
    _buffer: RegisteredBuffer,
    out: [Segment; 1],
    into: [Segment; 1],
    inline: SendFlags,
    sum: u64,
}

impl Endpoints for Engine {
    fn create(selected: &Selected, count: u32, port: u8) -> Result<Self, Failure> {
        let domain = Device::open(&selected.name)?.alloc_pd()?;
        let buffer = domain.allocate(MEMORY, Access::default())?;
        let queue = || {
            domain.device().create_cq(&CqOptions {
                depth: COMPLETIONS,
                ..CqOptions::default()
            })
        };
        let (sent, received) = (queue()?, queue()?);
        let srq = domain.create_srq(&SrqOptions {
            depth: RECEIVES,
            max_segments: 1,
        })?;
        let options = ConnectOptions {
            port,
            ..ConnectOptions::default()
        };
        let mut endpoints = Vec::new();
        for context in 0..count {
            let mut endpoint = domain.create_endpoint(&EndpointOptions {
                srq: Some(srq.handle()),
                send_depth: SENDS,
                inline_bytes: MESSAGE,
                inline_or_fewer: true,
                context: context.into(),
                ..EndpointOptions::new(sent.handle(), received.handle())
            })?;
            let own = endpoint.local_address(port)?;
            endpoint.connect(&own, &options)?;
            endpoints.push(endpoint);
        }
        let segment = |at| {
            buffer
                .segment(at, MESSAGE)
                .expect("both segments are within the buffer")
        };
        let goes_inline = endpoints
            .iter()
            .all(|endpoint| endpoint.max_inline() >= MESSAGE);
        let mut set = Self {
            inline: if goes_inline {
                SendFlags::INLINE
            } else {
                SendFlags::empty()
            },
            out: [segment(0)],
            into: [segment(INTO)],
            endpoints,
            srq,
            sent,
            received,
            _buffer: buffer,
            sum: 0,
        };
        for wr_id in 0..u64::from(RECEIVES) {
            if !post(&mut set.srq, &set.into, wr_id) {
                return Err(receive_refused());
            }
        }
        Ok(set)
    }

    fn count(&self) -> usize {
        self.endpoints.len()
    }

    fn send(&mut self, endpoint: usize) -> bool {
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED | self.inline,
            segments: &self.out,
        };
        // SAFETY: the memory outlives the endpoints (order of fields), and there
        // are no references to it.
        unsafe { self.endpoints[endpoint].post_send(&request) }.is_ok()
    }

    fn sent(&mut self) -> Result<u32, Failure> {
        let mut done = 0;
        while let Some(completion) = self.sent.poll() {
            if !completion.status.is_success() {
                return Err(Failure::run(format!("a send failed: {completion:?}")));
            }
            done += 1;
        }
        Ok(done)
    }

    #[inline(always)]
    fn take(&mut self, count: u32) -> u32 {
        for taken in 0..count {
            let Some(completion) = self.received.poll() else {
                return taken;
            };
            if !completion.status.is_success() || !post(&mut self.srq, &self.into, completion.wr_id)
            {
                return taken;
            }
            let seen = completion.context + u64::from(completion.byte_len);
            self.sum = self.sum.wrapping_add(seen);
        }
        core::hint::black_box(self.sum);
        count
    }
}

#[inline(always)]
fn post(srq: &mut SharedReceiveQueue, into: &[Segment; 1], wr_id: u64) -> bool {
    let request = RecvRequest {
        wr_id,
        segments: into,
    };
    // SAFETY: the memory outlives the queue (order of fields).
    unsafe { srq.post(&request) }.is_ok()
}
