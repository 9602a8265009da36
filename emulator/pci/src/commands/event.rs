//! Event queues.

use super::{CONTEXT, EVENT_QUEUE, Function, Outcome, PAGES, Status};
use crate::bits::{part, part_mut};
use crate::events::{EQE, EventQueue, INTERRUPTS};
use crate::layout::{create_eq_in, eqc};

/// log2 of the most entries.
const LOG_LARGEST: u32 = 22;

pub(super) fn create(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    function.context()?;
    let context = part(input, CONTEXT);
    let log_size = eqc::LOG_EQ_SIZE.get32(context);
    let vector = eqc::INTR.get(context) as usize;
    if log_size > LOG_LARGEST || vector >= INTERRUPTS {
        return Err(Status::BadParameter);
    }
    let offset = eqc::PAGE_OFFSET.get(context);
    let log_page = eqc::LOG_PAGE_SIZE.get32(context);
    let (pages, ring) = function.ring(part(input, PAGES), log_page, offset, EQE << log_size)?;
    let queue = EventQueue {
        _pages: pages,
        ring,
        log_size,
        vector,
        types: create_eq_in::EVENT_BITMASK.get(input),
        produced: 0,
    };
    let number = function.events.add(queue).ok_or(Status::Limit)?;
    EVENT_QUEUE.set(output, number.into());
    Ok(())
}

pub(super) fn destroy(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let number = EVENT_QUEUE.get(input) as u8;
    function
        .events
        .remove(number)
        .then_some(())
        .ok_or(Status::BadResource)
}

pub(super) fn query(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let number = EVENT_QUEUE.get(input) as u8;
    let produced = function
        .events
        .produced(number)
        .ok_or(Status::BadResource)?;
    eqc::PRODUCER_COUNTER.set(part_mut(output, CONTEXT), produced);
    Ok(())
}
