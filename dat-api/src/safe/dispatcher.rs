//! Event dispatchers.
//!
//! Decision: `docs/decisions/082-events-for-asynchronous-programs.md`

#[cfg(feature = "stream")]
use core::sync::atomic::AtomicBool;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::wait::{WaitCounters, WaitPolicy};

use super::endpoint::LingeringMemory;
use super::{Adapter, Cno};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, NotOwned, Owned};
use crate::object::evd::{self, Evd, PeekedEvent, Stamped, Timeout};
use crate::refusal::EvdRefusal;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{EvdFlags, Event};

/// A queue of events. Clones are the same dispatcher.
///
/// Any thread may take events or wait for them. While one thread waits, other calls fail with
/// `DAT_INVALID_STATE`.
#[derive(Clone, Debug)]
pub struct EventDispatcher(pub(super) Arc<Dispatcher>);

#[derive(Debug)]
pub(super) struct Dispatcher {
    handle: Handle,
    /// Whether it is freed with its last owner; the adapter frees its own dispatcher itself.
    own: bool,
    // Dropped after the dispatcher is freed, when no thread takes completions from it.
    remains: Mutex<Vec<Arc<LingeringMemory>>>,
    /// The notification object that it is bound to, and owns.
    cno: Mutex<Option<Cno>>,
    /// The one that is for its descriptor and its stream only.
    notifier: OnceLock<Cno>,
    #[cfg(feature = "stream")]
    pub(super) has_stream: AtomicBool,
    adapter: Adapter,
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        if self.own {
            // All streams own the dispatcher, so this fails only if the adapter was closed.
            let _ = Evd::free(self.handle);
        } else if let Some(evd) = handle::pin::<Evd>(self.handle) {
            // The EVD outlives this, and no longer owns the CNO; another value may have bound its own.
            let bound = evd.query().cno;
            let ours = [self.cno.get_mut().as_ref(), self.notifier.get()];
            if bound.is_some() && ours.map(|cno| cno.map(Cno::handle)).contains(&bound) {
                let _ = evd.set_cno(None);
            }
        }
    }
}

/// The result of a wait for several events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The first of them.
    pub event: Event,
    /// How many more there are.
    pub more: u32,
}

/// Takes the EVD for this call alone.
#[inline(always)]
fn own(evd: Handle) -> Result<Owned<Evd>, DatReturn> {
    match handle::own::<Evd>(evd) {
        Ok(owned) => Ok(owned),
        Err(error) => own_after(evd, error),
    }
}

/// As [`own`], after another call was found to own the EVD, or there was none.
#[cold]
#[inline(never)]
fn own_after(evd: Handle, error: NotOwned) -> Result<Owned<Evd>, DatReturn> {
    match error {
        NotOwned::Busy => Ok(evd::own_when_free(evd)?),
        NotOwned::Stale => Err(error.into()),
    }
}

/// [`EventDispatcher::dequeue`] for an event of an extended operation.
#[inline(never)]
fn dequeue_extended(found: PeekedEvent) -> Result<Option<Event>, DatReturn> {
    match found.take::<true, _>(|event| event) {
        Ok(event) => Ok(Some(event)),
        Err(found) => dequeue_slow(found.into_owned()),
    }
}

/// [`EventDispatcher::dequeue`] on the slow path.
#[inline(never)]
fn dequeue_slow(owned: Owned<Evd>) -> Result<Option<Event>, DatReturn> {
    match evd::dequeue_slow(owned) {
        Ok(event) => Ok(Some(event)),
        Err(EvdRefusal::Empty { .. }) => Ok(None),
        Err(refusal) => Err(refusal.code()),
    }
}

/// [`EventDispatcher::wait_for`] on the slow path.
#[inline(never)]
fn wait_slow(
    handle: Handle,
    owned: Option<Owned<Evd>>,
    timeout: Option<Duration>,
    threshold: i32,
) -> Result<Waited, DatReturn> {
    let mut owned = match owned {
        Some(owned) => owned,
        None => own(handle)?,
    };
    let waited = evd::wait(&mut owned, limit(timeout), threshold);
    Ok(Waited {
        event: waited.result?,
        more: waited.nmore,
    })
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
        Ok(Self::of(adapter, evd.handle(), true))
    }

    pub(super) fn of_adapter(adapter: &Adapter, handle: Handle) -> Self {
        Self::of(adapter, handle, false)
    }

    fn of(adapter: &Adapter, handle: Handle, own: bool) -> Self {
        Self(Arc::new(Dispatcher {
            handle,
            own,
            remains: Mutex::default(),
            cno: Mutex::default(),
            notifier: OnceLock::new(),
            #[cfg(feature = "stream")]
            has_stream: AtomicBool::new(false),
            adapter: adapter.clone(),
        }))
    }

    /// Returns its DAT handle, which is that of [`Event::evd`].
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// Takes the next event, if there is one. Never blocks.
    ///
    /// # Errors
    /// A thread waits on the dispatcher, or the adapter was closed.
    #[inline]
    pub fn dequeue(&self) -> Result<Option<Event>, DatReturn> {
        match evd::peek(own(self.0.handle)?) {
            Ok(Err(_empty)) => Ok(None),
            Ok(Ok(found)) => match found.take::<false, _>(|event| event) {
                Ok(event) => Ok(Some(event)),
                Err(found) => dequeue_extended(found),
            },
            Err(owned) => dequeue_slow(owned),
        }
    }

    /// Returns an iterator that takes the events that are there, by [`Self::dequeue`]. It ends when
    /// there is none, or after an error; events that arrive later continue it.
    ///
    /// ```no_run
    /// # use dat_api::{safe::EventDispatcher, DatReturn};
    /// # fn all(dispatcher: &EventDispatcher) -> Result<(), DatReturn> {
    /// for event in dispatcher.events() {
    ///     println!("{:?}", event?.data);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Events<'_> {
        Events {
            dispatcher: self,
            failed: false,
        }
    }

    /// Takes as many events as `events` has room for, in the order of [`Self::dequeue`], and returns
    /// how many there were. Never blocks. The others keep their values.
    ///
    /// ```no_run
    /// # use dat_api::{safe::EventDispatcher, types::Event, DatReturn};
    /// # fn all(dispatcher: &EventDispatcher) -> Result<(), DatReturn> {
    /// let mut events = [Event::default(); 16];
    /// let taken = dispatcher.drain(&mut events)?;
    /// for event in &events[..taken] {
    ///     println!("{:?}", event.data);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::dequeue`].
    pub fn drain(&self, events: &mut [Event]) -> Result<usize, DatReturn> {
        Ok(evd::drain(own(self.0.handle)?, events)?)
    }

    /// Takes the next event as [`Self::dequeue`] does, and returns when the device wrote its
    /// completion. The first call makes the dispatcher keep time stamps from then on, which takes
    /// its events off the fast path; `dat_evd_dequeue_timestamped`(3DAT) describes the times.
    ///
    /// ```no_run
    /// # use dat_api::{safe::EventDispatcher, Result};
    /// # fn show(dispatcher: &EventDispatcher) -> Result<()> {
    /// if let Some(taken) = dispatcher.dequeue_stamped()? {
    ///     println!("{:?} at {:?} ns since 1970", taken.event.data, taken.nanoseconds);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::dequeue`]; `DAT_MODEL_NOT_SUPPORTED` if completions of the device, or on its data
    /// path, have no time stamps.
    pub fn dequeue_stamped(&self) -> Result<Option<Stamped>> {
        match evd::dequeue_stamped(evd::own(self.0.handle).map_err(EvdRefusal::from)?) {
            Ok(taken) => Ok(Some(taken)),
            Err(error) if error.code().is(ReturnType::QueueEmpty) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits as [`Self::wait_for`] does, and returns the time of the event as
    /// [`Self::dequeue_stamped`] does.
    ///
    /// # Errors
    /// As both.
    pub fn wait_stamped(
        &self,
        threshold: u32,
        timeout: Option<Duration>,
    ) -> Result<Stamped<Waited>> {
        let threshold = i32::try_from(threshold).unwrap_or(i32::MAX);
        let mut owned = evd::own(self.0.handle).map_err(EvdRefusal::from)?;
        let waited = evd::wait_stamped(&mut owned, limit(timeout), threshold)?;
        Ok(Stamped {
            event: Waited {
                event: waited.event.result?,
                more: waited.event.nmore,
            },
            nanoseconds: waited.nanoseconds,
        })
    }

    /// Waits for an event; a timeout of `None` waits for ever.
    ///
    /// # Errors
    /// `DAT_TIMEOUT_EXPIRED`; `DAT_INTERRUPTED_CALL` after a signal; `DAT_INVALID_STATE` if another
    /// thread waits already or [`Self::set_unwaitable`] was called; `DAT_ABORT` when the adapter is
    /// closed meanwhile.
    #[inline]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Event, DatReturn> {
        self.wait_for(1, timeout).map(|waited| waited.event)
    }

    /// Waits until `threshold` events are there, and takes the first.
    ///
    /// # Errors
    /// As [`Self::wait`]; also `DAT_INVALID_PARAMETER` for a threshold of 0 or above the
    /// dispatcher's length.
    #[inline]
    pub fn wait_for(&self, threshold: u32, timeout: Option<Duration>) -> Result<Waited, DatReturn> {
        let threshold = i32::try_from(threshold).unwrap_or(i32::MAX);
        match evd::take_counted(own(self.0.handle)?, threshold) {
            Ok((event, more)) => Ok(Waited { event, more }),
            Err(None) if threshold == 1 && timeout == Some(Duration::ZERO) => {
                Err(EvdRefusal::TimedOut.code())
            }
            Err(owned) => wait_slow(self.0.handle, owned, timeout, threshold),
        }
    }

    /// Posts a software event that carries this value.
    ///
    /// # Errors
    /// The dispatcher was not created for [`EvdFlags::SOFTWARE`], or is full.
    pub fn post(&self, value: usize) -> Result<(), DatReturn> {
        Ok(self.with(|evd| evd.post_software(value))??)
    }

    /// Makes the dispatcher unwaitable: the wait in progress and all later ones fail with
    /// `DAT_INVALID_STATE`, until [`Self::clear_unwaitable`]. Events can still be taken with
    /// [`Self::dequeue`].
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn set_unwaitable(&self) -> Result<(), DatReturn> {
        self.with(Evd::set_unwaitable)
    }

    /// Makes the dispatcher waitable again after [`Self::set_unwaitable`].
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn clear_unwaitable(&self) -> Result<(), DatReturn> {
        self.with(Evd::clear_unwaitable)
    }

    /// Binds the dispatcher to a notification object, or to none. Events that are already there
    /// trigger it.
    ///
    /// # Errors
    /// It belongs to another adapter; the adapter was closed; the process cannot watch another
    /// descriptor; the dispatcher has a descriptor of its own ([`Self::arm`]) or has had a stream.
    pub fn set_cno(&self, cno: Option<&Cno>) -> Result<()> {
        let evd = self.evd()?;
        // Locked so that the object that is owned is the one that is bound.
        let mut kept = self.0.cno.lock();
        if self.0.notifier.get().is_some() {
            return Err(bound(
                "the dispatcher has a descriptor of its own: poll that, or create a dispatcher",
            ));
        }
        evd.set_cno(cno.map(Cno::object))?;
        let before = core::mem::replace(&mut *kept, cno.cloned());
        drop(kept);
        drop(before);
        Ok(())
    }

    /// Arms the descriptor of the dispatcher ([`AsFd`]), which the first call creates. From now on
    /// it becomes readable by an event that arrives, and sometimes without one. So: arm it, take
    /// all events, then poll the descriptor, with a runtime or by `epoll`, also edge-triggered. No
    /// event is missed. Taking events does not arm it.
    ///
    /// ```no_run
    /// use std::os::fd::AsRawFd;
    ///
    /// use dat_api::safe::EventDispatcher;
    ///
    /// fn serve(dispatcher: &EventDispatcher) -> dat_api::Result<()> {
    ///     loop {
    ///         dispatcher.arm()?;
    ///         for event in dispatcher.events() {
    ///             println!("{:?}", event?.data);
    ///         }
    ///         // Here a runtime waits until the descriptor is readable (tokio's AsyncFd).
    ///         let mut entry = libc::pollfd {
    ///             fd: dispatcher.as_raw_fd(),
    ///             events: libc::POLLIN,
    ///             revents: 0,
    ///         };
    ///         // SAFETY: one entry, of a descriptor that lives as long as the dispatcher.
    ///         unsafe { libc::poll(&raw mut entry, 1, -1) };
    ///     }
    /// }
    /// ```
    ///
    /// A thread that waits on the dispatcher takes the events meanwhile; when it returns, the
    /// descriptor becomes readable. Several dispatchers share one descriptor if they are bound to a
    /// [`Cno`].
    ///
    /// # Errors
    /// The process has no descriptors left, of which this takes four; the dispatcher is bound to a
    /// notification object, which has a descriptor itself; the device failed; the adapter was
    /// closed.
    pub fn arm(&self) -> Result<()> {
        self.notifier()?.arm()
    }

    /// Returns the notification object of its own, which the first call creates and binds.
    pub(super) fn notifier(&self) -> Result<&Cno> {
        // Locked so that no other one is bound meanwhile.
        let kept = self.0.cno.lock();
        if let Some(notifier) = self.0.notifier.get() {
            return Ok(notifier);
        }
        let evd = self.evd()?;
        if kept.is_some() || evd.query().cno.is_some() {
            return Err(bound(
                "the dispatcher is bound to a notification object: poll the descriptor of that one",
            ));
        }
        let notifier = self.0.adapter.create_cno()?;
        evd.set_cno(Some(notifier.object()))?;
        Ok(self.0.notifier.get_or_init(|| notifier))
    }

    /// Stops events from triggering the notification object, or the descriptor, until [`Self::enable`].
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn disable(&self) -> Result<(), DatReturn> {
        self.with(Evd::disable)
    }

    /// Lets events trigger the notification object again; those that arrived meanwhile trigger it
    /// too.
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn enable(&self) -> Result<(), DatReturn> {
        self.with(Evd::enable)
    }

    /// Makes the dispatcher hold `length` events, more or fewer than before. No event is lost.
    ///
    /// # Errors
    /// A length of 0 or above the adapter's limit; more events than that are there, or a thread
    /// waits with a higher threshold; no memory.
    pub fn resize(&self, length: u32) -> Result<()> {
        self.evd()?
            .resize(i32::try_from(length).unwrap_or(i32::MAX))
    }

    /// Returns the counters of waits on it.
    ///
    /// # Errors
    /// The adapter was closed.
    pub fn wait_counters(&self) -> Result<WaitCounters, DatReturn> {
        self.with(Evd::counters)
    }

    /// Keeps the memory that an endpoint has used until no thread can be copying payload of its
    /// completions any more.
    pub(super) fn keep(&self, remains: Arc<LingeringMemory>) {
        let mut all = self.0.remains.lock();
        all.push(remains);
        // A thread that owns the dispatcher now began after the endpoint was freed.
        if let Ok(owned) = handle::own::<Evd>(self.0.handle) {
            let gone = core::mem::take(&mut *all);
            drop(owned);
            drop(all);
            drop(gone);
        }
    }

    fn with<T>(&self, call: impl FnOnce(&Evd) -> T) -> Result<T, DatReturn> {
        let evd = handle::pin::<Evd>(self.0.handle).ok_or(EvdRefusal::Freed)?;
        Ok(call(&evd))
    }

    /// Returns the object, to attach a stream to it.
    pub(super) fn evd(&self) -> Result<Arc<Evd>> {
        match handle::pin::<Evd>(self.0.handle) {
            Some(evd) => Ok(evd.to_arc()),
            None => Err(EvdRefusal::Freed.into()),
        }
    }
}

/// The error of a dispatcher that is bound to another notification object.
pub(super) fn bound(cause: &'static str) -> DatError {
    DatError::new(ReturnType::InvalidState, Subtype::NoSubtype, cause)
}

/// The descriptor for [`EventDispatcher::arm`], which creates it.
///
/// # Panics
/// If [`EventDispatcher::arm`] was not called, and would return an error.
impl AsFd for EventDispatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let notifier = self.notifier();
        let notifier = notifier.expect("a call of arm before this one returns this as an error");
        notifier.as_fd()
    }
}

impl AsRawFd for EventDispatcher {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// An iterator over the events that are there: [`EventDispatcher::events`].
#[derive(Debug)]
pub struct Events<'d> {
    dispatcher: &'d EventDispatcher,
    failed: bool,
}

impl Iterator for Events<'_> {
    type Item = Result<Event, DatReturn>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.dispatcher.dequeue();
        self.failed = next.is_err();
        next.transpose()
    }
}

impl<'d> IntoIterator for &'d EventDispatcher {
    type Item = Result<Event, DatReturn>;
    type IntoIter = Events<'d>;

    fn into_iter(self) -> Events<'d> {
        self.events()
    }
}

/// Converts a timeout to the microseconds of DAT; a timeout that is too long (over an hour) becomes
/// the longest.
pub(super) fn limit(timeout: Option<Duration>) -> Timeout {
    match timeout {
        None => Timeout::Infinite,
        Some(time) => {
            // The largest value means "infinite" in C.
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
