//! Completion channels and asynchronous event files.

use std::os::fd::OwnedFd;

use super::Call;
use crate::spec::{ChannelId, Result};
use crate::uverbs::files::files;

impl Call<'_> {
    /// Creates a completion channel. Returns the application's descriptor.
    pub(in crate::uverbs) fn create_channel(&mut self) -> Result<i32> {
        let context = self.context()?;
        let (fd, id) = self.file.events().open_channel(context)?;
        self.publish(fd, id)
    }

    /// Creates an asynchronous event file. Returns the application's descriptor.
    pub(in crate::uverbs) fn create_asynchronous(&mut self) -> Result<i32> {
        let context = self.context()?;
        let (fd, id) = self.file.events().open_asynchronous(context)?;
        self.publish(fd, id)
    }

    fn publish(&self, fd: OwnedFd, id: ChannelId) -> Result<i32> {
        let events = self.file.events();
        files()
            .publish_events(fd, id, events)
            .inspect_err(|_| events.close_file(id))
    }
}
