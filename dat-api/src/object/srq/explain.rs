//! Why a receive was refused, in words ([`crate::refusals`]).

use super::Srq;
use crate::object::post::{RefusedPost, changed, full_queue};
use crate::refusals;
use crate::status::{DatReturn, ReturnType};
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

impl Srq {
    /// Reports the cause of a refused receive; returns the code.
    #[cold]
    #[inline(never)]
    pub(super) fn report_recv(
        &self,
        count: u32,
        segment: &dyn Fn(usize) -> LmrSegment,
        code: DatReturn,
    ) -> DatReturn {
        let cause = || {
            if code.is(ReturnType::InsufficientResources) {
                return full_queue(
                    "shared receive queue",
                    "max_recv_dtos",
                    self.capacity().into(),
                    "take completions from the receive EVDs of its endpoints before posting more",
                );
            }
            let post = RefusedPost {
                owner: "shared receive queue",
                count,
                segment,
                flags: CompletionFlags::empty(),
                allowed: CompletionFlags::empty(),
                most_segments: ("max_recv_iov", self.max_iov),
                zone: self.pz().bits(),
                need: MemPrivileges::LOCAL_WRITE,
            };
            post.cause(code)
                .unwrap_or_else(|| changed("shared receive queue"))
        };
        refusals::report(("dat_srq_post_recv", "srq"), self.handle, code, cause);
        code
    }
}
