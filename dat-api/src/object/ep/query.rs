//! Queries of an endpoint.
//!
//! Decision: `docs/decisions/029-srq-receives-visible-by-completion.md`

use core::sync::atomic::Ordering;

use dat_engine::sync::Backoff;
use dat_engine::{DataInOrder, EndpointHandle};

use super::control::Control;
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
            remote_address: if has_remote || !self.ia.is_strict() {
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

    /// Asks the device whether the bytes of one RDMA write of the peer arrive in ascending order.
    /// Unknown unless it is connected.
    #[must_use]
    pub fn data_in_order(&self) -> DataInOrder {
        let control = self.control();
        let qp = control.qp.as_ref();
        qp.map_or(DataInOrder::Unknown, EndpointHandle::data_in_order)
    }

    /// Returns its state, and whether anything is outstanding. A suppressed request counts as
    /// outstanding until a later request completes.
    #[must_use]
    pub fn status(&self) -> EpStatus {
        self.poll_everything();
        let held = self.recvs_held();
        let control = self.control();
        let qp = control.qp.as_ref();
        let recv_idle = if control.srq.is_some() {
            held == 0
        } else {
            qp.is_none_or(|qp| qp.recvs_outstanding() == 0)
        };
        EpStatus {
            state: self.state(),
            recv_idle,
            request_idle: qp.is_none_or(EndpointHandle::sends_idle),
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
        let allocated = self.recvs_held();
        // Messages fill receives in order, so the receives it holds are contiguous.
        RecvQuery {
            allocated,
            span: allocated,
        }
    }

    /// Returns how many receives it holds. Its own queue counts the receives that the device has
    /// (none on an SRQ), the EVD those that are staged; all others have been handed out.
    fn recvs_held(&self) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            if let Some(held) = self.count_held(&self.control()) {
                return held;
            }
            // Without the control's lock, which the owner of the EVD may need.
            backoff.wait();
        }
    }

    /// Counts them once; `None` if the EVD may have staged some meanwhile.
    fn count_held(&self, control: &Control) -> Option<u32> {
        let count = || {
            let queue = control.qp.as_ref();
            let outstanding = queue.map_or(0, EndpointHandle::recvs_outstanding);
            outstanding.saturating_add(self.recvs_staged())
        };
        match &control.streams.recv {
            Some(stream) => stream.evd().while_none_moves(count),
            None => Some(count()),
        }
    }

    /// Returns the number of completed receives whose events the EVD has staged.
    pub(super) fn recvs_staged(&self) -> u32 {
        let counters = self.handle.slot().map(Slot::counters);
        counters.map_or(0, |counters| counters.recv_staged.load(Ordering::Relaxed))
    }
}
