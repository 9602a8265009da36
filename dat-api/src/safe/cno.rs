//! Notification objects.

use std::sync::Arc;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::wait::WaitCounters;

use super::Adapter;
use super::dispatcher::limit;
use crate::error::Result;
use crate::handle::Handle;
use crate::object::cno::{self, Agent};
use crate::status::DatReturn;

/// One place to wait for the events of several dispatchers. Clones are the same
/// object.
///
/// Dispatchers are added by [`super::EventDispatcher::notify`], and keep it.
#[derive(Clone, Debug)]
pub struct Cno(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    cno: Arc<cno::Cno>,
    _adapter: Adapter,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Whatever feeds it owns it, and so does who waits; the adapter may have
        // been closed.
        let _ = cno::Cno::free(self.cno.handle());
    }
}

impl Adapter {
    /// Makes a notification object, which no dispatcher feeds yet.
    ///
    /// # Errors
    /// No descriptors are left, or the adapter was closed.
    pub fn cno(&self) -> Result<Cno> {
        Ok(Cno(Arc::new(Owned {
            cno: cno::Cno::create(self.ia(), None)?,
            _adapter: self.clone(),
        })))
    }
}

impl Cno {
    /// Its name among DAT objects.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.cno.handle()
    }

    /// Waits until something comes to a dispatcher, and names it
    /// ([`super::EventDispatcher::handle`]); `None` waits as long as it takes. A
    /// hint: others may have events too, so look at all of them before waiting
    /// again. No name: the adapter is being closed, or the last dispatcher went.
    ///
    /// Any number of threads may wait; each trigger is for one of them.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` when the time is up; `DAT_INTERRUPTED_CALL` after a
    /// signal.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Handle>, DatReturn> {
        cno::wait(self.handle(), limit(timeout))
    }

    /// How waits on it went, those for what is to be called among them.
    #[must_use]
    pub fn wait_counters(&self) -> WaitCounters {
        self.0.cno.counters()
    }

    /// Has this called, once, when something comes to a dispatcher, with its
    /// name; or without one, as [`Self::wait`] answers. In place of what was to be
    /// called before. It runs on a thread of the library that blocks all signals.
    ///
    /// As long as it was not called it owns what it has captured: not this
    /// object, or that would never go.
    ///
    /// # Errors
    /// There is no thread to call it on.
    pub fn call_once(&self, call: impl FnOnce(Option<Handle>) + Send + 'static) -> Result<()> {
        let call = Mutex::new(Some(call));
        let agent = Agent::new([0; 2], move |evd| {
            let call = call.lock().take();
            if let Some(call) = call {
                call(evd);
            }
        });
        self.0.cno.set_agent(Some(agent))
    }

    /// Takes [`Self::call_once`] back; a call may be under way.
    pub fn call_nobody(&self) {
        // Only an agent needs a thread.
        let _ = self.0.cno.set_agent(None);
    }

    pub(super) fn object(&self) -> &Arc<cno::Cno> {
        &self.0.cno
    }
}
