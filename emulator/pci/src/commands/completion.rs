//! Completion queues.

use mlx5emu::spec::{ChannelId, CqBuffer, CqSpec, Cqn};

use super::function::{Kind, Object};
use super::{CONTEXT, Function, OBJECT, Outcome, PAGES, Status, command_in};
use crate::bits::{part, part_mut};
use crate::layout::{cqc, modify_cq_in};
use crate::memory::Pages;

/// log2 of the most entries.
const LOG_LARGEST: u32 = 22;
/// The modifier of MODIFY_CQ that replaces the ring.
const RESIZE: u64 = 1;

/// Returns the ring that a context describes.
fn ring(function: &Function, input: &[u8]) -> Result<(Pages, CqBuffer), Status> {
    let context = part(input, CONTEXT);
    let cqe_size = match cqc::CQE_SZ.get(context) {
        0 => 64,
        1 => 128,
        _ => return Err(Status::BadParameter),
    };
    let log_size = cqc::LOG_CQ_SIZE.get32(context);
    if log_size > LOG_LARGEST {
        return Err(Status::BadParameter);
    }
    let offset = cqc::PAGE_OFFSET.get(context);
    let length = u64::from(cqe_size) << log_size;
    let (pages, buf) = function.ring(
        part(input, PAGES),
        cqc::LOG_PAGE_SIZE.get32(context),
        offset,
        length,
    )?;
    let buffer = CqBuffer {
        buf,
        cqe_count: 1 << log_size,
        cqe_size,
    };
    Ok((pages, buffer))
}

pub(super) fn create(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let context = part(input, CONTEXT);
    let event_queue = cqc::C_EQN_OR_APU_ELEMENT.get32(context);
    if !function.events.has(event_queue) {
        return Err(Status::BadParameter);
    }
    let (pages, buffer) = ring(function, input)?;
    let handle = function.events.handle();
    let spec = CqSpec {
        context: function.context()?,
        buf: buffer.buf,
        dbrec: function.record(cqc::DBR_ADDR.get(context))?,
        cqe_count: buffer.cqe_count,
        cqe_size: buffer.cqe_size,
        channel: Some(ChannelId(event_queue)),
        user_handle: handle,
        uar: function.uar(cqc::UAR_PAGE.get32(context))?,
        ignore_overrun: cqc::OI.is_set(context),
    };
    let cq = function.emulator.nic().create_cq(&spec)?;
    let object = Object {
        pages: Some(pages),
        handle,
        context: context[..64].to_vec(),
    };
    function.add(Kind::Cq, cq.0, object);
    OBJECT.set(output, cq.0.into());
    Ok(())
}

pub(super) fn destroy(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let number = OBJECT.get32(input);
    function.emulator.nic().destroy_cq(Cqn(number))?;
    function.remove(Kind::Cq, number);
    Ok(())
}

pub(super) fn query(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let object = function.objects.get(&(Kind::Cq, OBJECT.get32(input)));
    let object = object.ok_or(Status::BadResource)?;
    part_mut(output, CONTEXT)[..64].copy_from_slice(&object.context);
    Ok(())
}

/// Replaces the ring, or sets how events are moderated, which has no effect here.
pub(super) fn modify(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let key = (Kind::Cq, OBJECT.get32(input));
    if !function.objects.contains_key(&key) {
        return Err(Status::BadResource);
    }
    if command_in::OP_MOD.get(input) != RESIZE {
        return Ok(());
    }
    if modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.get(input) == 0 {
        return Err(Status::BadParameter);
    }
    let (pages, buffer) = ring(function, input)?;
    function.emulator.nic().resize_cq(Cqn(key.1), &buffer)?;
    if let Some(object) = function.objects.get_mut(&key) {
        object.pages = Some(pages);
        let log_size = cqc::LOG_CQ_SIZE.get(part(input, CONTEXT));
        cqc::LOG_CQ_SIZE.set(&mut object.context, log_size);
    }
    Ok(())
}
