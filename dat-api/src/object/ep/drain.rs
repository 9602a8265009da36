//! Completions that must be taken though the consumer does not ask for them.
//!
//! Two kinds: those of an endpoint without an EVD, which go to a queue that
//! the endpoint polls itself when it needs room; and, after a graceful
//! disconnect, those up to its marker. Usually the marker is found by the
//! disconnect itself or by whoever waits on the request EVD; if neither,
//! a thread looks for it until the last endpoint that waits is done.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use dat_engine::thread::{SignalsBlocked, leave_pinned_cpus};
use dat_engine::{CompletionOp, CompletionQueue, CqOptions, Device};

use super::{Ep, Verdict, completed, failed};
use crate::error::Result;
use crate::handle::{self, Handle};
use crate::object::srq;
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
        let old = core::mem::replace(&mut *self.lock(), queue);
        drop(old);
    }

    fn lock(&self) -> MutexGuard<'_, Option<CompletionQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ep {
    /// Takes the completions that nobody wants. If another thread is doing it,
    /// nothing.
    pub(super) fn take_unwanted(&self) {
        let mut failures = Vec::new();
        let mut shared = false;
        {
            let mut queue = match self.unwanted.0.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let Some(queue) = &mut *queue else { return };
            while let Some(completion) = queue.poll() {
                let Some(meters) = self.handle.slot().map(handle::Slot::meters) else {
                    continue;
                };
                if matches!(
                    completion.op,
                    CompletionOp::Recv | CompletionOp::RecvWriteImm
                ) {
                    use core::sync::atomic::Ordering;
                    meters.first.fetch_add(1, Ordering::Relaxed);
                    shared = true;
                }
                let _: Verdict = completed(&completion);
                if !completion.status.is_success() {
                    failures.push(completion);
                }
            }
        }
        if shared && let Some(queue) = self.srq_handle() {
            srq::taken(queue);
        }
        for failure in &failures {
            failed(failure);
        }
    }

    /// Takes what suppressed requests, or requests without an EVD, have left:
    /// they hold places in the ring.
    pub(super) fn take_suppressed(&self) {
        self.take_unwanted();
        if self.wants_completions() {
            let evd = {
                let control = self.control();
                let request = control.streams.request.as_ref();
                request.map(|stream| std::sync::Arc::clone(stream.evd()))
            };
            if let Some(evd) = evd {
                evd.drain();
            }
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

    /// Where its receives are reported.
    pub(crate) fn recv_evd(&self) -> Option<std::sync::Arc<crate::object::evd::Evd>> {
        let control = self.control();
        let recv = control.streams.recv.as_ref();
        recv.map(|stream| std::sync::Arc::clone(stream.evd()))
    }

    fn srq_handle(&self) -> Option<Handle> {
        self.control().srq.as_ref().map(|srq| srq.handle())
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
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
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
            let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
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
