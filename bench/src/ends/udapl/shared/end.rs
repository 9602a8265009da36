//! One end of a connection: an EP with its EVDs and memory.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use dat_api::DatReturn;
use dat_api::safe::RemoteSegment;
use dat_api::types::DtoStatus;
use dat_engine::DataInOrder;

use super::abi::*;
use super::library::Calls;
use super::memory::Memory;
use super::{EXTENDED, events, micros, post_extended, remote_segment};
use crate::ends::end::{Done, End, Fault, Flags, Op, Polled, Queue};
use crate::ends::probe::Probe;

/// An EP, with its SRQ if there is one; freed when dropped.
pub(super) struct Endpoint {
    pub(super) ep: DAT_EP_HANDLE,
    pub(super) srq: DAT_SRQ_HANDLE,
    pub(super) calls: Calls,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: an EP, which the call disconnects first, and an SRQ; each is freed once, or is
        // null, which the calls refuse with an error.
        unsafe {
            (self.calls.ep_free)(self.ep);
            (self.calls.srq_free)(self.srq);
        }
    }
}

/// One side's EP, EVDs and memory.
pub(crate) struct CEnd<const SHARED: bool> {
    // Dropped in this order: the memory after all objects that write to it. The EVDs keep the
    // adapter.
    pub(super) endpoint: Endpoint,
    pub(super) sent: events::Queue,
    pub(super) received: events::Queue,
    pub(super) connections: events::Queue,
    pub(super) memory: Memory,
    pub(super) has_atomics: bool,
    pub(super) probe: Option<Probe>,
}

/// The segments of a request.
pub(crate) struct Request {
    local: Box<[DAT_LMR_TRIPLET]>,
    remote: DAT_RMR_TRIPLET,
}

fn context(cookie: u64) -> DAT_CONTEXT {
    DAT_CONTEXT { as_64: cookie }
}

#[inline(always)]
fn completion(signaled: bool) -> DAT_COMPLETION_FLAGS {
    if signaled {
        DAT_COMPLETION_DEFAULT_FLAG
    } else {
        DAT_COMPLETION_SUPPRESS_FLAG
    }
}

/// Returns the fault of a call.
fn called(call: &'static str, code: DAT_RETURN) -> Fault {
    Fault::Call(call, DatReturn::from_bits(code))
}

/// Returns whether a call has returned only because there was no event.
#[cold]
fn is_no_event(code: DAT_RETURN) -> bool {
    matches!(
        code & DAT_TYPE_MASK,
        DAT_QUEUE_EMPTY | DAT_TIMEOUT_EXPIRED | DAT_INTERRUPTED_CALL
    )
}

/// Converts the result of a post.
#[inline(always)]
fn posted(call: &'static str, code: DAT_RETURN) -> Result<(), Fault> {
    match code {
        0 => Ok(()),
        _ => Err(called(call, code)),
    }
}

impl<const SHARED: bool> CEnd<SHARED> {
    #[inline(always)]
    fn queue(&self, queue: Queue) -> &events::Queue {
        match queue {
            Queue::Sent => &self.sent,
            Queue::Received => &self.received,
        }
    }

    /// Posts a request of this many segments. The compiler knows the number of most.
    #[inline(always)]
    fn post_counted(
        &mut self,
        op: Op,
        count: DAT_COUNT,
        request: &mut Request,
        cookie: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        let Endpoint { ep, ref calls, .. } = self.endpoint;
        let (cookie, flags) = (context(cookie), completion(flags.signaled));
        let (local, remote) = (request.local.as_mut_ptr(), &raw mut request.remote);
        // SAFETY: an EP that no other thread uses; the segment's memory outlives the EP (order
        // of fields), and there are no references to it; the target is only read.
        unsafe {
            match op {
                Op::Send => {
                    let code = (calls.ep_post_send)(ep, count, local, cookie, flags);
                    posted("dat_ep_post_send", code)
                }
                Op::Write => {
                    let code = (calls.ep_post_rdma_write)(ep, count, local, cookie, remote, flags);
                    posted("dat_ep_post_rdma_write", code)
                }
                Op::Read => {
                    let code = (calls.ep_post_rdma_read)(ep, count, local, cookie, remote, flags);
                    posted("dat_ep_post_rdma_read", code)
                }
                Op::Atomic(_) | Op::WriteImmediate(_) => {
                    let code = post_extended(calls, ep, op, local, cookie, remote);
                    posted("dat_extension_op", code)
                }
            }
        }
    }

    #[inline(always)]
    fn post_receive_counted(
        &mut self,
        count: DAT_COUNT,
        into: &mut [DAT_LMR_TRIPLET],
        cookie: u64,
    ) -> Result<(), Fault> {
        let Endpoint { ep, srq, ref calls } = self.endpoint;
        let (into, cookie) = (into.as_mut_ptr(), context(cookie));
        // SAFETY: as in `post_counted`.
        unsafe {
            if SHARED {
                let code = (calls.srq_post_recv)(srq, count, into, cookie);
                posted("dat_srq_post_recv", code)
            } else {
                let code = (calls.ep_post_recv)(ep, count, into, cookie, DAT_COMPLETION_DEFAULT_FLAG);
                posted("dat_ep_post_recv", code)
            }
        }
    }

    /// Dequeues a completion, whose event has one of these numbers.
    #[inline(always)]
    fn dequeue<const N: usize>(&self, queue: Queue, numbers: [DAT_EVENT_NUMBER; N]) -> Polled {
        let mut event = MaybeUninit::<DAT_EVENT>::uninit();
        let evd = self.queue(queue).evd;
        // SAFETY: an EVD; the event is a local variable that is written.
        let code = unsafe { (self.endpoint.calls.evd_dequeue)(evd, event.as_mut_ptr()) };
        if code != 0 {
            return match code & DAT_TYPE_MASK {
                DAT_QUEUE_EMPTY => None,
                _ if is_no_event(code) => None,
                _ => Some(Err(called("dat_evd_dequeue", code))),
            };
        }
        // SAFETY: the call succeeded, so it has written the event.
        Some(done(unsafe { event.assume_init_ref() }, numbers, 0))
    }
}

impl<const SHARED: bool> End for CEnd<SHARED> {
    const WAITS: bool = true;
    const IMMEDIATES: bool = true;

    type Request = Request;
    type Receive = Box<[DAT_LMR_TRIPLET]>;

    fn memory(&self) -> NonNull<u8> {
        self.memory.start()
    }

    fn exposed_buffer(&self) -> RemoteSegment {
        self.memory.exposed_buffer()
    }

    fn request_of(&self, _: Op, local: &[Range<usize>], remote: RemoteSegment) -> Request {
        Request {
            local: self.receive_of(local),
            remote: remote_segment(remote),
        }
    }

    fn receive_of(&self, into: &[Range<usize>]) -> Box<[DAT_LMR_TRIPLET]> {
        let segment = |piece: &Range<usize>| self.memory.segment(piece.clone());
        into.iter().map(segment).collect()
    }

    #[inline(always)]
    fn post(
        &mut self,
        op: Op,
        _: Range<usize>,
        request: &mut Request,
        cookie: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        self.post_counted(op, 1, request, cookie, flags)
    }

    #[inline(always)]
    fn post_of(
        &mut self,
        op: Op,
        local: &[Range<usize>],
        request: &mut Request,
        flags: Flags,
    ) -> Result<(), Fault> {
        self.post_counted(op, local.len() as DAT_COUNT, request, 0, flags)
    }

    #[inline(always)]
    fn post_receive(
        &mut self,
        _: Range<usize>,
        into: &mut Box<[DAT_LMR_TRIPLET]>,
        cookie: u64,
    ) -> Result<(), Fault> {
        self.post_receive_counted(1, into, cookie)
    }

    #[inline(always)]
    fn post_receive_of(
        &mut self,
        pieces: &[Range<usize>],
        into: &mut Box<[DAT_LMR_TRIPLET]>,
    ) -> Result<(), Fault> {
        self.post_receive_counted(pieces.len() as DAT_COUNT, into, 0)
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let Endpoint { ep, ref calls, .. } = self.endpoint;
        let flags = completion(signaled);
        // SAFETY: an EP that no other thread uses; the request has no segments.
        let code = unsafe { (calls.ep_post_send)(ep, 0, null_mut(), context(0), flags) };
        posted("dat_ep_post_send", code)
    }

    #[inline(always)]
    fn poll(&mut self, queue: Queue) -> Polled {
        self.dequeue(queue, [DAT_DTO_COMPLETION_EVENT])
    }

    #[inline(always)]
    fn poll_extended(&mut self, queue: Queue) -> Polled {
        match queue {
            Queue::Sent => self.dequeue(queue, [DAT_DTO_COMPLETION_EVENT, EXTENDED]),
            Queue::Received => self.dequeue(queue, [EXTENDED]),
        }
    }

    #[inline(always)]
    fn wait(&mut self, queue: Queue, threshold: u8, timeout: Option<Duration>) -> Polled {
        let (mut event, mut more) = (MaybeUninit::<DAT_EVENT>::uninit(), 0);
        let (evd, threshold) = (self.queue(queue).evd, DAT_COUNT::from(threshold));
        let timeout = timeout.map_or(DAT_TIMEOUT_INFINITE, micros);
        let (event_at, more_at) = (event.as_mut_ptr(), &raw mut more);
        let calls = &self.endpoint.calls;
        // SAFETY: an EVD; event and count are local variables that are written.
        let code = unsafe { (calls.evd_wait)(evd, timeout, threshold, event_at, more_at) };
        match code & DAT_TYPE_MASK {
            DAT_SUCCESS => {
                // SAFETY: the call succeeded, so it has written the event.
                let event = unsafe { event.assume_init_ref() };
                Some(done(event, [DAT_DTO_COMPLETION_EVENT], more as u32))
            }
            DAT_TIMEOUT_EXPIRED => None,
            _ if is_no_event(code) => None,
            _ => Some(Err(called("dat_evd_wait", code))),
        }
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// uDAPL has no such query, so another queue pair of the port is asked.
    fn data_in_order(&self) -> DataInOrder {
        let probe = self.probe.as_ref();
        probe.map_or(DataInOrder::Unknown, Probe::data_in_order)
    }
}

/// Converts a completion event, which has one of these numbers.
#[inline(always)]
fn done<const N: usize>(
    event: &DAT_EVENT,
    numbers: [DAT_EVENT_NUMBER; N],
    more: u32,
) -> Result<Done, Fault> {
    if !numbers.contains(&event.event_number) {
        return Err(Fault::Event(event.event_number));
    }
    // SAFETY: the event number says that this member is valid.
    let data = unsafe { event.event_data.dto_completion_event_data };
    if data.status != DAT_DTO_SUCCESS {
        return Err(failed(data.status));
    }
    Ok(Done {
        // SAFETY: any 64 bits are a valid value of this member, which was posted.
        cookie: unsafe { data.user_cookie.as_64 },
        #[allow(clippy::unnecessary_cast, reason = "uDAPL 2.0 has 32 bits")]
        length: data.transfered_length as u64,
        immediate: 0,
        endpoint: 0,
        more,
    })
}

#[cold]
fn failed(status: u32) -> Fault {
    const ALL: [DtoStatus; 12] = [
        DtoStatus::Success,
        DtoStatus::Flushed,
        DtoStatus::LocalLength,
        DtoStatus::LocalEp,
        DtoStatus::LocalProtection,
        DtoStatus::BadResponse,
        DtoStatus::RemoteAccess,
        DtoStatus::RemoteResponder,
        DtoStatus::Transport,
        DtoStatus::ReceiverNotReady,
        DtoStatus::PartialPacket,
        DtoStatus::RmrOperationFailed,
    ];
    let named = ALL.into_iter().find(|&named| named as u32 == status);
    named.map_or(Fault::Event(status), Fault::Dto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_api::{ReturnType, Subtype};

    #[test]
    fn a_dto_status_is_reported_by_name_if_it_has_one() {
        assert_eq!(failed(1), Fault::Dto(DtoStatus::Flushed));
        assert_eq!(failed(11), Fault::Dto(DtoStatus::RmrOperationFailed));
        assert_eq!(failed(99), Fault::Event(99));
    }

    #[test]
    fn every_return_code_but_no_event_is_a_failure() {
        for kind in [ReturnType::QueueEmpty, ReturnType::TimeoutExpired] {
            let code = DatReturn::error(kind, Subtype::NoSubtype);
            assert!(is_no_event(code.bits()));
        }
        let code = DatReturn::error(ReturnType::InvalidState, Subtype::NoSubtype);
        assert!(!is_no_event(code.bits()));
        assert_eq!(called("x", code.bits()), Fault::Call("x", code));
    }
}
