//! Send queues by themselves. The driver of Linux 6.12 posts NOPs to one, to test whether a CPU
//! combines stores to a doorbell register. Here it is the send queue of an unreliable connection
//! to a queue pair that does not exist: what it sends is lost.

use super::pair::{self, service};
use super::{Function, OBJECT, Outcome, PAGES, QP_CONTEXT, Status};
use crate::bits::{part, part_mut};
use crate::layout::{ads, qpc, sqc, wq};

/// Offsets of the context in commands, and of the queue in it.
const CONTEXT: usize = 32;
const QUEUE: usize = CONTEXT + 48;
/// log2 of the size in bytes of a block of a send queue, and of the most blocks.
const LOG_STRIDE: u64 = 6;
const MOST: u64 = 15;
/// The kind of a queue pair's receive queue, if there is none (`qpc.rq_type`).
const NO_RECEIVES: u64 = 3;
/// `MLX5_SQC_STATE_*`.
const RESET: u64 = 0;
const READY: u64 = 1;

pub(super) fn create(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let (queue, cq) = (part(input, QUEUE), sqc::CQN.get(part(input, CONTEXT)));
    let size = wq::LOG_WQ_SZ.get(queue);
    if wq::LOG_WQ_STRIDE.get(queue) != LOG_STRIDE || size > MOST {
        return Err(Status::BadParameter);
    }
    let pd = match wq::PD.get(queue) {
        // The driver has none of its own.
        0 => function.own_domain()?.0.into(),
        pd => pd,
    };
    let mut pair = input.to_vec();
    pair[..PAGES].fill(0);
    let context = part_mut(&mut pair, QP_CONTEXT);
    for (field, value) in [
        (qpc::ST, service::UC),
        (qpc::PD, pd),
        (qpc::LOG_SQ_SIZE, size),
        (qpc::RQ_TYPE, NO_RECEIVES),
        (qpc::LOG_PAGE_SIZE, wq::LOG_WQ_PG_SZ.get(queue)),
        (qpc::PAGE_OFFSET, wq::PAGE_OFFSET.get(queue)),
        (qpc::UAR_PAGE, wq::UAR_PAGE.get(queue)),
        (qpc::DBR_ADDR, wq::DBR_ADDR.get(queue)),
        (qpc::CQN_SND, cq),
        (qpc::CQN_RCV, cq),
    ] {
        field.set(context, value);
    }
    pair::create(function, &pair, output)
}

pub(super) fn modify(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let mut pair = [0; PAGES];
    OBJECT.set(&mut pair, OBJECT.get(input));
    let context = part_mut(&mut pair, QP_CONTEXT);
    qpc::MTU.set(context, 1);
    let path = part_mut(context, pair::PATH);
    ads::RLID.set(path, 1);
    ads::VHCA_PORT_NUM.set(path, 1);
    match sqc::STATE.get(part(input, CONTEXT)) {
        RESET => pair::to_reset(function, &pair, output),
        READY => {
            pair::to_init(function, &pair, output)?;
            pair::to_rtr(function, &pair, output)?;
            pair::to_rts(function, &pair, output)
        }
        _ => pair::to_error(function, &pair, output),
    }
}
