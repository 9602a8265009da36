//! An open `/dev/infiniband/rdma_cm`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::agent::Ucma;
use super::commands;
use super::events::EventQueue;
use crate::hidden::HiddenFile;
use crate::spec::Result;

/// An open file. Dropping it destroys its ids.
pub(crate) struct CmFile {
    ucma: Arc<Ucma>,
    number: u64,
    /// A duplicate of the application's descriptor, with the same flags. A thread that waits for
    /// an event goes on waiting when the application closes its descriptor, as in the kernel,
    /// where the call holds the file.
    descriptor: HiddenFile,
}

impl CmFile {
    /// Opens a file. Returns it and the descriptor for the application,
    /// close-on-exec.
    ///
    /// # Errors
    /// `EMFILE` and other errors of creating a pipe.
    pub(crate) fn open(ucma: &Arc<Ucma>) -> io::Result<(Self, OwnedFd)> {
        let (queue, descriptor) = EventQueue::open()?;
        let file = Self {
            descriptor: HiddenFile::new(descriptor.try_clone()?),
            ucma: Arc::clone(ucma),
            number: ucma.add_file(queue),
        };
        Ok((file, descriptor))
    }

    /// Executes the command of `len` bytes at `address`, which was written to the
    /// file. `find` returns the file of another descriptor. Returns the number of
    /// bytes taken.
    ///
    /// # Errors
    /// The error number of the command.
    pub(crate) fn write(
        &self,
        (address, len): (u64, usize),
        find: &dyn Fn(RawFd) -> Option<Arc<CmFile>>,
    ) -> Result<usize> {
        let find_file = |fd: RawFd| -> Result<u64> {
            let found = find(fd).map(|file| file.number);
            found.ok_or_else(|| commands::not_a_file(fd))
        };
        let own = self.descriptor.as_raw_fd();
        commands::execute(&self.ucma, self.number, own, (address, len), &find_file)
    }
}

impl Drop for CmFile {
    fn drop(&mut self) {
        let number = self.number;
        let _ = self.ucma.with(|state| {
            state.remove_file(number);
            Ok(())
        });
    }
}
