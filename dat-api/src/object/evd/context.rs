//! What an EVD needs from its IA.

use std::sync::Arc;

use dat_engine::wait::WaitPolicy;
use dat_engine::{CompletionChannel, CompletionQueue, CqOptions};

use super::capacity::FIRST_QUEUE;
use super::stamps::Clock;
use super::{Evd, Ia};
use crate::error::Result;
use crate::handle::{Handle, Reservation};
use crate::types::{AsyncKind, AsyncReason};

/// The context of an EVD: its IA.
pub(super) enum EvdContext {
    /// An open IA.
    Ia(Arc<Ia>),
    /// In tests without a device: asynchronous events are collected.
    #[cfg(test)]
    Test(super::tests::FakeIa),
}

impl EvdContext {
    pub(super) fn ia(&self) -> &Arc<Ia> {
        match self {
            Self::Ia(ia) => ia,
            #[cfg(test)]
            Self::Test(_) => panic!("no IA in this test"),
        }
    }

    pub(super) fn handle(&self) -> Handle {
        self.ia().handle()
    }

    /// Returns the maximum length of an EVD.
    pub(super) fn max_queue_length(&self) -> u32 {
        match self {
            Self::Ia(ia) => ia.device().limits().cq_depth.min(i32::MAX as u32),
            #[cfg(test)]
            Self::Test(_) => 1 << 16,
        }
    }

    /// Returns the least entries of the first completion queue of an EVD.
    pub(super) fn first_queue(&self) -> u32 {
        match self {
            Self::Ia(ia) if ia.device().resizes_cqs() => 1,
            Self::Ia(_) => FIRST_QUEUE,
            #[cfg(test)]
            Self::Test(ia) => ia.first_queue(),
        }
    }

    pub(super) fn is_strict(&self) -> bool {
        match self {
            Self::Ia(ia) => ia.is_strict(),
            #[cfg(test)]
            Self::Test(_) => false,
        }
    }

    pub(super) fn wait_policy(&self) -> WaitPolicy {
        match self {
            Self::Ia(ia) => ia.wait_policy(),
            #[cfg(test)]
            Self::Test(_) => WaitPolicy::default(),
        }
    }

    /// Publishes the EVD under its handle. `own`: the EVD does not keep the IA from being closed.
    pub(super) fn publish(&self, place: Reservation, evd: &Arc<Evd>, own: bool) -> Result<()> {
        match self {
            Self::Ia(ia) if own => ia.publish_own(place, evd)?,
            Self::Ia(ia) => ia.publish(place, evd)?,
            #[cfg(test)]
            Self::Test(_) => place.publish(Arc::clone(evd)),
        };
        Ok(())
    }

    pub(super) fn unregister(&self, handle: Handle) {
        match self {
            Self::Ia(ia) => ia.unregister(handle),
            #[cfg(test)]
            Self::Test(_) => {}
        }
    }

    pub(super) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        match self {
            Self::Ia(ia) => ia.report(kind, handle, reason),
            #[cfg(test)]
            Self::Test(ia) => ia.report(kind, handle, reason),
        }
    }

    /// Returns the clock that converts time stamps.
    #[cfg_attr(
        not(test),
        expect(clippy::useless_conversion, reason = "unit tests have a fake clock")
    )]
    pub(super) fn clock(&self) -> Result<Clock> {
        match self {
            Self::Ia(ia) => Ok(ia.device().clock()?.into()),
            #[cfg(test)]
            Self::Test(ia) => ia.clock(),
        }
    }

    pub(super) fn create_channel(&self) -> Result<CompletionChannel> {
        Ok(self.ia().device().create_channel()?)
    }

    pub(super) fn create_cq(
        &self,
        depth: u32,
        channel: &CompletionChannel,
        evd: Handle,
    ) -> Result<CompletionQueue> {
        let ia = self.ia();
        let cq = ia.device().create_cq(&CqOptions {
            depth,
            channel: Some(channel),
            ..CqOptions::default()
        })?;
        ia.watch(cq.verbs().id(), evd);
        Ok(cq)
    }
}
