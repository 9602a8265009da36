//! Why a bind was refused, in words.

use super::Rmr;
use crate::object::ep::Ep;
use crate::object::lmr;
use crate::object::post::changed;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

impl Rmr {
    /// Returns why [`Self::bind`] has returned this code.
    ///
    /// # Safety
    /// As for [`Self::bind`].
    #[cold]
    #[must_use]
    pub unsafe fn why_bind_refused(
        &self,
        ep: &Ep,
        segment: &LmrSegment,
        privileges: MemPrivileges,
        flags: CompletionFlags,
        code: DatReturn,
    ) -> String {
        let zone = (self.pz.id(), self.pz.handle());
        // SAFETY: the caller's promise.
        unsafe { ep.why_bind_refused(zone, flags, code) }
            .or_else(|| self.of_target(segment, privileges, code))
            .unwrap_or_else(|| changed("RMR, the endpoint"))
    }

    /// Returns the cause if it is the memory.
    fn of_target(
        &self,
        segment: &LmrSegment,
        privileges: MemPrivileges,
        code: DatReturn,
    ) -> Option<String> {
        let context = segment.context;
        match (code.kind()?, code.subtype()?) {
            (ReturnType::InvalidParameter, Subtype::InvalidArg2) => {
                if segment.length > dat_engine::LONGEST_WINDOW {
                    return Some(format!(
                        "the segment has {} bytes: expected at most {}; bind several RMRs",
                        segment.length,
                        dat_engine::LONGEST_WINDOW
                    ));
                }
                self.of_segment(segment, MemPrivileges::empty())
            }
            (ReturnType::ProtectionViolation, _) => {
                self.of_segment(segment, MemPrivileges::empty())
            }
            (ReturnType::PrivilegesViolation, _) => {
                let mut need = MemPrivileges::empty();
                let asks = |remote| privileges.contains(remote);
                need.set(MemPrivileges::LOCAL_READ, asks(MemPrivileges::REMOTE_READ));
                need.set(
                    MemPrivileges::LOCAL_WRITE,
                    asks(MemPrivileges::REMOTE_WRITE),
                );
                self.of_segment(segment, need)
            }
            (ReturnType::ModelNotSupported, _) => {
                let is_bindable = lmr::find(context).is_none_or(|lmr| lmr.is_bindable());
                Some(match is_bindable {
                    false => format!(
                        "the LMR with the context {context:#x} is of read-only memory, to which \
                         the device binds no RMR: register memory that the process can write"
                    ),
                    true => "the endpoint's request queue has no room for binds: create it with \
                             more max_request_dtos"
                        .into(),
                })
            }
            (ReturnType::InvalidHandle, Subtype::InvalidHandleRmr) => {
                Some("the RMR is being freed".into())
            }
            _ => None,
        }
    }

    fn of_segment(&self, segment: &LmrSegment, need: MemPrivileges) -> Option<String> {
        let zone = (self.pz.id(), Some(self.pz.handle()), "RMR");
        Some(lmr::why_refused(segment, zone, need)?.1)
    }
}
