//! Memory regions.

use libc::{EINVAL, EOPNOTSUPP};

use super::Call;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::{Access, MrSpec, Result};
use crate::uverbs::abi::{RegMr, RegMrResp, ReregMr, ReregMrResp};
use crate::uverbs::handles::{Mr, Pd};

/// `IB_UVERBS_ACCESS_OPTIONAL_RANGE`: hints that a device may ignore.
const OPTIONAL_ACCESS: u32 = 0x3ff0_0000;

/// `IB_MR_REREG_*`.
const REREG_TRANSLATION: u32 = 1;
const REREG_PD: u32 = 2;
const REREG_ACCESS: u32 = 4;

const UNKNOWN_PD: &str = "there is no protection domain with this handle";
const OFFSET: &str = "the address and the remote address (hca_va) have different offsets in a page";

/// Returns the access flags of a command (`ib_check_mr_access`, except for the checks
/// of the NIC).
///
/// # Errors
/// `EINVAL` for unknown flags; `EOPNOTSUPP` for on-demand paging, which the device
/// does not support.
fn check_access(flags: u32) -> Result<Access> {
    let access = Access::from_bits(flags & !OPTIONAL_ACCESS);
    let access = access.or_refuse(
        EINVAL,
        "the access flags have a bit that is neither known nor optional",
    )?;
    refuse_if(
        access.contains(Access::ON_DEMAND),
        EOPNOTSUPP,
        "the device has no on-demand paging",
    )?;
    Ok(access)
}

impl Call<'_> {
    pub(in crate::uverbs) fn reg_mr(&mut self, request: &RegMr) -> Result<RegMrResp> {
        let context = self.context()?;
        // ib_uverbs_reg_mr: both addresses have the same offset in their page.
        refuse_if(
            request.start & 0xfff != request.hca_va & 0xfff,
            EINVAL,
            OFFSET,
        )?;
        self.check_length(request.length)?;
        let access = check_access(request.access_flags)?;
        let pd: Result<Pd> = self.state.handles.get(request.pd_handle);
        let pd = pd.or_refuse(EINVAL, UNKNOWN_PD)?;
        let keys = self.backend().reg_mr(&MrSpec {
            context,
            pd: pd.id,
            start: request.start,
            length: request.length,
            hca_va: request.hca_va,
            access,
        })?;
        let mr = Mr {
            nic_handle: keys.handle,
            lkey: keys.lkey,
            rkey: keys.rkey,
            start: request.start,
            length: request.length,
            iova: request.hca_va,
            access,
        };
        let mr_handle = self
            .state
            .handles
            .insert(mr, &[request.pd_handle])
            .inspect_err(|_| {
                let _ = self.backend().dereg_mr(context, keys.handle);
            })?;
        Ok(RegMrResp {
            mr_handle,
            lkey: keys.lkey,
            rkey: keys.rkey,
        })
    }

    /// Checks the length of a region.
    ///
    /// # Errors
    /// `EINVAL` above the limit, as in `irdma_reg_user_mr`.
    fn check_length(&self, length: u64) -> Result<()> {
        refuse_if(
            length > self.file.limits().max_mr_size,
            EINVAL,
            "the region is longer than the device's max_mr_size",
        )
    }

    /// Changes the range, the protection domain or the access flags of a region. Its
    /// keys stay the same, as when mlx5_ib uses a UMR.
    pub(in crate::uverbs) fn rereg_mr(&mut self, request: &ReregMr) -> Result<ReregMrResp> {
        let context = self.context()?;
        let has = |flag| request.flags & flag != 0;
        refuse_if(request.flags == 0, EINVAL, "the flags request no change")?;
        refuse_if(
            has(!(REREG_TRANSLATION | REREG_PD | REREG_ACCESS)),
            EOPNOTSUPP,
            "the flags have an unknown bit",
        )?;
        refuse_if(
            has(REREG_TRANSLATION) && request.start & 0xfff != request.hca_va & 0xfff,
            EINVAL,
            OFFSET,
        )?;
        let handles = &self.state.handles;
        let mut mr: Mr = handles.get(request.mr_handle)?;
        let mut parents = handles.parents(request.mr_handle);
        if has(REREG_ACCESS) {
            mr.access = check_access(request.access_flags)?;
        }
        if has(REREG_PD) {
            parents = vec![request.pd_handle];
        }
        let pd: Pd = match parents[..] {
            [pd] => handles.get(pd).or_refuse(EINVAL, UNKNOWN_PD)?,
            _ => return Err(refuse(EINVAL, UNKNOWN_PD)),
        };
        if has(REREG_TRANSLATION) {
            self.check_length(request.length)?;
            (mr.start, mr.length, mr.iova) = (request.start, request.length, request.hca_va);
        }
        let spec = MrSpec {
            context,
            pd: pd.id,
            start: mr.start,
            length: mr.length,
            hca_va: mr.iova,
            access: mr.access,
        };
        self.backend()
            .rereg_mr(mr.nic_handle, &spec, has(REREG_TRANSLATION | REREG_ACCESS))?;
        self.state.handles.move_to(request.mr_handle, mr, &parents);
        Ok(ReregMrResp {
            lkey: mr.lkey,
            rkey: mr.rkey,
        })
    }

    pub(in crate::uverbs) fn dereg_mr(&mut self, handle: u32) -> Result<()> {
        let context = self.context()?;
        let mr: Mr = self.state.handles.get_unused(handle)?;
        self.backend().dereg_mr(context, mr.nic_handle)?;
        self.state.handles.remove(handle);
        Ok(())
    }

    pub(in crate::uverbs) fn query_mr(&mut self, handle: u32) -> Result<Mr> {
        self.state.handles.get(handle)
    }
}
