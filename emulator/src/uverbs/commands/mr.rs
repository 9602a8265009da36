//! Memory regions.

use libc::EINVAL;

use super::Call;
use crate::nic::spec::{Access, Errno, MrSpec, Result};
use crate::uverbs::abi::{RegMr, RegMrResp};
use crate::uverbs::handles::{Mr, Pd};

/// `IB_UVERBS_ACCESS_OPTIONAL_RANGE`: hints that a device may ignore.
const OPTIONAL_ACCESS: u32 = 0x3ff0_0000;

impl Call<'_> {
    pub(in crate::uverbs) fn reg_mr(&mut self, request: &RegMr) -> Result<RegMrResp> {
        let context = self.context()?;
        // ib_uverbs_reg_mr: both addresses lie at the same place in their page.
        if request.start & 0xfff != request.hca_va & 0xfff {
            return Err(Errno(EINVAL));
        }
        let wanted = Access::from_bits(request.access_flags & !OPTIONAL_ACCESS);
        let pd: Pd = self
            .state
            .handles
            .get(request.pd_handle)
            .map_err(|_| Errno(EINVAL))?;
        let keys = self.machine().reg_mr(&MrSpec {
            context,
            pd: pd.id,
            start: request.start,
            length: request.length,
            hca_va: request.hca_va,
            access: wanted.ok_or(Errno(EINVAL))?,
        })?;
        let mr = Mr {
            nic_handle: keys.handle,
            lkey: keys.lkey,
            rkey: keys.rkey,
            length: request.length,
            iova: request.hca_va,
        };
        let mr_handle = self
            .state
            .handles
            .insert(mr, &[request.pd_handle])
            .inspect_err(|_| {
                let _ = self.machine().dereg_mr(context, keys.handle);
            })?;
        Ok(RegMrResp {
            mr_handle,
            lkey: keys.lkey,
            rkey: keys.rkey,
        })
    }

    pub(in crate::uverbs) fn dereg_mr(&mut self, handle: u32) -> Result<()> {
        let context = self.context()?;
        let mr: Mr = self.state.handles.get_unused(handle)?;
        self.machine().dereg_mr(context, mr.nic_handle)?;
        self.state.handles.remove(handle);
        Ok(())
    }

    pub(in crate::uverbs) fn query_mr(&mut self, handle: u32) -> Result<Mr> {
        self.state.handles.get(handle)
    }
}
