//! The way to a sink: shut once, and nothing passes after that.

use crate::sync::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Between the service thread, which calls the sink, and a handle, which may
/// shut it out at any time.
pub(super) struct Gate<S: ?Sized> {
    state: Mutex<State<S>>,
    idle: Condvar,
}

struct State<S: ?Sized> {
    /// `None` once the gate is shut.
    sink: Option<Arc<S>>,
    /// A call is in progress.
    busy: bool,
    /// Threads that wait for its end.
    waiting: u32,
}

impl<S: ?Sized> Gate<S> {
    pub(super) fn new(sink: Arc<S>) -> Self {
        let state = State {
            sink: Some(sink),
            busy: false,
            waiting: 0,
        };
        Self {
            state: Mutex::new(state),
            idle: Condvar::new(),
        }
    }

    /// Calls the sink, unless the gate is shut; shuts it afterwards if this is
    /// the last call. Only the service thread calls. `None` if the gate was
    /// shut, or the sink panicked.
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
        // A system call, which hardly ever wakes anybody.
        if waiting > 0 {
            self.idle.notify_all();
        }
        // Here, not under the lock: it may be the last one, and its drop is
        // the application's code. That may panic as well.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(sink)));
        if result.is_err() || dropped.is_err() {
            tracing::error!("a sink of the connection manager panicked");
        }
        result.ok()
    }

    /// Whether nothing passes any more.
    pub(super) fn is_shut(&self) -> bool {
        self.state.lock().sink.is_none()
    }

    /// Shuts the gate, and waits for a call in progress unless
    /// `on_service_thread`, where it is the caller's own. Whether it was open.
    pub(super) fn shut(&self, on_service_thread: bool) -> bool {
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
