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

use dat_engine::CompletionQueueHandle;

use super::Evd;
use super::create::no_memory;
use super::feed;
use super::ledger::{Account, DtoRole, Ledger};
use super::posted::{Letter, with_room};
use super::queue::Queue;
use super::streams::{StreamKind, check_flag};
use super::take::{Attended, pause};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::usage::Use;
use crate::status::{ReturnType, Subtype};
use crate::types::CompletionFlags;

/// Times of [`pause`] that the owner of an EVD is given to let go of it: some 10
/// milliseconds, most of them asleep.
const OWNERS_ROUNDS: u32 = 300;

/// A DTO stream of an endpoint, attached to an EVD while this lives. The
/// endpoint (or the queue pair of it) must go first.
pub(crate) struct DtoStream {
    evd: Use<Evd>,
    role: DtoRole,
    flags: CompletionFlags,
    queue: usize,
    cq: Option<CompletionQueueHandle>,
    /// It is [`Self::park`]ed: whether its room may be lent.
    parked: Option<bool>,
}

impl DtoStream {
    /// The EVD.
    pub(crate) fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Its endpoint, of which nothing is outstanding, is made anew: what comes
    /// in its place ([`Evd::attach_dto`]) need not suit its flags, and may
    /// have its room. It comes back by [`Self::unpark`], or is dropped.
    pub(crate) fn park(&mut self) {
        if self.parked.is_some() {
            return;
        }
        let mut ledger = self.evd.ledger();
        ledger.streams.detach_dto(self.role.is_request());
        let attribute = ledger.streams.attribute();
        self.evd.switches.set_attribute(attribute);
        drop(ledger);
        // What was left behind in its room is gone, unless the owner is away.
        self.parked = Some(self.evd.drain_behind_owner(|| false));
    }

    /// The opposite of [`Self::park`].
    ///
    /// # Errors
    /// `INVALID_PARAMETER`: streams whose flags do not match have come meanwhile.
    pub(crate) fn unpark(&mut self) -> Result<()> {
        if self.parked.is_none() {
            return Ok(());
        }
        let mut ledger = self.evd.ledger();
        let is_request = self.role.is_request();
        ledger.streams.attach_dto(is_request, self.flags)?;
        self.parked = None;
        let attribute = ledger.streams.attribute();
        self.evd.switches.set_attribute(attribute);
        Ok(())
    }

    /// What it lends of the room of a queue of this EVD.
    fn lends(&self, evd: &Arc<Evd>, queue: usize) -> u32 {
        let lends = self.parked == Some(true)
            && self.queue == queue
            && Arc::ptr_eq(self.evd.arc(), evd)
            && self.role.srq().is_none();
        if lends { self.role.depth() } else { 0 }
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
    /// them from now on. An endpoint that is made anew has its streams `before`
    /// parked: this one may take their place. To be called, and the stream dropped, outside of locks
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
        before: &[&DtoStream],
    ) -> Result<DtoStream> {
        check_flag(self, StreamKind::Dto, role.subtype())?;
        let evd = self.enter(role.subtype())?;
        // Held while a queue is made: two endpoints do not make two.
        let mut ledger = self.ledger();
        let mut streams = ledger.streams.clone();
        streams.attach_dto(role.is_request(), flags)?;
        ledger.settle(|letter| self.posted.is_done(letter));
        let lent = |queue| before.iter().map(|stream| stream.lends(self, queue)).sum();
        let (queue, depth) = match ledger.find(role, lent) {
            Some(found) => found,
            None => {
                self.add_queue(&mut ledger, role.depth())?;
                (ledger.queues.len() - 1, role.depth())
            }
        };
        let lent: u32 = (0..ledger.queues.len()).map(lent).sum();
        self.grow(&mut ledger, depth, lent)?;
        ledger.streams = streams;
        ledger.enter(role, queue, depth);
        self.switches.set_attribute(ledger.streams.attribute());
        Ok(DtoStream {
            evd,
            role,
            flags,
            queue,
            parked: None,
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
        if account.capacity.saturating_sub(account.used) < more
            || self.grow(ledger, more, 0).is_err()
        {
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

    /// There may be `more` completions outstanding than before, of those that are
    /// lent none.
    fn grow(&self, ledger: &mut Ledger, more: u32, lent: u32) -> Result<()> {
        let depth = ledger.depth().saturating_sub(lent).saturating_add(more);
        self.set_length(ledger, self.queue_length().max(depth))
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
    /// milliseconds. Answers whether he has taken it.
    pub(crate) fn drain_behind_owner(&self, is_enough: impl Fn() -> bool) -> bool {
        let letter = self.posted.send([Letter::Sweep]);
        for round in 0..OWNERS_ROUNDS {
            if self.attend() != Attended::Busy || self.posted.is_done(letter) || is_enough() {
                break;
            }
            pause(round);
        }
        self.posted.is_done(letter)
    }

    /// Forgets the completions of an endpoint, whose queue pair is reset or gone:
    /// those that were taken from the device and not handed out, and those in the
    /// rings. When this returns they are gone, and their room is free.
    pub(crate) fn purge(&self, ep: Handle) {
        self.act_now(Letter::Purge(ep));
    }

    /// What was received or read has reached its memory when this returns: a
    /// device may leave short payloads in the completions, from where they are
    /// copied when these are taken out of the rings. For who ends a registration:
    /// its memory may be gone when the consumer looks.
    pub(crate) fn bring_payloads(&self) {
        let may_hold = |queue: &CompletionQueueHandle| queue.may_hold_payload();
        let holds = self.ledger().queues().any(may_hold);
        if holds {
            self.act_now(Letter::Sweep);
        }
    }

    /// Has the owner act on a letter, or does so, and waits for that.
    fn act_now(&self, letter: Letter) {
        let letter = self.posted.send([letter]);
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
        if self.parked.is_none() {
            ledger.streams.detach_dto(self.role.is_request());
            let attribute = ledger.streams.attribute();
            self.evd.switches.set_attribute(attribute);
        }
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
