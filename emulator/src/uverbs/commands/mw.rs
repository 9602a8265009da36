//! Memory windows.

use libc::{EINVAL, EOPNOTSUPP};

use super::Call;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::{MwSpec, Result, WindowType};
use crate::uverbs::abi::{AllocMw, AllocMwResp, Mlx5AllocMw};
use crate::uverbs::handles::{Mw, Pd};

/// Maximum number of translation entries of one window: a bind names one region.
const MAX_KLMS: u8 = 1;

impl Call<'_> {
    /// Allocates a window. `driver` is zero if libmlx5 sent nothing.
    pub(in crate::uverbs) fn alloc_mw(
        &mut self,
        request: &AllocMw,
        driver: &Mlx5AllocMw,
    ) -> Result<AllocMwResp> {
        let context = self.context()?;
        // `ib_uverbs_notsupp`: the driver has no `alloc_mw`.
        refuse_if(
            !self.file.limits().has_windows(),
            EOPNOTSUPP,
            "the device has no memory windows (max_mw=0 of --limits)",
        )?;
        refuse_if(
            driver.comp_mask != 0 || driver.reserved1 != 0 || driver.reserved2 != 0,
            EOPNOTSUPP,
            "the driver's part of the request has fields of a later kernel",
        )?;
        refuse_if(
            driver.num_klms > MAX_KLMS,
            EINVAL,
            "a window of the device covers one region",
        )?;
        // ib_uverbs_alloc_mw checks the type after the protection domain.
        let pd: Result<Pd> = self.state.handles.get(request.pd_handle);
        let pd = pd.or_refuse(EINVAL, "there is no protection domain with this handle")?;
        let kind = match request.mw_type {
            1 => WindowType::One,
            2 => WindowType::Two,
            _ => return Err(refuse(EINVAL, "the type of a memory window is 1 or 2")),
        };
        let keys = self.backend().alloc_mw(&MwSpec {
            context,
            pd: pd.id,
            kind,
        })?;
        let mw = Mw {
            nic_handle: keys.handle,
        };
        let mw_handle = self
            .state
            .handles
            .insert(mw, &[request.pd_handle])
            .inspect_err(|_| {
                let _ = self.backend().dealloc_mw(context, keys.handle);
            })?;
        Ok(AllocMwResp {
            mw_handle,
            rkey: keys.rkey,
        })
    }

    pub(in crate::uverbs) fn dealloc_mw(&mut self, handle: u32) -> Result<()> {
        let context = self.context()?;
        let mw: Mw = self.state.handles.get_unused(handle)?;
        self.backend().dealloc_mw(context, mw.nic_handle)?;
        self.state.handles.remove(handle);
        Ok(())
    }
}
