//! What the verbs path asks of libibverbs, as traits, so that its tests can
//! play the device; and libibverbs itself.

use core::mem::MaybeUninit;
use std::sync::Arc;

use dv_sys::inline;
use dv_sys::verbs::{
    self, ibv_mw, ibv_mw_bind, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, ibv_recv_wr,
    ibv_send_wr, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};

use super::chain::Chain;
use super::quirks::Quirks;
use crate::completion::Status;
use crate::control::{VerbsCq, VerbsQp, VerbsSrq};
use crate::error::last_errno;
use crate::request::PostError;
use crate::thread::CancellationHeld;

/// Completions taken from a queue at a time, at most.
pub(super) const BATCH: usize = 16;

/// The objects of one kind of device.
pub trait Device: 'static {
    /// A handle to a queue pair.
    type Queue: QueueCalls + Clone;
    /// A completion queue.
    type Completions: CompletionCalls;
    /// A shared receive queue.
    type Shared: SharedCalls;
}

/// What is asked of a queue pair.
pub trait QueueCalls: Send + Sync {
    /// Its number.
    fn qpn(&self) -> u32;

    /// Posts a chain of sends.
    ///
    /// # Safety
    /// What the chain points to is as `ibv_post_send` wants it.
    unsafe fn post_send(&self, chain: Chain<'_, ibv_send_wr>) -> Result<(), Refused>;

    /// Posts a chain of receives.
    ///
    /// # Safety
    /// As for [`Self::post_send`].
    unsafe fn post_recv(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused>;

    /// Posts a bind of a window of type 1.
    ///
    /// # Errors
    /// As for the posts of chains.
    ///
    /// # Safety
    /// Window and region are alive, and of the queue pair's domain.
    unsafe fn bind(&self, window: *mut ibv_mw, bind: &mut ibv_mw_bind) -> Result<(), PostError>;

    /// Has the device flush what is posted: to ERR, though it may be there.
    fn flush(&self);

    /// What it does otherwise than others.
    fn quirks(&self) -> Quirks {
        Quirks::None
    }
}

/// What is asked of a completion queue.
pub trait CompletionCalls: Send + Sync {
    /// A completion as the device tells it.
    type Entry;

    /// Completions that it holds.
    fn capacity(&self) -> u32;

    /// Takes up to [`BATCH`] completions. Answers how many.
    fn poll(&self, out: &mut [Work]) -> usize;

    /// Takes one completion, if there is one, to `place`.
    fn poll_one<'a>(&self, place: &'a mut MaybeUninit<Self::Entry>) -> Option<&'a Self::Entry>;

    /// What an entry tells.
    fn read(entry: &Self::Entry) -> Work;

    /// Whether it tells that all went well.
    fn is_good(entry: &Self::Entry) -> bool;

    /// Asks for an event.
    ///
    /// # Errors
    /// The error number.
    fn arm(&self, solicited_only: bool) -> Result<(), i32>;

    /// Raises the event that was asked for: a completion was made in the library.
    fn ring(&self);
}

/// What is asked of a shared receive queue.
pub trait SharedCalls: Send + Sync {
    /// Posts a chain of receives.
    ///
    /// # Safety
    /// As for [`QueueCalls::post_send`].
    unsafe fn post(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused>;

    /// What it does otherwise than others.
    fn quirks(&self) -> Quirks {
        Quirks::None
    }
}

/// A chain was posted in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many of it are posted.
    pub taken: usize,
    /// Why the next is not.
    pub error: PostError,
}

/// A completion as libibverbs tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The `wr_id`.
    pub tag: u64,
    /// The local queue pair.
    pub qpn: u32,
    /// Bytes, if it went well.
    pub length: u32,
    /// The peer's immediate data, in host byte order, if there are any.
    pub imm: Option<u32>,
    /// How it went.
    pub status: Status,
    /// The device's own code for an error.
    pub vendor: u8,
    /// A receive that a write of the peer completed.
    pub by_write: bool,
}

/// The real one.
pub struct Libibverbs;

impl Device for Libibverbs {
    type Queue = Arc<VerbsQp>;
    type Completions = VerbsCq;
    type Shared = VerbsSrq;
}

impl QueueCalls for Arc<VerbsQp> {
    fn qpn(&self) -> u32 {
        VerbsQp::qpn(self)
    }

    #[inline(always)]
    unsafe fn post_send(&self, chain: Chain<'_, ibv_send_wr>) -> Result<(), Refused> {
        let first = chain.first();
        let mut bad = first;
        let _held = self.posts_by_write().then(CancellationHeld::new);
        // SAFETY: the queue pair is alive, and the chain is the caller's promise.
        let errno = unsafe { inline::ibv_post_send(self.as_ptr(), first, &raw mut bad) };
        if errno != 0 {
            // SAFETY: the requests of the chain are there until this returns.
            return unsafe { judge_send(errno, &chain, bad, self.quirks()) };
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn post_recv(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused> {
        let first = chain.first();
        let mut bad = first;
        // SAFETY: as above.
        let errno = unsafe { inline::ibv_post_recv(self.as_ptr(), first, &raw mut bad) };
        judge(errno, &chain, bad)
    }

    fn quirks(&self) -> Quirks {
        VerbsQp::quirks(self)
    }

    unsafe fn bind(&self, window: *mut ibv_mw, bind: &mut ibv_mw_bind) -> Result<(), PostError> {
        let _held = self.posts_by_write().then(CancellationHeld::new);
        // SAFETY: the queue pair is alive, and the rest the caller's promise.
        match unsafe { inline::ibv_bind_mw(self.as_ptr(), window, bind) } {
            0 => Ok(()),
            -1 => Err(kind(last_errno())),
            errno => Err(kind(errno)),
        }
    }

    #[cold]
    fn flush(&self) {
        // On the thread that takes the first completion with an error.
        let _held = CancellationHeld::new();
        // SAFETY: integers and a union of byte arrays, for which zero is valid.
        let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        // SAFETY: the queue pair is alive, and the attributes for the call. It
        // is refused for one that was reset meanwhile, which has nothing to flush.
        unsafe { verbs::ibv_modify_qp(self.as_ptr(), &raw mut attr, mask) };
    }
}

impl SharedCalls for VerbsSrq {
    #[inline(always)]
    unsafe fn post(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused> {
        let first = chain.first();
        let mut bad = first;
        // SAFETY: the queue is alive, and the chain is the caller's promise.
        let errno = unsafe { inline::ibv_post_srq_recv(self.as_ptr(), first, &raw mut bad) };
        judge(errno, &chain, bad)
    }

    fn quirks(&self) -> Quirks {
        VerbsSrq::quirks(self)
    }
}

/// What the answer to a post means. `bad` is the first of the chain that was
/// not posted; some libraries clear it where they have not looked at the chain.
#[inline(always)]
fn judge<T>(errno: i32, chain: &Chain<'_, T>, bad: *const T) -> Result<(), Refused> {
    if errno == 0 {
        return Ok(());
    }
    Err(refused(errno, chain, bad))
}

/// As [`judge`], of a refusal of sends.
///
/// # Safety
/// `bad` is null, or one of the chain, which can be read.
#[cold]
#[inline(never)]
unsafe fn judge_send(
    errno: i32,
    chain: &Chain<'_, ibv_send_wr>,
    bad: *const ibv_send_wr,
    quirks: Quirks,
) -> Result<(), Refused> {
    // They are in siw's queue, and will be flushed: the doorbell has found it
    // in another state than RTS.
    if quirks.any() && bad.is_null() {
        return Ok(());
    }
    let mut refused = refused(errno, chain, bad);
    // SAFETY: the caller's promise.
    let opcode = unsafe { bad.as_ref() }.map(|bad| bad.opcode);
    if matches!(
        opcode,
        Some(ibv_wr_opcode::IBV_WR_SEND_WITH_IMM | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM)
    ) && quirks.any()
    {
        refused.error = PostError::NoImmediate;
    }
    Err(refused)
}

#[cold]
#[inline(never)]
fn refused<T>(errno: i32, chain: &Chain<'_, T>, bad: *const T) -> Refused {
    let errno = if errno == -1 { last_errno() } else { errno };
    let before = bad.addr().wrapping_sub(chain.first().addr()) / size_of::<T>();
    let taken = if before < chain.count() { before } else { 0 };
    Refused {
        taken,
        error: kind(errno),
    }
}

/// What a post is refused for.
fn kind(errno: i32) -> PostError {
    match errno.abs() {
        libc::ENOMEM => PostError::QueueFull,
        // Everything else that a post can be refused for was checked
        // before: what is left is the state of the queue, or the device.
        _ => PostError::NotReady,
    }
}

impl CompletionCalls for VerbsCq {
    type Entry = ibv_wc;

    fn capacity(&self) -> u32 {
        Self::capacity(self)
    }

    #[inline]
    fn poll(&self, out: &mut [Work]) -> usize {
        let mut found = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let most = out.len().min(BATCH);
        let first = found.as_mut_ptr().cast();
        // SAFETY: the queue is alive, and there is room for so many.
        let count = unsafe { inline::ibv_poll_cq(self.as_ptr(), most as i32, first) };
        // A negative one is the failure of a queue that will tell nothing more;
        // the device's events say so.
        let count = usize::try_from(count).unwrap_or(0).min(most);
        for (place, wc) in out.iter_mut().zip(&found[..count]) {
            // SAFETY: the call has filled in so many.
            *place = unsafe { work_of(wc.assume_init_ref()) };
        }
        count
    }

    #[inline(always)]
    fn poll_one<'a>(&self, place: &'a mut MaybeUninit<ibv_wc>) -> Option<&'a ibv_wc> {
        // SAFETY: the queue is alive, and there is room for one.
        let count = unsafe { inline::ibv_poll_cq(self.as_ptr(), 1, place.as_mut_ptr()) };
        if count <= 0 {
            return None;
        }
        // SAFETY: the call has filled it in.
        Some(unsafe { place.assume_init_ref() })
    }

    #[inline(always)]
    fn read(entry: &ibv_wc) -> Work {
        work_of(entry)
    }

    #[inline(always)]
    fn is_good(entry: &ibv_wc) -> bool {
        entry.status == ibv_wc_status::IBV_WC_SUCCESS
    }

    fn arm(&self, solicited_only: bool) -> Result<(), i32> {
        let solicited_only = solicited_only && self.solicits();
        // SAFETY: the queue is alive.
        match unsafe { inline::ibv_req_notify_cq(self.as_ptr(), i32::from(solicited_only)) } {
            0 => Ok(()),
            -1 => Err(last_errno()),
            errno => Err(errno.abs()),
        }
    }

    fn ring(&self) {
        Self::ring(self);
    }
}

#[inline(always)]
fn work_of(wc: &ibv_wc) -> Work {
    if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
        // Of a failure only these are told.
        return Work {
            tag: wc.wr_id,
            qpn: wc.qp_num,
            status: failure(wc.status),
            vendor: wc.vendor_err as u8,
            ..Work::default()
        };
    }
    let has_imm = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
    Work {
        tag: wc.wr_id,
        qpn: wc.qp_num,
        length: wc.byte_len,
        // SAFETY: either member is four bytes that the device's library has set,
        // and the flag says that they are immediate data.
        imm: has_imm.then(|| u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data })),
        status: Status::Success,
        vendor: 0,
        by_write: wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

#[cold]
#[inline(never)]
fn failure(number: u32) -> Status {
    Status::from_ibv_wc_status(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::verbs::chain::{link, recv_work};

    fn wc() -> ibv_wc {
        // SAFETY: integers, for which zero is valid.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn immediate_data_are_turned_round_and_only_there_if_told() {
        let mut good = wc();
        good.imm_data_invalidated_rkey_union.imm_data = 0x1234_5678_u32.to_be();
        good.byte_len = 9;
        assert_eq!((work_of(&good).imm, work_of(&good).length), (None, 9));
        good.wc_flags = ibv_wc_flags::IBV_WC_WITH_IMM.0;
        good.opcode = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        let work = work_of(&good);
        assert_eq!((work.imm, work.by_write), (Some(0x1234_5678), true));
    }

    #[test]
    fn what_a_failure_does_not_tell_is_not_believed() {
        let mut bad = wc();
        bad.status = 9;
        bad.vendor_err = 0x1_88;
        bad.byte_len = 77;
        bad.wc_flags = ibv_wc_flags::IBV_WC_WITH_IMM.0;
        bad.opcode = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        let expected = Work {
            status: Status::RemoteInvalidRequest,
            vendor: 0x88,
            ..Work::default()
        };
        assert_eq!(work_of(&bad), expected);
    }

    #[test]
    fn a_refusal_says_how_much_of_the_chain_was_taken() {
        let mut requests: [ibv_recv_wr; 4] = core::array::from_fn(|_| recv_work(&[], 0));
        let chain = link(&mut requests);
        let at = |index: usize| chain.first().wrapping_add(index);
        assert_eq!(judge(0, &chain, at(0)), Ok(()));
        let refused = |taken, error| Err(Refused { taken, error });
        assert_eq!(
            judge(libc::ENOMEM, &chain, at(2)),
            refused(2, PostError::QueueFull)
        );
        assert_eq!(
            judge(libc::EINVAL, &chain, at(0)),
            refused(0, PostError::NotReady)
        );
        assert_eq!(
            judge(-libc::EINVAL, &chain, core::ptr::null()),
            refused(0, PostError::NotReady)
        );
    }
}
