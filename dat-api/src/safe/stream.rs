//! Events as an asynchronous stream.
//!
//! Decision: `docs/decisions/082-events-for-asynchronous-programs.md`

use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use dat_engine::sync::Mutex;
use futures_core::Stream;

use super::EventDispatcher;
use super::dispatcher::bound;
use crate::error::Result;
use crate::object::cno::Agent;
use crate::status::DatReturn;
use crate::types::Event;

/// The events of a dispatcher, for any executor: [`EventDispatcher::stream`].
///
/// While no event is there, a thread of the library sleeps for the stream, and wakes the task. A
/// program that has a reactor saves that thread and its switch with the descriptor of the
/// dispatcher ([`EventDispatcher::arm`]). The first task that finds no event starts the thread, and
/// each that sleeps allocates what wakes it. Events that notify no waiter (unsignalled, or without
/// solicited wait) wake no task; they come with the next one that does.
///
/// The stream ends after an error: when the adapter is closed, or when a thread waits on the
/// dispatcher. A future of the stream that is dropped loses no event.
#[derive(Debug)]
pub struct EventStream {
    dispatcher: EventDispatcher,
    /// The task to wake, until it is woken.
    task: Arc<Mutex<Option<Waker>>>,
    has_failed: bool,
}

impl EventDispatcher {
    /// Returns the events that are there and those that will arrive as a stream. The events are
    /// those of [`Self::dequeue`], which other threads and tasks may call meanwhile.
    ///
    /// # Errors
    /// The dispatcher has a stream already, which is in use or was leaked; the process has no
    /// descriptors left, of which this takes two; the dispatcher is bound to a notification object;
    /// the adapter was closed.
    pub fn stream(&self) -> Result<EventStream> {
        self.notifier()?;
        if self.0.has_stream.swap(true, Ordering::Relaxed) {
            return Err(bound(
                "the dispatcher has a stream already, which wakes one task: pass its events on, or drop \
                 it first",
            ));
        }
        Ok(EventStream {
            dispatcher: self.clone(),
            task: Arc::default(),
            has_failed: false,
        })
    }
}

impl EventStream {
    /// Returns the dispatcher.
    #[must_use]
    pub fn dispatcher(&self) -> &EventDispatcher {
        &self.dispatcher
    }

    /// Lets the next event wake this task.
    fn register(&self, waker: &Waker) -> Result<(), DatReturn> {
        // A clone and its drop may run code of the executor: not under the lock.
        let waker = waker.clone();
        let before = self.task.lock().replace(waker);
        if before.is_some() {
            // The agent was not called since: it will wake this task instead.
            return Ok(());
        }
        let task = Arc::clone(&self.task);
        let agent = Agent::new([0; 2], move |_evd| {
            let waker = task.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let notifier = self.dispatcher.notifier().map_err(|error| error.code())?;
        let set = notifier.object().set_agent(Some(agent));
        set.map_err(|error| error.code())
    }

    fn take(&self, context: &Context<'_>) -> Result<Option<Event>, DatReturn> {
        if let Some(event) = self.dispatcher.dequeue()? {
            return Ok(Some(event));
        }
        // The agent is called at once if an event has arrived meanwhile.
        self.register(context.waker())?;
        Ok(None)
    }
}

impl Stream for EventStream {
    type Item = Result<Event, DatReturn>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let taken = self.take(context);
        self.has_failed = taken.is_err();
        match taken.transpose() {
            None => Poll::Pending,
            some => Poll::Ready(some),
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Ok(notifier) = self.dispatcher.notifier() {
            notifier.clear_agent();
        }
        self.dispatcher.0.has_stream.store(false, Ordering::Relaxed);
    }
}
