//! Memory per endpoint: the growth of resident bytes while endpoints are created.

use dat_api::safe::{Adapter, EndpointOptions};
use dat_api::types::EvdFlags;
use dat_engine::{CqOptions, Device, EndpointOptions as EngineOptions, SrqOptions};

use super::messages::WorkerResult;
use crate::ends::libmlx5::Verbs;
use crate::failure::Failure;

/// Depth of the shared queues, which are created before the measurement.
const DEPTH: u32 = 4096;
/// Endpoints created before the measurement, because the first ones allocate
/// memory that all share.
const WARMUP_ENDPOINTS: u32 = 4;

/// Returns the growth of resident bytes by `count` calls of `make`.
fn growth<T>(
    count: u32,
    mut make: impl FnMut() -> Result<T, Failure>,
) -> Result<WorkerResult, Failure> {
    let mut kept = Vec::with_capacity((WARMUP_ENDPOINTS + count) as usize);
    for _ in 0..WARMUP_ENDPOINTS {
        kept.push(make()?);
    }
    let before = resident()?;
    for _ in 0..count {
        kept.push(make()?);
    }
    Ok(WorkerResult::Memory(resident()?.saturating_sub(before)))
}

pub(super) fn engine(device: &Device, count: u32) -> Result<WorkerResult, Failure> {
    let domain = device.alloc_pd()?;
    let cq = domain.device().create_cq(&CqOptions {
        depth: DEPTH,
        ..CqOptions::default()
    })?;
    let srq = domain.create_srq(&SrqOptions {
        depth: DEPTH,
        max_segments: 1,
    })?;
    growth(count, || {
        Ok(domain.create_endpoint(&EngineOptions {
            srq: Some(srq.handle()),
            ..EngineOptions::new(cq.handle(), cq.handle())
        })?)
    })
}

pub(super) fn dat(adapter: &str, count: u32) -> Result<WorkerResult, Failure> {
    let adapter = Adapter::open(adapter)?;
    let zone = adapter.create_zone()?;
    let queue = |streams| adapter.create_dispatcher(DEPTH, streams);
    let received = queue(EvdFlags::DTO)?;
    let (sent, connections) = (queue(EvdFlags::DTO)?, queue(EvdFlags::CONNECTION)?);
    let shared = zone.create_shared_receive_queue(DEPTH, 1)?;
    growth(count, || {
        let options = EndpointOptions::new(&connections)
            .recv_events(&received)
            .request_events(&sent)
            .shared(&shared);
        Ok(zone.create_endpoint(&options)?)
    })
}

pub(super) fn libmlx5(verbs: &Verbs, count: u32) -> Result<WorkerResult, Failure> {
    let queues = verbs.queues([DEPTH, DEPTH], Some(DEPTH))?;
    // The engine's default depth.
    growth(count, || queues.queue_pair(128, 0, 0))
}

/// Returns the resident bytes of this process, without what was freed: whether the C library keeps
/// the rings that an EVD has outgrown differs from run to run.
fn resident() -> Result<u64, Failure> {
    // SAFETY: has no preconditions.
    unsafe { libc::malloc_trim(0) };
    let unreadable = || {
        Failure::environment(
            "cannot read the resident size from /proc/self/statm; is /proc mounted?",
        )
    };
    let text = std::fs::read_to_string("/proc/self/statm").map_err(|_| unreadable())?;
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or_else(unreadable)?;
    // SAFETY: has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * u64::try_from(page).map_err(|_| unreadable())?)
}
