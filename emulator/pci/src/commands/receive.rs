//! Shared receive queues: receive memory pools, and those of XRC, which the driver creates but no
//! queue pair of this device uses.

use mlx5emu::spec::{PdId, SrqSpec, Srqn};

use super::function::{Kind, Object};
use super::{CONTEXT, Function, OBJECT, Outcome, PAGES, Status};
use crate::bits::{part, part_mut};
use crate::layout::{rmpc, wq, xrc_srqc};

/// Offsets of a pool's context in commands, and of the queue in it.
const POOL: usize = 32;
const QUEUE: usize = POOL + 48;
/// Length of a pool's context.
const POOL_LENGTH: usize = 240;

/// What the contexts of both kinds say.
struct Queue {
    pd: u32,
    record: u64,
    log_entries: u32,
    log_stride: u32,
    log_page: u32,
    offset: u64,
    limit: u32,
}

fn add(
    function: &mut Function,
    input: &[u8],
    output: &mut [u8],
    queue: &Queue,
    context: &[u8],
) -> Outcome {
    if queue.log_entries > 15 || queue.log_stride > 15 {
        return Err(Status::BadParameter);
    }
    let length = 1 << (queue.log_entries + queue.log_stride);
    let offset = queue.offset;
    let (pages, buf) = function.ring(part(input, PAGES), queue.log_page, offset, length)?;
    let handle = function.events.handle();
    let spec = SrqSpec {
        context: function.context()?,
        pd: PdId(queue.pd),
        buf,
        dbrec: function.record(queue.record)?,
        wqe_count: 1 << queue.log_entries,
        stride_log2: queue.log_stride,
        limit: queue.limit,
        user_handle: handle,
        user_index: 0,
    };
    let srq = function.emulator.nic().create_srq(&spec)?;
    let object = Object {
        pages: Some(pages),
        handle,
        context: context.to_vec(),
    };
    function.add(Kind::Srq, srq.0, object);
    OBJECT.set(output, srq.0.into());
    Ok(())
}

pub(super) fn create(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let context = part(input, QUEUE);
    let queue = Queue {
        pd: wq::PD.get32(context),
        record: wq::DBR_ADDR.get(context),
        log_entries: wq::LOG_WQ_SZ.get32(context),
        log_stride: wq::LOG_WQ_STRIDE.get32(context),
        log_page: wq::LOG_WQ_PG_SZ.get32(context),
        offset: wq::PAGE_OFFSET.get(context),
        limit: wq::LWM.get32(context),
    };
    add(
        function,
        input,
        output,
        &queue,
        &input[POOL..POOL + POOL_LENGTH],
    )
}

pub(super) fn create_xrc(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let context = part(input, CONTEXT);
    let low = xrc_srqc::DB_RECORD_ADDR_L.get(context) << 2;
    let queue = Queue {
        pd: xrc_srqc::PD.get32(context),
        record: xrc_srqc::DB_RECORD_ADDR_H.get(context) << 32 | low,
        log_entries: xrc_srqc::LOG_XRC_SRQ_SIZE.get32(context),
        log_stride: xrc_srqc::LOG_RQ_STRIDE.get32(context) + 4,
        log_page: xrc_srqc::LOG_PAGE_SIZE.get32(context),
        offset: xrc_srqc::PAGE_OFFSET.get(context),
        limit: xrc_srqc::LWM.get32(context),
    };
    add(function, input, output, &queue, &[])
}

/// Sets the limit at which an event is raised.
pub(super) fn modify(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let number = OBJECT.get32(input);
    let limit = wq::LWM.get32(part(input, QUEUE));
    Ok(function
        .emulator
        .nic()
        .modify_srq_limit(Srqn(number), limit)?)
}

pub(super) fn query(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let number = OBJECT.get32(input);
    let object = function
        .objects
        .get(&(Kind::Srq, number))
        .ok_or(Status::BadResource)?;
    let (_, _, limit) = function.emulator.nic().query_srq(Srqn(number))?;
    let context = part_mut(output, POOL);
    context[..object.context.len()].copy_from_slice(&object.context);
    wq::LWM.set(part_mut(context, QUEUE - POOL), limit.into());
    // Ready.
    rmpc::STATE.set(context, 1);
    Ok(())
}

pub(super) fn destroy(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let number = OBJECT.get32(input);
    function.emulator.nic().destroy_srq(Srqn(number))?;
    function.remove(Kind::Srq, number);
    Ok(())
}
