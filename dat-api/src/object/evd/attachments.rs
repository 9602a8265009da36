//! What is attached to an EVD, and how much room of its completion queues that takes.

use dat_engine::{CompletionChannel, CompletionQueueHandle};

use super::staging::held;
use super::streams::Streams;
use crate::handle::Handle;
use crate::status::Subtype;

/// The completions that an endpoint reports to an EVD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DtoRole {
    /// Of its requests.
    Request {
        /// The maximum number of outstanding completions, markers included.
        depth: u32,
    },
    /// Of receives of its own queue.
    Recv {
        /// The maximum number of outstanding completions.
        depth: u32,
    },
    /// Of receives that it takes from an SRQ.
    SharedRecv {
        /// The SRQ.
        srq: Handle,
        /// The number of receives that the SRQ holds.
        depth: u32,
    },
}

impl DtoRole {
    pub(super) fn is_request(self) -> bool {
        matches!(self, Self::Request { .. })
    }

    pub(super) fn depth(self) -> u32 {
        match self {
            Self::Request { depth } | Self::Recv { depth } | Self::SharedRecv { depth, .. } => {
                depth
            }
        }
    }

    pub(super) fn srq(self) -> Option<Handle> {
        match self {
            Self::SharedRecv { srq, .. } => Some(srq),
            _ => None,
        }
    }

    pub(super) fn subtype(self) -> Subtype {
        if self.is_request() {
            Subtype::InvalidHandleEvdRequest
        } else {
            Subtype::InvalidHandleEvdRecv
        }
    }
}

/// What is attached to an EVD, and to which of its queues.
pub(super) struct Attachments {
    /// The length that the consumer requested.
    pub(super) asked: u32,
    pub(super) streams: Streams,
    /// The room for staged events that the owner was sent, beyond the initial room.
    pub(super) room: usize,
    pub(super) channel: Option<CompletionChannel>,
    pub(super) queues: Vec<CqCapacity>,
    /// The SRQs whose receives are reported to this EVD.
    pub(super) shared: Vec<Shared>,
}

/// The capacity of one completion queue.
pub(super) struct CqCapacity {
    /// None in tests.
    pub(super) queue: Option<CompletionQueueHandle>,
    pub(super) capacity: u32,
    /// Reserved by streams.
    pub(super) used: u32,
    /// The part of `used` that detached streams have given up: (command number, completions). It
    /// becomes free when the command has been processed.
    pub(super) leaving: Vec<(u32, u32)>,
}

pub(super) struct Shared {
    pub(super) srq: Handle,
    pub(super) queue: usize,
    users: u32,
    /// The number of receives that the SRQ holds.
    pub(super) depth: u32,
}

impl Attachments {
    /// Returns one with nothing attached.
    pub(super) fn new(asked: u32) -> Self {
        Self {
            asked,
            streams: Streams::default(),
            room: 0,
            channel: None,
            queues: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// Returns how many completions can be outstanding.
    pub(super) fn depth(&self) -> u32 {
        self.queues
            .iter()
            .map(|cq| cq.used)
            .fold(0, u32::saturating_add)
    }

    /// Returns how many completions the queues of an EVD of this length can hold at a time.
    pub(super) fn held(&self, length: u32) -> usize {
        self.queues
            .iter()
            .map(|cq| held(cq.capacity, length) as usize)
            .sum()
    }

    /// Returns the completion queues of the device.
    pub(super) fn queues(&self) -> impl Iterator<Item = &CompletionQueueHandle> {
        self.queues.iter().filter_map(|cq| cq.queue.as_ref())
    }

    /// Frees the room of detached streams whose last completions are gone.
    pub(super) fn release_detached(&mut self, is_done: impl Fn(u32) -> bool) {
        for cq in &mut self.queues {
            cq.leaving.retain(|&(command, depth)| {
                let done = is_done(command);
                if done {
                    cq.used -= depth;
                }
                !done
            });
        }
    }

    /// Returns a queue with room for the role, and how much room is needed; reserves nothing.
    /// `lent` is the reserved room of each queue that the role may use besides.
    pub(super) fn find(&self, role: DtoRole, lent: impl Fn(usize) -> u32) -> Option<(usize, u32)> {
        if let Some(srq) = role.srq()
            && let Some(shared) = self.shared.iter().find(|shared| shared.srq == srq)
        {
            return Some((shared.queue, 0));
        }
        let depth = role.depth();
        let has_room = |(index, cq): &(usize, &CqCapacity)| {
            let room = cq.capacity.saturating_add(lent(*index));
            room.saturating_sub(cq.used) >= depth
        };
        let (index, _) = self.queues.iter().enumerate().find(has_room)?;
        Some((index, depth))
    }

    pub(super) fn enter(&mut self, role: DtoRole, queue: usize, depth: u32) {
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

    /// Removes a role. Returns how much room of its queue is to be freed.
    pub(super) fn leave(&mut self, role: DtoRole) -> u32 {
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
