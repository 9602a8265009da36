//! The measured loops: a round measures every operation once.
//!
//! ```text
//! receives   stop the NIC, [post n], start it, the far end sends n, stop it, [poll n]
//! sends      the far end posts n receives, stop the NIC, [post n], start it, stop it, [poll n]
//! others     stop the NIC, [post n], start it, poll n
//! waits      receives as above, [wait n times]
//! sleeps     stop the NIC, the far end sends n, [wait n times]; another thread moves the NIC while the waiting one sleeps
//! empty      stop the NIC with nothing outstanding, [poll or wait n times]
//! ```
//! Sections in brackets are measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::asleep::Sleeper;
use super::meter::Meter;
use super::operation::{Operation, post_all};
use super::requests::{POLL_FAILED, Requests, shape};
use crate::ends::End;
use crate::ends::end::{BATCH, LIST};
use crate::ends::interface::Interface;
use crate::failure::Failure;
use crate::nic::Nic;
use crate::output::counted;

/// A section has fewer waits that sleep than operations of other kinds, by this factor.
const SLEEPS_DIVIDED_BY: u32 = 16;
/// Timeout for completions.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The connected pairs of an interface, the NIC and the meter.
pub(super) struct Rounds<I: Interface> {
    own: [Requests<I::End<false>>; 2],
    shared: [Requests<I::End<true>>; 2],
    /// For events of a descriptor, whose queues cost more to wait on.
    polled: Option<[Requests<I::End<false>>; 2]>,
    pub(super) nic: Nic,
    pub(super) meter: Meter,
    sum: u64,
}

/// Whether calls post one request and poll one completion, or several.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Batching {
    Single,
    Batched,
}

impl<I: Interface> Rounds<I> {
    pub(super) fn new(interface: &I, nic: Nic, meter: Meter) -> Result<Self, Failure> {
        Ok(Self {
            own: interface.connect_pair(&shape())?.map(Requests::new),
            shared: interface.connect_pair(&shape())?.map(Requests::new),
            polled: match I::End::<false>::DESCRIPTORS {
                true => Some(interface.connect_pair(&shape())?.map(Requests::new)),
                false => None,
            },
            nic,
            meter,
            sum: 0,
        })
    }

    /// Measures one section of each operation, with `count` operations each, a
    /// multiple of [`LIST`].
    pub(super) fn round(&mut self, count: u32) -> Result<(), Failure> {
        use Batching::{Batched, Single};
        let mut bench = Bench {
            nic: &mut self.nic,
            meter: &mut self.meter,
            sum: &mut self.sum,
            count,
        };
        let [near, far] = &mut self.own;
        bench.receives(near, far, Single, Operation::PostRecv, Operation::PollRecv)?;
        bench.receives(
            near,
            far,
            Batched,
            Operation::PostRecvList,
            Operation::PollRecvBatch,
        )?;
        bench.no_event(near, Operation::Empty, |near, sum| near.received(sum))?;
        bench.sends(near, far, Single, false, Operation::Send)?;
        bench.sends(near, far, Batched, false, Operation::SendList)?;
        bench.sends(near, far, Single, true, Operation::SendInline)?;
        bench.sends(near, far, Batched, true, Operation::SendInlineList)?;
        for operation in Operation::ONE_SIDED {
            if near.end.has_atomics() || !operation.is_atomic() {
                bench.others(near, operation)?;
            }
        }
        if near.end.has_atomics() && I::End::<false>::IMMEDIATES {
            bench.immediates(near, far)?;
        }
        if I::End::<false>::WAITS {
            bench.waits(near, far)?;
        }
        if I::End::<false>::SLEEPS {
            bench.sleeps(near, far, Operation::WaitSleep, Requests::slept)?;
        }
        if let Some([near, far]) = &mut self.polled {
            bench.sleeps(near, far, Operation::AwaitSleep, Requests::awaited)?;
        }
        bench.short(near, far, 8, Operation::PollRecv8)?;
        bench.short(near, far, 32, Operation::PollRecv32)?;
        let [near, far] = &mut self.shared;
        bench.receives(near, far, Single, Operation::SrqPost, Operation::PollSrq)?;
        bench.receives(
            near,
            far,
            Batched,
            Operation::SrqPostList,
            Operation::PollSrqBatch,
        )?;
        bench.short(near, far, 32, Operation::PollSrq32)?;
        core::hint::black_box(self.sum);
        // Destroying queues needs a running NIC.
        self.nic.release();
        Ok(())
    }
}

struct Bench<'a> {
    nic: &'a mut Nic,
    meter: &'a mut Meter,
    sum: &'a mut u64,
    count: u32,
}

impl Bench<'_> {
    fn receives<E: End>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
        batching: Batching,
        post: Operation,
        poll: Operation,
    ) -> Result<(), Failure> {
        let count = self.count;
        self.nic.hold()?;
        let mut good = true;
        if batching == Batching::Single {
            self.meter.measure(post, count, &mut || {
                good = post_all(count, |at| near.receive(at));
            });
        } else if E::LISTS {
            self.meter.measure(post, count, &mut || {
                good = post_all(count / LIST as u32, |_| near.receive_list());
            });
        } else {
            good = post_all(count, |at| near.receive(at));
        }
        posted(good, "receives")?;
        self.nic.release();
        posted(post_all(count, |at| far.send(at, false)), "sends")?;
        let nic = &mut *self.nic;
        take(count, nic, || far.sent(self.sum))?;
        self.nic.drain_and_hold()?;
        self.polls(
            batching,
            E::BATCHES,
            poll,
            near,
            Requests::received,
            Requests::received_batch,
        )
    }

    /// Measures waits that find their events, and waits that find none.
    fn waits<E: End>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
    ) -> Result<(), Failure> {
        self.waits_for::<E, 1>(near, far, Operation::Wait)?;
        self.waits_for::<E, 2>(near, far, Operation::WaitTwo)?;
        self.no_event(near, Operation::WaitEmpty, Requests::waited::<1>)
    }

    /// Measures waits for this many events, which are there.
    fn waits_for<E: End, const THRESHOLD: u8>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
        operation: Operation,
    ) -> Result<(), Failure> {
        // The last measured wait leaves all its events but one.
        let left = u32::from(THRESHOLD) - 1;
        let all = self.count + left;
        posted(post_all(all, |at| near.receive(at)), "receives")?;
        posted(post_all(all, |at| far.send(at, false)), "sends")?;
        take(all, self.nic, || far.sent(self.sum))?;
        self.nic.drain_and_hold()?;
        let wait = Requests::waited::<THRESHOLD>;
        self.polls(Batching::Single, E::BATCHES, operation, near, wait, wait)?;
        take(left, self.nic, || near.received(self.sum))?;
        self.nic.release();
        Ok(())
    }

    /// Measures waits that sleep, by this call. The NIC is moved while the thread sleeps, and only then, so
    /// that each wait finds nothing, arms the queue, and finds nothing once more. A NIC that is
    /// not emulated cannot be moved like that.
    fn sleeps<E: End>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
        operation: Operation,
        wait: impl Fn(&mut Requests<E>, &mut u64) -> usize,
    ) -> Result<(), Failure> {
        if !self.nic.is_emulated() {
            return Ok(());
        }
        let count = self.count / SLEEPS_DIVIDED_BY;
        posted(post_all(count, |at| near.receive(at)), "receives")?;
        self.nic.hold()?;
        posted(post_all(count, |at| far.send(at, false)), "sends")?;
        let waiter = Sleeper::this_thread()?;
        let (has_ended, mut good) = (AtomicBool::new(false), true);
        let (nic, meter, sum) = (&*self.nic, &mut *self.meter, &mut *self.sum);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Acquire) {
                    if waiter.sleeps() {
                        nic.step();
                    }
                    thread::yield_now();
                }
            });
            meter.measure(operation, count, &mut || {
                good = (0..count).all(|_| wait(near, sum) == 1);
            });
            has_ended.store(true, Ordering::Release);
        });
        self.nic.release();
        if !good {
            return Err(Failure::run("a wait that slept ended without its event"));
        }
        take(count, self.nic, || far.sent(self.sum)).map(drop)
    }

    /// Measures receives of messages that are short enough to lie in the CQE.
    fn short<E: End>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
        length: u32,
        poll: Operation,
    ) -> Result<(), Failure> {
        let count = self.count;
        posted(post_all(count, |at| near.receive(at)), "receives")?;
        posted(post_all(count, far.send_short(length)), "sends")?;
        let nic = &mut *self.nic;
        take(count, nic, || far.sent(self.sum))?;
        self.nic.drain_and_hold()?;
        self.polls(
            Batching::Single,
            E::BATCHES,
            poll,
            near,
            Requests::received,
            Requests::received_batch,
        )
    }

    fn sends<E: End>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
        batching: Batching,
        inline: bool,
        post: Operation,
    ) -> Result<(), Failure> {
        let count = self.count;
        if batching == Batching::Batched && !E::LISTS && (inline || !E::BATCHES) {
            return Ok(());
        }
        posted(post_all(count, |at| far.receive(at)), "receives")?;
        self.nic.hold()?;
        let mut good = true;
        if batching == Batching::Single {
            // Two loops, because in a program the flag is a constant.
            self.meter.measure(post, count, &mut || {
                good = if inline {
                    post_all(count, |at| near.send(at, true))
                } else {
                    post_all(count, |at| near.send(at, false))
                };
            });
        } else if E::LISTS {
            self.meter.measure(post, count, &mut || {
                good = post_all(count / LIST as u32, |_| near.send_list(inline));
            });
        } else {
            good = post_all(count, |at| near.send(at, inline));
        }
        posted(good, "sends")?;
        self.nic.release();
        take(count, self.nic, || far.received(self.sum))?;
        if inline {
            return take(count, self.nic, || near.sent(self.sum)).map(drop);
        }
        self.nic.drain_and_hold()?;
        let poll = match batching {
            Batching::Single => Operation::PollSend,
            Batching::Batched => Operation::PollSendBatch,
        };
        self.polls(
            batching,
            E::BATCHES,
            poll,
            near,
            Requests::sent,
            Requests::sent_batch,
        )
    }

    /// Polls all completions, measured if the interface can poll them that way.
    fn polls<E: End>(
        &mut self,
        batching: Batching,
        batches: bool,
        poll: Operation,
        near: &mut Requests<E>,
        one: impl Fn(&mut Requests<E>, &mut u64) -> usize,
        batch: impl Fn(&mut Requests<E>, &mut u64) -> usize,
    ) -> Result<(), Failure> {
        let count = self.count;
        let (nic, sum) = (&mut *self.nic, &mut *self.sum);
        let mut taken = Ok(false);
        if batching == Batching::Single {
            self.meter.measure(poll, count, &mut || {
                taken = take(count, nic, || one(near, sum));
            });
        } else if batches {
            self.meter.measure(poll, count, &mut || {
                taken = take(count, nic, || batch(near, sum));
            });
        } else {
            return take(count, nic, || one(near, sum)).map(drop);
        }
        if taken? {
            self.meter.invalidate();
        }
        Ok(())
    }

    /// Measures receives with immediate data.
    fn immediates<E: End>(
        &mut self,
        near: &mut Requests<E>,
        far: &mut Requests<E>,
    ) -> Result<(), Failure> {
        let count = self.count;
        posted(post_all(count, |at| near.receive(at)), "receives")?;
        posted(post_all(count, |at| far.write_immediate(at)), "writes")?;
        take(count, self.nic, || far.finished())?;
        self.nic.drain_and_hold()?;
        let (operation, poll) = (Operation::PollImmediate, Requests::immediate);
        self.polls(Batching::Single, E::BATCHES, operation, near, poll, poll)
    }

    /// Measures requests of [`Operation::ONE_SIDED`], and their completions if [`Operation::poll`]
    /// says so.
    fn others<E: End>(
        &mut self,
        near: &mut Requests<E>,
        operation: Operation,
    ) -> Result<(), Failure> {
        let count = self.count;
        self.nic.hold()?;
        let mut good = true;
        self.meter.measure(operation, count, &mut || {
            good = operation.post_all(near, count);
        });
        posted(good, "requests")?;
        self.nic.release();
        let Some(poll) = operation.poll() else {
            return take(count, self.nic, || near.finished()).map(drop);
        };
        self.nic.drain_and_hold()?;
        let finished = |near: &mut Requests<E>, _: &mut u64| near.finished();
        self.polls(Batching::Single, E::BATCHES, poll, near, finished, finished)
    }

    /// Measures polls that find nothing.
    fn no_event<E: End>(
        &mut self,
        near: &mut Requests<E>,
        operation: Operation,
        poll: impl Fn(&mut Requests<E>, &mut u64) -> usize,
    ) -> Result<(), Failure> {
        let count = self.count;
        self.nic.hold()?;
        let (mut found, sum) = (0, &mut *self.sum);
        self.meter.measure(operation, count, &mut || {
            for _ in 0..count {
                found += poll(near, sum);
            }
        });
        self.nic.release();
        if found == 0 {
            Ok(())
        } else {
            Err(Failure::run(
                "a completion arrived without a request; report it with the command line",
            ))
        }
    }
}

/// Converts the result of posts that the queues have room for.
fn posted(good: bool, what: &str) -> Result<(), Failure> {
    if good {
        Ok(())
    } else {
        Err(Failure::run(format!(
            "{what} were refused although the queue has room; report it with the command line"
        )))
    }
}

/// Polls `count` completions. Returns whether it had to wait for any of them.
#[inline(always)]
fn take(count: u32, nic: &mut Nic, mut poll: impl FnMut() -> usize) -> Result<bool, Failure> {
    let (mut left, mut since) = (count as usize, None);
    while left > 0 {
        match poll() {
            found @ 1..=BATCH => left -= found,
            found => stalled(found, nic, &mut since, left)?,
        }
    }
    Ok(since.is_some())
}

/// Handles a poll that failed or found nothing: starts the NIC and yields.
#[cold]
#[inline(never)]
fn stalled(
    found: usize,
    nic: &mut Nic,
    since: &mut Option<Instant>,
    left: usize,
) -> Result<(), Failure> {
    if found == POLL_FAILED {
        return Err(Failure::run("a request completed with an error"));
    }
    nic.release();
    if since.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
        return Err(Failure::run(format!(
            "{} did not arrive within 10 s; is the port active?",
            counted(left as u64, "completion")
        )));
    }
    // On a single core the NIC thread has to run.
    std::thread::yield_now();
    Ok(())
}
