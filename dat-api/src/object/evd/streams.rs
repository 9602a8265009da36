//! Which event streams may share one EVD, and which are attached.
//!
//! Decisions:
//! - `docs/decisions/031-ep-modify-is-atomic.md`
//! - `docs/decisions/061-allow-what-the-reference-allows.md`

use std::sync::Arc;

use super::Evd;
use crate::error::{DatError, Result};
use crate::object::usage::Use;
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
    const fn subtype(self) -> Subtype {
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
    fn attach(&mut self, kind: StreamKind) -> Result<()> {
        if let Some(attribute) = self.attribute().filter(|one| one.is_controlled()) {
            return Err(mismatch(format!(
                "the EVD's data transfer streams are configured {attribute:?}; no {kind:?} stream \
                 may share the EVD with them: use another EVD"
            )));
        }
        self.others[kind as usize] += 1;
        Ok(())
    }

    fn detach(&mut self, kind: StreamKind) {
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

/// Checks that an EVD may carry a stream of this kind; `subtype` names the role in the error.
pub(super) fn check_flag(evd: &Evd, kind: StreamKind, subtype: Subtype) -> Result<()> {
    if evd.flags().contains(kind.flag()) {
        return Ok(());
    }
    Err(DatError::new(
        ReturnType::InvalidHandle,
        subtype,
        format!(
            "EVD {:#x} has the flags {:#x}, without that for {kind:?} events, {:#x}: create it with \
             that flag",
            evd.handle().bits(),
            evd.flags().bits(),
            kind.flag().bits()
        ),
    ))
}

/// A stream other than DTO, attached to an EVD until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    evd: Use<Evd>,
    kind: StreamKind,
    /// It is attached, not suspended ([`Self::suspend`]).
    attached: bool,
}

impl StreamGuard {
    /// Returns the EVD.
    pub(crate) fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Suspends the stream: other streams need not match it until [`Self::resume`] resumes it. The
    /// EVD is kept.
    pub(crate) fn suspend(&mut self) {
        if core::mem::take(&mut self.attached) {
            self.evd.attachments().streams.detach(self.kind);
        }
    }

    /// Resumes a suspended stream.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`: streams that cannot share an EVD with it were attached meanwhile.
    pub(crate) fn resume(&mut self) -> Result<()> {
        if !self.attached {
            self.evd.attachments().streams.attach(self.kind)?;
            self.attached = true;
        }
        Ok(())
    }
}

impl Evd {
    /// Attaches a stream of connection requests, connection events or asynchronous events; the EVD
    /// cannot be freed while it is attached.
    ///
    /// # Errors
    /// `INVALID_HANDLE` with the subtype of the role if the EVD lacks the flag or is being freed;
    /// `INVALID_PARAMETER` if the DTO streams on it exclude other streams.
    pub(crate) fn attach(self: &Arc<Self>, kind: StreamKind) -> Result<StreamGuard> {
        check_flag(self, kind, kind.subtype())?;
        let evd = self.enter(kind.subtype())?;
        self.attachments().streams.attach(kind)?;
        Ok(StreamGuard {
            evd,
            kind,
            attached: true,
        })
    }

    /// Keeps the EVD from being freed.
    pub(super) fn enter(self: &Arc<Self>, subtype: Subtype) -> Result<Use<Self>> {
        Use::of(self).ok_or_else(|| {
            DatError::new(
                ReturnType::InvalidHandle,
                subtype,
                "the EVD is being freed: use another",
            )
        })
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.suspend();
    }
}
