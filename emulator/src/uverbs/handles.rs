//! The objects of one open device file, by their handles.
//!
//! As in the kernel, all kinds share one number space, the lowest free number is
//! used first, and an object in use cannot be destroyed.

use std::collections::BTreeSet;

use libc::{EBUSY, EINVAL, ENOENT, ENOMEM};

use crate::refusal::{OrRefuse, refuse};
use crate::spec::{Access, ChannelId, Cqn, PdId, Qpn, Result, Srqn};

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pd {
    /// The NIC's number of it.
    pub(super) id: PdId,
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mr {
    /// The NIC's handle.
    pub(super) nic_handle: u32,
    /// Local key.
    pub(super) lkey: u32,
    /// Remote key.
    pub(super) rkey: u32,
    /// Start address in this process.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) length: u64,
    /// The address that peers use.
    pub(super) iova: u64,
    /// Access flags.
    pub(super) access: Access,
}

/// A memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mw {
    /// The NIC's handle.
    pub(super) nic_handle: u32,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cq {
    /// Number.
    pub(super) cqn: Cqn,
    /// libibverbs' handle in events.
    pub(super) user_handle: u64,
    /// The channel of its completion events.
    pub(super) channel: Option<ChannelId>,
    /// Maximum number of CQEs.
    pub(super) cqe: u32,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Srq {
    /// Number.
    pub(super) srqn: Srqn,
    /// libibverbs' handle in events.
    pub(super) user_handle: u64,
    /// Maximum number of posted receives.
    pub(super) max_wr: u32,
    /// Segments per receive, as requested.
    pub(super) max_sge: u32,
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qp {
    /// Number.
    pub(super) qpn: Qpn,
    /// libibverbs' handle in events.
    pub(super) user_handle: u64,
    /// QP type (`IB_QPT_RC`, …).
    pub(super) kind: u8,
    /// Whether every request generates a CQE.
    pub(super) signal_all: bool,
    /// Length of the receive queue, as queries report it.
    pub(super) max_recv_wr: u32,
    /// Segments per receive.
    pub(super) max_recv_sge: u32,
    /// The doorbell register that the kernel assigned to it.
    pub(super) register: Option<u32>,
}

/// An address handle. It has no state: a datagram's WQE contains the whole address
/// vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ah;

/// A doorbell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uar {
    /// Page index in the memory file.
    pub(super) page: u32,
}

/// An object of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Object {
    Pd(Pd),
    Mr(Mr),
    Mw(Mw),
    Cq(Cq),
    Srq(Srq),
    Qp(Qp),
    Ah(Ah),
    Uar(Uar),
}

/// A kind of object, for lookups by handle.
pub(super) trait Kind: Copy {
    /// Returns the object if it is of this kind.
    fn of(object: &Object) -> Option<Self>;
    /// Returns the object as one of any kind.
    fn into_object(self) -> Object;
}

macro_rules! kinds {
    ($($kind:ident)*) => {$(
        impl Kind for $kind {
            fn of(object: &Object) -> Option<Self> {
                match object {
                    Object::$kind(it) => Some(*it),
                    _ => None,
                }
            }
            fn into_object(self) -> Object {
                Object::$kind(self)
            }
        }
    )*};
}
kinds!(Pd Mr Mw Cq Srq Qp Ah Uar);

/// Handles of the objects that an object uses; they cannot be destroyed before it.
type Parents = Vec<u32>;

#[derive(Debug)]
struct HeldObject {
    object: Object,
    users: u32,
    parents: Parents,
}

/// The table of handles.
#[derive(Debug, Default)]
pub(super) struct Handles {
    slots: Vec<Option<HeldObject>>,
    free: BTreeSet<usize>,
}

/// Maximum number of objects of one open file.
const MAX_HANDLES: usize = 1 << 21;

impl Handles {
    /// Adds an object that uses `parents`.
    ///
    /// # Errors
    /// `ENOMEM` if the table is full.
    pub(super) fn insert<K: Kind>(&mut self, object: K, parents: &[u32]) -> Result<u32> {
        let handle = match self.free.pop_first() {
            Some(free) => free,
            None if self.slots.len() < MAX_HANDLES => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => {
                return Err(refuse(ENOMEM, "the context has too many objects"));
            }
        };
        for &parent in parents {
            self.count_users(parent, 1);
        }
        self.slots[handle] = Some(HeldObject {
            object: object.into_object(),
            users: 0,
            parents: parents.to_vec(),
        });
        Ok(u32::try_from(handle).expect("MAX_HANDLES fits"))
    }

    /// Returns an object by its handle.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, `EINVAL` if it is of another kind, as in the
    /// kernel's `rdma_lookup_get_uobject`.
    pub(super) fn get<K: Kind>(&self, handle: u32) -> Result<K> {
        let entry = self
            .slots
            .get(handle as usize)
            .and_then(Option::as_ref)
            .or_refuse(ENOENT, "no object has this handle, or it is destroyed")?;
        K::of(&entry.object).or_refuse(EINVAL, "the handle is that of another kind of object")
    }

    /// Returns an object that is about to be destroyed.
    ///
    /// # Errors
    /// The same as for [`Handles::get`], and `EBUSY` while other objects use it.
    pub(super) fn get_unused<K: Kind>(&self, handle: u32) -> Result<K> {
        let found = self.get(handle)?;
        match self.slots[handle as usize].as_ref() {
            Some(entry) if entry.users > 0 => Err(refuse(
                EBUSY,
                "other objects still use it: destroy queue pairs before queues, and all before \
                 the protection domain",
            )),
            _ => Ok(found),
        }
    }

    /// Replaces the attributes of an object.
    pub(super) fn replace<K: Kind>(&mut self, handle: u32, object: K) {
        if let Some(Some(entry)) = self.slots.get_mut(handle as usize) {
            entry.object = object.into_object();
        }
    }

    /// Replaces the attributes of an object, and the objects that it uses.
    pub(super) fn move_to<K: Kind>(&mut self, handle: u32, object: K, parents: &[u32]) {
        for &parent in parents {
            self.count_users(parent, 1);
        }
        let Some(Some(entry)) = self.slots.get_mut(handle as usize) else {
            return;
        };
        entry.object = object.into_object();
        let before = std::mem::replace(&mut entry.parents, parents.to_vec());
        for parent in before {
            self.count_users(parent, -1);
        }
    }

    fn count_users(&mut self, parent: u32, by: i32) {
        if let Some(Some(entry)) = self.slots.get_mut(parent as usize) {
            entry.users = entry.users.saturating_add_signed(by);
        }
    }

    /// Returns the handles of the objects that an object uses.
    pub(super) fn parents(&self, handle: u32) -> Vec<u32> {
        let entry = self.slots.get(handle as usize).and_then(Option::as_ref);
        entry.map_or_else(Vec::new, |entry| entry.parents.clone())
    }

    /// Removes an object after the NIC has destroyed it.
    pub(super) fn remove(&mut self, handle: u32) {
        let Some(entry) = self.slots.get_mut(handle as usize).and_then(Option::take) else {
            return;
        };
        self.free.insert(handle as usize);
        for parent in entry.parents {
            self.count_users(parent, -1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Errno;

    #[test]
    fn the_lowest_free_handle_is_reused_first() {
        let mut handles = Handles::default();
        let pd = |n| Pd { id: PdId(n) };
        assert_eq!(handles.insert(pd(1), &[]), Ok(0));
        assert_eq!(handles.insert(pd(2), &[]), Ok(1));
        handles.remove(0);
        assert_eq!(handles.get::<Pd>(0), Err(Errno(ENOENT)));
        assert_eq!(handles.insert(pd(3), &[]), Ok(0));
    }

    #[test]
    fn a_handle_of_another_kind_is_invalid_and_an_object_in_use_is_busy() {
        let mut handles = Handles::default();
        let pd = handles.insert(Pd { id: PdId(1) }, &[]).unwrap();
        let mr = Mr {
            nic_handle: 1,
            lkey: 2,
            rkey: 2,
            start: 0,
            length: 8,
            iova: 0,
            access: Access::empty(),
        };
        let mr = handles.insert(mr, &[pd]).unwrap();
        assert_eq!(handles.get::<Cq>(pd), Err(Errno(EINVAL)));
        assert_eq!(handles.get_unused::<Pd>(pd), Err(Errno(EBUSY)));
        let other = handles.insert(Pd { id: PdId(2) }, &[]).unwrap();
        let moved: Mr = handles.get(mr).unwrap();
        handles.move_to(mr, moved, &[other]);
        assert!(handles.get_unused::<Pd>(pd).is_ok());
        assert_eq!(handles.get_unused::<Pd>(other), Err(Errno(EBUSY)));
        handles.move_to(mr, moved, &[pd]);
        handles.remove(mr);
        assert!(handles.get_unused::<Pd>(pd).is_ok());
    }
}
