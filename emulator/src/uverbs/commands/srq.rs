//! Shared receive queues.

use libc::{EINVAL, EOPNOTSUPP};

use super::{Call, check_aligned, event_file};
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{AsyncObject, Result, SrqSpec};
use crate::user;
use crate::uverbs::abi::{Mlx5CreateSrq, ModifySrq, QuerySrqResp};
use crate::uverbs::handles::{Pd, Srq};

/// `IB_SRQ_MAX_WR` and `IB_SRQ_LIMIT`.
const MASK_MAX_WR: u32 = 1;
const MASK_LIMIT: u32 = 2;
/// A receive WQE of an SRQ begins with a 16-byte link.
const LINK_SEGMENT: u32 = 16;
const DATA_SEGMENT: u32 = 16;

/// The attributes of a requested SRQ.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct SrqRequest {
    pub(in crate::uverbs) user_handle: u64,
    pub(in crate::uverbs) pd_handle: u32,
    /// `IB_SRQT_*`; only basic ones (0) are supported.
    pub(in crate::uverbs) kind: u64,
    pub(in crate::uverbs) max_wr: u32,
    pub(in crate::uverbs) max_sge: u32,
    pub(in crate::uverbs) event_fd: Option<i32>,
    pub(in crate::uverbs) driver: Mlx5CreateSrq,
}

/// The attributes of a created SRQ.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct SrqReply {
    pub(in crate::uverbs) handle: u32,
    pub(in crate::uverbs) max_wr: u32,
    pub(in crate::uverbs) max_sge: u32,
    pub(in crate::uverbs) srqn: u32,
}

const UNKNOWN: &str = "there is no shared receive queue with this handle";
const LIMIT: &str = "the limit is above the number of receives that the queue holds";

impl Call<'_> {
    pub(in crate::uverbs) fn create_srq(&mut self, request: &SrqRequest) -> Result<SrqReply> {
        let context = self.context()?;
        let driver = &request.driver;
        let limits = self.file.limits();
        // `ib_uverbs_notsupp`: the driver has no `create_srq`.
        refuse_if(
            !limits.has_srqs(),
            EOPNOTSUPP,
            "the device has no shared receive queues (max_srq=0 of --limits)",
        )?;
        refuse_if(
            request.kind != 0,
            EOPNOTSUPP,
            "the device has basic shared receive queues only (no XRC, no tag matching)",
        )?;
        let asynchronous = event_file(request.event_fd)?;
        let pd: Pd = self.state.handles.get(request.pd_handle)?;
        // libmlx5 rounds the request up: to a ring, whose limit it checks itself,
        // and to the segments that fit in a WQE.
        let rounded = |limit: u32| (limit + 1).next_power_of_two() - 1;
        refuse_if(
            request.max_wr > rounded(limits.max_srq_wr)
                || request.max_sge > rounded(limits.max_srq_sge),
            EINVAL,
            "max_wr is above the device's max_srq_wr, or max_sge above its max_srq_sge",
        )?;
        refuse_if(
            driver.reserved0 != 0 || driver.reserved1 != 0,
            EINVAL,
            "a reserved field of the request is not 0",
        )?;
        // Receive WQEs with a signature would have another layout.
        refuse_if(
            driver.flags != 0,
            EOPNOTSUPP,
            "the device does not sign receives (MLX5_SRQ_SIGNATURE)",
        )?;
        let wqe_count = (request.max_wr + 1).next_power_of_two();
        let wqe_bytes = (LINK_SEGMENT + DATA_SEGMENT * request.max_sge)
            .max(32)
            .next_power_of_two();
        check_aligned(driver.buf_addr, 64)?;
        check_aligned(driver.db_addr, 4)?;
        user::check_writable(driver.buf_addr, u64::from(wqe_count) * u64::from(wqe_bytes))?;
        user::check_writable(driver.db_addr, 4)?;
        let srqn = self.backend().create_srq(&SrqSpec {
            context,
            pd: pd.id,
            buf: driver.buf_addr,
            dbrec: driver.db_addr,
            wqe_count,
            stride_log2: wqe_bytes.trailing_zeros(),
            // mlx5_ib ignores the limit at creation.
            limit: 0,
            user_handle: request.user_handle,
            user_index: driver.uidx,
        })?;
        let srq = Srq {
            srqn,
            user_handle: request.user_handle,
            max_wr: wqe_count - 1,
            max_sge: request.max_sge.min(limits.max_srq_sge),
        };
        let handle = self
            .state
            .handles
            .insert(srq, &[request.pd_handle])
            .inspect_err(|_| {
                let _ = self.backend().destroy_srq(srqn);
            })?;
        if let Some(file) = asynchronous {
            let object = AsyncObject::Srq(request.user_handle);
            self.backend().events().route(context, object, file);
        }
        Ok(SrqReply {
            handle,
            max_wr: srq.max_wr,
            max_sge: srq.max_sge,
            srqn: srqn.0,
        })
    }

    /// Sets the SRQ limit. mlx5 does not support resizing SRQs.
    pub(in crate::uverbs) fn modify_srq(&mut self, request: &ModifySrq) -> Result<()> {
        let srq: Result<Srq> = self.state.handles.get(request.srq_handle);
        let srq = srq.or_refuse(EINVAL, UNKNOWN)?;
        refuse_if(
            request.attr_mask & MASK_MAX_WR != 0,
            EINVAL,
            "mlx5 cannot resize shared receive queues (IBV_SRQ_MAX_WR)",
        )?;
        if request.attr_mask & MASK_LIMIT != 0 {
            refuse_if(request.srq_limit > srq.max_wr, EINVAL, LIMIT)?;
            self.backend()
                .modify_srq_limit(srq.srqn, request.srq_limit)?;
        }
        Ok(())
    }

    pub(in crate::uverbs) fn query_srq(&mut self, handle: u32) -> Result<QuerySrqResp> {
        let srq: Result<Srq> = self.state.handles.get(handle);
        let srq = srq.or_refuse(EINVAL, UNKNOWN)?;
        let (_, _, srq_limit) = self.backend().query_srq(srq.srqn)?;
        Ok(QuerySrqResp {
            max_wr: srq.max_wr,
            max_sge: srq.max_sge,
            srq_limit,
            reserved: 0,
        })
    }

    /// Destroys an SRQ. Returns how many of its events were read.
    pub(in crate::uverbs) fn destroy_srq(&mut self, handle: u32) -> Result<u32> {
        let context = self.context()?;
        let srq: Srq = self.state.handles.get_unused(handle)?;
        self.backend().destroy_srq(srq.srqn)?;
        self.state.handles.remove(handle);
        Ok(self
            .backend()
            .events()
            .remove_object(context, AsyncObject::Srq(srq.user_handle)))
    }
}
