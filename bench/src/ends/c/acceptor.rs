//! Service points: waiting for a connection request and accepting it.

use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::Duration;

use dat::abi::{
    DAT_CONN_QUAL, DAT_CONNECTION_REQUEST_EVENT, DAT_COUNT, DAT_CR_FIELD_ALL, DAT_CR_HANDLE,
    DAT_CR_PARAM, DAT_EVD_CR_FLAG, DAT_HANDLE_NULL, DAT_PSP_CONSUMER_FLAG, DAT_PSP_HANDLE,
};

use super::{CEnd, bytes};
use crate::ends::dat::{Acceptor, Answer};
use crate::failure::Failure;
use crate::udapl::v1::adapter::CONNECTION_EVENTS;
use crate::udapl::v1::events::Queue;
use crate::udapl::v1::{Adapter, control};

/// A service point and the EVD of its connection requests.
pub(crate) struct CAcceptor {
    psp: DAT_PSP_HANDLE,
    qualifier: u64,
    // Freed after the service point (see `Drop`).
    requests: Queue,
}

impl CAcceptor {
    /// Opens a service point on a free qualifier.
    pub(super) fn open(adapter: &Rc<Adapter>) -> Result<Self, Failure> {
        let requests = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CR_FLAG)?;
        let (mut qualifier, mut psp): (DAT_CONN_QUAL, DAT_PSP_HANDLE) = (0, DAT_HANDLE_NULL);
        // SAFETY: handles of this adapter; qualifier and handle are local variables that are written.
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

impl<const WAITS: bool> Acceptor<CEnd<WAITS>> for CAcceptor {
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
                "event 0x{:x} instead of a connection request",
                event.event_number
            )));
        }
        // SAFETY: the event number says that this member is valid.
        let request: DAT_CR_HANDLE = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
        let mut facts = MaybeUninit::<DAT_CR_PARAM>::zeroed();
        // SAFETY: a connection request; the parameters are a local variable that is written.
        let code = unsafe { (calls.cr_query)(request, DAT_CR_FIELD_ALL, facts.as_mut_ptr()) };
        control("dat_cr_query", code)?;
        // SAFETY: all zeros are a valid value, and the call has written it.
        let facts = unsafe { facts.assume_init() };
        // SAFETY: the bytes stay valid until the request is accepted or rejected.
        let theirs = unsafe { bytes(facts.private_data.cast(), facts.private_data_size) };
        let ours = answer(end, &theirs)?;
        // SAFETY: a connection request, an EP, and bytes that are only read.
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

impl Drop for CAcceptor {
    fn drop(&mut self) {
        // SAFETY: a PSP, freed once.
        unsafe { (self.requests.adapter.calls.psp_free)(self.psp) };
    }
}
