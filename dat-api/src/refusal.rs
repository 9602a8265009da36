//! Why a post or a bind was refused: the check that refuses one returns a [`Refusal`], which has the
//! code and the values that were wrong. It takes no memory, and becomes a sentence only if it is
//! displayed.
//!
//! Decision: `docs/decisions/063-cause-with-the-refusal.md`

use core::cell::Cell;
use core::fmt;

use bitflags::Flags;
use dat_engine::{LONGEST_WINDOW, PostError};

use crate::handle::{Handle, NotOwned};
use crate::status::{DatReturn, OwnCodes, ReturnCodes, ReturnType as Type, Subtype};
use crate::types::{CompletionFlags, EpState, MemPrivileges};

/// Defines an enum of causes; after `=>`, the code and the sentence.
macro_rules! causes {
    (
        $(#[$doc:meta])* $Causes:ident;
        $($Cause:ident $({ $($field:ident: $of:ty),* })? => $code:expr, ($($text:tt)+);)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each has a sentence below")]
        pub enum $Causes {
            $($Cause $({ $($field: $of),* })?),+
        }

        impl $Causes {
            /// Returns the code of the call.
            #[must_use]
            #[allow(unused_variables, reason = "few codes depend on the values")]
            pub fn code(self) -> DatReturn {
                match self {
                    $(Self::$Cause $({ $($field),* })? => $code),+
                }
            }
        }

        impl fmt::Display for $Causes {
            #[allow(unused_variables, reason = "of a value that only selects the code")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$Cause $({ $($field),* })? => write!(f, $($text)+)),+
                }
            }
        }

        impl core::error::Error for $Causes {}

        impl From<$Causes> for DatReturn {
            fn from(refusal: $Causes) -> Self {
                refusal.code()
            }
        }
    };
}

causes! {
    /// Why a post or a bind was refused. Displayed, it says which value was wrong, and what is
    /// accepted.
    Refusal;

    TooManySegments { count: u32, most: u32, attribute: &'static str, owner: &'static str } =>
        bad(Subtype::InvalidArg2), (
        "{} segments: expected 0 to {most}, the {attribute} of the {owner}; post fewer segments, or \
         create it with more", count.cast_signed());
    LongSegment { at: usize, length: u64, most: u64 } => bad(Subtype::InvalidArg3), (
        "segment {at} has {length} bytes: expected at most {most}; split it");
    Segment { at: usize, why: Unusable } => why.code(), ("segment {at}: {why}");
    Flags { flags: CompletionFlags, allowed: CompletionFlags } => plain(Type::InvalidParameter), (
        "completion flags {:#x}: {} not accepted here; accepted are {}{}",
        flags.bits(), Names("DAT_COMPLETION_", flags.difference(allowed)),
        Names("DAT_COMPLETION_", allowed), hint_of(flags.difference(allowed)));
    State { state: EpState, what: &'static str } => in_state(state.subtype()), (
        "the endpoint is {state:?}: {what} are accepted while it is Connected (after \
         DAT_CONNECTION_EVENT_ESTABLISHED) or Disconnected");
    NullSegments { count: i32 } => bad(Subtype::InvalidArg3), (
        "the segment list is null, but the number of segments is {count}: expected a list of that \
         many, or 0 segments for an empty message");
    NullRemote => bad(Subtype::InvalidArg5), (
        "the remote segment is null: expected a DAT_RMR_TRIPLET with the context and address that \
         the peer has sent");
    NullAtomic { what: &'static str, argument: Subtype } => bad(argument), (
        "the {what} segment is null: expected one of 8 bytes");
    NoZone => in_state(Subtype::InvalidStateEpPz), (
        "the endpoint has no protection zone: set one with dat_ep_modify before posting");
    NotReady { what: &'static str } => in_state(Subtype::InvalidStateEpNotready), (
        "the endpoint's queue pair takes no {what} in its present state: after a disconnect or an \
         error, take the flushed completions and call dat_ep_reset");
    SharedReceives { srq: usize } => in_state(Subtype::InvalidStateSrqInUse), (
        "the endpoint takes its receives from SRQ {srq:#x}: post them there, with \
         dat_srq_post_recv");
    ReceivesFull { depth: u32 } => full(), (
        "the receive queue is full: {depth} can be outstanding (max_recv_dtos); take completions \
         from the receive EVD before posting more, or create it with a higher max_recv_dtos");
    RequestsFull { depth: u32 } => full(), (
        "the request queue is full: {depth} can be outstanding (max_request_dtos); take completions \
         from the request EVD before posting more, or create it with a higher max_request_dtos");
    SharedFull { depth: u32 } => full(), (
        "the shared receive queue is full: {depth} can be outstanding (max_recv_dtos); take \
         completions from the receive EVDs of its endpoints before posting more, or create it with \
         a higher max_recv_dtos");
    NoReads => full(), (
        "0 RDMA reads or atomic operations may be outstanding on this connection, the lower of \
         max_rdma_read_out here and max_rdma_read_in of the peer's endpoint: set both to 1 or more \
         before connecting");
    ReadsUnsupported => plain(Type::ModelNotSupported), (
        "the device supports no RDMA reads (max_rdma_read_per_ep_out is 0), and no atomic \
         operations: use sends or RDMA writes");
    AtomicsUnsupported => plain(Type::ModelNotSupported), (
        "the device has no atomic operations (its atomic_cap is none): let the peer change its \
         memory");
    ImmediateUnsupported => plain(Type::ModelNotSupported), (
        "the device carries no immediate data, because it is iWARP: send them in a message after \
         the RDMA write");
    LongMessage { length: u64, most: u64 } => bad(Subtype::InvalidArg3), (
        "the message has {length} bytes: expected at most {most}, the max_message_size of the \
         endpoint; split it, or create the endpoint with more");
    LongTransfer { length: u64, most: u64 } => plain(Type::LengthError), (
        "the transfer has {length} bytes: expected at most {most}, the max_rdma_size of the \
         endpoint; split it, or create the endpoint with more");
    LongRead { remote: u64, local: u64 } => plain(Type::LengthError), (
        "the remote segment has {remote} bytes, the local segments have {local}: expected local \
         segments that take the whole remote one");
    LongWrite { remote: u64, local: u64 } => plain(Type::LengthError), (
        "the local segments have {local} bytes, the remote segment has {remote}: expected a remote \
         segment that takes all of them");
    ShortAtomic { what: &'static str, length: u64 } => plain(Type::LengthError), (
        "the {what} segment has {length} bytes: an atomic operation needs 8 bytes");
    Unaligned { address: u64, argument: Subtype } => bad(argument), (
        "the remote address {address:#x} is not a multiple of 8: atomic operations need aligned \
         memory");
    BindZones { rmr: usize, ep: usize } => plain(Type::ProtectionViolation), (
        "the RMR is in PZ {rmr:#x}, but the endpoint in PZ {ep:#x}: create both in one protection \
         zone");
    NoBinds { evd: usize } => handle(Subtype::InvalidHandleEvdRequest), (
        "the request EVD of the endpoint, {evd:#x}, carries no completions of binds: create it with \
         DAT_EVD_RMR_BIND_FLAG");
    NoRequestEvd => handle(Subtype::InvalidHandleEvdRequest), (
        "the endpoint has no request EVD: set one that was created with DAT_EVD_RMR_BIND_FLAG");
    Target { why: Unusable } => why.code(), ("{why}");
    BadTarget { why: Unusable } => bad(Subtype::InvalidArg2), ("{why}");
    LongTarget { length: u64 } => bad(Subtype::InvalidArg2), (
        "the segment has {length} bytes: expected at most {LONGEST_WINDOW}; bind several RMRs");
    ReadOnly { context: u32 } => plain(Type::ModelNotSupported), (
        "the LMR with the context {context:#x} is of read-only memory, to which the device binds no \
         RMR: register memory that the process can write");
    RmrFreed => handle(Subtype::InvalidHandleRmr), ("the RMR is being freed");
    NoWindow { code: DatReturn } => code, (
        "the device allocates no new window for the RMR, whose last bind failed: free RMRs that are \
         not used");
    NoRoomForBinds => plain(Type::ModelNotSupported), (
        "the endpoint's request queue has no room for binds: create it with more max_request_dtos");
    Engine { error: PostError } => of_engine(error), ("{error}");
}

causes! {
    /// Why memory cannot be used: no LMR has the context, or that LMR does not fit.
    Unusable;

    NoLmr { context: u32 } => plain(Type::PrivilegesViolation), (
        "no LMR has the context {context:#x}: it was freed, or the context is not the lmr_context \
         of a dat_lmr_create; pass that of registered memory");
    Zone { context: u32, lmr: usize, needed: usize } => plain(Type::ProtectionViolation), (
        "the LMR with the context {context:#x} is in PZ {lmr:#x}, but the call needs memory in PZ \
         {needed:#x}: create both in one protection zone");
    Privileges { context: u32, has: MemPrivileges, need: MemPrivileges } =>
        plain(Type::PrivilegesViolation), (
        "the LMR with the context {context:#x} has the privileges {:#x}, without {}: register the \
         memory with it", has.bits(), Names("DAT_MEM_PRIV_", need.difference(has)));
    Outside { context: u32, address: u64, length: u64, first: u64, bytes: u64 } =>
        plain(Type::InvalidParameter), (
        "{length} bytes at {address:#x} are not all inside the LMR with the context {context:#x}, \
         {bytes} bytes at {first:#x}: stay inside it, or register more");
}

causes! {
    /// Why a call on an EVD takes no event, or none was posted.
    EvdRefusal;

    Empty { code: DatReturn } => code, ("the EVD has no event");
    TimedOut => plain(Type::TimeoutExpired), ("the timeout expired before the events were there");
    Interrupted => plain(Type::InterruptedCall), ("a signal interrupted the wait");
    NullResult { argument: Subtype, what: &'static str } => bad(argument), (
        "the pointer for the {what} is null: expected the address of a variable for it");
    Threshold { asked: i32, most: u32 } => bad(Subtype::InvalidArg3), (
        "threshold {asked}: expected 1 to {most}, the length of the EVD");
    Unsignalled { asked: u32 } => in_state(Subtype::InvalidStateEvdConfigNotify), (
        "threshold {asked}: expected 1, because an endpoint that reports to the EVD has \
         DAT_COMPLETION_UNSIGNALLED_FLAG, and notification is then by event");
    Solicited { asked: u32 } => in_state(Subtype::InvalidStateEvdConfigSolicited), (
        "threshold {asked}: expected 1, because an endpoint that reports to the EVD has \
         DAT_COMPLETION_SOLICITED_WAIT_FLAG, and notification is then by event");
    Waited => in_state(Subtype::InvalidStateEvdWaiter), (
        "another thread waits on the EVD: expected one at a time; let that thread take the events, \
         or use an EVD of your own");
    Unwaitable => in_state(Subtype::InvalidStateEvdUnwaitable), (
        "the EVD is unwaitable: call dat_evd_clear_unwaitable first, or dequeue");
    QueueFailed => plain(Type::InvalidState), (
        "a completion queue of the EVD has failed (the asynchronous EVD of the IA has the event): \
         free its endpoints and the EVD, and create them again");
    Freed => handle(Subtype::InvalidHandle1), ("the EVD is being freed: wait no longer on it");
    Aborted => plain(Type::Abort), ("the IA of the EVD is being closed: wait no longer on it");
    DeviceFailed => plain(Type::InternalError), (
        "the device cannot be asked for events; a line before this one says why");
    EvdFull { length: u32 } => plain(Type::QueueFull), (
        "the EVD is full: its length is {length}; take events first, or call dat_evd_resize");
    NoSoftware { flags: u32 } => bad(Subtype::InvalidArg1), (
        "the EVD has the flags {flags:#x}, without DAT_EVD_SOFTWARE_FLAG: create it with that flag");
}

causes! {
    /// Why a wait on a CNO returns no EVD, or why its descriptor cannot be armed.
    CnoRefusal;

    Empty { code: DatReturn } => code, ("no EVD of the CNO has triggered, or not before the timeout expired");
    Interrupted => plain(Type::InterruptedCall), ("a signal interrupted the wait");
    Freed => handle(Subtype::InvalidHandleCno), ("the CNO is being freed: wait no longer on it");
    NoDescriptor => plain(Type::InvalidState), (
        "the CNO has no file descriptor: create it with dat_cno_fd_create, or wait with dat_cno_wait");
    NoWaiter => full(), (
        "the system has no descriptors to wake another waiting thread; see `ulimit -n`");
    DeviceFailed => plain(Type::InternalError), (
        "the device or the system refuses wake-ups; a line before this one says why");
}

impl From<NotOwned> for EvdRefusal {
    fn from(error: NotOwned) -> Self {
        match error {
            NotOwned::Stale => Self::Freed,
            NotOwned::Busy => Self::Waited,
        }
    }
}

impl From<NotOwned> for DatReturn {
    fn from(error: NotOwned) -> Self {
        EvdRefusal::from(error).code()
    }
}

const fn plain(kind: Type) -> DatReturn {
    DatReturn::error(kind, Subtype::NoSubtype)
}

const fn bad(argument: Subtype) -> DatReturn {
    DatReturn::error(Type::InvalidParameter, argument)
}

const fn in_state(which: Subtype) -> DatReturn {
    DatReturn::error(Type::InvalidState, which)
}

const fn handle(which: Subtype) -> DatReturn {
    DatReturn::error(Type::InvalidHandle, which)
}

const fn full() -> DatReturn {
    DatReturn::error(Type::InsufficientResources, Subtype::ResourceMemory)
}

/// Returns the code for what a check before the engine's has overlooked.
fn of_engine(error: PostError) -> DatReturn {
    match error {
        PostError::TooManySegments => bad(Subtype::InvalidArg2),
        PostError::InlineTooLong | PostError::MessageTooLong => bad(Subtype::InvalidArg3),
        _ => plain(Type::ModelNotSupported),
    }
}

/// Displays flags by their names in the header, or as 0.
struct Names<F>(&'static str, F);

impl<F: Flags<Bits = u32>> fmt::Display for Names<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(prefix, flags) = self;
        let (mut named, mut separator) = (flags.iter_names(), "");
        for (name, _) in &mut named {
            write!(f, "{separator}{prefix}{name}_FLAG")?;
            separator = " | ";
        }
        match named.remaining().bits() {
            0 if !separator.is_empty() => Ok(()),
            rest => write!(f, "{separator}{rest:#x}"),
        }
    }
}

fn hint_of(wrong: CompletionFlags) -> &'static str {
    match wrong.contains(CompletionFlags::UNSIGNALLED) {
        true => {
            "; DAT_COMPLETION_UNSIGNALLED_FLAG must also be in the endpoint's attribute \
             recv_completion_flags or request_completion_flags"
        }
        false => "",
    }
}

thread_local! {
    /// The last refused post of this thread that returned [`OwnCodes`].
    static LAST: Cell<Refusal> = const { Cell::new(Refusal::NoZone) };
}

impl ReturnCodes for OwnCodes {
    #[cold]
    fn refuse(_: &'static str, _: Handle, refusal: Refusal) -> DatReturn {
        LAST.set(refusal);
        refusal.code()
    }
}

/// Converts the result of a post with [`OwnCodes`] that has just returned.
///
/// # Errors
/// Why the post was refused.
#[inline(always)]
pub(crate) fn checked(code: DatReturn) -> Result<(), Refusal> {
    if code.is_success() {
        return Ok(());
    }
    Err(LAST.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_names_the_value_and_what_is_accepted() {
        let (read, write) = (MemPrivileges::LOCAL_READ, MemPrivileges::LOCAL_WRITE);
        let error = |kind, subtype| DatReturn::error(kind, subtype);
        for (refusal, code, text) in [
            (
                Refusal::TooManySegments {
                    count: u32::MAX,
                    most: 2,
                    attribute: "max_recv_iov",
                    owner: "endpoint",
                },
                error(Type::InvalidParameter, Subtype::InvalidArg2),
                "-1 segments: expected 0 to 2, the max_recv_iov of the endpoint; post",
            ),
            (
                Refusal::Flags {
                    flags: CompletionFlags::from_bits_retain(0x22),
                    allowed: CompletionFlags::SUPPRESS,
                },
                error(Type::InvalidParameter, Subtype::NoSubtype),
                "completion flags 0x22: DAT_COMPLETION_SOLICITED_WAIT_FLAG | 0x20 not accepted here; \
                 accepted are DAT_COMPLETION_SUPPRESS_FLAG",
            ),
            (
                Refusal::Segment {
                    at: 1,
                    why: Unusable::NoLmr { context: 7 },
                },
                error(Type::PrivilegesViolation, Subtype::NoSubtype),
                "segment 1: no LMR has the context 0x7: ",
            ),
            (
                Refusal::BadTarget {
                    why: Unusable::NoLmr { context: 7 },
                },
                error(Type::InvalidParameter, Subtype::InvalidArg2),
                "no LMR has the context 0x7: ",
            ),
            (
                Refusal::Target {
                    why: Unusable::Privileges {
                        context: 7,
                        has: read,
                        need: read | write,
                    },
                },
                error(Type::PrivilegesViolation, Subtype::NoSubtype),
                "the LMR with the context 0x7 has the privileges 0x1, without \
                 DAT_MEM_PRIV_LOCAL_WRITE_FLAG: register",
            ),
            (
                Refusal::Unaligned {
                    address: 9,
                    argument: Subtype::InvalidArg6,
                },
                error(Type::InvalidParameter, Subtype::InvalidArg6),
                "the remote address 0x9 is not a multiple of 8",
            ),
        ] {
            assert_eq!(refusal.code(), code);
            let cause = refusal.to_string();
            assert!(cause.starts_with(text), "{cause}");
        }
    }

    #[test]
    fn no_flags_are_0_and_unsignalled_ones_have_a_hint() {
        let refusal = Refusal::Flags {
            flags: CompletionFlags::UNSIGNALLED,
            allowed: CompletionFlags::empty(),
        };
        let cause = refusal.to_string();
        assert!(
            cause.contains("accepted are 0x0; DAT_COMPLETION_UNSIGNALLED_FLAG must"),
            "{cause}"
        );
    }

    #[test]
    fn a_refusal_is_small_and_a_thread_has_its_own() {
        assert!(size_of::<Refusal>() <= 64);
        let handle = Handle::NEVER;
        let code = OwnCodes::refuse("", handle, Refusal::NoReads);
        std::thread::scope(|scope| {
            scope.spawn(|| OwnCodes::refuse("", handle, Refusal::RmrFreed));
        });
        assert_eq!(checked(code), Err(Refusal::NoReads));
        assert_eq!(checked(DatReturn::SUCCESS), Ok(()));
    }
}
