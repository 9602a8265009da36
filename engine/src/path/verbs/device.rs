//! The calls of libibverbs that the verbs path makes, as traits, so that tests can
//! simulate the device; and their implementation by libibverbs.

use core::mem::MaybeUninit;
use std::collections::VecDeque;
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
use crate::thread::CancellationDisabled;

/// The most completions taken from a queue in one call.
pub(super) const BATCH: usize = 16;

/// The types of one kind of device.
pub trait Device: Clone + 'static {
    /// A handle to a queue pair.
    type Queue: QueueCalls + Clone;
    /// A completion queue.
    type Completions: CompletionCalls;
    /// A shared receive queue.
    type Shared: SharedCalls;
}

/// The calls on a queue pair.
pub trait QueueCalls: Send + Sync {
    /// Returns the queue pair's number.
    fn qpn(&self) -> u32;

    /// Posts a chain of sends.
    ///
    /// # Safety
    /// The chain points to work requests that are valid for `ibv_post_send`.
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
    /// Window and region are alive, and of the queue pair's protection domain.
    unsafe fn bind(&self, window: *mut ibv_mw, bind: &mut ibv_mw_bind) -> Result<(), PostError>;

    /// Lets the device flush what is posted, by a move to ERR even if it is there
    /// already.
    fn flush(&self);

    /// Returns the device's quirks.
    fn quirks(&self) -> Quirks {
        Quirks::None
    }
}

/// The calls on a completion queue.
pub trait CompletionCalls: Send + Sync {
    /// Returns how many completions the queue holds.
    fn capacity(&self) -> u32;

    /// Takes up to [`BATCH`] completions, and appends them. Returns how many.
    fn poll(&self, staged: &mut VecDeque<Work>) -> usize;

    /// Arms the queue.
    ///
    /// # Errors
    /// The error number.
    fn arm(&self, solicited_only: bool) -> Result<(), i32>;

    /// Raises the event that the queue was armed for, after the engine made a
    /// completion itself.
    fn raise_event(&self);
}

/// The calls on a shared receive queue.
pub trait SharedCalls: Send + Sync {
    /// Posts a chain of receives.
    ///
    /// # Safety
    /// As for [`QueueCalls::post_send`].
    unsafe fn post(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused>;

    /// Returns the device's quirks.
    fn quirks(&self) -> Quirks {
        Quirks::None
    }
}

/// The result of a chain that was posted in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many requests of the chain are posted.
    pub taken: usize,
    /// Why the next request is not posted.
    pub error: PostError,
}

/// A completion as libibverbs reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The `wr_id` of the work request.
    pub tag: u64,
    /// The local queue pair.
    pub qpn: u32,
    /// The length in bytes, if successful.
    pub length: u32,
    /// The peer's immediate data in host byte order, if there is any.
    pub imm: Option<u32>,
    /// Success, or the kind of error.
    pub status: Status,
    /// The vendor's own code for an error.
    pub vendor: u8,
    /// A receive that was completed by an RDMA write of the peer.
    pub by_write: bool,
}

/// The device that libibverbs drives.
#[derive(Clone)]
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
        let first = chain.first;
        let mut bad = first;
        let _held = self.posts_by_write().then(CancellationDisabled::new);
        // SAFETY: the queue pair is alive, and the caller promises the chain.
        let errno = unsafe { inline::ibv_post_send(self.as_ptr(), first, &raw mut bad) };
        if errno != 0 {
            // SAFETY: the requests of the chain live until this function returns.
            return unsafe { send_result(errno, &chain, bad, self.quirks()) };
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn post_recv(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused> {
        let first = chain.first;
        let mut bad = first;
        // SAFETY: as above.
        let errno = unsafe { inline::ibv_post_recv(self.as_ptr(), first, &raw mut bad) };
        post_result(errno, &chain, bad)
    }

    fn quirks(&self) -> Quirks {
        VerbsQp::quirks(self)
    }

    unsafe fn bind(&self, window: *mut ibv_mw, bind: &mut ibv_mw_bind) -> Result<(), PostError> {
        let _held = self.posts_by_write().then(CancellationDisabled::new);
        // SAFETY: the queue pair is alive; the rest is required of the caller.
        match unsafe { inline::ibv_bind_mw(self.as_ptr(), window, bind) } {
            0 => Ok(()),
            -1 => Err(kind(last_errno())),
            errno => Err(kind(errno)),
        }
    }

    #[cold]
    fn flush(&self) {
        // This runs on the application's thread, at its first failed completion.
        let _held = CancellationDisabled::new();
        // SAFETY: integers and a union of byte arrays, for which zero is valid.
        let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        // SAFETY: the queue pair is alive, and the attributes live through the
        // call. The call fails for a queue pair that was reset meanwhile, which has
        // nothing to flush.
        unsafe { verbs::ibv_modify_qp(self.as_ptr(), &raw mut attr, mask) };
    }
}

impl SharedCalls for VerbsSrq {
    unsafe fn post(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused> {
        let first = chain.first;
        let mut bad = first;
        // SAFETY: the queue is alive, and the caller promises the chain.
        let errno = unsafe { inline::ibv_post_srq_recv(self.as_ptr(), first, &raw mut bad) };
        post_result(errno, &chain, bad)
    }

    fn quirks(&self) -> Quirks {
        VerbsSrq::quirks(self)
    }
}

/// Converts the result of a post. `bad` is the first request of the chain that was
/// not posted; some libraries clear `bad` if they did not look at the chain.
fn post_result<T>(errno: i32, chain: &Chain<'_, T>, bad: *const T) -> Result<(), Refused> {
    if errno == 0 {
        return Ok(());
    }
    Err(refused(errno, chain, bad))
}

/// Converts a refusal of sends as [`post_result`] does.
///
/// # Safety
/// `bad` is null, or points to a request of the chain.
#[cold]
unsafe fn send_result(
    errno: i32,
    chain: &Chain<'_, ibv_send_wr>,
    bad: *const ibv_send_wr,
    quirks: Quirks,
) -> Result<(), Refused> {
    // The requests are in siw's queue, and will be flushed: the doorbell call found
    // the queue in a state other than RTS.
    if quirks.any() && bad.is_null() {
        return Ok(());
    }
    let mut refused = refused(errno, chain, bad);
    // SAFETY: `bad` is null, or points to a request of the chain.
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
fn refused<T>(errno: i32, chain: &Chain<'_, T>, bad: *const T) -> Refused {
    let errno = if errno == -1 { last_errno() } else { errno };
    let before = bad.addr().wrapping_sub(chain.first.addr()) / size_of::<T>();
    let taken = if before < chain.count { before } else { 0 };
    Refused {
        taken,
        error: kind(errno),
    }
}

/// Returns the reason of a refused post.
fn kind(errno: i32) -> PostError {
    match errno.abs() {
        libc::ENOMEM => PostError::QueueFull,
        // All other reasons were checked before, so only the state of the queue or
        // a failed device is left.
        _ => PostError::NotReady,
    }
}

impl CompletionCalls for VerbsCq {
    fn capacity(&self) -> u32 {
        Self::capacity(self)
    }

    fn poll(&self, staged: &mut VecDeque<Work>) -> usize {
        let mut found = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let first = found.as_mut_ptr().cast();
        // SAFETY: the queue is alive, and there is room for `BATCH` completions.
        let count = unsafe { inline::ibv_poll_cq(self.as_ptr(), BATCH as i32, first) };
        // A negative result is a failed queue, which reports no more completions;
        // an asynchronous event reports the failure.
        let count = usize::try_from(count).unwrap_or(0).min(BATCH);
        // SAFETY: the call has filled in `count` completions.
        let works = found[..count]
            .iter()
            .map(|wc| work_of(unsafe { wc.assume_init_ref() }));
        staged.extend(works);
        count
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

    fn raise_event(&self) {
        Self::raise_event(self);
    }
}

fn work_of(wc: &ibv_wc) -> Work {
    if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
        // A failed completion has no other valid fields.
        return Work {
            tag: wc.wr_id,
            qpn: wc.qp_num,
            status: Status::from_ibv_wc_status(wc.status),
            vendor: wc.vendor_err as u8,
            ..Work::default()
        };
    }
    let has_imm = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
    Work {
        tag: wc.wr_id,
        qpn: wc.qp_num,
        length: wc.byte_len,
        // SAFETY: both members are four bytes that the device's library has set,
        // and the flag says that they are immediate data.
        imm: has_imm.then(|| u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data })),
        status: Status::Success,
        vendor: 0,
        by_write: wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::verbs::chain::{link_recvs, recv_work};

    fn wc() -> ibv_wc {
        // SAFETY: integers, for which zero is valid.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn immediate_data_is_converted_and_present_only_with_its_flag() {
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
    fn invalid_fields_of_a_failed_completion_are_ignored() {
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
    fn a_refusal_reports_how_many_requests_were_taken() {
        let mut requests: [ibv_recv_wr; 4] = core::array::from_fn(|_| recv_work(&[], 0));
        let chain = link_recvs(&mut requests);
        let at = |index: usize| chain.first.wrapping_add(index);
        assert_eq!(post_result(0, &chain, at(0)), Ok(()));
        let refused = |taken, error| Err(Refused { taken, error });
        assert_eq!(
            post_result(libc::ENOMEM, &chain, at(2)),
            refused(2, PostError::QueueFull)
        );
        assert_eq!(
            post_result(libc::EINVAL, &chain, at(0)),
            refused(0, PostError::NotReady)
        );
        assert_eq!(
            post_result(-libc::EINVAL, &chain, core::ptr::null()),
            refused(0, PostError::NotReady)
        );
    }
}
