//! Why a call on an EVD was refused, in words. The calls return bare codes.

use super::Evd;
use crate::handle::{self, Handle};
use crate::status::{DatReturn, ReturnType, Subtype};

/// Returns why a wait, or a dequeue, has returned this code. `threshold` is that of the wait.
#[cold]
#[must_use]
pub fn why_refused(evd: Handle, threshold: i32, code: DatReturn) -> String {
    let one = |what| {
        format!(
            "threshold {threshold}: expected 1, because an endpoint that reports to the EVD has \
             {what}, and notification is then by event"
        )
    };
    match (code.kind(), code.subtype()) {
        (Some(ReturnType::InvalidParameter), Some(Subtype::InvalidArg3)) => {
            let most = handle::pin::<Evd>(evd).map_or(0, |evd| evd.queue_length());
            format!("threshold {threshold}: expected 1 to {most}, the length of the EVD")
        }
        (Some(ReturnType::InvalidState), Some(Subtype::InvalidStateEvdWaiter)) => {
            "another thread waits on the EVD: expected one at a time; let that thread take the \
             events, or use an EVD of your own"
                .into()
        }
        (Some(ReturnType::InvalidState), Some(Subtype::InvalidStateEvdUnwaitable)) => {
            "the EVD is unwaitable: call dat_evd_clear_unwaitable first, or dequeue".into()
        }
        (Some(ReturnType::InvalidState), Some(Subtype::InvalidStateEvdConfigNotify)) => {
            one("DAT_COMPLETION_UNSIGNALLED_FLAG")
        }
        (Some(ReturnType::InvalidState), Some(Subtype::InvalidStateEvdConfigSolicited)) => {
            one("DAT_COMPLETION_SOLICITED_WAIT_FLAG")
        }
        (Some(ReturnType::InvalidState), _) => {
            "a completion queue of the EVD has failed (the asynchronous EVD of the IA has the \
             event): free its endpoints and the EVD, and create them again"
                .into()
        }
        (Some(ReturnType::InvalidHandle), _) => {
            format!("EVD {:#x} is being freed: wait no longer on it", evd.bits())
        }
        (Some(ReturnType::Abort), _) => {
            "the IA of the EVD is being closed: wait no longer on it".into()
        }
        _ => "the device cannot be asked for events; a line before this one says why".into(),
    }
}

impl Evd {
    /// Returns why [`Self::post_software`] has returned this code.
    #[cold]
    #[must_use]
    pub fn why_post_refused(&self, code: DatReturn) -> String {
        if code.is(ReturnType::QueueFull) {
            return format!(
                "the EVD is full: its length is {}; take events first, or call dat_evd_resize",
                self.queue_length()
            );
        }
        format!(
            "the EVD has the flags {:#x}, without DAT_EVD_SOFTWARE_FLAG: create it with that flag",
            self.flags().bits()
        )
    }
}
