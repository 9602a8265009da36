//! Public service points: where connection requests arrive.
#![allow(unused, clippy::unimplemented, clippy::missing_errors_doc)]

use std::sync::Arc;

use super::evd::Evd;
use super::ia::Ia;
use crate::error::Result;
use crate::handle::{Handle, Kind, Object};

/// A public service point.
pub struct Psp {
    handle: Handle,
}

/// Who makes the endpoint of a request: `DAT_PSP_FLAGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EpCreator {
    /// The consumer, who names one to accept.
    Consumer = 0,
    /// The provider: each request brings one.
    Provider = 1,
}

/// What `dat_psp_query` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PspInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// What it listens on.
    pub qualifier: u64,
    /// Where requests are reported.
    pub evd: Handle,
    /// Who makes the endpoints.
    pub creator: EpCreator,
}

impl Psp {
    pub fn create(ia: &Arc<Ia>, qualifier: u64, evd: &Arc<Evd>, creator: EpCreator) -> Result<Arc<Self>> {
        unimplemented!()
    }

    pub fn create_any(ia: &Arc<Ia>, evd: &Arc<Evd>, creator: EpCreator) -> Result<Arc<Self>> {
        unimplemented!()
    }

    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub fn query(&self) -> PspInfo {
        unimplemented!()
    }

    pub fn free(handle: Handle) -> Result<()> {
        unimplemented!()
    }

    pub(crate) fn abort(handle: Handle) {
        unimplemented!()
    }
}

impl Object for Psp {
    const KIND: Kind = Kind::Psp;
}
