//! DAT's C calls as a measured interface, through function pointers from dlsym. `v1` and
//! `v2` compile this file with the types of their version.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::rc::Rc;

use super::udapl::abi::{
    DAT_COMPLETION_DEFAULT_FLAG, DAT_CONNECT_DEFAULT_FLAG, DAT_CONNECTION_EVENT_ESTABLISHED,
    DAT_CONNECTION_REQUEST_EVENT, DAT_CONTEXT, DAT_COUNT, DAT_DTO_COMPLETION_EVENT,
    DAT_DTO_SUCCESS, DAT_EP_ATTR, DAT_EP_HANDLE, DAT_EVD_CONNECTION_FLAG, DAT_EVD_CR_FLAG,
    DAT_EVD_DTO_FLAG, DAT_EVENT, DAT_EVENT_NUMBER, DAT_HANDLE_NULL, DAT_LMR_TRIPLET,
    DAT_PSP_CONSUMER_FLAG, DAT_QOS_BEST_EFFORT, DAT_QUEUE_EMPTY, DAT_RETURN, DAT_RMR_TRIPLET,
    DAT_SERVICE_TYPE_RC, DAT_SRQ_ATTR, DAT_SRQ_HANDLE, DAT_SUCCESS, DAT_TIMEOUT,
    DAT_TIMEOUT_EXPIRED, DAT_TIMEOUT_INFINITE, DAT_TYPE_MASK,
};

use super::atomics;
use super::udapl::adapter::CONNECTION_EVENTS;
use super::udapl::events::{Queue, micros};
use super::udapl::library::Calls;
use super::udapl::memory::Memory;
use super::udapl::{Adapter, Libdat, bytes, control, remote_segment};
use crate::cost::end::{
    ATOMIC, BUFFER, COMPLETIONS, DEPTH, End, Extension, IN, Interface, LONGER, MESSAGE, OUT,
    POLL_FAILED, ROOM, TARGET,
};
use crate::cost::rust::CONNECT_TIMEOUT;
use crate::failure::Failure;
use crate::udapl::address::{Address, read_address};
use dat_api::safe::RemoteSegment;
use dat_engine::AtomicOp;

/// An open adapter.
pub(in crate::cost) struct C(Rc<Adapter>);

impl C {
    pub(in crate::cost) fn open(
        libdat: &Libdat,
        adapter: &str,
        thread_safe: bool,
    ) -> Result<Self, Failure> {
        Adapter::open(libdat, adapter, thread_safe).map(Self)
    }

    fn pair<const SHARED: bool>(&self) -> Result<(CEnd<SHARED>, CEnd<SHARED>), Failure> {
        let (mut near, mut far) = (self.end()?, self.end()?);
        self.connect(near.ep, far.ep)?;
        for connections in [&near.connections, &far.connections] {
            let event = connections.await_event(CONNECT_TIMEOUT, "a DAT connection")?;
            if event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED {
                return Err(Failure::run(format!(
                    "the DAT connection was not established: event 0x{:x}",
                    event.event_number
                )));
            }
        }
        (near.target, far.target) = (far.remote(LONGER), near.remote(LONGER));
        (near.word_target, far.word_target) = (far.remote(ATOMIC), near.remote(ATOMIC));
        Ok((near, far))
    }

    fn connect(&self, near: DAT_EP_HANDLE, far: DAT_EP_HANDLE) -> Result<(), Failure> {
        let adapter = &self.0;
        let calls = adapter.calls;
        let requests = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CR_FLAG)?;
        let (mut qualifier, mut psp) = (0, DAT_HANDLE_NULL);
        // SAFETY: handles of this adapter; qualifier, handle and address are local
        // variables; the request is the one that has just arrived.
        unsafe {
            let code = (calls.psp_create_any)(
                adapter.ia,
                &raw mut qualifier,
                requests.evd,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            );
            control("dat_psp_create_any", code)?;
            let address = read_address(adapter.query()?.ia_address_ptr)
                .ok_or_else(|| Failure::environment("dat_ia_query returned no IP address for the adapter; give one to its network interface"))?;
            let code = (calls.ep_connect)(
                near,
                Address::new(address).pointer(),
                qualifier,
                micros(CONNECT_TIMEOUT),
                0,
                null_mut(),
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            );
            control("dat_ep_connect", code)?;
            let event = requests.await_event(CONNECT_TIMEOUT, "a DAT connection request")?;
            if event.event_number != DAT_CONNECTION_REQUEST_EVENT {
                return Err(Failure::run(format!(
                    "event 0x{:x} instead of a connection request",
                    event.event_number
                )));
            }
            let request = event.event_data.cr_arrival_event_data.cr_handle;
            control(
                "dat_cr_accept",
                (calls.cr_accept)(request, far, 0, null_mut()),
            )?;
            control("dat_psp_free", (calls.psp_free)(psp))
        }
    }

    fn end<const SHARED: bool>(&self) -> Result<CEnd<SHARED>, Failure> {
        let adapter = &self.0;
        let calls = adapter.calls;
        let memory = Memory::register(adapter, BUFFER)?;
        let received = adapter.queue(COMPLETIONS, DAT_EVD_DTO_FLAG)?;
        let sent = adapter.queue(COMPLETIONS, DAT_EVD_DTO_FLAG)?;
        let connections = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CONNECTION_FLAG)?;
        let limits = adapter.query()?;
        let attributes = DAT_EP_ATTR {
            service_type: DAT_SERVICE_TYPE_RC,
            max_message_size: limits.max_message_size,
            max_rdma_size: limits.max_rdma_size,
            qos: DAT_QOS_BEST_EFFORT,
            recv_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
            request_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
            max_recv_dtos: DEPTH as DAT_COUNT,
            max_request_dtos: DEPTH as DAT_COUNT,
            max_recv_iov: 1,
            max_request_iov: 1,
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            srq_soft_hw: 0,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 1,
            ep_transport_specific_count: 0,
            ep_transport_specific: null_mut(),
            ep_provider_specific_count: 0,
            ep_provider_specific: null_mut(),
        };
        let (mut ep, mut srq) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
        // SAFETY: handles of this adapter; local attributes, which are read, and
        // local handles, which are written.
        unsafe {
            if SHARED {
                let mut wanted = DAT_SRQ_ATTR {
                    max_recv_dtos: DEPTH as DAT_COUNT,
                    max_recv_iov: 1,
                    low_watermark: 0,
                };
                let code =
                    (calls.srq_create)(adapter.ia, adapter.pz, &raw mut wanted, &raw mut srq);
                control("dat_srq_create", code)?;
                let code = (calls.ep_create_with_srq)(
                    adapter.ia,
                    adapter.pz,
                    received.evd,
                    sent.evd,
                    connections.evd,
                    srq,
                    &raw const attributes,
                    &raw mut ep,
                );
                control("dat_ep_create_with_srq", code)?;
            } else {
                let code = (calls.ep_create)(
                    adapter.ia,
                    adapter.pz,
                    received.evd,
                    sent.evd,
                    connections.evd,
                    &raw const attributes,
                    &raw mut ep,
                );
                control("dat_ep_create", code)?;
            }
        }
        let out = |length: u32| memory.segment(OUT..OUT + length as usize);
        Ok(CEnd {
            into: memory.segment(IN..IN + ROOM as usize),
            short: out(MESSAGE),
            long: out(LONGER),
            fetched: memory.segment(IN..IN + LONGER as usize),
            word: out(ATOMIC),
            target: remote_segment(RemoteSegment::default()),
            word_target: remote_segment(RemoteSegment::default()),
            atomics: atomics::supported(adapter)?,
            ep,
            srq,
            calls,
            sent,
            received,
            connections,
            memory,
        })
    }
}

impl Interface for C {
    type Own = CEnd<false>;
    type Shared = CEnd<true>;

    fn own(&self) -> Result<(Self::Own, Self::Own), Failure> {
        self.pair()
    }

    fn shared(&self) -> Result<(Self::Shared, Self::Shared), Failure> {
        self.pair()
    }
}

/// An EP with its EVDs and memory.
pub(in crate::cost) struct CEnd<const SHARED: bool> {
    ep: DAT_EP_HANDLE,
    srq: DAT_SRQ_HANDLE,
    calls: Calls,
    into: DAT_LMR_TRIPLET,
    short: DAT_LMR_TRIPLET,
    long: DAT_LMR_TRIPLET,
    fetched: DAT_LMR_TRIPLET,
    /// Of atomic operations.
    word: DAT_LMR_TRIPLET,
    target: DAT_RMR_TRIPLET,
    /// Of atomic operations.
    word_target: DAT_RMR_TRIPLET,
    atomics: bool,
    // Freed after the EP and the SRQ (see `Drop`), the memory last.
    sent: Queue,
    received: Queue,
    connections: Queue,
    memory: Memory,
}

impl<const SHARED: bool> CEnd<SHARED> {
    /// Returns the target of requests of the other end.
    fn remote(&self, length: u32) -> DAT_RMR_TRIPLET {
        let all = self.memory.exposed_buffer();
        remote_segment(RemoteSegment {
            address: all.address + TARGET as u64,
            length: length.into(),
            ..all
        })
    }
}

impl<const SHARED: bool> Drop for CEnd<SHARED> {
    fn drop(&mut self) {
        // SAFETY: an EP, and an SRQ or null, which the call refuses with an error; freed once.
        unsafe {
            (self.calls.ep_free)(self.ep);
            (self.calls.srq_free)(self.srq);
        }
    }
}

fn cookie_of(cookie: u64) -> DAT_CONTEXT {
    DAT_CONTEXT { as_64: cookie }
}

impl<const SHARED: bool> CEnd<SHARED> {
    #[inline(always)]
    fn extension(&mut self, cookie: u64, operation: Extension) -> bool {
        let (segment, target) = (&raw mut self.word, &raw mut self.word_target);
        // SAFETY: as in `receive`; the target is only read.
        unsafe {
            let cookie = cookie_of(cookie);
            atomics::post(&self.calls, self.ep, operation, segment, cookie, target) == 0
        }
    }
}

impl<const SHARED: bool> End for CEnd<SHARED> {
    const LISTS: bool = false;
    const BATCHES: bool = false;
    const WAITS: bool = true;
    const IMMEDIATES: bool = true;

    #[inline(always)]
    fn receive(&mut self, cookie: u64) -> bool {
        let (into, cookie) = (&raw mut self.into, cookie_of(cookie));
        // SAFETY: an EP or SRQ that no other thread uses; the segment's memory
        // outlives it, and there are no references to it.
        unsafe {
            if SHARED {
                (self.calls.srq_post_recv)(self.srq, 1, into, cookie) == 0
            } else {
                let flags = DAT_COMPLETION_DEFAULT_FLAG;
                (self.calls.ep_post_recv)(self.ep, 1, into, cookie, flags) == 0
            }
        }
    }

    fn receive_list(&mut self) -> bool {
        false
    }

    #[inline(always)]
    fn send(&mut self, cookie: u64, inline: bool) -> bool {
        let segment = if inline {
            &raw mut self.short
        } else {
            &raw mut self.long
        };
        let flags = DAT_COMPLETION_DEFAULT_FLAG;
        // SAFETY: as in `receive`.
        unsafe { (self.calls.ep_post_send)(self.ep, 1, segment, cookie_of(cookie), flags) == 0 }
    }

    fn send_list(&mut self, _inline: bool) -> bool {
        false
    }

    fn send_short(&mut self, cookie: u64, length: u32) -> bool {
        let mut segment = self.memory.segment(OUT..OUT + length as usize);
        let (cookie, flags) = (cookie_of(cookie), DAT_COMPLETION_DEFAULT_FLAG);
        // SAFETY: as in `receive`.
        unsafe { (self.calls.ep_post_send)(self.ep, 1, &raw mut segment, cookie, flags) == 0 }
    }

    #[inline(always)]
    fn write(&mut self, cookie: u64) -> bool {
        let (segment, target) = (&raw mut self.long, &raw const self.target);
        let (cookie, flags) = (cookie_of(cookie), DAT_COMPLETION_DEFAULT_FLAG);
        // SAFETY: as in `receive`; the target is only read.
        unsafe { (self.calls.ep_post_rdma_write)(self.ep, 1, segment, cookie, target, flags) == 0 }
    }

    #[inline(always)]
    fn read(&mut self, cookie: u64) -> bool {
        let (segment, target) = (&raw mut self.fetched, &raw const self.target);
        let (cookie, flags) = (cookie_of(cookie), DAT_COMPLETION_DEFAULT_FLAG);
        // SAFETY: as in `receive`; the target is only read.
        unsafe { (self.calls.ep_post_rdma_read)(self.ep, 1, segment, cookie, target, flags) == 0 }
    }

    fn has_atomics(&self) -> bool {
        self.atomics
    }

    #[inline(always)]
    fn atomic(&mut self, cookie: u64, op: AtomicOp) -> bool {
        self.extension(cookie, Extension::Atomic(op))
    }

    fn write_immediate(&mut self, cookie: u64) -> bool {
        self.extension(cookie, Extension::WriteImmediate)
    }

    #[inline(always)]
    fn immediate(&mut self, sum: &mut u64) -> usize {
        dequeue_event(&self.received, &self.calls, [atomics::DONE], sum)
    }

    #[inline(always)]
    fn finished(&mut self) -> usize {
        let numbers = [DAT_DTO_COMPLETION_EVENT, atomics::DONE];
        dequeue_event(&self.sent, &self.calls, numbers, &mut 0)
    }

    #[inline(always)]
    fn received(&mut self, sum: &mut u64) -> usize {
        dequeue(&self.received, &self.calls, sum)
    }

    #[inline(always)]
    fn waited<const THRESHOLD: u8>(&mut self, sum: &mut u64) -> usize {
        self.wait(0, THRESHOLD, sum)
    }

    #[inline(always)]
    fn slept(&mut self, sum: &mut u64) -> usize {
        self.wait(DAT_TIMEOUT_INFINITE, 1, sum)
    }

    fn received_batch(&mut self, sum: &mut u64) -> usize {
        self.received(sum)
    }

    #[inline(always)]
    fn sent(&mut self, sum: &mut u64) -> usize {
        dequeue(&self.sent, &self.calls, sum)
    }

    fn sent_batch(&mut self, sum: &mut u64) -> usize {
        self.sent(sum)
    }
}

impl<const SHARED: bool> CEnd<SHARED> {
    #[inline(always)]
    fn wait(&mut self, timeout: DAT_TIMEOUT, threshold: u8, sum: &mut u64) -> usize {
        let (mut event, mut more) = (MaybeUninit::<DAT_EVENT>::uninit(), 0);
        let (evd, threshold) = (self.received.evd, DAT_COUNT::from(threshold));
        let (event_at, more_at) = (event.as_mut_ptr(), &raw mut more);
        // SAFETY: an EVD; event and count are local variables that are written.
        let code = unsafe { (self.calls.evd_wait)(evd, timeout, threshold, event_at, more_at) };
        match code & DAT_TYPE_MASK {
            DAT_SUCCESS => {
                *sum = sum.wrapping_add(more as u64);
                // SAFETY: the call succeeded, so it has written the event.
                let event = unsafe { event.assume_init_ref() };
                taken(event, [DAT_DTO_COMPLETION_EVENT], sum)
            }
            DAT_TIMEOUT_EXPIRED => 0,
            _ => POLL_FAILED,
        }
    }
}

/// Dequeues one completion of a request that is not atomic.
#[inline(always)]
fn dequeue(queue: &Queue, calls: &Calls, sum: &mut u64) -> usize {
    dequeue_event(queue, calls, [DAT_DTO_COMPLETION_EVENT], sum)
}

/// Dequeues one completion, whose event has one of these numbers.
#[inline(always)]
fn dequeue_event<const N: usize>(
    queue: &Queue,
    calls: &Calls,
    numbers: [DAT_EVENT_NUMBER; N],
    sum: &mut u64,
) -> usize {
    let mut event = MaybeUninit::<DAT_EVENT>::uninit();
    // SAFETY: an EVD; the event is a local variable that is written.
    let code: DAT_RETURN = unsafe { (calls.evd_dequeue)(queue.evd, event.as_mut_ptr()) };
    if code != 0 {
        return if code & DAT_TYPE_MASK == DAT_QUEUE_EMPTY {
            0
        } else {
            POLL_FAILED
        };
    }
    // SAFETY: the call succeeded, so it has written the event.
    taken(unsafe { event.assume_init_ref() }, numbers, sum)
}

/// Adds what the event of a completion says to `sum`.
#[inline(always)]
fn taken<const N: usize>(
    event: &DAT_EVENT,
    numbers: [DAT_EVENT_NUMBER; N],
    sum: &mut u64,
) -> usize {
    if !numbers.contains(&event.event_number) {
        return POLL_FAILED;
    }
    // SAFETY: the event number says that this member is valid.
    let data = unsafe { event.event_data.dto_completion_event_data };
    if data.status != DAT_DTO_SUCCESS {
        return POLL_FAILED;
    }
    // SAFETY: any 64 bits are a valid value of this member, which was posted.
    let cookie = unsafe { data.user_cookie.as_64 };
    *sum = sum.wrapping_add(cookie + bytes(data.transfered_length));
    1
}
