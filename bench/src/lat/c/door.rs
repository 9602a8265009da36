//! Service points: waiting for a request and accepting it.

use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::Duration;

use dat::abi::{
    DAT_CONN_QUAL, DAT_CONNECTION_REQUEST_EVENT, DAT_COUNT, DAT_CR_FIELD_ALL, DAT_CR_HANDLE,
    DAT_CR_PARAM, DAT_EVD_CR_FLAG, DAT_HANDLE_NULL, DAT_PSP_CONSUMER_FLAG, DAT_PSP_HANDLE,
};

use super::events::Queue;
use super::{Adapter, CEnd, CONNECTION_EVENTS, bytes, control};
use crate::failure::Failure;
use crate::lat::dat::{Answer, Door};

/// A service point, and the requests that come to it.
pub(in crate::lat) struct CDoor {
    psp: DAT_PSP_HANDLE,
    qualifier: u64,
    // Freed after the service point (see `Drop`).
    requests: Queue,
}

impl CDoor {
    /// A service point on a qualifier that is free.
    pub(super) fn open(adapter: &Rc<Adapter>) -> Result<Self, Failure> {
        let requests = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CR_FLAG)?;
        let (mut qualifier, mut psp): (DAT_CONN_QUAL, DAT_PSP_HANDLE) = (0, DAT_HANDLE_NULL);
        // SAFETY: handles of this adapter; a number and a handle to be filled in.
        let answer = unsafe {
            (adapter.calls.psp_create_any)(
                adapter.ia,
                &raw mut qualifier,
                requests.evd,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        control("dat_psp_create_any", answer)?;
        Ok(Self {
            psp,
            qualifier,
            requests,
        })
    }
}

impl<const WAITS: bool> Door<CEnd<WAITS>> for CDoor {
    fn qualifier(&self) -> u64 {
        self.qualifier
    }

    fn accept(
        self,
        end: &mut CEnd<WAITS>,
        within: Duration,
        answer: Answer<'_, CEnd<WAITS>>,
    ) -> Result<(), Failure> {
        let calls = self.requests.adapter.calls;
        let event = self
            .requests
            .await_event(within, "a DAT connection request")?;
        if event.event_number != DAT_CONNECTION_REQUEST_EVENT {
            return Err(Failure::run(format!(
                "no connection request: event 0x{:x}",
                event.event_number
            )));
        }
        // SAFETY: the number says that this is the member that counts.
        let request: DAT_CR_HANDLE = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
        let mut facts = MaybeUninit::<DAT_CR_PARAM>::zeroed();
        // SAFETY: a request, and room for what is asked of it.
        let asked = unsafe { (calls.cr_query)(request, DAT_CR_FIELD_ALL, facts.as_mut_ptr()) };
        control("dat_cr_query", asked)?;
        // SAFETY: zeros are a value of it, and the call has filled it in.
        let facts = unsafe { facts.assume_init() };
        // SAFETY: so many bytes are there until the request is answered.
        let theirs = unsafe { bytes(facts.private_data.cast(), facts.private_data_size) };
        let ours = answer(end, &theirs)?;
        // SAFETY: a request, an EP, and bytes that are only read.
        let accepted = unsafe {
            (calls.cr_accept)(
                request,
                end.endpoint.ep,
                ours.len() as DAT_COUNT,
                ours.as_ptr().cast_mut().cast(),
            )
        };
        control("dat_cr_accept", accepted)
    }
}

impl Drop for CDoor {
    fn drop(&mut self) {
        // SAFETY: a PSP.
        unsafe { (self.requests.adapter.calls.psp_free)(self.psp) };
    }
}
