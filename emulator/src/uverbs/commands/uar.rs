//! Doorbell pages that libmlx5 allocates (`MLX5_IB_OBJECT_UAR`).

use libc::EINVAL;

use super::Call;
use crate::refusal::refuse_if;
use crate::spec::{Result, UarPage};
use crate::uverbs::handles::Uar;

/// `MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC`, the larger of the two types; the other is 0,
/// `…_BF`. Both are ordinary memory here.
const TYPE_NC: u64 = 1;

impl Call<'_> {
    /// Allocates a doorbell page. Returns the handle and the page's number, which is
    /// also its index in the command descriptor's memory file.
    pub(in crate::uverbs) fn alloc_uar(&mut self, kind: u64) -> Result<(u32, u32)> {
        self.context()?;
        refuse_if(
            kind > TYPE_NC,
            EINVAL,
            "a doorbell page is of type BlueFlame (0) or non-cached (1)",
        )?;
        let page = self.state.pages.allocate()?;
        let inserted = self.state.handles.insert(Uar { page }, &[]);
        let handle = inserted.inspect_err(|_| self.state.pages.release(page))?;
        Ok((handle, page))
    }

    pub(in crate::uverbs) fn destroy_uar(&mut self, handle: u32) -> Result<()> {
        let context = self.context()?;
        let uar: Uar = self.state.handles.get_unused(handle)?;
        self.backend().remove_page(UarPage {
            context,
            page: uar.page,
        });
        self.state.pages.release(uar.page);
        self.state.handles.remove(handle);
        Ok(())
    }
}
