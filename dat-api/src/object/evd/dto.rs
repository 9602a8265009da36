//! Attaching endpoints: which completion queue of an EVD an endpoint reports
//! to, so that none can overflow.
//!
//! An EVD begins without a completion queue. The first endpoint brings one, and
//! one that does not fit brings another: a queue is never resized, since its
//! memory would move under the device and under us. All of them share one
//! channel. An endpoint that leaves may leave crossed-out completions behind,
//! which take up room until they are polled: its depth is free again when the
//! owner has gone through the queues.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use dat_engine::{CompletionChannel, CompletionQueueHandle};

use super::Evd;
use super::create::no_memory;
use super::feed;
use super::posted::{Letter, with_room};
use super::queue::Queue;
use super::streams::{StreamKind, Streams, check_flag};
use super::take::{Attended, pause};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::cno::Cno;
use crate::object::usage::Use;
use crate::status::{ReturnType, Subtype};
use crate::types::CompletionFlags;

/// Times of [`pause`] that the owner of an EVD is given to let go of it: some 10
/// milliseconds, most of them asleep.
const OWNERS_ROUNDS: u32 = 300;

/// What an endpoint reports to an EVD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DtoRole {
    /// Its requests.
    Request {
        /// Completions that can be outstanding at most, markers included.
        depth: u32,
    },
    /// Receives of its own queue.
    Recv {
        /// Completions that can be outstanding at most.
        depth: u32,
    },
    /// Receives that it takes from an SRQ.
    SharedRecv {
        /// The SRQ.
        srq: Handle,
        /// Receives that the SRQ holds.
        depth: u32,
    },
}

impl DtoRole {
    fn is_request(self) -> bool {
        matches!(self, Self::Request { .. })
    }

    fn depth(self) -> u32 {
        match self {
            Self::Request { depth } | Self::Recv { depth } | Self::SharedRecv { depth, .. } => {
                depth
            }
        }
    }

    fn srq(self) -> Option<Handle> {
        match self {
            Self::SharedRecv { srq, .. } => Some(srq),
            _ => None,
        }
    }

    fn subtype(self) -> Subtype {
        if self.is_request() {
            Subtype::InvalidHandleEvdRequest
        } else {
            Subtype::InvalidHandleEvdRecv
        }
    }
}

/// Who is attached to an EVD, and to which of its queues.
pub(super) struct Ledger {
    /// Events that the consumer asked it to hold.
    pub(super) asked: u32,
    pub(super) streams: Streams,
    /// The CNO that the EVD feeds, kept from being freed.
    pub(super) cno: Option<Use<Cno>>,
    /// Room for staged events that the owner has been given, beyond the first.
    room: usize,
    pub(super) channel: Option<CompletionChannel>,
    queues: Vec<Account>,
    /// SRQs whose receives are reported here.
    shared: Vec<Shared>,
}

/// The room of one completion queue.
struct Account {
    /// None in tests.
    queue: Option<CompletionQueueHandle>,
    capacity: u32,
    /// Promised to streams.
    used: u32,
    /// Of `used`: given up, and free once the letter of that number is done.
    leaving: Vec<(u32, u32)>,
}

struct Shared {
    srq: Handle,
    queue: usize,
    users: u32,
    /// Receives that it holds.
    depth: u32,
}

impl Ledger {
    /// Nobody is attached.
    pub(super) fn new(asked: u32) -> Self {
        Self {
            asked,
            streams: Streams::default(),
            cno: None,
            room: 0,
            channel: None,
            queues: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// All that can be outstanding.
    pub(super) fn depth(&self) -> u32 {
        self.queues
            .iter()
            .map(|account| account.used)
            .fold(0, u32::saturating_add)
    }

    /// All that the queues hold.
    fn capacity(&self) -> usize {
        self.queues
            .iter()
            .map(|account| account.capacity as usize)
            .sum()
    }

    /// The queues of the device, to be watched no more.
    pub(super) fn queues(&self) -> impl Iterator<Item = &CompletionQueueHandle> {
        self.queues
            .iter()
            .filter_map(|account| account.queue.as_ref())
    }

    /// A queue with room, if there is one; the room is not taken yet.
    fn find(&mut self, role: DtoRole, is_done: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        if let Some(srq) = role.srq()
            && let Some(shared) = self.shared.iter().find(|shared| shared.srq == srq)
        {
            return Some((shared.queue, 0));
        }
        let depth = role.depth();
        for (index, account) in self.queues.iter_mut().enumerate() {
            account.leaving.retain(|&(letter, depth)| {
                let done = is_done(letter);
                if done {
                    account.used -= depth;
                }
                !done
            });
            if account.capacity - account.used >= depth {
                return Some((index, depth));
            }
        }
        None
    }

    fn enter(&mut self, role: DtoRole, queue: usize, depth: u32) {
        self.queues[queue].used += depth;
        if let Some(srq) = role.srq() {
            match self.shared.iter_mut().find(|shared| shared.srq == srq) {
                Some(shared) => shared.users += 1,
                None => self.shared.push(Shared {
                    srq,
                    queue,
                    users: 1,
                    depth,
                }),
            }
        }
    }

    /// What of the room of a queue is to be freed.
    fn leave(&mut self, role: DtoRole) -> u32 {
        let Some(srq) = role.srq() else {
            return role.depth();
        };
        let Some(at) = self.shared.iter().position(|shared| shared.srq == srq) else {
            return 0;
        };
        self.shared[at].users -= 1;
        if self.shared[at].users > 0 {
            return 0;
        }
        self.shared.swap_remove(at).depth
    }
}

/// A DTO stream of an endpoint, attached to an EVD while this lives. The
/// endpoint (or the queue pair of it) must go first.
pub(crate) struct DtoStream {
    evd: Use<Evd>,
    role: DtoRole,
    queue: usize,
    cq: Option<CompletionQueueHandle>,
}

impl DtoStream {
    /// The EVD.
    pub(crate) fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// The completion queue that the endpoint is to report to.
    pub(crate) fn cq(&self) -> &CompletionQueueHandle {
        match &self.cq {
            Some(cq) => cq,
            None => unreachable!("tests without a device make no endpoints"),
        }
    }
}

#[cfg(test)]
impl DtoStream {
    pub(super) fn queue(&self) -> usize {
        self.queue
    }

    pub(super) fn depth(&self) -> u32 {
        self.role.depth()
    }
}

impl Evd {
    /// Attaches the completions of an endpoint, which is configured by `flags`
    /// (its recv or its request completion flags). There is room for all of
    /// them from now on. To be called, and the stream dropped, outside of locks
    /// that completion hooks of endpoints take: they may be called meanwhile.
    ///
    /// # Errors
    /// `INVALID_HANDLE` with the subtype of the role if the EVD is not made for
    /// completions or is being freed; `INVALID_PARAMETER` if the flags do not
    /// match those of the other streams on it; resources.
    pub(crate) fn attach_dto(
        self: &Arc<Self>,
        role: DtoRole,
        flags: CompletionFlags,
    ) -> Result<DtoStream> {
        check_flag(self, StreamKind::Dto, role.subtype())?;
        let evd = self.enter(role.subtype())?;
        // Held while a queue is made: two endpoints do not make two.
        let mut ledger = self.ledger();
        let mut streams = ledger.streams.clone();
        streams.attach_dto(role.is_request(), flags)?;
        let (queue, depth) = match ledger.find(role, |letter| self.posted.is_done(letter)) {
            Some(found) => found,
            None => {
                self.add_queue(&mut ledger, role.depth())?;
                (ledger.queues.len() - 1, role.depth())
            }
        };
        self.grow(&mut ledger, depth)?;
        ledger.streams = streams;
        ledger.enter(role, queue, depth);
        self.switches.set_attribute(ledger.streams.attribute());
        Ok(DtoStream {
            evd,
            role,
            queue,
            cq: ledger.queues[queue].queue.clone(),
        })
    }

    /// An SRQ whose receives are reported here is to hold so many more; `false`,
    /// and nothing done, if the completion queue has no room for them: its
    /// endpoints cannot move to another.
    pub(crate) fn widen_shared(&self, srq: Handle, more: u32) -> bool {
        let mut ledger = self.ledger();
        let ledger = &mut *ledger;
        let Some(at) = ledger.shared.iter().position(|shared| shared.srq == srq) else {
            return true;
        };
        let account = &ledger.queues[ledger.shared[at].queue];
        if account.capacity - account.used < more || self.grow(ledger, more).is_err() {
            return false;
        }
        ledger.queues[ledger.shared[at].queue].used += more;
        ledger.shared[at].depth += more;
        true
    }

    /// Takes a [`Self::widen_shared`] back.
    pub(crate) fn narrow_shared(&self, srq: Handle, less: u32) {
        let mut ledger = self.ledger();
        let ledger = &mut *ledger;
        if let Some(shared) = ledger.shared.iter_mut().find(|shared| shared.srq == srq) {
            shared.depth -= less;
            ledger.queues[shared.queue].used -= less;
        }
    }

    /// Another completion queue, with room for `depth`, and for as much again
    /// as there is already, so that their number stays small.
    fn add_queue(self: &Arc<Self>, ledger: &mut Ledger, depth: u32) -> Result<()> {
        let most = self.home.max_queue_length();
        if depth > most {
            return Err(DatError::new(
                ReturnType::InsufficientResources,
                Subtype::ResourceMemory,
                format!("{depth} completions outstanding; a completion queue holds {most}"),
            ));
        }
        let wanted = depth.max(ledger.asked).max(ledger.depth()).min(most);
        let (queue, handle) = self.make_queue(ledger, wanted)?;
        ledger.queues.push(Account {
            queue: handle,
            capacity: queue.capacity(),
            used: 0,
            leaving: Vec::new(),
        });
        self.posted.send([Letter::Attach(queue)]);
        // Who waits is to arm this one too.
        self.blocker.wake();
        self.call_cno();
        Ok(())
    }

    fn make_queue(
        &self,
        ledger: &mut Ledger,
        depth: u32,
    ) -> Result<(Queue, Option<CompletionQueueHandle>)> {
        #[cfg(test)]
        if let super::home::Home::Nowhere(world) = &self.home {
            return Ok((Queue::Fake(world.make_queue(depth)), None));
        }
        let channel = match &ledger.channel {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.home.create_channel()?;
                feed::watch(ledger.cno.as_ref(), channel.fd(), self.handle)?;
                ledger.channel.insert(channel).clone()
            }
        };
        let cq = self.home.create_cq(depth, &channel, self.handle)?;
        let handle = cq.handle().clone();
        Ok((Queue::Real(cq), Some(handle)))
    }

    /// There may be `more` completions outstanding than before.
    fn grow(&self, ledger: &mut Ledger, more: u32) -> Result<()> {
        let length = self.queue_length().max(ledger.depth().saturating_add(more));
        self.set_length(ledger, length)
    }

    /// The EVD holds so many events from now on, as far as posting and staging
    /// go. Nothing has changed on an error.
    pub(super) fn set_length(&self, ledger: &mut Ledger, length: u32) -> Result<()> {
        let room = super::consumer::room(length, ledger.capacity());
        if room > ledger.room {
            let staged = with_room(room).ok_or_else(no_memory)?;
            if !self.posted.set_limit(length) {
                return Err(no_memory());
            }
            self.posted.send([Letter::Room(staged)]);
            ledger.room = room;
        } else if !self.posted.set_limit(length) {
            return Err(no_memory());
        }
        self.queue_length.store(length, Ordering::Release);
        Ok(())
    }

    /// The EVD holds no more than so many events from now on; `false`, and nothing
    /// has changed, if it holds more of them: so many completions, and what was
    /// posted; or if it is no longer now.
    pub(super) fn lower_length(&self, length: u32, completions: u32) -> bool {
        let is_lower = self.posted.lower_limit(length, completions);
        if is_lower {
            self.queue_length.store(length, Ordering::Release);
        }
        is_lower
    }

    /// If nobody owns the EVD: takes what its completion queues hold, as far as
    /// there is room, and lets go of endpoints that are no more. If somebody
    /// does, he is woken to do it.
    pub(crate) fn drain(&self) {
        self.posted.send([Letter::Sweep]);
        self.attend();
    }

    /// [`Self::drain`], and what the owner has just taken has been acted on when
    /// this returns: he is waited for, unless `is_enough`, or he is away for
    /// milliseconds.
    pub(crate) fn drain_behind_owner(&self, is_enough: impl Fn() -> bool) {
        let letter = self.posted.send([Letter::Sweep]);
        for round in 0..OWNERS_ROUNDS {
            if self.attend() != Attended::Busy || self.posted.is_done(letter) || is_enough() {
                break;
            }
            pause(round);
        }
    }

    /// Forgets the completions of an endpoint that were taken from the device
    /// and not handed out. When this returns they are gone.
    pub(crate) fn purge(&self, ep: Handle) {
        let letter = self.posted.send([Letter::Purge(ep)]);
        for round in 0.. {
            if self.attend() != Attended::Busy || self.posted.is_done(letter) {
                break;
            }
            pause(round);
        }
    }
}

impl Drop for DtoStream {
    fn drop(&mut self) {
        let mut ledger = self.evd.ledger();
        ledger.streams.detach_dto(self.role.is_request());
        let attribute = ledger.streams.attribute();
        self.evd.switches.set_attribute(attribute);
        let depth = ledger.leave(self.role);
        let letter = self.evd.posted.send([Letter::Sweep]);
        if depth > 0 {
            ledger.queues[self.queue].leaving.push((letter, depth));
        }
        drop(ledger);
        self.evd.attend();
    }
}

impl core::fmt::Debug for DtoStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DtoStream")
            .field("evd", &self.evd.handle())
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
