//! Why a post was refused, in words.
//!
//! The code has been decided, and is not changed here. Each function describes the first thing that
//! the post gets this code for, in the order of the checks. If nothing is wrong any more, because
//! the queue or its memory has changed since, [`changed`] says so.
//!
//! Decision: `docs/decisions/063-cause-after-the-refusal.md`

use crate::object::ia::MAX_SEGMENTS;
use crate::object::lmr::LmrCache;
use crate::object::post::LONGEST;
use crate::refusal::Refusal;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges};

/// A refused post, and the limits of its queue.
pub(crate) struct RefusedPost<'a> {
    /// What the queue belongs to: "endpoint" or "shared receive queue".
    pub(crate) owner: &'static str,
    pub(crate) count: u32,
    pub(crate) segment: &'a dyn Fn(usize) -> LmrSegment,
    pub(crate) flags: CompletionFlags,
    /// The accepted flags.
    pub(crate) allowed: CompletionFlags,
    /// The attribute that limits the number of segments, and its value.
    pub(crate) most_segments: (&'static str, u32),
    /// The handle of the zone that segments must be in.
    pub(crate) zone: usize,
    pub(crate) need: MemPrivileges,
}

impl RefusedPost<'_> {
    /// Returns the length of all segments, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.segments()
            .fold(0, |sum, (_, segment)| segment.length.saturating_add(sum))
    }

    /// Returns the cause if it is the number of segments, the flags or a segment.
    pub(crate) fn cause(&self, code: DatReturn) -> Option<String> {
        let (kind, subtype) = (code.kind()?, code.subtype()?);
        match (kind, subtype) {
            (ReturnType::InvalidParameter, Subtype::InvalidArg2) => self.too_many(),
            (ReturnType::InvalidParameter, Subtype::InvalidArg3) => self.too_long(),
            (ReturnType::InvalidParameter, Subtype::NoSubtype) => {
                self.bad_flags().or_else(|| self.bad_segment(kind))
            }
            (ReturnType::PrivilegesViolation | ReturnType::ProtectionViolation, _) => {
                self.bad_segment(kind)
            }
            _ => None,
        }
    }

    /// Returns the segments that are not empty, with their positions.
    fn segments(&self) -> impl Iterator<Item = (usize, LmrSegment)> {
        let count = (self.count as usize).min(MAX_SEGMENTS);
        (0..count)
            .map(|at| (at, (self.segment)(at)))
            .filter(|(_, segment)| segment.length != 0)
    }

    fn too_many(&self) -> Option<String> {
        let (attribute, most) = self.most_segments;
        (self.count > most).then(|| {
            format!(
                "{} segments: expected 0 to {most}, the {attribute} of the {}; post fewer segments, \
                 or create it with more",
                self.count.cast_signed(),
                self.owner
            )
        })
    }

    fn too_long(&self) -> Option<String> {
        let (at, segment) = self
            .segments()
            .find(|(_, segment)| segment.length > LONGEST)?;
        Some(format!(
            "segment {at} has {} bytes: expected at most {LONGEST}; split it",
            segment.length
        ))
    }

    fn bad_flags(&self) -> Option<String> {
        bad_flags(self.flags, self.allowed)
    }

    fn bad_segment(&self, kind: ReturnType) -> Option<String> {
        self.segments().find_map(|(at, segment)| {
            let found = LmrCache::default().lookup(segment, self.zone, self.need);
            let why = found.err()?;
            (why.code().kind() == Some(kind)).then(|| Refusal::Segment { at, why }.to_string())
        })
    }
}

/// Returns the cause if a flag is not accepted.
fn bad_flags(flags: CompletionFlags, allowed: CompletionFlags) -> Option<String> {
    let wrong = flags.difference(allowed);
    if wrong.is_empty() {
        return None;
    }
    let mut cause = format!(
        "completion flags {:#x}: {} not accepted here; accepted are {}",
        flags.bits(),
        names(wrong.iter_names(), wrong.bits(), "DAT_COMPLETION_"),
        names(allowed.iter_names(), allowed.bits(), "DAT_COMPLETION_"),
    );
    if wrong.contains(CompletionFlags::UNSIGNALLED) {
        cause.push_str(
            "; DAT_COMPLETION_UNSIGNALLED_FLAG must also be in the endpoint's attribute \
             recv_completion_flags or request_completion_flags",
        );
    }
    Some(cause)
}

/// Returns the names of flags in the header, or 0.
fn names<T>(
    named: impl Iterator<Item = (&'static str, T)>,
    bits: u32,
    prefix: &'static str,
) -> String
where
    T: Into<u32>,
{
    let mut rest = bits;
    let mut all: Vec<String> = named
        .map(|(name, flag)| {
            rest &= !flag.into();
            format!("{prefix}{name}_FLAG")
        })
        .collect();
    if rest != 0 || all.is_empty() {
        all.push(format!("{rest:#x}"));
    }
    all.join(" | ")
}

impl From<CompletionFlags> for u32 {
    fn from(flags: CompletionFlags) -> Self {
        flags.bits()
    }
}

/// Returns the cause if the code names a state of the endpoint.
pub(crate) fn of_state(code: DatReturn, what: &str) -> Option<String> {
    if !code.is(ReturnType::InvalidState) {
        return None;
    }
    let subtype = code.subtype()?;
    if subtype == Subtype::InvalidStateEpPz {
        return Some(
            "the endpoint has no protection zone: set one with dat_ep_modify before posting".into(),
        );
    }
    if subtype == Subtype::InvalidStateEpNotready {
        return Some(format!(
            "the endpoint's queue pair takes no {what} in its present state: after a disconnect or \
             an error, take the flushed completions and call dat_ep_reset"
        ));
    }
    let state = EpState::ALL
        .into_iter()
        .find(|state| state.subtype() == subtype)?;
    Some(format!(
        "the endpoint is {state:?}: {what} are accepted while it is Connected (after \
         DAT_CONNECTION_EVENT_ESTABLISHED) or Disconnected"
    ))
}

/// Returns the cause if a queue is full.
pub(crate) fn full_queue(queue: &str, attribute: &str, depth: i64, remedy: &str) -> String {
    format!(
        "the {queue} is full: {depth} can be outstanding ({attribute}); {remedy}, or create it with \
         a higher {attribute}"
    )
}

/// Returns the cause if it cannot be found any more.
pub(crate) fn changed(what: &str) -> String {
    format!("the {what} or its memory has changed since the refusal: post again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: [(ReturnType, Subtype, &str); 4] = [
        (
            ReturnType::InvalidParameter,
            Subtype::InvalidArg2,
            "3 segments: expected 0 to 2, the max_recv_iov of the endpoint",
        ),
        (
            ReturnType::InvalidParameter,
            Subtype::InvalidArg3,
            "segment 1 has 2147483648 bytes: expected at most 2147483647",
        ),
        (
            ReturnType::InvalidParameter,
            Subtype::NoSubtype,
            "completion flags 0x22: DAT_COMPLETION_SOLICITED_WAIT_FLAG | 0x20 not accepted here; \
             accepted are DAT_COMPLETION_SUPPRESS_FLAG",
        ),
        (
            ReturnType::PrivilegesViolation,
            Subtype::NoSubtype,
            "segment 1: no LMR has the context 0x7",
        ),
    ];

    #[test]
    fn each_code_names_the_value_and_what_is_accepted() {
        let segment = |at| LmrSegment {
            context: 7,
            address: 0x1000,
            length: [0, 1 << 31, 1][at],
        };
        let post = RefusedPost {
            owner: "endpoint",
            count: 3,
            segment: &segment,
            flags: CompletionFlags::from_bits_retain(0x22),
            allowed: CompletionFlags::SUPPRESS,
            most_segments: ("max_recv_iov", 2),
            zone: 0,
            need: MemPrivileges::LOCAL_WRITE,
        };
        for (kind, subtype, expected) in CODES {
            let cause = post.cause(DatReturn::error(kind, subtype)).expect(expected);
            assert!(cause.starts_with(expected), "{cause}");
        }
        let full = DatReturn::error(ReturnType::InsufficientResources, Subtype::ResourceMemory);
        assert_eq!(post.cause(full), None, "not of this module");
    }

    #[test]
    fn a_cause_that_is_gone_is_not_made_up() {
        let post = RefusedPost {
            owner: "endpoint",
            count: 0,
            segment: &|_| LmrSegment::default(),
            flags: CompletionFlags::empty(),
            allowed: CompletionFlags::empty(),
            most_segments: ("max_recv_iov", 2),
            zone: 0,
            need: MemPrivileges::LOCAL_WRITE,
        };
        for (kind, subtype, _) in CODES {
            assert_eq!(post.cause(DatReturn::error(kind, subtype)), None);
        }
    }
}
