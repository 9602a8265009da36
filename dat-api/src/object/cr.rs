//! Connection requests: to be accepted or rejected, once.
#![allow(unused, clippy::unimplemented, clippy::missing_errors_doc)]

use crate::error::Result;
use crate::handle::{Handle, Kind, Object};
use crate::types::PrivateData;

/// A connection request.
pub struct Cr {
    handle: Handle,
}

/// What `dat_cr_query` answers. The addresses are good until the request is
/// accepted or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrInfo {
    /// Where the requester's `sockaddr` lies.
    pub remote_address: usize,
    /// The requester's port.
    pub remote_port: u64,
    /// What the requester sent along.
    pub private_data: PrivateData,
    /// The endpoint that came with the request.
    pub local_ep: Option<Handle>,
}

impl Cr {
    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub fn query(&self) -> CrInfo {
        unimplemented!()
    }

    /// Accepts; the request is gone if this succeeds, and unchanged if not.
    pub fn accept(handle: Handle, ep: Option<Handle>, private_data: &[u8]) -> Result<()> {
        unimplemented!()
    }

    pub fn reject(handle: Handle) -> Result<()> {
        unimplemented!()
    }

    pub(crate) fn abort(handle: Handle) {
        unimplemented!()
    }
}

impl Object for Cr {
    const KIND: Kind = Kind::Cr;
}
