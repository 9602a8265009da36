//! Files that events are read from.

use super::Call;
use crate::nic::spec::Result;
use crate::uverbs::files::FILES;

impl Call<'_> {
    /// A new completion channel; answers the application's descriptor.
    pub(in crate::uverbs) fn create_channel(&mut self) -> Result<i32> {
        self.context()?;
        let (fd, id) = self.file.events().open_channel()?;
        FILES.publish_events(fd, id, self.file.events())
    }

    /// A new file of asynchronous events; answers the application's descriptor.
    pub(in crate::uverbs) fn create_asynchronous(&mut self) -> Result<i32> {
        let context = self.context()?;
        let (fd, id) = self.file.events().open_asynchronous(context)?;
        FILES.publish_events(fd, id, self.file.events())
    }
}
