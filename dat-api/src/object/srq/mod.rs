//! Shared receive queues.
#![allow(unused, clippy::unimplemented, clippy::missing_errors_doc, clippy::missing_safety_doc)]

use std::sync::Arc;

use super::ia::Ia;
use super::pz::Pz;
use super::usage::{Counted, Usage};
use crate::error::Result;
use crate::handle::{Handle, Kind, Object};
use crate::status::DatReturn;
use crate::types::{LmrSegment, SrqAttributes};

/// A shared receive queue.
pub struct Srq {
    handle: Handle,
    usage: Usage,
}

/// What `dat_srq_query` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The protection zone of its receives.
    pub pz: Handle,
    /// Whether it works.
    pub state: SrqState,
    /// The real values, and the low watermark as it was set last.
    pub attributes: SrqAttributes,
    /// Receives that endpoints may take.
    pub available: u32,
    /// Receives that take up room.
    pub outstanding: u32,
}

/// `DAT_SRQ_STATE`, with the numbers of 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SrqState {
    /// It works.
    Operational = 0,
    /// The device gave it up.
    Error = 1,
}

/// Called by the EVD after it has handed out (or staged) a receive of an
/// endpoint on this queue, while a low watermark is armed.
pub(crate) fn taken(handle: Handle) {
    unimplemented!()
}

/// The device says that fewer receives are left than the limit it was given:
/// called by the IA's service thread.
pub(crate) fn limit_reached(handle: Handle) {
    unimplemented!()
}

/// The device gave the queue up: called by the IA's service thread.
pub(crate) fn device_failed(handle: Handle) {
    unimplemented!()
}

impl Srq {
    pub fn create(ia: &Arc<Ia>, pz: &Arc<Pz>, attributes: &SrqAttributes) -> Result<Arc<Self>> {
        unimplemented!()
    }

    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub fn free(handle: Handle) -> Result<()> {
        unimplemented!()
    }

    /// Frees the queue, whoever uses it: the IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        unimplemented!()
    }

    pub fn query(&self) -> SrqInfo {
        unimplemented!()
    }

    pub fn set_low_watermark(&self, watermark: i32) -> Result<()> {
        unimplemented!()
    }

    /// Posts a receive of `count` segments; `segment(i)` is the i-th.
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_recv(&self, segments: &[LmrSegment], cookie: u64) -> Result<(), DatReturn> {
        unimplemented!()
    }
}

impl Object for Srq {
    const KIND: Kind = Kind::Srq;
}

impl Counted for Srq {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}
