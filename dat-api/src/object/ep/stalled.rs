//! Requests that do not complete because the peer has posted no receive.
//!
//! With `rnr_retry=7` a device sends such a message again for ever. Nothing fails, so the thread of
//! the IA looks for it, if the program has asked for warnings.

use super::Ep;
use crate::types::EpState;

/// What the thread has seen of an endpoint's requests.
#[derive(Default)]
pub(super) struct Progress {
    /// The position of the oldest outstanding request.
    oldest: Option<u32>,
    /// Whether it has been reported.
    reported: bool,
}

impl Progress {
    /// Records the oldest outstanding request. Returns `true` once if it was the oldest at the last
    /// call, too.
    fn has_stalled(&mut self, oldest: Option<u32>) -> bool {
        if oldest.is_none() || oldest != self.oldest {
            *self = Self {
                oldest,
                reported: false,
            };
            return false;
        }
        !core::mem::replace(&mut self.reported, true)
    }
}

impl Ep {
    /// Warns if no request has completed since the last call, and some are outstanding. Does
    /// nothing if another thread is changing the endpoint.
    pub(super) fn warn_of_stalled_requests(&self) {
        let Some(mut control) = self.control.try_lock() else {
            return;
        };
        let connected = matches!(
            self.state(),
            EpState::Connected | EpState::DisconnectPending
        );
        let qp = control.qp.as_ref().filter(|_| connected);
        let oldest = qp.and_then(dat_engine::EndpointHandle::oldest_send);
        let has_stalled = control.progress.has_stalled(oldest);
        drop(control);
        if has_stalled {
            tracing::warn!(
                endpoint = %format_args!("{:#x}", self.handle.bits()),
                adapter = self.ia.name(),
                "requests of an endpoint have been outstanding for 10 s, and none has completed: \
                 if the program takes the events of its requests, the peer has posted no receive, \
                 and rnr_retry=7 tries again for ever; with rnr_retry=6 in dat.conf such a send \
                 fails with DAT_DTO_ERR_RECEIVER_NOT_READY"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_reported_once_if_it_stays_the_oldest() {
        let mut progress = Progress::default();
        let mut sees = |oldest| progress.has_stalled(oldest);
        assert!(!sees(None) && !sees(None), "nothing is outstanding");
        assert!(!sees(Some(3)), "it may have been posted just now");
        assert!(sees(Some(3)));
        assert!(!sees(Some(3)), "reported already");
        assert!(!sees(Some(4)), "the first has completed");
        assert!(!sees(None) && !sees(Some(4)));
        assert!(sees(Some(4)));
    }
}
