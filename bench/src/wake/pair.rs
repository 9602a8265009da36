//! Two connected endpoints: messages go from the far one to the near one.

use std::time::Duration;

use dat_api::DatError;
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, WaitPolicy,
};
use dat_api::types::{CompletionFlags, DtoStatus, EvdFlags, Event, EventData, MemPrivileges};

use crate::failure::Failure;

/// Receives that are posted: so many messages may be ahead of the waiter.
pub(super) const DEPTH: u64 = 64;
/// Bytes of a message: it goes inline.
const MESSAGE: usize = 8;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn refused(error: DatError) -> Failure {
    Failure::environment(format!("DAT refused: {error}"))
}

/// What the sender has; the waiter has nothing but the dispatcher.
pub(super) struct Pair {
    // Dropped in this order: who writes to the memory goes before it.
    near: Endpoint,
    far: Endpoint,
    sent: EventDispatcher,
    memory: Memory,
    /// The number of the next receive.
    next: u64,
}

impl Pair {
    /// Connects two. Answers with them where the near one's receives are
    /// reported, which is waited on by this policy.
    pub(super) fn new(
        adapter: &Adapter,
        policy: WaitPolicy,
    ) -> Result<(Self, EventDispatcher), Failure> {
        let zone = adapter.zone().map_err(refused)?;
        let queue = |streams| adapter.dispatcher(256, streams).map_err(refused);
        let received =
            EventDispatcher::with_policy(adapter, 256, EvdFlags::DTO, policy).map_err(refused)?;
        let (sent, connections) = (queue(EvdFlags::DTO)?, queue(EvdFlags::CONNECTION)?);
        let end = |recv| {
            zone.endpoint(&EndpointOptions {
                recv: Some(recv),
                connect: Some(&connections),
                ..EndpointOptions::new(&sent)
            })
            .map_err(refused)
        };
        let (mut near, mut far) = (end(&received)?, end(&sent)?);
        let requests = queue(EvdFlags::CR)?;
        let point = adapter.listen_any(&requests).map_err(refused)?;
        far.connect(adapter.address(), point.qualifier(), Some(PATIENCE), &[])
            .map_err(refused)?;
        let waited = |queue: &EventDispatcher| {
            queue
                .wait(Some(PATIENCE))
                .map_err(|code| Failure::run(format!("no DAT connection: {code}")))
        };
        let event = waited(&requests)?;
        let mut request = ConnectionRequest::from_event(&event)
            .ok_or_else(|| Failure::run(format!("no connection request: {:?}", event.data)))?;
        request.accept(&mut near, &[]).map_err(refused)?;
        for _ in 0..2 {
            waited(&connections)?;
        }
        let mut pair = Self {
            near,
            far,
            sent,
            memory: zone.memory(4096, MemPrivileges::all()).map_err(refused)?,
            next: 0,
        };
        for _ in 0..DEPTH {
            pair.receive()?;
        }
        Ok((pair, received))
    }

    /// Posts the next receive; its cookie is its number.
    pub(super) fn receive(&mut self) -> Result<(), Failure> {
        let segment = [self.memory.segment(MESSAGE..2 * MESSAGE)];
        self.near
            .post_recv(&segment, self.next, CompletionFlags::empty())
            .map_err(|code| Failure::run(format!("a receive was refused: {code}")))?;
        self.next += 1;
        Ok(())
    }

    /// Posts a message, and takes completions of those before.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        while let Ok(Some(event)) = self.sent.next() {
            number(&event)?;
        }
        let segment = [self.memory.segment(0..MESSAGE)];
        self.far
            .post_send(&segment, 0, CompletionFlags::empty())
            .map_err(|code| Failure::run(format!("a send was refused: {code}")))
    }
}

/// The cookie of a request that went well.
#[inline]
pub(super) fn number(event: &Event) -> Result<u64, Failure> {
    match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            cookie,
            ..
        } => Ok(cookie),
        ref other => Err(Failure::run(format!("not a message: {other:?}"))),
    }
}
