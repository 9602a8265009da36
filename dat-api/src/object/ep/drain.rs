//! Polling completions that the consumer does not poll.
//!
//! There are two kinds. Completions of an endpoint without an EVD go to a completion queue of the
//! endpoint, which the endpoint polls when it needs room. After a graceful disconnect, the
//! completions up to its marker must be polled; usually the disconnect itself or a wait on the
//! request EVD finds the marker. If neither does, a thread polls until all disconnecting endpoints
//! have their markers.

use core::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::thread::{SignalsBlocked, leave_pinned_cpus};
use dat_engine::{Completion, CompletionOp, CompletionQueue, CqOptions, Device};

use super::Ep;
use super::hooks::{completed, failed};
use crate::error::Result;
use crate::handle::{self, Delivery, Handle};
use crate::object::evd;
use crate::per_process::PerProcess;
use crate::types::EpState;

/// The completion queue for completions without an EVD, if there is one.
#[derive(Default)]
pub(super) struct Unreported(Mutex<Option<CompletionQueue>>);

impl Unreported {
    /// Creates a queue for `depth` completions.
    pub(super) fn queue(device: &Device, depth: u32) -> Result<CompletionQueue> {
        Ok(device.create_cq(&CqOptions {
            depth,
            ..CqOptions::default()
        })?)
    }

    /// Replaces the queue.
    pub(super) fn replace(&self, queue: Option<CompletionQueue>) {
        let old = core::mem::replace(&mut *self.0.lock(), queue);
        drop(old);
    }

    /// Attaches a new queue pair to the queue.
    pub(super) fn attach_new(&self) {
        if let Some(queue) = &mut *self.0.lock() {
            queue.process_commands();
        }
    }
}

impl Ep {
    /// Polls the completions without an EVD. Does nothing if another thread is doing it. Neither
    /// allocates nor waits, unless to end a connection.
    pub(super) fn poll_unreported(&self) {
        let Some(slot) = self.handle.slot() else {
            return;
        };
        // Each is handled without this lock, because that may take the control's.
        while let Some(completion) = self.next_unreported() {
            let _: Delivery = completed(&completion);
            if matches!(
                completion.op,
                CompletionOp::Recv | CompletionOp::RecvWriteImm
            ) {
                slot.recv_taken();
            }
            if !completion.status.is_success() {
                failed(&completion);
            }
        }
    }

    fn next_unreported(&self) -> Option<Completion> {
        self.unreported.0.try_lock()?.as_mut()?.poll()
    }

    /// Polls the completions of suppressed requests, or of requests without an EVD, which occupy
    /// ring entries. Neither allocates nor waits.
    pub(super) fn poll_suppressed(&self) {
        self.poll_unreported();
        if self.inspects_completions()
            && let Some(evd) = Handle::from_bits(self.requests.load(Ordering::Relaxed))
        {
            evd::poll_completions(evd);
        }
    }

    /// Polls all completions of the endpoint.
    pub(crate) fn poll_everything(&self) {
        self.poll_unreported();
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.drain();
        }
    }

    /// Polls all completions, and waits for a thread that has just taken some: one may be a
    /// failure. When this returns, the failure has been handled, or the endpoint is no longer
    /// connected.
    pub(super) fn poll_for_failures(&self) {
        let is_over = || self.state() != EpState::Connected;
        self.poll_unreported();
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.drain_behind_owner(is_over);
        }
    }

    /// Returns whether a graceful disconnect still waits for its requests.
    fn is_draining(&self) -> bool {
        self.control().draining
    }
}

/// The endpoints whose marker has not completed.
static WAITING: PerProcess<Vec<Handle>> = PerProcess::new();

/// The shortest and the longest pause between two polls.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Makes sure that the marker of an endpoint is found even if the consumer does not poll the
/// request EVD.
pub(super) fn watch(ep: Handle) {
    let mut waiting = WAITING.lock();
    waiting.push(ep);
    if waiting.len() > 1 {
        // The thread runs: it ends only when the list is empty, under this lock.
        return;
    }
    let signals = SignalsBlocked::new();
    let started = thread::Builder::new()
        .name("dat-drain".into())
        .spawn(poll_until_drained);
    drop(signals);
    if let Err(error) = started {
        tracing::warn!(
            "no thread for a graceful disconnect ({error}): it completes when the request EVD is polled"
        );
        waiting.clear();
    }
}

fn poll_until_drained() {
    leave_pinned_cpus();
    let mut pause = PAUSES.0;
    loop {
        let list = {
            let mut waiting = WAITING.lock();
            waiting.retain(|&ep| handle::pin::<Ep>(ep).is_some_and(|ep| ep.is_draining()));
            if waiting.is_empty() {
                return;
            }
            waiting.clone()
        };
        for ep in list {
            if let Some(ep) = handle::pin::<Ep>(ep) {
                ep.poll_everything();
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}
