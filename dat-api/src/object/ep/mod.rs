//! Endpoints: one end of a reliable connection, and the right to post to it.
#![allow(unused, clippy::unimplemented, clippy::missing_errors_doc, clippy::missing_safety_doc)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::evd::Evd;
use super::ia::Ia;
use super::pz::Pz;
use super::srq::Srq;
use super::usage::{Counted, Usage};
use crate::error::Result;
use crate::handle::{Handle, Kind, Object};
use crate::status::DatReturn;
use crate::types::{CompletionFlags, EpAttributes, EpState, LmrSegment, RmrSegment};

mod info;

pub use info::{EpChange, EpFields, EpInfo, EpStatus, RecvQuery};

/// Most segments of one request that any endpoint takes; the IA's limit is
/// this or the device's, whichever is less.
pub const MAX_SEGMENTS: usize = 32;

/// An endpoint.
pub struct Ep {
    handle: Handle,
    usage: Usage,
}

/// To whom, and how, an endpoint is to connect.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address.
    pub address: SocketAddr,
    /// The qualifier that the peer listens on.
    pub qualifier: u64,
    /// How long to try; `None` is for ever.
    pub timeout: Option<Duration>,
    /// For the peer.
    pub private_data: &'a [u8],
    /// `DAT_QOS`; 0, best effort, is the only one there is.
    pub qos: u32,
    /// `DAT_CONNECT_FLAGS`; 1, multipath, is not supported.
    pub flags: u32,
}

/// What to do with a completion, beyond making an event of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An event, which notifies.
    Deliver,
    /// An event that wakes nobody: posted UNSIGNALLED.
    DeliverQuietly,
    /// No event: a marker of the endpoint itself, or posted SUPPRESS.
    Swallow,
}

/// The slow hook of completions: called by the EVD for each completion of an
/// endpoint whose third meter is not 0, before the completion becomes an event
/// (or is staged). Cheap; calls back into no EVD.
pub(crate) fn completed(completion: &dat_engine::Completion) -> Verdict {
    unimplemented!()
}

/// Called by the EVD after it has handed out (or staged) a completion whose
/// status is not success: breaks the connection. May post a connection event
/// to this or another EVD, so the caller holds no lock of an EVD's queue.
pub(crate) fn failed(completion: &dat_engine::Completion) {
    unimplemented!()
}

/// The device reported that the endpoint's queue pair failed: called by the
/// IA's service thread. Breaks the connection.
pub(crate) fn device_failed(handle: Handle) {
    unimplemented!()
}

impl Ep {
    pub fn create(
        ia: &Arc<Ia>,
        pz: Option<&Arc<Pz>>,
        recv: Option<&Arc<Evd>>,
        request: Option<&Arc<Evd>>,
        connect: Option<&Arc<Evd>>,
        attributes: Option<&EpAttributes>,
    ) -> Result<Arc<Self>> {
        unimplemented!()
    }

    pub fn create_with_srq(
        ia: &Arc<Ia>,
        pz: Option<&Arc<Pz>>,
        recv: Option<&Arc<Evd>>,
        request: Option<&Arc<Evd>>,
        connect: Option<&Arc<Evd>>,
        srq: &Arc<Srq>,
        attributes: &EpAttributes,
    ) -> Result<Arc<Self>> {
        unimplemented!()
    }

    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub fn query(&self) -> EpInfo {
        unimplemented!()
    }

    pub fn modify(&self, fields: EpFields, change: &EpChange) -> Result<()> {
        unimplemented!()
    }

    pub fn status(&self) -> EpStatus {
        unimplemented!()
    }

    pub fn recv_query(&self) -> RecvQuery {
        unimplemented!()
    }

    pub fn connect(&self, how: &Connect<'_>) -> Result<()> {
        unimplemented!()
    }

    pub fn disconnect(&self, graceful: bool) -> Result<()> {
        unimplemented!()
    }

    pub fn reset(&self) -> Result<()> {
        unimplemented!()
    }

    /// Frees the endpoint: from any state but those that a service point holds.
    pub fn free(handle: Handle) -> Result<()> {
        unimplemented!()
    }

    /// Frees the endpoint whatever state it is in: the IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        unimplemented!()
    }

    /// Posts a receive of `count` segments; `segment(i)` is the i-th.
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_send_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_rdma_read_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_rdma_write_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_recv(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_send(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_rdma_read(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }

    pub unsafe fn post_rdma_write(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        unimplemented!()
    }
}

impl Object for Ep {
    const KIND: Kind = Kind::Ep;
}

impl Counted for Ep {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}
