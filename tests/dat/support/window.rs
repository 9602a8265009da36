//! Memory windows (RMRs).

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{End, Fixture, Pair, Shape, cookie, ok, take};

/// An RMR, which is freed when this value is dropped.
pub struct Window {
    pub rmr: DAT_RMR_HANDLE,
    freed: bool,
}

impl Window {
    pub fn new(pz: DAT_PZ_HANDLE) -> Self {
        let mut rmr = ptr::null_mut();
        // SAFETY: the result is writable.
        ok(unsafe { dat_rmr_create(pz, &raw mut rmr) });
        Self { rmr, freed: false }
    }

    /// Calls `dat_rmr_bind`. Returns its code and the context.
    pub fn try_bind(
        &self,
        ep: DAT_EP_HANDLE,
        segment: &DAT_LMR_TRIPLET,
        rights: DAT_MEM_PRIV_FLAGS,
        tag: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> (DAT_RETURN, DAT_RMR_CONTEXT) {
        let mut context = 0;
        // SAFETY: segment and result are local; the call validates its handles.
        let answer = unsafe {
            dat_rmr_bind(
                self.rmr,
                ptr::from_ref(segment),
                rights,
                ep,
                cookie(tag),
                flags,
                &raw mut context,
            )
        };
        (answer, context)
    }

    /// Posts a bind, which must succeed. Returns the context for peers.
    #[track_caller]
    pub fn bind(
        &self,
        ep: DAT_EP_HANDLE,
        segment: &DAT_LMR_TRIPLET,
        rights: DAT_MEM_PRIV_FLAGS,
        tag: u64,
    ) -> DAT_RMR_TRIPLET {
        let (answer, rmr_context) =
            self.try_bind(ep, segment, rights, tag, DAT_COMPLETION_DEFAULT_FLAG);
        ok(answer);
        DAT_RMR_TRIPLET {
            rmr_context,
            pad: 0,
            target_address: segment.virtual_address,
            segment_length: segment.segment_length,
        }
    }

    /// Posts an unbind, which must succeed.
    #[track_caller]
    pub fn unbind(&self, ep: DAT_EP_HANDLE, tag: u64) {
        let (answer, _) = self.try_bind(ep, &nothing(), 0, tag, DAT_COMPLETION_DEFAULT_FLAG);
        ok(answer);
    }

    /// Calls `dat_rmr_query` for all fields.
    pub fn info(&self) -> DAT_RMR_PARAM {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut info = unsafe { mem::zeroed() };
        // SAFETY: the result is writable.
        ok(unsafe { dat_rmr_query(self.rmr, DAT_RMR_FIELD_ALL, &raw mut info) });
        info
    }

    /// Calls `dat_rmr_free` and returns its code.
    pub fn free(&mut self) -> DAT_RETURN {
        // SAFETY: the call validates its handles.
        let answer = unsafe { dat_rmr_free(self.rmr) };
        self.freed |= answer == DAT_SUCCESS;
        answer
    }
}

impl Drop for Window {
    /// The RMR may have been freed with its adapter.
    fn drop(&mut self) {
        if !self.freed {
            let _ = self.free();
        }
    }
}

/// Returns a segment of length 0 whose other fields are invalid.
pub fn nothing() -> DAT_LMR_TRIPLET {
    DAT_LMR_TRIPLET {
        lmr_context: 0xdead_beef,
        pad: 7,
        virtual_address: 0x1234,
        segment_length: 0,
    }
}

/// The fields of a bind completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub rmr: DAT_RMR_HANDLE,
    pub cookie: u64,
    pub status: DAT_DTO_COMPLETION_STATUS,
}

/// Takes the next event, which must exist and be a bind completion.
#[track_caller]
pub fn take_bound(evd: DAT_EVD_HANDLE) -> Bound {
    let event = take(evd, "completion of a bind");
    assert_eq!(event.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
    assert_eq!(event.evd_handle, evd);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.rmr_completion_event_data };
    Bound {
        rmr: data.rmr_handle,
        // SAFETY: any bytes are 64 bits.
        cookie: unsafe { data.user_cookie.as_64 },
        status: data.status,
    }
}

impl End {
    /// Creates an endpoint whose request EVD also carries binds.
    pub fn for_windows(fixture: &Fixture, shape: &Shape) -> Self {
        let mut end = Self::without_ep(fixture, shape);
        end.request = fixture.evd(shape.evd_qlen, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
        let attributes = shape.attributes();
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attributes,
                &raw mut end.ep,
            )
        });
        end
    }
}

impl Pair {
    /// Connects two endpoints that can bind windows.
    pub fn for_windows(fixture: &Fixture, shape: &Shape) -> Self {
        let ends = [(); 2].map(|()| End::for_windows(fixture, shape));
        Self::connect(fixture, ends[0], ends[1])
    }
}
