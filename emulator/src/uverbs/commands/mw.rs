//! Memory windows.

use libc::{EINVAL, EOPNOTSUPP};

use super::Call;
use crate::nic::spec::{Errno, MwSpec, Result, WindowType};
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
        if !self.file.limits().has_windows() {
            return Err(Errno(EOPNOTSUPP));
        }
        if driver.comp_mask != 0 || driver.reserved1 != 0 || driver.reserved2 != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        if driver.num_klms > MAX_KLMS {
            return Err(Errno(EINVAL));
        }
        // ib_uverbs_alloc_mw checks the type after the protection domain.
        let pd: Pd = self
            .state
            .handles
            .get(request.pd_handle)
            .map_err(|_| Errno(EINVAL))?;
        let kind = match request.mw_type {
            1 => WindowType::One,
            2 => WindowType::Two,
            _ => return Err(Errno(EINVAL)),
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
