//! The descriptors of a completion channel, as a sleeping thread watches them.

use std::os::fd::BorrowedFd;

/// The descriptors on which the events of a device arrive. Each event makes one of
/// them readable.
#[derive(Clone, Copy, Debug)]
pub struct ChannelFds<'a> {
    /// Readable when the kernel has raised an event.
    pub kernel: BorrowedFd<'a>,
    /// Readable when the engine has raised an event itself. Only devices that leave
    /// completions to the engine have one.
    pub software_event: Option<BorrowedFd<'a>>,
}

impl<'a> ChannelFds<'a> {
    /// Returns the descriptors, one or two.
    pub fn iter(&self) -> impl Iterator<Item = BorrowedFd<'a>> + use<'a> {
        core::iter::once(self.kernel).chain(self.software_event)
    }
}

impl<'a> From<BorrowedFd<'a>> for ChannelFds<'a> {
    /// Returns a channel without software events.
    fn from(kernel: BorrowedFd<'a>) -> Self {
        Self {
            kernel,
            software_event: None,
        }
    }
}
