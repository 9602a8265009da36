//! Event dispatchers.

use std::sync::Arc;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::wait::{WaitCounters, WaitPolicy};

use super::endpoint::Remains;
use super::{Adapter, Cno};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Owned};
use crate::object::evd::{self, Evd, Timeout};
use crate::status::{DatReturn, ReturnType};
use crate::types::{EvdFlags, Event};

/// Collects events. Clones are the same dispatcher.
///
/// Any thread may take events or wait for them; while one waits, the others
/// are refused with `DAT_INVALID_STATE`.
#[derive(Clone, Debug)]
pub struct EventDispatcher(Arc<Dispatcher>);

#[derive(Debug)]
struct Dispatcher {
    handle: Handle,
    /// Freed with its last owner; the adapter's own is freed by the adapter.
    own: bool,
    // After the dispatcher is freed, and nobody takes completions from it.
    remains: Mutex<Vec<Arc<Remains>>>,
    /// What it feeds, and keeps.
    cno: Mutex<Option<Cno>>,
    _adapter: Adapter,
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        if self.own {
            // What reports to it owns it; the adapter may have been closed.
            let _ = Evd::free(self.handle);
        } else if self.cno.get_mut().is_some()
            && let Some(evd) = handle::pin::<Evd>(self.handle)
        {
            // It stays, and nobody keeps for it what it feeds.
            let _ = evd.set_cno(None);
        }
    }
}

/// How a wait for several events ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The first of them.
    pub event: Event,
    /// How many more are there.
    pub more: u32,
}

/// [`EventDispatcher::next`] on the slow path.
#[inline(never)]
fn next_slow(owned: Owned<Evd>) -> Result<Option<Event>, DatReturn> {
    match evd::dequeue_slow(owned) {
        Ok(event) => Ok(Some(event)),
        Err(error) if error.is(ReturnType::QueueEmpty) => Ok(None),
        Err(error) => Err(error),
    }
}

impl EventDispatcher {
    pub(super) fn create(
        adapter: &Adapter,
        length: u32,
        streams: EvdFlags,
        policy: Option<WaitPolicy>,
    ) -> Result<Self> {
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        let evd = Evd::create(adapter.ia(), length, streams, policy)?;
        Ok(Self(Arc::new(Dispatcher {
            handle: evd.handle(),
            own: true,
            remains: Mutex::default(),
            cno: Mutex::default(),
            _adapter: adapter.clone(),
        })))
    }

    pub(super) fn of_adapter(adapter: &Adapter, handle: Handle) -> Self {
        Self(Arc::new(Dispatcher {
            handle,
            own: false,
            remains: Mutex::default(),
            cno: Mutex::default(),
            _adapter: adapter.clone(),
        }))
    }

    /// A dispatcher with a way to wait of its own, whatever `DAT_WAIT` says.
    ///
    /// # Errors
    /// As [`Adapter::dispatcher`].
    pub fn with_policy(
        adapter: &Adapter,
        length: u32,
        streams: EvdFlags,
        policy: WaitPolicy,
    ) -> Result<Self> {
        Self::create(adapter, length, streams, Some(policy))
    }

    /// Its name among DAT objects: that of [`Event::evd`].
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// The next event, if there is one. Never blocks.
    ///
    /// # Errors
    /// A thread waits on the dispatcher, or the adapter was closed.
    #[inline]
    pub fn next(&self) -> Result<Option<Event>, DatReturn> {
        let owned = match evd::peek(evd::own(self.0.handle)?) {
            Ok(None) => return Ok(None),
            Ok(Some(found)) => match found.take(|event| event) {
                Ok(event) => return Ok(Some(event)),
                Err(owned) => owned,
            },
            Err(owned) => owned,
        };
        next_slow(owned)
    }

    /// Waits for an event; `None` waits as long as it takes.
    ///
    /// # Errors
    /// `DAT_TIMEOUT_EXPIRED`; `DAT_INTERRUPTED_CALL` after a signal;
    /// `DAT_INVALID_STATE` if another thread waits already or waiting is
    /// switched off; `DAT_ABORT` when the adapter is closed meanwhile.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Event, DatReturn> {
        self.wait_for(1, timeout).map(|waited| waited.event)
    }

    /// Waits until so many events are there, and takes the first.
    ///
    /// # Errors
    /// As [`Self::wait`]; also `DAT_INVALID_PARAMETER` for a threshold of 0 or
    /// above the dispatcher's length.
    pub fn wait_for(&self, threshold: u32, timeout: Option<Duration>) -> Result<Waited, DatReturn> {
        let threshold = i32::try_from(threshold).unwrap_or(i32::MAX);
        let mut owned = evd::own(self.0.handle)?;
        let waited = evd::wait(&mut owned, limit(timeout), threshold);
        waited.result.map(|event| Waited {
            event,
            more: waited.nmore,
        })
    }

    /// Posts a software event that carries this value.
    ///
    /// # Errors
    /// The dispatcher was not made for [`EvdFlags::SOFTWARE`], or is full.
    pub fn post(&self, value: usize) -> Result<(), DatReturn> {
        self.with(|evd| evd.post_software(value))?
    }

    /// Ends waiting: who waits is refused with `DAT_INVALID_STATE`, and so is
    /// every later wait, until [`Self::allow_waiting`]. Events can still be
    /// taken by [`Self::next`].
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn end_waiting(&self) -> Result<(), DatReturn> {
        self.with(Evd::set_unwaitable)
    }

    /// Takes [`Self::end_waiting`] back.
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn allow_waiting(&self) -> Result<(), DatReturn> {
        self.with(Evd::clear_unwaitable)
    }

    /// Has this told when something comes here, or nobody. Events that are here
    /// already count.
    ///
    /// # Errors
    /// It is of another adapter; the adapter was closed; the system cannot watch
    /// another descriptor.
    pub fn notify(&self, cno: Option<&Cno>) -> Result<()> {
        let evd = self.evd()?;
        // Held meanwhile: what is kept is what is fed.
        let mut kept = self.0.cno.lock();
        evd.set_cno(cno.map(Cno::object))?;
        let before = core::mem::replace(&mut *kept, cno.cloned());
        drop(kept);
        drop(before);
        Ok(())
    }

    /// What comes tells nobody from now on, until [`Self::enable`].
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn disable(&self) -> Result<(), DatReturn> {
        self.with(Evd::disable)
    }

    /// Takes [`Self::disable`] back; what has come meanwhile counts.
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn enable(&self) -> Result<(), DatReturn> {
        self.with(Evd::enable)
    }

    /// Lets it hold so many events, more or fewer than before. None is lost.
    ///
    /// # Errors
    /// A length of 0 or above the adapter's limit; more events are here than that,
    /// or a thread waits for more; no memory.
    pub fn resize(&self, length: u32) -> Result<()> {
        self.evd()?
            .resize(i32::try_from(length).unwrap_or(i32::MAX))
    }

    /// How waits on it went.
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn wait_counters(&self) -> Result<WaitCounters, DatReturn> {
        self.with(Evd::counters)
    }

    /// Keeps what is left of an endpoint until no thread can be placing a
    /// payload of its completions any more.
    pub(super) fn keep(&self, remains: Arc<Remains>) {
        let mut all = self.0.remains.lock();
        all.push(remains);
        // Whoever has the dispatcher now has it after the endpoint went.
        if let Ok(owned) = handle::own::<Evd>(self.0.handle) {
            let gone = core::mem::take(&mut *all);
            drop(owned);
            drop(all);
            drop(gone);
        }
    }

    fn with<T>(&self, call: impl FnOnce(&Evd) -> T) -> Result<T, DatReturn> {
        let evd = handle::pin::<Evd>(self.0.handle).ok_or(STALE)?;
        Ok(call(&evd))
    }

    /// The object, to attach something to it.
    pub(super) fn evd(&self) -> Result<Arc<Evd>> {
        match handle::pin::<Evd>(self.0.handle) {
            Some(evd) => Ok(evd.to_arc()),
            None => Err(DatError::from(STALE)),
        }
    }
}

const STALE: DatReturn = DatReturn::error(
    ReturnType::InvalidHandle,
    crate::status::Subtype::InvalidHandle1,
);

/// A duration in the microseconds of DAT; what is longer than it can say (over
/// an hour) is the longest it can.
pub(super) fn limit(timeout: Option<Duration>) -> Timeout {
    match timeout {
        None => Timeout::Infinite,
        Some(time) => {
            // The last value means "infinite" in C.
            let longest = u32::MAX - 1;
            let begun = !time.subsec_nanos().is_multiple_of(1000);
            let micros = time.as_micros() + u128::from(begun);
            Timeout::Micros(u32::try_from(micros).map_or(longest, |micros| micros.min(longest)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_rounded_up_and_never_becomes_infinite() {
        assert_eq!(limit(None), Timeout::Infinite);
        assert_eq!(limit(Some(Duration::ZERO)), Timeout::Micros(0));
        assert_eq!(limit(Some(Duration::from_nanos(1))), Timeout::Micros(1));
        assert_eq!(
            limit(Some(Duration::from_secs(1 << 40))),
            Timeout::Micros(u32::MAX - 1)
        );
    }
}
