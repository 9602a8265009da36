//! Completion queues.

use libc::{EINVAL, EOPNOTSUPP};

use super::device::COMPLETION_VECTORS;
use super::{Call, check_aligned, event_file};
use crate::limits;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{AsyncObject, CqBuffer, CqSpec, Result, UarPage};
use crate::user;
use crate::uverbs::abi::{
    DestroyCqResp, ExModifyCq, Mlx5CreateCq, Mlx5ResizeCq, ResizeCq, request as read,
};
use crate::uverbs::handles::Cq;

/// `MLX5_IB_CREATE_CQ_FLAGS_*`.
const FLAG_PAD_128B: u16 = 1;
const FLAG_UAR_PAGE_INDEX: u16 = 2;
const FLAG_REAL_TIME: u16 = 4;

/// `IB_UVERBS_CQ_FLAGS_*`: timestamps in completions, which all CQEs have, and
/// ignored overruns.
pub(in crate::uverbs) const CQ_FLAGS: u32 = 3;
const FLAG_IGNORE_OVERRUN: u32 = 2;
/// `IB_CQ_MODERATE`.
const MASK_MODERATE: u32 = 1;

/// The attributes of a requested CQ.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct CqRequest {
    pub(in crate::uverbs) user_handle: u64,
    /// Minimum number of CQEs. The ring has one more, rounded up to a power of two.
    pub(in crate::uverbs) cqe: u32,
    pub(in crate::uverbs) comp_vector: u32,
    pub(in crate::uverbs) channel: Option<i32>,
    pub(in crate::uverbs) event_fd: Option<i32>,
    pub(in crate::uverbs) flags: u32,
    pub(in crate::uverbs) driver: Mlx5CreateCq,
    /// Number of bytes of `driver` that were sent.
    pub(in crate::uverbs) driver_len: usize,
}

/// The attributes of a created CQ.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct CqReply {
    pub(in crate::uverbs) handle: u32,
    pub(in crate::uverbs) cqe: u32,
    pub(in crate::uverbs) cqn: u32,
}

const UNKNOWN: &str = "there is no completion queue with this handle";

impl Call<'_> {
    pub(in crate::uverbs) fn create_cq(&mut self, request: &CqRequest) -> Result<CqReply> {
        let context = self.context()?;
        let driver = &request.driver;
        let asynchronous = event_file(request.event_fd)?;
        let channel = event_file(request.channel)?;
        refuse_if(
            request.comp_vector >= COMPLETION_VECTORS,
            EINVAL,
            "comp_vector is not below the number of completion vectors, which is 1",
        )?;
        refuse_if(
            request.cqe > self.max_cqe(),
            EINVAL,
            "the number of completions is above the device's max_cqe",
        )?;
        refuse_if(
            request.flags & !CQ_FLAGS != 0,
            EOPNOTSUPP,
            "a flag of the completion queue is neither timestamps nor ignored overruns",
        )?;
        let known = FLAG_PAD_128B | FLAG_UAR_PAGE_INDEX | FLAG_REAL_TIME;
        refuse_if(
            request.driver_len < std::mem::offset_of!(Mlx5CreateCq, flags)
                || driver.flags & !known != 0
                || !matches!(driver.cqe_size, 64 | 128)
                || driver.reserved0 != 0
                || driver.reserved1 != 0,
            EINVAL,
            "the driver's part of the request is too short, has unknown flags, or a completion \
             has neither 64 nor 128 bytes (MLX5_CQE_SIZE)",
        )?;
        refuse_if(
            driver.cqe_comp_en != 0 || driver.flags & (FLAG_PAD_128B | FLAG_REAL_TIME) != 0,
            EOPNOTSUPP,
            "the device does not compress or pad completions, and has no real-time timestamps",
        )?;
        let page = if driver.flags & FLAG_UAR_PAGE_INDEX != 0 {
            driver.uar_page_index.into()
        } else {
            // The first page of the assigned registers, if there are any.
            self.state
                .registers
                .as_ref()
                .map(|_| 0)
                .or_refuse(EINVAL, "the request names no doorbell page")?
        };
        let page = self.state.pages.check(page)?;
        let cqe_count = (request.cqe + 1).next_power_of_two();
        check_aligned(driver.buf_addr, 64)?;
        check_aligned(driver.db_addr, 8)?;
        user::check_writable(
            driver.buf_addr,
            u64::from(cqe_count) * u64::from(driver.cqe_size),
        )?;
        user::check_writable(driver.db_addr, 8)?;
        let cqn = self.backend().create_cq(&CqSpec {
            context,
            buf: driver.buf_addr,
            dbrec: driver.db_addr,
            cqe_count,
            cqe_size: driver.cqe_size,
            channel,
            user_handle: request.user_handle,
            uar: UarPage { context, page },
            ignore_overrun: request.flags & FLAG_IGNORE_OVERRUN != 0,
        })?;
        let cq = Cq {
            cqn,
            user_handle: request.user_handle,
            channel,
            cqe: cqe_count - 1,
        };
        let handle = self.state.handles.insert(cq, &[]).inspect_err(|_| {
            let _ = self.backend().destroy_cq(cqn);
        })?;
        if let Some(file) = asynchronous {
            let object = AsyncObject::Cq(request.user_handle);
            self.backend().events().route(context, object, file);
        }
        Ok(CqReply {
            handle,
            cqe: cqe_count - 1,
            cqn: cqn.0,
        })
    }

    /// Moves the CQ to another ring (`mlx5_ib_resize_cq`). Returns its number of CQEs.
    pub(in crate::uverbs) fn resize_cq(
        &mut self,
        request: &ResizeCq,
        driver: &[u8],
    ) -> Result<u32> {
        // `ib_uverbs_notsupp`: the driver has no `resize_cq`.
        refuse_if(
            !self.file.limits().resizes_cqs,
            EOPNOTSUPP,
            "the device cannot resize completion queues (no_cq_resize of --limits)",
        )?;
        let cq: Result<Cq> = self.state.handles.get(request.cq_handle);
        let mut cq = cq.or_refuse(EINVAL, UNKNOWN)?;
        refuse_if(
            !(1..=self.max_cqe()).contains(&request.cqe),
            EINVAL,
            "the number of completions is 0, or above the device's max_cqe",
        )?;
        let cqe_count = (request.cqe + 1).next_power_of_two();
        if cqe_count == cq.cqe + 1 {
            return Ok(cq.cqe);
        }
        let driver: Mlx5ResizeCq = read(driver);
        let known_size = matches!(driver.cqe_size, 64 | 128);
        refuse_if(
            driver.reserved0 != 0 || driver.reserved1 != 0 || !known_size,
            EINVAL,
            "the driver's part of the request has reserved bits, or a completion has neither 64 \
             nor 128 bytes",
        )?;
        check_aligned(driver.buf_addr, 64)?;
        let bytes = u64::from(cqe_count) * u64::from(driver.cqe_size);
        user::check_writable(driver.buf_addr, bytes)?;
        self.backend().resize_cq(
            cq.cqn,
            &CqBuffer {
                buf: driver.buf_addr,
                cqe_count,
                cqe_size: driver.cqe_size.into(),
            },
        )?;
        cq.cqe = cqe_count - 1;
        self.state.handles.replace(request.cq_handle, cq);
        Ok(cq.cqe)
    }

    /// Returns the size of the largest CQ. libmlx5 requests rings with a power of two
    /// of CQEs, of which one is not usable, whatever size the application requested.
    fn max_cqe(&self) -> u32 {
        (self.file.limits().max_cqe + 1).next_power_of_two() - 1
    }

    /// Sets the event moderation: the number of completions and the time for which an
    /// event may be delayed. It is accepted and has no effect, as events are not delayed.
    pub(in crate::uverbs) fn modify_cq(&mut self, request: &ExModifyCq) -> Result<()> {
        refuse_if(
            request.attr_mask == 0 || request.reserved != 0,
            EINVAL,
            "attr_mask is 0, or a reserved field is not",
        )?;
        refuse_if(
            request.attr_mask > MASK_MODERATE,
            EOPNOTSUPP,
            "only the moderation of events (IBV_CQ_ATTR_MODERATE) can be changed",
        )?;
        let known: Result<Cq> = self.state.handles.get(request.cq_handle);
        known.or_refuse(EINVAL, UNKNOWN)?;
        refuse_if(
            request.cq_period > limits::MAX_CQ_PERIOD,
            EINVAL,
            "cq_period is above the device's maximum",
        )
    }

    pub(in crate::uverbs) fn destroy_cq(&mut self, handle: u32) -> Result<DestroyCqResp> {
        let context = self.context()?;
        let cq: Cq = self.state.handles.get_unused(handle)?;
        self.backend().destroy_cq(cq.cqn)?;
        self.state.handles.remove(handle);
        let events = self.backend().events();
        Ok(DestroyCqResp {
            comp_events_reported: cq.channel.map_or(0, |channel| {
                events.remove_completions(channel, cq.user_handle)
            }),
            async_events_reported: events.remove_object(context, AsyncObject::Cq(cq.user_handle)),
        })
    }
}
