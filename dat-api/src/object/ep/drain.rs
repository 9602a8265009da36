//! Completions that must be taken though the consumer does not ask for them.
//!
//! Two kinds: those of an endpoint without an EVD, which go to a queue that
//! the endpoint polls itself when it needs room; and, after a graceful
//! disconnect, those up to its marker. Usually the marker is found by the
//! disconnect itself or by whoever waits on the request EVD; if neither,
//! a thread looks for it until the last endpoint that waits is done.

use core::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::thread::{SignalsBlocked, leave_pinned_cpus};
use dat_engine::{Completion, CompletionOp, CompletionQueue, CqOptions, Device};

use super::Ep;
use super::hooks::{completed, failed};
use crate::error::Result;
use crate::handle::{self, Handle, Verdict};
use crate::object::evd;
use crate::types::EpState;

/// The queue for completions that nobody wants, if there are such.
#[derive(Default)]
pub(super) struct Unwanted(Mutex<Option<CompletionQueue>>);

impl Unwanted {
    /// A queue for so many.
    pub(super) fn queue(device: &Device, depth: u32) -> Result<CompletionQueue> {
        Ok(device.create_cq(&CqOptions {
            depth,
            ..CqOptions::default()
        })?)
    }

    /// Another queue, or none.
    pub(super) fn replace(&self, queue: Option<CompletionQueue>) {
        let old = core::mem::replace(&mut *self.0.lock(), queue);
        drop(old);
    }

    /// Has the queue learn of a new queue pair.
    pub(super) fn settle(&self) {
        if let Some(queue) = &mut *self.0.lock() {
            queue.settle();
        }
    }
}

impl Ep {
    /// Takes the completions that nobody wants. If another thread is doing it,
    /// nothing. Neither allocates nor waits, unless to end a connection.
    pub(super) fn take_unwanted(&self) {
        let Some(slot) = self.handle.slot() else {
            return;
        };
        // Each is acted on outside the lock: that may take the control's.
        while let Some(completion) = self.next_unwanted() {
            let _: Verdict = completed(&completion);
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

    fn next_unwanted(&self) -> Option<Completion> {
        self.unwanted.0.try_lock()?.as_mut()?.poll()
    }

    /// Takes what suppressed requests, or requests without an EVD, have left:
    /// they hold places in the ring. Neither allocates nor waits.
    pub(super) fn take_suppressed(&self) {
        self.take_unwanted();
        if self.wants_completions()
            && let Some(evd) = Handle::from_bits(self.requests.load(Ordering::Relaxed))
        {
            evd::relieve(evd);
        }
    }

    /// Takes all there is, wherever it is.
    pub(crate) fn take_everything(&self) {
        self.take_unwanted();
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.drain();
        }
    }

    /// Takes all there is, and waits for who has just taken something of it: a
    /// failure may be in his hands. It has been acted on then, or the endpoint is
    /// not connected any more.
    pub(super) fn look_for_failures(&self) {
        let is_over = || self.state() != EpState::Connected;
        self.take_unwanted();
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.drain_behind_owner(is_over);
        }
    }

    /// Whether a graceful disconnect still waits for its requests.
    fn is_draining(&self) -> bool {
        self.control().draining
    }
}

/// Endpoints whose marker has not been seen.
static WAITING: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

/// Shortest and longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Sees to it that the marker of an endpoint is found, whether or not the
/// consumer looks at the request EVD.
pub(super) fn watch(ep: Handle) {
    let mut waiting = WAITING.lock();
    waiting.push(ep);
    if waiting.len() > 1 {
        // The thread is there: it ends with the list empty, under the lock.
        return;
    }
    let signals = SignalsBlocked::new();
    let started = thread::Builder::new().name("dat-drain".into()).spawn(look);
    drop(signals);
    if let Err(error) = started {
        tracing::warn!(
            "no thread for a graceful disconnect ({error}): it ends when its EVD is looked at"
        );
        waiting.clear();
    }
}

fn look() {
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
                ep.take_everything();
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}
