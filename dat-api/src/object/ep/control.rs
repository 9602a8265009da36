//! The parts and the state of an endpoint that its lock protects.

use std::net::SocketAddr;

use dat_engine::EndpointHandle;
use dat_engine::cm::Connection;

use super::Ep;
use super::stalled::Progress;
use crate::error::Result;
use crate::handle::Handle;
use crate::object::evd::{DtoStream, StreamGuard};
use crate::object::peer::PeerAddress;
use crate::object::pz::Pz;
use crate::object::srq::{Reporting, Srq};
use crate::object::usage::Use;
use crate::state::{self, Edge, To, Trigger};
use crate::types::{EpAttributes, EpState, EventData, PrivateData};
use dat_engine::sync::MutexGuard;

/// What the lock protects.
pub(super) struct Control {
    pub(super) attributes: EpAttributes,
    pub(super) pz: Option<Use<Pz>>,
    pub(super) srq: Option<Use<Srq>>,
    pub(super) connect: Option<StreamGuard>,
    pub(super) streams: Streams,
    /// The control half of the queue pair, if there is one.
    pub(super) qp: Option<EndpointHandle>,
    pub(super) connection: Option<Connection>,
    /// A graceful disconnect waits for the requests posted before it.
    pub(super) draining: bool,
    pub(super) progress: Progress,
    pub(super) remote: PeerAddress,
    /// The peer's address as a value.
    pub(super) remote_host: Option<SocketAddr>,
    pub(super) remote_qualifier: u64,
    pub(super) local_qualifier: u64,
    /// The private data of the peer's accept.
    pub(super) private_data: Box<[u8]>,
}

/// The EVDs that completions are reported to.
#[derive(Default)]
pub(super) struct Streams {
    /// Registers the receive EVD with the SRQ, if there is one.
    pub(super) _shared: Option<Reporting>,
    pub(super) recv: Option<DtoStream>,
    pub(super) request: Option<DtoStream>,
}

impl Streams {
    /// Returns the EVDs, each once.
    pub(super) fn evds(&self) -> Vec<std::sync::Arc<crate::object::evd::Evd>> {
        let mut evds: Vec<_> = [&self.recv, &self.request]
            .into_iter()
            .flatten()
            .map(|stream| std::sync::Arc::clone(stream.evd()))
            .collect();
        evds.dedup_by(|a, b| std::sync::Arc::ptr_eq(a, b));
        evds
    }

    /// Returns those of the two streams that exist.
    pub(super) fn each(&self) -> Vec<&DtoStream> {
        [&self.recv, &self.request].into_iter().flatten().collect()
    }

    /// Suspends the streams while the endpoint is recreated: see [`DtoStream::suspend`].
    pub(super) fn suspend(&mut self) {
        for stream in [&mut self.recv, &mut self.request].into_iter().flatten() {
            stream.suspend();
        }
    }

    /// Resumes the streams because the endpoint stays as it was.
    pub(super) fn resume(&mut self) -> Result<()> {
        [&mut self.recv, &mut self.request]
            .into_iter()
            .flatten()
            .try_for_each(DtoStream::resume)
    }
}

impl Control {
    pub(super) fn new(attributes: EpAttributes) -> Self {
        Self {
            attributes,
            pz: None,
            srq: None,
            connect: None,
            streams: Streams::default(),
            qp: None,
            connection: None,
            draining: false,
            progress: Progress::default(),
            remote: PeerAddress::none(),
            remote_host: None,
            remote_qualifier: 0,
            local_qualifier: 0,
            private_data: Box::default(),
        }
    }

    /// Flushes everything that is posted, and everything that will be posted.
    pub(super) fn flush(&self) {
        if let Some(qp) = &self.qp
            && let Err(error) = qp.to_error()
        {
            tracing::error!("a queue pair cannot be moved to the error state: {error}");
        }
    }

    fn post_event(&self, ep: Handle, edge: &Edge, with: PrivateData) {
        if let (Some(kind), Some(connect)) = (edge.event, &self.connect) {
            connect.evd().post_or_report(EventData::Connection {
                kind,
                ep,
                private_data: with,
            });
        }
    }
}

impl Ep {
    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        // Never poisoned: no panic leaves the control inconsistent.
        self.control.lock()
    }

    /// Makes the state transition for a trigger, and posts its event. Returns whether there is one.
    pub(super) fn step(&self, control: &mut Control, trigger: Trigger) -> bool {
        self.step_with(control, trigger, PrivateData::default())
    }

    /// As [`Self::step`], with private data for the consumer.
    pub(super) fn step_with(
        &self,
        control: &mut Control,
        trigger: Trigger,
        with: PrivateData,
    ) -> bool {
        let Some(edge) = state::step(self.state(), trigger) else {
            return false;
        };
        if let To::State(to) = edge.to {
            self.set_state(to);
            if to == EpState::Disconnected && edge.from != to {
                control.draining = false;
                // Flush before the event: when the consumer gets it, outstanding requests have
                // completed.
                control.flush();
            }
        }
        control.post_event(self.handle, edge, with);
        true
    }

    pub(super) fn set_state(&self, state: EpState) {
        self.state
            .store(state as u32, core::sync::atomic::Ordering::Release);
    }
}
