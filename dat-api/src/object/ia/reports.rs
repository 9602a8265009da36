//! Where the asynchronous events of an IA go.

use std::any::Any;
use std::sync::{Arc, Weak};

use super::Ia;
use crate::handle::{Handle, Kind};
use crate::per_process::PerProcess;
use crate::types::{AsyncKind, AsyncReason, EventData};
use dat_engine::sync::Mutex;

/// The asynchronous EVD of an IA, if it has one.
#[derive(Default)]
pub(in crate::object) struct Reports(Mutex<Target>);

#[derive(Default)]
enum Target {
    /// To no EVD: the IA is being opened or closed, or the EVD that it was given is gone.
    #[default]
    Nowhere,
    /// To the EVD that was created for the IA.
    Own(AsyncStream),
    /// To an EVD that was given.
    Given(AsyncStream),
    /// To the EVD of another IA of the same device.
    Elsewhere,
}

/// An EVD that asynchronous events go to.
pub(crate) struct AsyncStream {
    evd: Handle,
    /// The IA of the EVD.
    ia: Arc<Ia>,
    /// Keeps the EVD from being freed.
    _guard: Box<dyn Any + Send + Sync>,
}

impl AsyncStream {
    /// Returns a stream to an EVD of that IA; the guard keeps the EVD from being freed.
    pub(crate) fn new(evd: Handle, ia: &Arc<Ia>, guard: Box<dyn Any + Send + Sync>) -> Self {
        Self {
            evd,
            ia: Arc::clone(ia),
            _guard: guard,
        }
    }
}

/// The open IAs, among which an IA finds the EVD of another.
static OPEN: PerProcess<Vec<Weak<Ia>>> = PerProcess::new();

/// Adds an open IA.
pub(super) fn enlist(ia: &Arc<Ia>) {
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() != 0);
    open.push(Arc::downgrade(ia));
}

/// Removes an IA that is being closed: other IAs no longer send their events to its EVD.
pub(super) fn delist(ia: &Ia) {
    let others: Vec<Arc<Ia>> = {
        let mut open = OPEN.lock();
        open.retain(|other| !core::ptr::eq(other.as_ptr(), ia));
        open.iter().filter_map(Weak::upgrade).collect()
    };
    for other in others {
        other.reports.forget(ia);
    }
}

impl Reports {
    pub(crate) fn set_own(&self, stream: AsyncStream) {
        *self.0.lock() = Target::Own(stream);
    }

    pub(crate) fn set(&self, stream: AsyncStream) {
        *self.0.lock() = Target::Given(stream);
    }

    pub(crate) fn set_elsewhere(&self) {
        *self.0.lock() = Target::Elsewhere;
    }

    /// Returns the EVD, if it is live.
    pub(super) fn evd(&self) -> Option<Handle> {
        self.target().filter(|evd| evd.kind() == Some(Kind::Evd))
    }

    /// Returns the EVD that was created for the IA.
    pub(crate) fn own(&self) -> Option<Handle> {
        match &*self.0.lock() {
            Target::Own(stream) => Some(stream.evd),
            _ => None,
        }
    }

    /// Reports to no EVD from now on; returns the EVD that was created for the IA.
    pub(super) fn clear(&self) -> Option<Handle> {
        let own = self.own();
        // The stream is dropped without the lock.
        let before = core::mem::take(&mut *self.0.lock());
        drop(before);
        own
    }

    /// Forgets the given EVD if it belongs to an IA that is being closed.
    fn forget(&self, gone: &Ia) {
        let mut target = self.0.lock();
        let stream = match &*target {
            Target::Given(stream) if core::ptr::eq(&raw const *stream.ia, gone) => {
                core::mem::take(&mut *target)
            }
            _ => return,
        };
        drop(target);
        drop(stream);
    }

    fn target(&self) -> Option<Handle> {
        match &*self.0.lock() {
            Target::Own(stream) | Target::Given(stream) => Some(stream.evd),
            Target::Nowhere | Target::Elsewhere => None,
        }
    }

    fn is_elsewhere(&self) -> bool {
        matches!(*self.0.lock(), Target::Elsewhere)
    }
}

/// Posts an asynchronous event of an IA. Holds no lock while it posts.
pub(super) fn report(ia: &Ia, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
    let data = EventData::Async {
        kind,
        handle,
        reason,
    };
    let target = ia.reports.target().or_else(|| elsewhere(ia));
    let taken = target.is_some_and(|evd| (evd.upcalls().take_event)(evd, data));
    if taken {
        tracing::debug!(?kind, ?handle, ?reason, "asynchronous event");
    } else {
        tracing::error!(
            ?kind,
            ?handle,
            ?reason,
            ia = ia.name(),
            "asynchronous event lost: no asynchronous EVD, or it is full"
        );
    }
}

/// Returns the EVD of another open IA of the same device.
fn elsewhere(ia: &Ia) -> Option<Handle> {
    if !ia.reports.is_elsewhere() {
        return None;
    }
    let others: Vec<Arc<Ia>> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    others
        .iter()
        .filter(|other| other.device.info().guid == ia.device.info().guid)
        .find_map(|other| other.reports.target())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::tests::in_child;

    #[test]
    fn a_child_lists_its_own_adapters_while_a_thread_of_the_parent_does() {
        let mut held = OPEN.lock();
        held.push(Weak::new());
        let answer = in_child(|| OPEN.lock().len() as u8);
        held.pop();
        assert_eq!(answer, 0);
    }
}
