//! The gate in front of a sink: once it is closed, no callback is made.

use crate::sync::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Stands between the service thread, which calls the sink, and a handle, which may
/// close the gate at any time.
pub(super) struct Gate<S: ?Sized> {
    state: Mutex<GateState<S>>,
    idle: Condvar,
}

struct GateState<S: ?Sized> {
    /// `None` once the gate is closed.
    sink: Option<Arc<S>>,
    /// A call is in progress.
    busy: bool,
    /// The number of threads that wait for the end of the call.
    waiting: u32,
}

impl<S: ?Sized> Gate<S> {
    pub(super) fn new(sink: Arc<S>) -> Self {
        let state = GateState {
            sink: Some(sink),
            busy: false,
            waiting: 0,
        };
        Self {
            state: Mutex::new(state),
            idle: Condvar::new(),
        }
    }

    /// Calls the sink, unless the gate is closed; closes the gate afterwards if
    /// this is the `last` call. Only the service thread calls this. Returns `None`
    /// if the gate was closed, or if the sink panicked.
    pub(super) fn call<R>(&self, last: bool, call: impl FnOnce(&S) -> R) -> Option<R> {
        let sink = {
            let mut state = self.state.lock();
            let sink = if last {
                state.sink.take()
            } else {
                state.sink.clone()
            };
            state.busy = sink.is_some();
            sink?
        };
        let result = catch_unwind(AssertUnwindSafe(|| call(&sink)));
        let waiting = {
            let mut state = self.state.lock();
            state.busy = false;
            state.waiting
        };
        // `notify_all` is a system call, and rarely wakes a thread.
        if waiting > 0 {
            self.idle.notify_all();
        }
        // Not under the lock: this may be the last reference, and dropping the sink
        // runs the application's code, which may panic.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(sink)));
        if result.is_err() || dropped.is_err() {
            tracing::error!("a sink of the connection manager panicked");
        }
        result.ok()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().sink.is_none()
    }

    /// Closes the gate, and waits for a call in progress unless
    /// `on_service_thread`, where that call is the caller's own. Returns whether
    /// the gate was open.
    pub(super) fn close(&self, on_service_thread: bool) -> bool {
        let mut state = self.state.lock();
        let sink = state.sink.take();
        while state.busy && !on_service_thread {
            state.waiting += 1;
            state = self.idle.wait(state);
            state.waiting -= 1;
        }
        drop(state);
        sink.is_some()
    }
}
