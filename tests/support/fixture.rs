//! Endpoints of the engine that share a domain, a completion queue and memory.

use dat_engine::{
    Access, Completion, CompletionQueue, ConnectOptions, CqOptions, Endpoint, EndpointOptions,
    PostError, ProtectionDomain, RecvRequest, RegisteredBuffer, Segment, SendFlags, SendOp,
    SendRequest, SharedReceiveQueue, SrqOptions,
};

use super::device;
use super::iwarp;
use super::system::System;

/// Shared by the endpoints of a test.
pub struct Fixture {
    // Fields are dropped in this order: the system last, because it checks for
    // violations.
    pub cq: CompletionQueue,
    pub srq: SharedReceiveQueue,
    pub buffer: RegisteredBuffer,
    pub domain: ProtectionDomain,
    pub system: System,
}

impl Fixture {
    /// Creates a completion queue of that depth, and an SRQ of 16 receives.
    pub fn new(depth: u32) -> Self {
        let system = System::new();
        let domain = system.device.alloc_pd().expect("a domain");
        let buffer = domain
            .allocate(1 << 16, Access::default())
            .expect("a buffer");
        let srq = SrqOptions {
            depth: 15,
            max_segments: 2,
        };
        let srq = domain.create_srq(&srq).expect("an SRQ");
        let cq = CqOptions {
            depth,
            ..CqOptions::default()
        };
        let cq = system.device.create_cq(&cq).expect("a CQ");
        Fixture {
            cq,
            srq,
            buffer,
            domain,
            system,
        }
    }

    /// Creates an endpoint of 8 sends and 8 receives that reports to the common
    /// queue.
    pub fn endpoint(&self, shared: bool) -> Endpoint {
        let options = EndpointOptions {
            srq: shared.then(|| self.srq.handle()),
            send_depth: 8,
            recv_depth: 8,
            inline_bytes: 16,
            ..EndpointOptions::new(self.cq.handle(), self.cq.handle())
        };
        self.domain.create_endpoint(&options).expect("an endpoint")
    }

    /// Creates two connected endpoints.
    pub fn pair(&self, shared: bool) -> [Endpoint; 2] {
        let mut ends = [self.endpoint(shared), self.endpoint(shared)];
        join(&mut ends);
        ends
    }

    /// Returns the memory that a `wr_id`'s message is sent from or received into.
    pub fn segment(&self, wr_id: u64) -> Segment {
        let offset = (wr_id as usize * 64) % self.buffer.len();
        self.buffer.segment(offset, 8).expect("inside")
    }

    pub fn send(&self, end: &mut Endpoint, wr_id: u64, flags: SendFlags) -> Result<(), PostError> {
        let segments = [self.segment(wr_id)];
        let request = SendRequest {
            wr_id,
            op: SendOp::Send,
            flags,
            segments: &segments,
        };
        // SAFETY: the buffer outlives the endpoints.
        let posted = unsafe { end.post_send(&request) };
        self.system.after_doorbell();
        posted
    }

    pub fn recv(&self, end: &mut Endpoint, wr_id: u64) -> Result<(), PostError> {
        let segments = [self.segment(wr_id)];
        // SAFETY: as in `send`.
        unsafe {
            end.post_recv(&RecvRequest {
                wr_id,
                segments: &segments,
            })
        }
    }

    pub fn recv_shared(&mut self, wr_id: u64) -> Result<(), PostError> {
        let segments = [self.segment(wr_id)];
        // SAFETY: as in `send`.
        unsafe {
            self.srq.post(&RecvRequest {
                wr_id,
                segments: &segments,
            })
        }
    }

    /// Returns all completions so far, at least this many.
    pub fn polled(&mut self, count: usize) -> Vec<Completion> {
        device::all(count, || self.cq.poll())
    }
}

/// Connects two endpoints that are in RESET.
pub fn join(ends: &mut [Endpoint; 2]) {
    if iwarp::is_iwarp() {
        return iwarp::join(ends.each_mut(), &ConnectOptions::default());
    }
    let at = [0, 1].map(|i: usize| ends[i].local_address(1).expect("an active port"));
    let options = ConnectOptions::default();
    ends[0].connect(&at[1], &options).expect("connected");
    ends[1].connect(&at[0], &options).expect("connected");
}
