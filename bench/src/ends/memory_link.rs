//! A link in memory, for tests of the loops: a post is complete at the other end
//! at once. A message without a posted receive, and a post to a full queue, fail
//! the test.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use dat_engine::{Completion, PostError, Status};

use super::link::{CompletionResult, Fault, Link};
use crate::cli::Operation;

/// Bytes of a message.
pub(crate) const SIZE: u32 = 64;

/// Memory and queues of one end.
#[derive(Default)]
struct End {
    receives: u32,
    /// Requests in the send queue.
    in_queue: u32,
    /// Requests since the last signalled one.
    unsignaled: u32,
    /// Completions, and how many requests each is for.
    sent: VecDeque<(CompletionResult, u32)>,
    received: VecDeque<CompletionResult>,
    outgoing_stamp: u8,
    memory: u8,
    granted: u32,
    posts: u64,
    /// A request has failed, so that no send behind it arrives.
    is_broken: bool,
}

pub(crate) struct MemoryLink {
    mine: Rc<RefCell<End>>,
    other: Rc<RefCell<End>>,
    operation: Operation,
    depth: u32,
    /// The number of the post that fails, and how.
    pub(crate) breaks: Option<(u64, Break)>,
}

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

/// Returns two connected ends, with send queues of this depth and one posted receive.
pub(crate) fn memory_pair(operation: Operation, depth: u32) -> (MemoryLink, MemoryLink) {
    let (one, two) = (Rc::<RefCell<End>>::default(), Rc::<RefCell<End>>::default());
    let end = |mine: &Rc<_>, other: &Rc<_>| {
        let mut link = MemoryLink {
            mine: Rc::clone(mine),
            other: Rc::clone(other),
            operation,
            depth,
            breaks: None,
        };
        link.post_receive().expect("there is always room");
        link
    };
    (end(&one, &two), end(&two, &one))
}

/// Returns the fault of a completion with this status.
pub(crate) fn failed(status: Status) -> Fault {
    Fault::Completion(Completion {
        status,
        ..Completion::default()
    })
}

impl End {
    /// Takes a place in the send queue.
    fn enqueue(&mut self, depth: u32) -> Result<(), Fault> {
        self.in_queue += 1;
        self.unsignaled += 1;
        match self.in_queue > depth {
            true => Err(PostError::QueueFull.into()),
            false => Ok(()),
        }
    }

    fn complete(&mut self, done: CompletionResult) {
        let requests = core::mem::take(&mut self.unsignaled);
        self.sent.push_back((done, requests));
    }
}

impl Link for MemoryLink {
    fn post_receive(&mut self) -> Result<(), Fault> {
        self.mine.borrow_mut().receives += 1;
        Ok(())
    }

    fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.posts += 1;
        mine.enqueue(self.depth)?;
        let here = self.breaks.filter(|&(at, _)| at == mine.posts);
        let mut done = 0;
        let mut byte_len = SIZE;
        match here.map(|(_, how)| how) {
            Some(Break::Status(status)) => {
                // Errors are reported for unsignalled requests too.
                mine.complete(Err(failed(status)));
                mine.is_broken = true;
                return Ok(());
            }
            Some(Break::Short) => byte_len -= 1,
            Some(Break::Lost) => {
                mine.is_broken = true;
                return Ok(());
            }
            None => {}
        }
        match self.operation {
            Operation::Send => {
                assert!(other.receives > 0, "the message has no posted receive");
                other.receives -= 1;
                other.received.push_back(Ok(byte_len));
            }
            Operation::Write => other.memory = mine.outgoing_stamp,
            Operation::Read => done = byte_len,
        }
        if signaled {
            mine.complete(Ok(done));
        }
        Ok(())
    }

    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.enqueue(self.depth)?;
        if mine.is_broken {
            return Ok(());
        }
        assert!(other.receives > 0, "the message has no posted receive");
        other.receives -= 1;
        other.received.push_back(Ok(0));
        if signaled {
            mine.complete(Ok(0));
        }
        Ok(())
    }

    fn post_grant(&mut self, received: u32) -> Result<(), Fault> {
        let (mut mine, mut other) = (self.mine.borrow_mut(), self.other.borrow_mut());
        mine.enqueue(self.depth)?;
        other.granted = received;
        mine.complete(Ok(0));
        Ok(())
    }

    fn granted(&self) -> Option<u32> {
        Some(self.mine.borrow().granted)
    }

    fn poll_sent(&mut self) -> Option<CompletionResult> {
        let mut mine = self.mine.borrow_mut();
        let (done, requests) = mine.sent.pop_front()?;
        mine.in_queue -= requests;
        Some(done)
    }

    fn poll_received(&mut self) -> Option<CompletionResult> {
        self.mine.borrow_mut().received.pop_front()
    }

    fn write_sequence(&mut self, sequence: u8) {
        self.mine.borrow_mut().outgoing_stamp = sequence;
    }

    fn read_sequence(&self) -> u8 {
        self.mine.borrow().memory
    }
}
