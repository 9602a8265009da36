//! An end in memory, for tests of the loops: a post is complete at the other end
//! at once. A message without a posted receive, and a post to a full queue, fail
//! the test.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::cm::ListenOn;
use dat_engine::{Completion, PostError, Status};

use super::end::{Done, End, Fault, Flags, Op, Polled, Queue};
use super::interface::Connected;
use super::link::Link;
use super::setup::Setup;
use crate::options::Operation;

/// Bytes of a message.
pub(crate) const SIZE: u32 = 64;

/// The queues of one end.
#[derive(Default)]
struct Queues {
    receives: u32,
    /// Requests in the send queue.
    in_queue: u32,
    /// Requests since the last signalled one.
    unsignaled: u32,
    /// Completions, and how many requests each is for.
    sent: VecDeque<(Result<Done, Fault>, u32)>,
    received: VecDeque<Result<Done, Fault>>,
    posts: u64,
    /// A request has failed, so that no send behind it arrives.
    is_broken: bool,
}

#[derive(Clone)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

pub(crate) struct MemoryEnd {
    mine: Rc<RefCell<Queues>>,
    other: Rc<RefCell<Queues>>,
    /// Leaked, because both ends access it.
    memory: NonNull<[CacheLine]>,
    depth: u32,
    /// The number of the post that fails, and how.
    pub(crate) breaks: Option<(u64, Break)>,
}

pub(crate) type MemoryLink = Link<MemoryEnd>;

/// How a post fails.
#[derive(Clone, Copy)]
pub(crate) enum Break {
    /// Its completion has this status.
    Status(Status),
    /// The message is one byte shorter.
    Short,
    /// It is lost without a completion.
    Lost,
}

/// Returns two connected links, with send queues of this depth and one posted receive.
pub(crate) fn memory_pair(operation: Operation, depth: u32) -> (MemoryLink, MemoryLink) {
    let setup = Setup {
        operation,
        largest: SIZE,
        tx_depth: depth,
        receives: 1,
        inline: 0,
        inline_requested: 0,
        reads: 1,
        timeout: Duration::ZERO,
        listen: ListenOn::All,
        waits: false,
    };
    let lines = setup.shape().bytes / size_of::<CacheLine>();
    let queues = [0, 1].map(|_| Rc::<RefCell<Queues>>::default());
    let ends = [0, 1].map(|at| MemoryEnd {
        mine: Rc::clone(&queues[at]),
        other: Rc::clone(&queues[1 - at]),
        memory: NonNull::from(Box::leak(
            vec![CacheLine([0; 64]); lines].into_boxed_slice(),
        )),
        depth,
        breaks: None,
    });
    let buffers = [&ends[0], &ends[1]].map(End::exposed_buffer);
    let [one, two] = ends;
    let link = |end, theirs, numbers| {
        let connected = Connected {
            end,
            theirs,
            numbers,
        };
        let mut link = Link::new(connected, &setup).expect("the buffers have the same length");
        link.prepare(SIZE);
        link.post_receive().expect("there is always room");
        link
    };
    (link(one, buffers[1], [1, 2]), link(two, buffers[0], [2, 1]))
}

/// Returns the fault of a completion with this status.
pub(crate) fn failed(status: Status) -> Fault {
    Fault::Completion(Completion {
        status,
        ..Completion::default()
    })
}

fn done(length: u32) -> Result<Done, Fault> {
    Ok(Done {
        cookie: 0,
        length: length.into(),
        endpoint: 0,
        more: 0,
    })
}

impl Queues {
    /// Takes a place in the send queue.
    fn enqueue(&mut self, depth: u32) -> Result<(), Fault> {
        self.in_queue += 1;
        self.unsignaled += 1;
        match self.in_queue > depth {
            true => Err(PostError::QueueFull.into()),
            false => Ok(()),
        }
    }

    fn complete(&mut self, done: Result<Done, Fault>) {
        let requests = core::mem::take(&mut self.unsignaled);
        self.sent.push_back((done, requests));
    }

    /// Takes a receive.
    fn deliver(&mut self, length: u32) {
        assert!(self.receives > 0, "the message has no posted receive");
        self.receives -= 1;
        self.received.push_back(done(length));
    }
}

impl End for MemoryEnd {
    type Request = RemoteSegment;
    type Receive = ();

    fn memory(&self) -> NonNull<u8> {
        self.memory.cast()
    }

    fn exposed_buffer(&self) -> RemoteSegment {
        RemoteSegment {
            context: 0,
            address: self.memory.cast::<u8>().as_ptr().expose_provenance() as u64,
            length: (self.memory.len() * size_of::<CacheLine>()) as u64,
        }
    }

    fn request(&self, _: Op, _: Range<usize>, remote: RemoteSegment) -> RemoteSegment {
        remote
    }

    fn receive(&self, _: Range<usize>) {}

    fn post(
        &mut self,
        op: Op,
        local: Range<usize>,
        remote: &mut RemoteSegment,
        _: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.enqueue(self.depth)?;
        let is_grant = local.len() == super::payload::GRANT;
        mine.posts += u64::from(!is_grant);
        let here = self.breaks.filter(|&(at, _)| at == mine.posts && !is_grant);
        let mut length = local.len() as u32;
        match here.map(|(_, how)| how) {
            Some(Break::Status(status)) => {
                // Errors are reported for unsignalled requests too.
                mine.complete(Err(failed(status)));
                mine.is_broken = true;
                return Ok(());
            }
            Some(Break::Short) => length -= 1,
            Some(Break::Lost) => {
                mine.is_broken = true;
                return Ok(());
            }
            None => {}
        }
        match op {
            Op::Send => other.deliver(length),
            Op::Write => {
                let from = self.memory().as_ptr().wrapping_add(local.start);
                let to = core::ptr::with_exposed_provenance_mut(remote.address as usize);
                // SAFETY: both are within the buffers of the pair, which are never freed.
                unsafe { core::ptr::copy_nonoverlapping(from, to, local.len()) };
            }
            _ => {}
        }
        if flags.signaled {
            mine.complete(done(if op == Op::Read { length } else { 0 }));
        }
        Ok(())
    }

    fn post_receive(&mut self, _: Range<usize>, (): &mut (), _: u64) -> Result<(), Fault> {
        self.mine.borrow_mut().receives += 1;
        Ok(())
    }

    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.enqueue(self.depth)?;
        if mine.is_broken {
            return Ok(());
        }
        other.deliver(0);
        if signaled {
            mine.complete(done(0));
        }
        Ok(())
    }

    fn poll(&mut self, queue: Queue) -> Polled {
        let mut mine = self.mine.borrow_mut();
        match queue {
            Queue::Sent => {
                let (done, requests) = mine.sent.pop_front()?;
                mine.in_queue -= requests;
                Some(done)
            }
            Queue::Received => mine.received.pop_front(),
        }
    }
}
