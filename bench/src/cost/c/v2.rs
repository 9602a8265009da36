//! uDAPL 2.0, with the atomic operations of its extensions.

#[path = "interface.rs"]
mod interface;

use crate::udapl::v2 as udapl;

pub(in crate::cost) use self::interface::C;

mod atomics {
    use super::udapl::abi::{
        DAT_COMPLETION_DEFAULT_FLAG, DAT_CONTEXT, DAT_EP_HANDLE, DAT_EVENT_NUMBER, DAT_EXTENDED_OP,
        DAT_IB_CMP_AND_SWAP_OP, DAT_IB_DTO_EVENT, DAT_IB_FETCH_AND_ADD_OP,
        DAT_IB_RDMA_WRITE_IMMED_OP, DAT_LMR_TRIPLET, DAT_RETURN, DAT_RMR_TRIPLET,
    };
    pub(super) use super::udapl::has_atomics as supported;
    use super::udapl::library::Calls;
    use crate::cost::end::Extension;
    use dat_engine::AtomicOp;

    /// The number of the event of a completed operation.
    pub(super) const DONE: DAT_EVENT_NUMBER = DAT_IB_DTO_EVENT;

    /// Posts an operation, as the macros of the header do.
    ///
    /// # Safety
    /// No other thread uses the EP. The segments are readable, and the memory of the
    /// local one outlives the EP.
    #[inline(always)]
    pub(super) unsafe fn post(
        calls: &Calls,
        ep: DAT_EP_HANDLE,
        operation: Extension,
        local: *mut DAT_LMR_TRIPLET,
        cookie: DAT_CONTEXT,
        remote: *mut DAT_RMR_TRIPLET,
    ) -> DAT_RETURN {
        let (call, flags) = (calls.own.extension_op, DAT_COMPLETION_DEFAULT_FLAG);
        // SAFETY: the segments are readable, and the local memory outlives the EP; the arguments
        // are those of the operation.
        unsafe {
            match operation {
                Extension::Atomic(AtomicOp::FetchAdd(add)) => {
                    let code = DAT_IB_FETCH_AND_ADD_OP as DAT_EXTENDED_OP;
                    call(ep, code, add, local, cookie, remote, flags)
                }
                Extension::Atomic(AtomicOp::CompareSwap { compare, swap }) => {
                    let code = DAT_IB_CMP_AND_SWAP_OP as DAT_EXTENDED_OP;
                    call(ep, code, compare, swap, local, cookie, remote, flags)
                }
                Extension::WriteImmediate => {
                    let code = DAT_IB_RDMA_WRITE_IMMED_OP as DAT_EXTENDED_OP;
                    call(ep, code, 1_i32, local, cookie, remote, 7_u32, flags)
                }
            }
        }
    }
}
