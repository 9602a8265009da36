//! The list of an IA's objects, which closing the IA uses.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::Result;
use crate::handle::{Handle, Kind, Object, Reservation, Upcalls};
use crate::object::counters::Counters;
use crate::object::{exhausted, ia::Ia, stale};
use dat_engine::memory;
use dat_engine::sync::Mutex;

/// The order in which an abrupt close frees objects: an object before those that it uses. The IA's
/// own EVD comes after all of them.
const ORDER: [Kind; 11] = [
    Kind::Rmr,
    Kind::Rsp,
    Kind::Cr,
    Kind::Ep,
    Kind::Lmr,
    Kind::Psp,
    Kind::Srq,
    Kind::Pz,
    Kind::Evd,
    Kind::Cno,
    Kind::Ia,
];

/// The objects of an IA.
#[derive(Default)]
pub(super) struct Children(Mutex<ChildList>);

#[derive(Default)]
struct ChildList {
    /// The IA is being closed: no object can be added.
    closed: bool,
    live: HashMap<Handle, Record>,
    /// Those of them that are EVDs.
    evds: HashSet<Handle>,
    /// Room for all of them, for [`Children::close`], which needs no memory.
    left: Vec<Remaining>,
    /// The counters of freed objects.
    past: Counters,
}

#[derive(Clone, Copy)]
struct Record {
    kind: Kind,
    /// Whether the consumer created it.
    consumers: bool,
    upcalls: &'static Upcalls,
}

/// An object that is freed with its IA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    pub(super) kind: Kind,
    pub(super) handle: Handle,
    pub(super) upcalls: &'static Upcalls,
}

impl Children {
    /// Publishes an object, which the consumer created, or the provider.
    pub(super) fn publish<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
        consumers: bool,
    ) -> Result<Handle> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(stale::<Ia>());
        }
        let fallible = memory::Call::fallible();
        let count = state.live.len() + 1;
        let room = state.live.try_reserve(1);
        let room =
            room.and(state.evds.try_reserve(1)).is_ok() && state.left.try_reserve(count).is_ok();
        drop(fallible);
        if !room {
            return Err(exhausted());
        }
        // Under the lock: a close finds the object listed and live, or the object is not published
        // at all.
        let handle = place.publish(Arc::clone(object));
        let record = Record {
            kind: T::KIND,
            consumers,
            upcalls: T::UPCALLS,
        };
        state.live.insert(handle, record);
        if T::KIND == Kind::Evd {
            state.evds.insert(handle);
        }
        Ok(handle)
    }

    /// Sets whether an object belongs to the consumer; does nothing if it is not listed.
    pub(super) fn set_owner(&self, handle: Handle, consumers: bool) {
        if let Some(record) = self.0.lock().live.get_mut(&handle) {
            record.consumers = consumers;
        }
    }

    /// Returns the EVDs, without a search through the other objects, of which there may be
    /// thousands.
    pub(super) fn evds(&self) -> Vec<Handle> {
        self.0.lock().evds.iter().copied().collect()
    }

    pub(super) fn endpoints(&self) -> Vec<Handle> {
        let state = self.0.lock();
        let all = state.live.iter();
        all.filter(|(_, record)| record.kind == Kind::Ep)
            .map(|(&handle, _)| handle)
            .collect()
    }

    /// Removes an object from the list.
    pub(super) fn remove(&self, handle: Handle) {
        let mut state = self.0.lock();
        state.evds.remove(&handle);
        if let Some(record) = state.live.remove(&handle)
            && let Some(counters) = (record.upcalls.counters)(handle)
        {
            state.past += counters;
        }
    }

    /// Returns the sum of the counters of all objects, including freed ones.
    pub(super) fn counters(&self) -> Counters {
        let state = self.0.lock();
        let mut sum = state.past;
        // Pinned under the lock. A call that frees an object waits for the pin, and does not hold
        // this lock.
        for (&handle, record) in &state.live {
            sum += (record.upcalls.counters)(handle).unwrap_or_default();
        }
        sum
    }

    /// Closes the list: no object can be added any more. Returns the remaining objects, in the
    /// order in which they must be freed.
    ///
    /// # Errors
    /// `None`: it is closed already. A text, only with `only_if_empty`: the consumer's remaining
    /// objects; the list stays open.
    pub(super) fn close(&self, only_if_empty: bool) -> Result<Vec<Remaining>, Option<String>> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(None);
        }
        if only_if_empty && state.live.values().any(|record| record.consumers) {
            return Err(Some(counts(&state)));
        }
        state.closed = true;
        state.evds.clear();
        let ChildList { live, left, .. } = &mut *state;
        left.extend(live.drain().map(|(handle, record)| Remaining {
            kind: record.kind,
            handle,
            upcalls: record.upcalls,
        }));
        let mut left = core::mem::take(left);
        left.sort_unstable_by_key(|one| (place_of(one.kind), one.handle));
        Ok(left)
    }
}

fn place_of(kind: Kind) -> usize {
    ORDER
        .iter()
        .position(|&other| other == kind)
        .unwrap_or(ORDER.len())
}

/// Returns a text with the objects that the consumer has not freed.
fn counts(state: &ChildList) -> String {
    let of = |kind| {
        let records = state.live.values();
        records
            .filter(|record| record.consumers && record.kind == kind)
            .count()
    };
    let left: Vec<String> = ORDER
        .into_iter()
        .map(|kind| (kind, of(kind)))
        .filter(|&(_, count)| count != 0)
        .map(|(kind, count)| format!("{count} {kind:?}"))
        .collect();
    format!("not freed yet: {}", left.join(", "))
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use crate::handle;
    use crate::status::{ReturnType, Subtype};

    struct TestObject<const KIND: u8>;

    impl<const KIND: u8> TestObject<KIND>
    where
        Self: Object,
    {
        const UPCALLS: Upcalls = Upcalls {
            abort: |handle| drop(handle::retire::<Self>(handle, |_| ())),
            ..Upcalls::NONE
        };
    }

    // SAFETY: nothing in these tests looks for a real object of the kind.
    unsafe impl Object for TestObject<0> {
        const KIND: Kind = Kind::Rmr;
        const UPCALLS: &'static Upcalls = &Self::UPCALLS;
    }

    // SAFETY: nothing in these tests looks for a real object of the kind.
    unsafe impl Object for TestObject<1> {
        const KIND: Kind = Kind::Rsp;
        const UPCALLS: &'static Upcalls = &Self::UPCALLS;
    }

    // SAFETY: nothing in these tests looks for a real object of the kind.
    unsafe impl Object for TestObject<2> {
        const KIND: Kind = Kind::Cno;
        const UPCALLS: &'static Upcalls = &Self::UPCALLS;
    }

    fn add<T: Object>(children: &Children, thing: T) -> Result<Handle> {
        let place = Reservation::new().expect("a slot");
        children.publish(place, &Arc::new(thing), true)
    }

    #[test]
    fn an_empty_list_closes_once_and_then_refuses_objects() {
        let children = Children::default();
        let first = add(&children, TestObject::<0>).expect("open");
        children.remove(first);
        assert!(children.close(true).expect("empty").is_empty());
        assert_eq!(children.close(false).err(), Some(None));
        let code = add(&children, TestObject::<0>).expect_err("closed").code();
        assert_eq!(code.kind(), Some(ReturnType::InvalidHandle));
        assert_eq!(code.subtype(), Some(Subtype::InvalidHandleIa));
        handle::retire::<TestObject<0>>(first, |_| ());
    }

    #[test]
    fn remaining_objects_are_counted_or_freed_in_order() {
        let children = Children::default();
        add(&children, TestObject::<2>).expect("open");
        add(&children, TestObject::<0>).expect("open");
        add(&children, TestObject::<1>).expect("open");
        add(&children, TestObject::<0>).expect("open");
        let refusal = children.close(true).expect_err("four objects");
        assert_eq!(
            refusal.as_deref(),
            Some("not freed yet: 2 Rmr, 1 Rsp, 1 Cno")
        );
        let left = children.close(false).expect("abrupt");
        let kinds: Vec<Kind> = left.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [Kind::Rmr, Kind::Rmr, Kind::Rsp, Kind::Cno]);
        for one in left {
            assert_eq!(one.handle.kind(), Some(one.kind));
            // SAFETY: nothing is posted to it.
            unsafe { (one.upcalls.abort)(one.handle) };
            assert_eq!(one.handle.kind(), None);
        }
    }

    #[test]
    fn objects_of_the_provider_do_not_keep_an_ia_open() {
        let children = Children::default();
        let place = Reservation::new().expect("a slot");
        let handle = children
            .publish(place, &Arc::new(TestObject::<1>), false)
            .expect("open");
        let left = children.close(true).expect("nothing of the consumer");
        assert_eq!(left.len(), 1);
        handle::retire::<TestObject<1>>(handle, |_| ());
    }

    #[test]
    fn every_kind_has_a_place_in_the_closing_order() {
        for kind in Kind::ALL {
            assert!(place_of(kind) < ORDER.len(), "{kind:?}");
        }
    }
}
