//! Notification objects.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::wait::WaitCounters;

use super::Adapter;
use super::dispatcher::limit;
use crate::error::Result;
use crate::handle::Handle;
use crate::object::cno::{self, Agent};
use crate::refusal::CnoRefusal;

/// A notification object: one place to wait for the events of several dispatchers. Clones are the
/// same object.
///
/// [`super::EventDispatcher::set_cno`] binds a dispatcher to it; the dispatcher then owns it too.
#[derive(Clone, Debug)]
pub struct Cno(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    cno: Arc<cno::Cno>,
    _adapter: Adapter,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // All dispatchers and waits own it, so this fails only if the adapter was closed.
        let _ = cno::Cno::free(self.cno.handle());
    }
}

impl Adapter {
    /// Creates a notification object without dispatchers.
    ///
    /// # Errors
    /// No descriptors are left, or the adapter was closed.
    pub fn create_cno(&self) -> Result<Cno> {
        Ok(Cno(Arc::new(Owned {
            cno: cno::Cno::create(self.ia(), None)?,
            _adapter: self.clone(),
        })))
    }
}

impl Cno {
    /// Returns its DAT handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.cno.handle()
    }

    /// Waits until an event arrives at a dispatcher, and returns the dispatcher's handle
    /// ([`super::EventDispatcher::handle`]); a timeout of `None` waits for ever. The handle is a
    /// hint: others may have events too. Returns no handle if the adapter is being closed, or the
    /// last dispatcher was dropped.
    ///
    /// A wait that begins returns at once with a dispatcher that holds events that notify, also if
    /// it was returned before. On a strict adapter (`DAT_STRICT=1`), waits
    /// return for new events only; poll all dispatchers before waiting again.
    ///
    /// Any number of threads may wait; each trigger goes to one of them.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` when the timeout expires; `DAT_INTERRUPTED_CALL` after a signal.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Handle>, CnoRefusal> {
        cno::wait(self.handle(), limit(timeout))
    }

    /// Returns the counters of waits on it, including those for [`Self::set_agent`].
    #[must_use]
    pub fn wait_counters(&self) -> WaitCounters {
        self.0.cno.counters()
    }

    /// Sets the agent: a function that is called once, when an event arrives at a dispatcher, with
    /// the dispatcher's handle; or without one, where [`Self::wait`] would return none. It replaces
    /// the function that was set before. It runs on a thread of the library that blocks all
    /// signals.
    ///
    /// Until it has been called, the function and what it has captured stay alive. It must not
    /// capture this object, which would then never be freed.
    ///
    /// # Errors
    /// The thread to call it on cannot be started.
    pub fn set_agent(&self, call: impl FnOnce(Option<Handle>) + Send + 'static) -> Result<()> {
        let call = Mutex::new(Some(call));
        let agent = Agent::new([0; 2], move |evd| {
            let call = call.lock().take();
            if let Some(call) = call {
                call(evd);
            }
        });
        self.0.cno.set_agent(Some(agent))
    }

    /// Removes the agent, if [`Self::set_agent`] has set one that was not called yet; a call may be
    /// running.
    pub fn clear_agent(&self) {
        // Only setting an agent can fail, because it needs a thread.
        let _ = self.0.cno.set_agent(None);
    }

    /// Arms the descriptor ([`AsFd`]), which the first call creates. From now on it becomes readable
    /// by an event that arrives, and sometimes without one. So: arm it, take the events of all
    /// dispatchers until they are empty, then poll the descriptor, with a runtime or by `epoll`,
    /// also edge-triggered. No event is missed. Taking events does not arm it.
    ///
    /// # Errors
    /// The process has no descriptors left, of which this takes two; the device failed.
    pub fn arm(&self) -> Result<()> {
        self.0.cno.descriptor()?;
        Ok(self.0.cno.arm()?)
    }

    /// Arms the descriptor as [`Self::arm`], and returns a dispatcher that has events as
    /// [`Self::wait`] does. Poll the descriptor after `DAT_QUEUE_EMPTY`; it stays readable while
    /// there may be more.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY`; otherwise as [`Self::arm`].
    pub fn trigger(&self) -> Result<Option<Handle>> {
        self.0.cno.descriptor()?;
        Ok(self.0.cno.trigger()?)
    }

    pub(super) fn object(&self) -> &Arc<cno::Cno> {
        &self.0.cno
    }
}

/// The descriptor for [`Cno::arm`], which creates it.
///
/// # Panics
/// If [`Cno::arm`] was not called, and the process has no descriptors left.
impl AsFd for Cno {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let descriptor = self.0.cno.descriptor();
        descriptor.expect("a call of arm before this one returns this as an error")
    }
}

impl AsRawFd for Cno {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
