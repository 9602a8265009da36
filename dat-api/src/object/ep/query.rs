//! Queries of an endpoint.
//!
//! Decision: `docs/decisions/029-srq-receives-visible-by-completion.md`

use core::sync::atomic::Ordering;

use super::{Ep, EpInfo, EpStatus, RecvQuery};
use crate::handle::Slot;
use crate::types::EpState;

impl Ep {
    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> EpInfo {
        let control = self.control();
        let state = self.state();
        // The states in which the man page of `dat_ep_query` gives them a meaning.
        let has_remote = matches!(
            state,
            EpState::PassiveConnectionPending
                | EpState::ActiveConnectionPending
                | EpState::TentativeConnectionPending
                | EpState::DisconnectPending
                | EpState::CompletionPending
                | EpState::Connected
        );
        let evd = |stream: &Option<crate::object::evd::DtoStream>| {
            stream.as_ref().map(|stream| stream.evd().handle())
        };
        EpInfo {
            ia: self.ia.handle(),
            state,
            local_address: self.ia.local_address(),
            local_port_qualifier: match (&control.connection, control.local_qualifier) {
                _ if !has_remote => 0,
                (Some(connection), 0) => connection.local_port().map_or(0, u64::from),
                (_, qualifier) => qualifier,
            },
            remote_address: if has_remote {
                control.remote.address()
            } else {
                0
            },
            remote_port_qualifier: if has_remote {
                control.remote_qualifier
            } else {
                0
            },
            pz: control.pz.as_ref().map(|pz| pz.handle()),
            recv_evd: evd(&control.streams.recv),
            request_evd: evd(&control.streams.request),
            connect_evd: control.connect.as_ref().map(|stream| stream.evd().handle()),
            srq: control.srq.as_ref().map(|srq| srq.handle()),
            attributes: {
                let mut attributes = control.attributes;
                self.marks.show(&mut attributes, control.srq.is_some());
                attributes
            },
        }
    }

    /// Returns the private data of the peer's accept; empty on the side that accepted, and after a
    /// reset.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        self.control().private_data.to_vec()
    }

    /// Returns its state, and whether anything is outstanding. A suppressed request counts as
    /// outstanding until a later request completes.
    #[must_use]
    pub fn status(&self) -> EpStatus {
        self.poll_everything();
        let control = self.control();
        let qp = control.qp.as_ref();
        let recv_idle = if control.srq.is_some() {
            self.recvs_staged() == 0
        } else {
            qp.is_none_or(|qp| qp.recvs_outstanding() == 0)
        };
        EpStatus {
            state: self.state(),
            recv_idle,
            request_idle: qp.is_none_or(dat_engine::EndpointHandle::sends_idle),
        }
    }

    /// Returns how many receives it holds.
    #[must_use]
    pub fn recv_query(&self) -> RecvQuery {
        let shared = self.control().srq.is_some();
        if shared || self.marks.are_set() {
            self.poll_everything();
        } else {
            self.poll_unreported();
        }
        // Its own queue counts the receives that the device has (none on an SRQ), the EVD those
        // that are staged; all others have been handed out. They are read in the order in which a
        // receive moves, so that none is missed.
        let control = self.control();
        let queue = control.qp.as_ref();
        let outstanding = queue.map_or(0, dat_engine::EndpointHandle::recvs_outstanding);
        drop(control);
        let allocated = outstanding.saturating_add(self.recvs_staged());
        // Messages fill receives in order, so the receives it holds are contiguous.
        RecvQuery {
            allocated,
            span: allocated,
        }
    }

    /// Returns the number of completed receives whose events the EVD has staged.
    pub(super) fn recvs_staged(&self) -> u32 {
        let counters = self.handle.slot().map(Slot::counters);
        counters.map_or(0, |counters| counters.recv_staged.load(Ordering::Relaxed))
    }
}
