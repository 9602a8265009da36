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
use dat_engine::{AtomicOp, Completion, PostError, Status};

use super::end::{Done, End, Fault, Flags, Op, Polled, Queue};
use super::interface::Connected;
use super::link::Link;
use super::payload::Layout;
use super::setup::Setup;
use crate::options::Operation;

/// Bytes of a message.
pub(crate) const SIZE: u32 = 64;

/// The queues of one end.
#[derive(Default)]
struct Queues {
    receives: VecDeque<Vec<Range<usize>>>,
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
    other_memory: *mut u8,
    /// Where grants are.
    grants: usize,
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
    /// The byte at this offset arrives changed.
    Corrupt(usize),
    /// Nothing arrives, and it completes: the bytes of an older message stay.
    Stale,
    /// The immediate data, or the value that is fetched, is that of the message before.
    Repeated,
}

/// Returns the properties of two links with send queues of this depth and one posted receive.
pub(crate) fn setup(operation: Operation, depth: u32) -> Setup {
    let in_flight = if operation.is_atomic() { depth } else { 0 };
    Setup {
        operation,
        layout: Layout {
            largest: size(operation),
            slots: (in_flight + 1).next_power_of_two(),
        },
        checks: false,
        spare_slots: 0,
        takes_turns: false,
        segments: 1,
        tx_depth: depth,
        receives: 1,
        inline: 0,
        inline_requested: 0,
        reads: 1,
        timeout: Duration::ZERO,
        listen: ListenOn::All,
        verifies: true,
        waits: false,
    }
}

/// Returns the bytes of a message.
pub(crate) fn size(operation: Operation) -> u32 {
    if operation.is_atomic() { 8 } else { SIZE }
}

/// Returns two connected links.
pub(crate) fn pair_of(setup: &Setup) -> (MemoryLink, MemoryLink) {
    let lines = setup.shape().bytes / size_of::<CacheLine>();
    let queues = [0, 1].map(|_| Rc::<RefCell<Queues>>::default());
    let memory = || Vec::leak(vec![CacheLine([0; 64]); lines]);
    let memories = [0, 1].map(|_| NonNull::from(memory()));
    let ends = [0, 1].map(|at| MemoryEnd {
        mine: Rc::clone(&queues[at]),
        other: Rc::clone(&queues[1 - at]),
        memory: memories[at],
        other_memory: memories[1 - at].cast::<u8>().as_ptr(),
        // The last two lines.
        grants: (lines - 2) * size_of::<CacheLine>(),
        depth: setup.tx_depth,
        breaks: None,
    });
    let buffers = [&ends[0], &ends[1]].map(End::exposed_buffer);
    let [one, two] = ends;
    let link = |end: MemoryEnd, theirs, numbers| {
        let connected = Connected {
            end,
            theirs,
            numbers,
        };
        let mut link = Link::new(connected, setup).expect("the buffers have the same length");
        link.prepare(size(setup.operation));
        for pieces in setup.shape().into {
            let posted = link.end.post_receive_of(&pieces, &mut ());
            posted.expect("there is always room");
        }
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

fn done(length: u32, immediate: u32) -> Result<Done, Fault> {
    Ok(Done {
        cookie: 0,
        length: length.into(),
        immediate,
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

    /// Takes a receive, and returns its pieces.
    fn deliver(&mut self, length: u32, immediate: u32) -> Vec<Range<usize>> {
        let receive = self.receives.pop_front();
        self.received.push_back(done(length, immediate));
        receive.expect("the message has a posted receive")
    }
}

impl MemoryEnd {
    fn at(&self, offset: usize) -> *mut u8 {
        self.memory.cast::<u8>().as_ptr().wrapping_add(offset)
    }

    /// Copies bytes from these addresses to those, one after the other, and changes the byte at
    /// an offset.
    fn copy(
        from: impl Iterator<Item = *mut u8>,
        to: impl Iterator<Item = *mut u8>,
        corrupt: Option<usize>,
    ) {
        for (at, (from, to)) in from.zip(to).enumerate() {
            let change = u8::from(corrupt == Some(at)) << 7;
            // SAFETY: both are within the buffers of the pair, which are never freed, and to
            // which there are no references.
            unsafe { to.write(from.read() ^ change) };
        }
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

    fn request_of(&self, _: Op, _: &[Range<usize>], remote: RemoteSegment) -> RemoteSegment {
        remote
    }

    fn receive_of(&self, _: &[Range<usize>]) {}

    fn post(
        &mut self,
        op: Op,
        local: Range<usize>,
        remote: &mut RemoteSegment,
        _: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        self.post_of(op, core::slice::from_ref(&local), remote, flags)
    }

    fn post_of(
        &mut self,
        op: Op,
        local: &[Range<usize>],
        remote: &mut RemoteSegment,
        flags: Flags,
    ) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.enqueue(self.depth)?;
        let is_grant = local[0].start >= self.grants;
        mine.posts += u64::from(!is_grant);
        let here = self.breaks.filter(|&(at, _)| at == mine.posts && !is_grant);
        let mut length = local.iter().map(|it| it.len() as u32).sum();
        let (mut corrupt, mut is_stale, mut before) = (None, false, 0);
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
            Some(Break::Corrupt(at)) => corrupt = Some(at),
            Some(Break::Stale) => is_stale = true,
            Some(Break::Repeated) => before = 1,
            None => {}
        }
        let bytes = |pieces: &[Range<usize>], start: *mut u8| {
            let all: Vec<usize> = pieces.iter().cloned().flatten().collect();
            all.into_iter().map(move |at| start.wrapping_add(at))
        };
        let start = core::ptr::with_exposed_provenance_mut::<u8>(remote.address as usize);
        let mine_bytes = bytes(local, self.at(0));
        let remote_bytes = (0..remote.length as usize).map(|at| start.wrapping_add(at));
        match op {
            Op::Send => {
                let into = bytes(&other.deliver(length, 0), self.other_memory);
                if !is_stale {
                    Self::copy(mine_bytes, into, corrupt);
                }
            }
            Op::Write | Op::WriteImmediate(_) => {
                if let Op::WriteImmediate(immediate) = op {
                    other.deliver(length, immediate - before);
                }
                if !is_stale {
                    Self::copy(mine_bytes, remote_bytes, corrupt);
                }
            }
            Op::Read if is_stale => {}
            Op::Read => Self::copy(remote_bytes, mine_bytes, corrupt),
            Op::Atomic(op) => {
                let (local, target) = (self.at(local[0].start).cast::<u64>(), start.cast::<u64>());
                // SAFETY: as in `copy`; both are multiples of a cache line.
                unsafe {
                    let old = target.read();
                    local.write(old - u64::from(before));
                    match op {
                        AtomicOp::FetchAdd(add) => target.write(old + add),
                        AtomicOp::CompareSwap { compare, swap } if old == compare => {
                            target.write(swap);
                        }
                        AtomicOp::CompareSwap { .. } => {}
                    }
                }
            }
        }
        if flags.signaled {
            let fetches = matches!(op, Op::Read | Op::Atomic(_));
            mine.complete(done(if fetches { length } else { 0 }, 0));
        }
        Ok(())
    }

    fn post_receive(&mut self, into: Range<usize>, (): &mut (), _: u64) -> Result<(), Fault> {
        self.post_receive_of(core::slice::from_ref(&into), &mut ())
    }

    fn post_receive_of(&mut self, into: &[Range<usize>], (): &mut ()) -> Result<(), Fault> {
        self.mine.borrow_mut().receives.push_back(into.to_vec());
        Ok(())
    }

    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.enqueue(self.depth)?;
        if mine.is_broken {
            return Ok(());
        }
        other.deliver(0, 0);
        if signaled {
            mine.complete(done(0, 0));
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
