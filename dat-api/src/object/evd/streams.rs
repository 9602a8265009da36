//! Which event streams may share one EVD, and which are attached, with the room that they take of
//! its completion queues.
//!
//! Decisions:
//! - `docs/decisions/031-ep-modify-is-atomic.md`
//! - `docs/decisions/061-allow-what-the-reference-allows.md`

use dat_engine::{CompletionChannel, CompletionQueueHandle};

use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags};

/// The kinds of event streams, in the order of the provider's merging matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Events that the consumer posts.
    Software,
    /// Connection requests of a service point.
    Cr,
    /// Completions of data transfers.
    Dto,
    /// Connection events of an endpoint.
    Connection,
    /// Completions of window binds.
    RmrBind,
    /// Asynchronous errors of an IA.
    Async,
}

impl StreamKind {
    /// All kinds, in order.
    pub const ALL: [Self; 6] = [
        Self::Software,
        Self::Cr,
        Self::Dto,
        Self::Connection,
        Self::RmrBind,
        Self::Async,
    ];

    /// Returns the flag that an EVD must be created with to carry this kind.
    #[must_use]
    pub const fn flag(self) -> EvdFlags {
        match self {
            Self::Software => EvdFlags::SOFTWARE,
            Self::Cr => EvdFlags::CR,
            Self::Dto => EvdFlags::DTO,
            Self::Connection => EvdFlags::CONNECTION,
            Self::RmrBind => EvdFlags::RMR_BIND,
            Self::Async => EvdFlags::ASYNC,
        }
    }

    /// Returns the error subtype for an EVD without the flag, or for a handle of no EVD.
    pub(super) const fn subtype(self) -> Subtype {
        match self {
            Self::Software => Subtype::InvalidHandle1,
            Self::Cr => Subtype::InvalidHandleEvdCr,
            Self::Dto | Self::RmrBind => Subtype::InvalidHandleEvdRequest,
            Self::Connection => Subtype::InvalidHandleEvdConn,
            Self::Async => Subtype::InvalidHandleEvdAsync,
        }
    }
}

/// How a DTO stream is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DtoConfig {
    /// The recv or request completion flags of its endpoint.
    pub(crate) flags: CompletionFlags,
    /// Whether it may share an EVD with streams that have another attribute. Streams of endpoints
    /// on an SRQ may not, nor may those of a strict IA.
    pub(crate) mixes: bool,
}

#[cfg(test)]
impl From<CompletionFlags> for DtoConfig {
    fn from(flags: CompletionFlags) -> Self {
        let mixes = false;
        Self { flags, mixes }
    }
}

/// How DTO streams notify, which follows from the completion flags of their endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// Every completion notifies.
    Default,
    /// Every completion notifies, except those posted UNSIGNALLED.
    Unsignalled,
    /// Only receives that the peer sent solicited notify.
    Solicited,
    /// The threshold of the wait decides.
    Threshold,
}

impl Attribute {
    /// All attributes, in the order of their numbers.
    const ALL: [Self; 4] = [
        Self::Default,
        Self::Unsignalled,
        Self::Solicited,
        Self::Threshold,
    ];

    /// All attributes; the first of them that a stream has is the attribute of the EVD.
    const BY_PRECEDENCE: [Self; 4] = [
        Self::Solicited,
        Self::Unsignalled,
        Self::Threshold,
        Self::Default,
    ];

    /// Returns `None` if the flags contradict each other.
    fn of(flags: CompletionFlags) -> Option<Self> {
        let kinds = CompletionFlags::UNSIGNALLED
            | CompletionFlags::SOLICITED_WAIT
            | CompletionFlags::EVD_THRESHOLD;
        Some(match flags & kinds {
            CompletionFlags::UNSIGNALLED => Self::Unsignalled,
            CompletionFlags::SOLICITED_WAIT => Self::Solicited,
            CompletionFlags::EVD_THRESHOLD => Self::Threshold,
            none if none.is_empty() => Self::Default,
            _ => return None,
        })
    }

    /// Returns a number from 1.
    pub(super) fn number(self) -> u32 {
        self as u32 + 1
    }

    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Returns whether posts or peers control notification, so that waits accept threshold 1 only.
    pub(super) fn is_controlled(self) -> bool {
        matches!(self, Self::Unsignalled | Self::Solicited)
    }
}

/// The streams that are attached to an EVD now.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    /// The number of streams other than DTO, indexed by kind. The software stream is not counted:
    /// no object is attached for it, and its events notify only when the consumer posts one.
    others: [u32; 6],
    /// The number of DTO streams, indexed by attribute.
    dto: [u32; 4],
    /// The number of DTO streams that do not mix ([`DtoConfig::mixes`]).
    unmixed: u32,
}

impl Streams {
    /// Returns how the DTO streams notify, if there are any. With UNSIGNALLED, each post decides,
    /// and only streams that are configured so accept such posts; so it stands for a mixture, too.
    pub(super) fn attribute(&self) -> Option<Attribute> {
        let mut present = Attribute::BY_PRECEDENCE.into_iter();
        present.find(|&one| self.dto[one as usize] != 0)
    }

    /// Attaches a stream other than DTO.
    pub(super) fn attach(&mut self, kind: StreamKind) -> Result<()> {
        if let Some(attribute) = self.attribute().filter(|one| one.is_controlled()) {
            return Err(mismatch(format!(
                "the EVD's data transfer streams are configured {attribute:?}; no {kind:?} stream \
                 may share the EVD with them: use another EVD"
            )));
        }
        self.others[kind as usize] += 1;
        Ok(())
    }

    pub(super) fn detach(&mut self, kind: StreamKind) {
        self.others[kind as usize] -= 1;
    }

    /// Attaches a DTO stream of an endpoint.
    ///
    /// All DTO streams of an EVD must have the same attribute, unless all of them mix
    /// ([`DtoConfig::mixes`]) and none is SOLICITED_WAIT: the device is asked for solicited
    /// completions alone, or for all. An attribute that lets posts or peers control notification
    /// excludes streams of other kinds. The DAT pages allow service points and connections beside
    /// the threshold attribute only; this library also allows them beside the default attribute,
    /// with which every completion notifies.
    pub(super) fn attach_dto(&mut self, is_request: bool, config: DtoConfig) -> Result<()> {
        let Some(new) = Attribute::of(config.flags) else {
            return Err(mismatch(format!(
                "the completion flags {:#x} contradict each other: expected one of UNSIGNALLED, \
                 SOLICITED_WAIT and EVD_THRESHOLD",
                config.flags.bits()
            )));
        };
        if is_request && new == Attribute::Solicited {
            return Err(mismatch(
                "SOLICITED_WAIT in request_completion_flags: expected it in recv_completion_flags \
                 only, because no peer solicits the completion of a request"
                    .to_owned(),
            ));
        }
        let may_mix = config.mixes && self.unmixed == 0;
        let mut others = Attribute::BY_PRECEDENCE.into_iter().filter(|&old| {
            let solicited = new == Attribute::Solicited || old == Attribute::Solicited;
            self.dto[old as usize] != 0 && old != new && (solicited || !may_mix)
        });
        if let Some(old) = others.next() {
            return Err(mismatch(format!(
                "its other data transfer streams are configured {old:?}, this one {new:?}; \
                 configure them alike or use another EVD"
            )));
        }
        if new.is_controlled() && self.others.iter().any(|&count| count != 0) {
            return Err(mismatch(format!(
                "a stream configured {new:?} cannot share an EVD with connection, request or \
                 asynchronous events; use another EVD"
            )));
        }
        self.dto[new as usize] += 1;
        self.unmixed += u32::from(!config.mixes);
        Ok(())
    }

    /// Detaches a DTO stream that was attached with this configuration.
    pub(super) fn detach_dto(&mut self, config: DtoConfig) {
        if let Some(attribute) = Attribute::of(config.flags) {
            self.dto[attribute as usize] -= 1;
            self.unmixed -= u32::from(!config.mixes);
        }
    }
}

fn mismatch(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::NoSubtype, cause)
}

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

    pub(super) fn insert(&mut self, role: DtoRole, queue: usize, depth: u32) {
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

/// The least entries of the first completion queue of an EVD on a device that cannot resize queues:
/// room for 16 endpoints with default attributes, each of which can have 128 receives, 127 requests
/// and the marker of a disconnect outstanding. With one queue, events come in the order of arrival.
///
/// libmlx5 rounds this up to a ring of 8192 entries, 512 KiB.
pub(super) const FIRST_QUEUE: u32 = 4096;

/// Returns the most completions that one queue holds at a time: the streams on it have no more
/// outstanding than the length of the EVD, however long the queue is.
pub(super) fn held(capacity: u32, queue_length: u32) -> u32 {
    capacity.min(queue_length)
}
