//! Protection domains.

use super::Call;
use crate::spec::Result;
use crate::uverbs::handles::Pd;

impl Call<'_> {
    /// Allocates a protection domain. Returns its handle and number.
    pub(in crate::uverbs) fn alloc_pd(&mut self) -> Result<(u32, u32)> {
        let id = self.backend().alloc_pd(self.context()?)?;
        let handle = self.state.handles.insert(Pd { id }, &[]).inspect_err(|_| {
            let _ = self.backend().dealloc_pd(id);
        })?;
        Ok((handle, id.0))
    }

    pub(in crate::uverbs) fn dealloc_pd(&mut self, handle: u32) -> Result<()> {
        let pd: Pd = self.state.handles.get_unused(handle)?;
        self.backend().dealloc_pd(pd.id)?;
        self.state.handles.remove(handle);
        Ok(())
    }

    /// Returns the number of a protection domain.
    pub(in crate::uverbs) fn query_pd(&mut self, handle: u32) -> Result<u32> {
        self.state.handles.get(handle).map(|pd: Pd| pd.id.0)
    }
}
