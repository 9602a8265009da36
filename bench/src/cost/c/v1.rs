//! uDAPL 1.2, which has no atomic operations.

#[path = "interface.rs"]
mod interface;

use crate::udapl::v1 as udapl;

pub(in crate::cost) use self::interface::C;

mod atomics {
    use super::udapl::Adapter;
    use super::udapl::abi::{
        DAT_CONTEXT, DAT_EP_HANDLE, DAT_EVENT_NUMBER, DAT_LMR_TRIPLET, DAT_RETURN, DAT_RMR_TRIPLET,
    };
    use super::udapl::library::Calls;
    use crate::cost::end::Extension;
    use crate::failure::Failure;

    /// The number of no event.
    pub(super) const DONE: DAT_EVENT_NUMBER = 0;

    pub(super) fn supported(_: &Adapter) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Is never called: [`supported`] says so.
    ///
    /// # Safety
    /// None is needed.
    pub(super) unsafe fn post(
        _: &Calls,
        _: DAT_EP_HANDLE,
        _: Extension,
        _: *mut DAT_LMR_TRIPLET,
        _: DAT_CONTEXT,
        _: *mut DAT_RMR_TRIPLET,
    ) -> DAT_RETURN {
        unreachable!("uDAPL 1.2 has no atomic operations")
    }
}
