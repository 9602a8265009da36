//! Two connected endpoints; messages are sent from the far one to the near one.

use std::time::Duration;

use dat_api::DatError;
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, WaitPolicy,
};
use dat_api::types::{CompletionFlags, DtoStatus, EvdFlags, Event, EventData, MemPrivileges};

use crate::failure::Failure;

/// Number of posted receives: most messages that the waiter has not taken.
pub(super) const DEPTH: u64 = 64;
/// Bytes of a message, which is inline.
const MESSAGE: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Converts the failure of a control call.
pub(super) fn call_failed(error: DatError) -> Failure {
    Failure::environment(format!("a DAT call failed: {error}"))
}

/// The sender's objects. The waiter has only the event dispatcher.
pub(super) struct Pair {
    // Dropped in this order: the memory after all objects that write to it.
    near: Endpoint,
    far: Endpoint,
    sent: EventDispatcher,
    memory: Memory,
    /// The number of the next receive.
    next: u64,
}

impl Pair {
    /// Creates and connects two endpoints. Also returns the event dispatcher of
    /// the near one's receives, which has this wait policy.
    pub(super) fn new(
        adapter: &Adapter,
        policy: WaitPolicy,
    ) -> Result<(Self, EventDispatcher), Failure> {
        let zone = adapter.zone().map_err(call_failed)?;
        let queue = |streams| adapter.dispatcher(256, streams).map_err(call_failed);
        let received = EventDispatcher::with_policy(adapter, 256, EvdFlags::DTO, policy)
            .map_err(call_failed)?;
        let (sent, connections) = (queue(EvdFlags::DTO)?, queue(EvdFlags::CONNECTION)?);
        let end = |recv| {
            zone.endpoint(&EndpointOptions {
                recv: Some(recv),
                connect: Some(&connections),
                ..EndpointOptions::new(&sent)
            })
            .map_err(call_failed)
        };
        let (mut near, mut far) = (end(&received)?, end(&sent)?);
        let requests = queue(EvdFlags::CR)?;
        let point = adapter.listen_any(&requests).map_err(call_failed)?;
        far.connect(
            adapter.address(),
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
        request.accept(&mut near, &[]).map_err(call_failed)?;
        for _ in 0..2 {
            waited(&connections)?;
        }
        let mut pair = Self {
            near,
            far,
            sent,
            memory: zone
                .memory(4096, MemPrivileges::all())
                .map_err(call_failed)?,
            next: 0,
        };
        for _ in 0..DEPTH {
            pair.receive()?;
        }
        Ok((pair, received))
    }

    /// Posts the next receive, with its number as cookie.
    pub(super) fn receive(&mut self) -> Result<(), Failure> {
        let segment = [self.memory.segment(MESSAGE..2 * MESSAGE)];
        self.near
            .post_recv(&segment, self.next, CompletionFlags::empty())
            .map_err(|code| Failure::run(format!("cannot post a receive: {code}")))?;
        self.next += 1;
        Ok(())
    }

    /// Polls completions of earlier sends, then posts a message.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        while let Ok(Some(event)) = self.sent.next() {
            number(&event)?;
        }
        let segment = [self.memory.segment(0..MESSAGE)];
        self.far
            .post_send(&segment, 0, CompletionFlags::empty())
            .map_err(|code| Failure::run(format!("cannot post a send: {code}")))
    }
}

/// Returns the cookie of a successful request.
#[inline]
pub(super) fn number(event: &Event) -> Result<u64, Failure> {
    match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            cookie,
            ..
        } => Ok(cookie),
        ref other => Err(Failure::run(format!(
            "event {other:?} instead of a successful completion"
        ))),
    }
}
