//! DAT's Rust types as a measured interface.

use core::ops::Range;
use std::time::Duration;

use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, Message,
    OpenOptions, ProtectionZone, RemoteSegment, SharedReceiveQueue,
};
use dat_api::types::{
    AtomicOp, CompletionFlags, DtoStatus, EpAttributes, EvdFlags, Event, EventData, MemPrivileges,
};
use dat_api::{DatError, ReturnType};

use super::end::{
    ATOMIC, BUFFER, COMPLETIONS, DEPTH, End, IN, Interface, LONGER, MESSAGE, OUT, POLL_FAILED,
    ROOM, TARGET,
};
use super::operation::{BATCH, LIST};
use crate::failure::Failure;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of the queues of connection events.
const CONNECTION_EVENTS: u32 = 8;

/// An open adapter.
pub(super) struct Rust {
    adapter: Adapter,
    zone: ProtectionZone,
}

/// Converts the failure of a control call.
fn call_failed(error: DatError) -> Failure {
    Failure::environment(format!("a DAT call failed: {error}"))
}

impl Rust {
    pub(super) fn open(adapter: &str, thread_safe: bool) -> Result<Self, Failure> {
        let options = OpenOptions {
            thread_safe,
            ..OpenOptions::default()
        };
        let adapter = Adapter::open_with(adapter, options).map_err(call_failed)?;
        Ok(Self {
            zone: adapter.zone().map_err(call_failed)?,
            adapter,
        })
    }

    fn pair<const SHARED: bool>(&self) -> Result<(RustEnd<SHARED>, RustEnd<SHARED>), Failure> {
        let (mut near, mut far) = (self.end()?, self.end()?);
        let requests = self
            .adapter
            .dispatcher(CONNECTION_EVENTS, EvdFlags::CR)
            .map_err(call_failed)?;
        let point = self.adapter.listen_any(&requests).map_err(call_failed)?;
        near.endpoint
            .connect(
                self.adapter.address(),
                point.qualifier(),
                Some(CONNECT_TIMEOUT),
                &[],
            )
            .map_err(call_failed)?;
        let waited = |queue: &EventDispatcher| {
            queue.wait(Some(CONNECT_TIMEOUT)).map_err(|code| {
                Failure::run(format!("the DAT connection was not established: {code}"))
            })
        };
        let event = waited(&requests)?;
        let mut request = ConnectionRequest::from_event(&event).ok_or_else(|| {
            Failure::run(format!(
                "event {:?} instead of a connection request",
                event.data
            ))
        })?;
        request
            .accept(&mut far.endpoint, &[])
            .map_err(call_failed)?;
        for end in [&near, &far] {
            waited(&end.connections)?;
        }
        (near.target, far.target) = (far.write_target(), near.write_target());
        Ok((near, far))
    }

    fn end<const SHARED: bool>(&self) -> Result<RustEnd<SHARED>, Failure> {
        let memory = self
            .zone
            .memory(BUFFER, MemPrivileges::all())
            .map_err(call_failed)?;
        let queue = |length, streams| {
            self.adapter
                .dispatcher(length, streams)
                .map_err(call_failed)
        };
        let received = queue(COMPLETIONS, EvdFlags::DTO)?;
        let sent = queue(COMPLETIONS, EvdFlags::DTO)?;
        let connections = queue(CONNECTION_EVENTS, EvdFlags::CONNECTION)?;
        let shared = SHARED
            .then(|| self.zone.shared_receive_queue(DEPTH, 1))
            .transpose()
            .map_err(call_failed)?;
        let limits = self.adapter.query().ia;
        let depth = i32::try_from(DEPTH).unwrap_or(i32::MAX);
        let endpoint = self
            .zone
            .endpoint(&EndpointOptions {
                recv: Some(&received),
                request: Some(&sent),
                connect: Some(&connections),
                shared: shared.as_ref(),
                attributes: Some(EpAttributes {
                    service_type: 0,
                    max_message_size: limits.max_message_size,
                    max_rdma_size: limits.max_rdma_size,
                    qos: 0,
                    recv_completion_flags: CompletionFlags::empty(),
                    request_completion_flags: CompletionFlags::empty(),
                    max_recv_dtos: depth,
                    max_request_dtos: depth,
                    max_recv_iov: 1,
                    max_request_iov: 1,
                    max_rdma_read_in: 1,
                    max_rdma_read_out: 1,
                    srq_soft_hw: 0,
                    max_rdma_read_iov: 1,
                    max_rdma_write_iov: 1,
                }),
            })
            .map_err(call_failed)?;
        Ok(RustEnd {
            endpoint,
            shared,
            sent,
            received,
            connections,
            memory,
            target: RemoteSegment::default(),
            has_atomics: limits.atomics,
            events: [Event::default(); BATCH],
        })
    }
}

impl Interface for Rust {
    type Own = RustEnd<false>;
    type Shared = RustEnd<true>;

    fn own(&self) -> Result<(Self::Own, Self::Own), Failure> {
        self.pair()
    }

    fn shared(&self) -> Result<(Self::Shared, Self::Shared), Failure> {
        self.pair()
    }
}

/// An endpoint with its queues and memory. Each request creates its segment
/// again, as programs do, so its bounds check is part of the measurement.
pub(super) struct RustEnd<const SHARED: bool> {
    // Dropped in this order: the memory after all objects that write to it.
    endpoint: Endpoint,
    shared: Option<SharedReceiveQueue>,
    sent: EventDispatcher,
    received: EventDispatcher,
    connections: EventDispatcher,
    memory: Memory,
    target: RemoteSegment,
    has_atomics: bool,
    events: [Event; BATCH],
}

impl<const SHARED: bool> RustEnd<SHARED> {
    fn write_target(&self) -> RemoteSegment {
        self.memory.remote(TARGET..TARGET + LONGER as usize)
    }
}

impl<const SHARED: bool> End for RustEnd<SHARED> {
    const LISTS: bool = true;
    const BATCHES: bool = true;
    const WAITS: bool = true;

    #[inline(always)]
    fn receive(&mut self, cookie: u64) -> bool {
        let segment = [self.memory.segment(IN..IN + ROOM as usize)];
        match &self.shared {
            Some(shared) if SHARED => shared.post_recv(&segment, cookie).is_ok(),
            _ => self
                .endpoint
                .post_recv(&segment, cookie, CompletionFlags::empty())
                .is_ok(),
        }
    }

    fn receive_list(&mut self) -> bool {
        let receives = list(&self.memory, IN..IN + ROOM as usize);
        match &self.shared {
            Some(shared) if SHARED => shared.post_recv_list(&receives).is_ok(),
            _ => self.endpoint.post_recv_list(&receives).is_ok(),
        }
    }

    #[inline(always)]
    fn send(&mut self, cookie: u64, inline: bool) -> bool {
        let length = if inline { MESSAGE } else { LONGER } as usize;
        let segment = [self.memory.segment(OUT..OUT + length)];
        self.endpoint
            .post_send(&segment, cookie, CompletionFlags::empty())
            .is_ok()
    }

    fn send_list(&mut self, inline: bool) -> bool {
        let length = if inline { MESSAGE } else { LONGER } as usize;
        let sends = list(&self.memory, OUT..OUT + length);
        self.endpoint.post_send_list(&sends).is_ok()
    }

    fn send_short(&mut self, cookie: u64, length: u32) -> bool {
        let segment = [self.memory.segment(OUT..OUT + length as usize)];
        self.endpoint
            .post_send(&segment, cookie, CompletionFlags::empty())
            .is_ok()
    }

    #[inline(always)]
    fn write(&mut self, cookie: u64) -> bool {
        let segment = [self.memory.segment(OUT..OUT + LONGER as usize)];
        self.endpoint
            .post_rdma_write(&segment, cookie, self.target, CompletionFlags::empty())
            .is_ok()
    }

    #[inline(always)]
    fn read(&mut self, cookie: u64) -> bool {
        let segment = [self.memory.segment(IN..IN + LONGER as usize)];
        self.endpoint
            .post_rdma_read(&segment, cookie, self.target, CompletionFlags::empty())
            .is_ok()
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    #[inline(always)]
    fn atomic(&mut self, cookie: u64, op: AtomicOp) -> bool {
        let segment = self.memory.segment(IN..IN + ATOMIC as usize);
        let flags = CompletionFlags::empty();
        self.endpoint
            .post_atomic(op, segment, cookie, self.target, flags)
            .is_ok()
    }

    #[inline(always)]
    fn received(&mut self, sum: &mut u64) -> usize {
        next(&self.received, sum)
    }

    #[inline(always)]
    fn waited<const THRESHOLD: u8>(&mut self, sum: &mut u64) -> usize {
        let waited = self
            .received
            .wait_for(THRESHOLD.into(), Some(Duration::ZERO));
        match waited {
            Ok(waited) => {
                *sum = sum.wrapping_add(u64::from(waited.more));
                taken(&waited.event, sum)
            }
            Err(code) if code.is(ReturnType::TimeoutExpired) => 0,
            Err(_) => POLL_FAILED,
        }
    }

    #[inline(always)]
    fn slept(&mut self, sum: &mut u64) -> usize {
        let event = self.received.wait(None);
        event.map_or(POLL_FAILED, |event| taken(&event, sum))
    }

    #[inline(always)]
    fn received_batch(&mut self, sum: &mut u64) -> usize {
        drain(&self.received, &mut self.events, sum)
    }

    #[inline(always)]
    fn sent(&mut self, sum: &mut u64) -> usize {
        next(&self.sent, sum)
    }

    #[inline(always)]
    fn sent_batch(&mut self, sum: &mut u64) -> usize {
        drain(&self.sent, &mut self.events, sum)
    }

    /// Dequeues one completion of any kind.
    fn finished(&mut self) -> usize {
        use DtoStatus::Success;
        use EventData::{Dto, ExtendedDto};
        match self.sent.next() {
            Ok(None) => 0,
            Ok(Some(event)) => match event.data {
                Dto {
                    status: Success, ..
                }
                | ExtendedDto {
                    status: Success, ..
                } => 1,
                _ => POLL_FAILED,
            },
            Err(_) => POLL_FAILED,
        }
    }
}

/// Returns a list of messages in this memory. Making it is a part of what is measured.
#[inline(always)]
fn list(memory: &Memory, range: Range<usize>) -> [Message<'_>; LIST] {
    core::array::from_fn(|cookie| Message {
        segment: memory.segment(range.clone()),
        cookie: cookie as u64,
    })
}

/// Dequeues up to [`BATCH`] completions.
#[inline(always)]
fn drain(queue: &EventDispatcher, events: &mut [Event; BATCH], sum: &mut u64) -> usize {
    let Ok(taken) = queue.drain(events) else {
        return POLL_FAILED;
    };
    for event in &events[..taken] {
        let EventData::Dto {
            status: DtoStatus::Success,
            length,
            cookie,
            ..
        } = event.data
        else {
            return POLL_FAILED;
        };
        *sum = sum.wrapping_add(cookie + length);
    }
    taken
}

/// Dequeues one completion.
#[inline(always)]
fn next(queue: &EventDispatcher, sum: &mut u64) -> usize {
    match queue.next() {
        Ok(None) => 0,
        Ok(Some(event)) => taken(&event, sum),
        Err(_) => POLL_FAILED,
    }
}

#[inline(always)]
fn taken(event: &Event, sum: &mut u64) -> usize {
    match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            length,
            cookie,
            ..
        } => {
            *sum = sum.wrapping_add(cookie + length);
            1
        }
        _ => POLL_FAILED,
    }
}
