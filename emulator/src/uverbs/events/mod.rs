//! Completion channels and asynchronous event files, which are pipes.
//!
//! The application holds the read end and may `read`, `poll` or `fcntl` it without
//! the emulator. Each record is written whole or not at all, since it is shorter than
//! `PIPE_BUF`; records that do not fit into a full pipe wait here.
//!
//! When an object is destroyed, its unread events are removed, and the reply contains
//! the number of events that were read: libibverbs waits until as many are
//! acknowledged.
//!
//! When a device fails, its contexts get an event and their files end: unread events
//! can still be read, then follows the end of the file, for which
//! [`crate::preload`] returns `EIO` as a kernel does. So every wait on the files ends.

mod file;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use zerocopy::IntoBytes;

use self::file::EventFile;
use super::abi::AsyncEventDesc;
use crate::log;
use crate::spec::{AsyncEvent, AsyncObject, ChannelId, ContextId, Cqn, Errno, EventSink, Result};
use crate::sync::{Mutex, MutexGuard};

/// All event files of the process.
#[derive(Debug, Default)]
pub struct Events {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u32,
    files: HashMap<ChannelId, EventFile>,
    /// The completion channels of each context.
    channels: HashMap<ContextId, Vec<ChannelId>>,
    /// Contexts whose device has failed.
    dead: HashSet<ContextId>,
    /// The asynchronous event files of each context, oldest first.
    asynchronous: HashMap<ContextId, Vec<ChannelId>>,
    /// The file that an object was created with, if it is not the context's first.
    routes: HashMap<ObjectKey, ChannelId>,
    /// Number of completion events delivered for each existing CQ. The key is its
    /// channel and user handle, since its CQ number may be reused before the entry is
    /// removed.
    completions: HashMap<(ChannelId, u64), u32>,
    /// Number of asynchronous events delivered for each existing object.
    object_events: HashMap<ObjectKey, u32>,
}

/// An object with asynchronous events: its context, its kind, and its user handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ObjectKey(ContextId, u8, u64);

impl ObjectKey {
    /// Returns `None` for ports and devices, which are never destroyed.
    fn new(context: ContextId, object: AsyncObject) -> Option<Self> {
        match object {
            AsyncObject::Cq(handle) => Some(Self(context, 0, handle)),
            AsyncObject::Qp(handle) => Some(Self(context, 1, handle)),
            AsyncObject::Srq(handle) => Some(Self(context, 2, handle)),
            AsyncObject::Port(_) | AsyncObject::Device => None,
        }
    }
}

impl Events {
    /// Creates a completion channel of a context. Returns the descriptor for the
    /// application and the channel's number.
    ///
    /// # Errors
    /// `EMFILE` and other errors of creating a pipe.
    pub fn open_channel(&self, context: ContextId) -> Result<(OwnedFd, ChannelId)> {
        let (reader, id) = self.open_file()?;
        self.lock().channels.entry(context).or_default().push(id);
        Ok((reader, id))
    }

    fn open_file(&self) -> Result<(OwnedFd, ChannelId)> {
        let (file, reader) = EventFile::open().map_err(errno)?;
        let mut inner = self.lock();
        inner.last_id += 1;
        let id = ChannelId(inner.last_id);
        inner.files.insert(id, file);
        Ok((reader, id))
    }

    /// Returns whether the device of a context has failed. All commands of the context
    /// are then refused.
    #[must_use]
    pub fn has_failed(&self, context: ContextId) -> bool {
        self.lock().dead.contains(&context)
    }

    /// Creates a file for the asynchronous events of a context.
    ///
    /// # Errors
    /// The same as for [`Events::open_channel`].
    pub fn open_asynchronous(&self, context: ContextId) -> Result<(OwnedFd, ChannelId)> {
        let (reader, id) = self.open_file()?;
        self.lock()
            .asynchronous
            .entry(context)
            .or_default()
            .push(id);
        Ok((reader, id))
    }

    /// Removes a file whose descriptor the application has closed: its events are
    /// dropped.
    pub fn close_file(&self, id: ChannelId) {
        let mut inner = self.lock();
        inner.files.remove(&id);
        let Inner {
            asynchronous,
            channels,
            ..
        } = &mut *inner;
        for files in asynchronous.values_mut().chain(channels.values_mut()) {
            files.retain(|file| *file != id);
        }
    }

    /// Removes a context with all its objects.
    pub fn remove_context(&self, context: ContextId) {
        let mut inner = self.lock();
        inner.asynchronous.remove(&context);
        let channels = inner.channels.remove(&context).unwrap_or_default();
        inner
            .completions
            .retain(|(channel, _), _| !channels.contains(channel));
        inner.dead.remove(&context);
        inner.routes.retain(|key, _| key.0 != context);
        inner.object_events.retain(|key, _| key.0 != context);
    }

    /// Sends an object's asynchronous events to this file instead of the context's
    /// first.
    pub fn route(&self, context: ContextId, object: AsyncObject, file: ChannelId) {
        if let Some(key) = ObjectKey::new(context, object) {
            self.lock().routes.insert(key, file);
        }
    }

    /// Removes the unread completion events of a destroyed CQ. Returns how many of its
    /// events were read.
    pub fn remove_completions(&self, channel: ChannelId, user_handle: u64) -> u32 {
        let mut inner = self.lock();
        let Some(delivered) = inner.completions.remove(&(channel, user_handle)) else {
            return 0;
        };
        let unread = inner.files.get_mut(&channel).map_or(0, |file| {
            file.discard(size_of::<u64>(), |record| record == user_handle.as_bytes())
        });
        delivered.saturating_sub(unread)
    }

    /// Removes the unread asynchronous events of a destroyed object. Returns how many of
    /// its events were read.
    pub fn remove_object(&self, context: ContextId, object: AsyncObject) -> u32 {
        let Some(key) = ObjectKey::new(context, object) else {
            return 0;
        };
        let mut inner = self.lock();
        let delivered = inner.object_events.remove(&key).unwrap_or(0);
        let file = inner.file_of(&key);
        inner.routes.remove(&key);
        if delivered == 0 {
            return 0;
        }
        let unread = file
            .and_then(|id| inner.files.get_mut(&id))
            .map_or(0, |file| {
                file.discard(size_of::<AsyncEventDesc>(), |record| {
                    let desc: AsyncEventDesc = super::abi::request(record);
                    desc.element == key.2 && kind_of_event(desc.event_type) == Some(key.1)
                })
            });
        delivered.saturating_sub(unread)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    /// Ends the files of a context whose device has failed.
    fn end(&mut self, context: ContextId) {
        self.dead.insert(context);
        let ended = [&mut self.asynchronous, &mut self.channels]
            .into_iter()
            .filter_map(|files| files.remove(&context))
            .flatten();
        for id in ended {
            self.files.remove(&id);
        }
    }

    fn file_of(&self, key: &ObjectKey) -> Option<ChannelId> {
        let routed = self.routes.get(key).copied();
        routed.or_else(|| self.asynchronous.get(&key.0)?.first().copied())
    }
}

impl EventSink for std::sync::Arc<Events> {
    fn completion(&self, channel: ChannelId, _: Cqn, cq_user_handle: u64) {
        let mut inner = self.lock();
        let Some(file) = inner.files.get_mut(&channel) else {
            return;
        };
        file.push(cq_user_handle.as_bytes());
        *inner
            .completions
            .entry((channel, cq_user_handle))
            .or_default() += 1;
    }

    fn explain(&self, text: &str) {
        log::explain(text);
    }

    fn warn(&self, text: &str) {
        log::report(text);
    }

    fn asynchronous(&self, context: ContextId, event: AsyncEvent, object: AsyncObject) {
        let mut inner = self.lock();
        let element = match object {
            AsyncObject::Cq(handle) | AsyncObject::Qp(handle) | AsyncObject::Srq(handle) => handle,
            AsyncObject::Port(port) => port.into(),
            AsyncObject::Device => 0,
        };
        let desc = AsyncEventDesc {
            element,
            event_type: event as u32,
            reserved: 0,
        };
        let Some(key) = ObjectKey::new(context, object) else {
            // Events of ports and devices go to every file of the context.
            for id in inner
                .asynchronous
                .get(&context)
                .cloned()
                .unwrap_or_default()
            {
                if let Some(file) = inner.files.get_mut(&id) {
                    file.push(desc.as_bytes());
                }
            }
            if event == AsyncEvent::DeviceFatal {
                inner.end(context);
            }
            return;
        };
        let Some(id) = inner.file_of(&key) else {
            return;
        };
        let Some(file) = inner.files.get_mut(&id) else {
            return;
        };
        file.push(desc.as_bytes());
        *inner.object_events.entry(key).or_default() += 1;
    }
}

/// Returns the kind (see [`ObjectKey`]) of the object in an event of this type.
fn kind_of_event(event_type: u32) -> Option<u8> {
    const CQ_ERR: u32 = AsyncEvent::CqErr as u32;
    const SRQ_ERR: u32 = AsyncEvent::SrqErr as u32;
    const SRQ_LIMIT: u32 = AsyncEvent::SrqLimitReached as u32;
    const QP_LAST_WQE: u32 = AsyncEvent::QpLastWqeReached as u32;
    match event_type {
        CQ_ERR => Some(0),
        1..=7 | QP_LAST_WQE => Some(1),
        SRQ_ERR | SRQ_LIMIT => Some(2),
        _ => None,
    }
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    use super::*;

    const CONTEXT: ContextId = ContextId(7);

    fn read_u64(reader: &mut File) -> u64 {
        let mut bytes = [0; 8];
        reader.read_exact(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn destroying_a_cq_removes_only_its_own_unread_events() {
        let events = Arc::new(Events::default());
        let (reader, channel) = events.open_channel(CONTEXT).unwrap();
        let mut reader = File::from(reader);
        events.completion(channel, Cqn(1), 0xa);
        assert_eq!(read_u64(&mut reader), 0xa);
        events.completion(channel, Cqn(1), 0xa);
        events.completion(channel, Cqn(2), 0xb);
        events.completion(channel, Cqn(1), 0xa);
        assert_eq!(
            events.remove_completions(channel, 0xa),
            1,
            "only one was read"
        );
        assert_eq!(read_u64(&mut reader), 0xb);
        assert_eq!(events.remove_completions(channel, 0xb), 1);
        assert_eq!(
            events.remove_completions(channel, 0xc),
            0,
            "it had no events"
        );
    }

    /// A CQ's number can be reused as soon as the NIC has destroyed the CQ, before its
    /// events are removed here.
    #[test]
    fn events_of_a_cq_with_a_reused_number_are_counted_separately() {
        let events = Arc::new(Events::default());
        let (old_reader, old) = events.open_channel(CONTEXT).unwrap();
        let (new_reader, new) = events.open_channel(CONTEXT).unwrap();
        events.completion(old, Cqn(1), 0xa);
        assert_eq!(read_u64(&mut File::from(old_reader)), 0xa);
        events.completion(new, Cqn(1), 0xb);
        assert_eq!(read_u64(&mut File::from(new_reader)), 0xb);
        assert_eq!(events.remove_completions(old, 0xa), 1);
        assert_eq!(events.remove_completions(new, 0xb), 1);
    }

    #[test]
    fn asynchronous_events_of_equal_handles_are_distinguished_by_kind() {
        let events = Arc::new(Events::default());
        let (reader, _) = events.open_asynchronous(CONTEXT).unwrap();
        let (qp, srq) = (AsyncObject::Qp(5), AsyncObject::Srq(5));
        events.asynchronous(CONTEXT, AsyncEvent::QpLastWqeReached, qp);
        events.asynchronous(CONTEXT, AsyncEvent::SrqLimitReached, srq);
        assert_eq!(events.remove_object(CONTEXT, qp), 0);
        let mut record = [0; 16];
        File::from(reader).read_exact(&mut record).unwrap();
        let desc: AsyncEventDesc = super::super::abi::request(&record);
        assert_eq!((desc.element, desc.event_type), (5, 15));
        assert_eq!(events.remove_object(CONTEXT, srq), 1);
    }

    #[test]
    fn events_that_do_not_fit_into_the_pipe_are_kept_in_order() {
        let events = Arc::new(Events::default());
        let (reader, channel) = events.open_channel(CONTEXT).unwrap();
        let count = 2 * u64::from(file::LARGEST_PIPE.unsigned_abs()) / 8;
        for n in 0..count {
            events.completion(channel, Cqn(1), n);
        }
        let mut reader = File::from(reader);
        // The maximum size of the pipe depends on the machine; records that did not
        // fit follow with the next event.
        for n in 0..count {
            let mut pending = 0;
            // SAFETY: FIONREAD writes the one int it is given.
            let asked = unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &mut pending) };
            assert_eq!(asked, 0);
            if pending == 0 {
                events.completion(channel, Cqn(1), count);
            }
            assert_eq!(read_u64(&mut reader), n);
        }
    }

    #[test]
    fn events_for_a_closed_file_are_dropped() {
        let events = Arc::new(Events::default());
        let (reader, channel) = events.open_channel(CONTEXT).unwrap();
        drop(reader);
        events.close_file(channel);
        events.completion(channel, Cqn(1), 1);
        assert_eq!(events.remove_completions(channel, 1), 0);
    }

    #[test]
    fn after_a_device_failure_unread_events_are_read_and_then_the_files_end() {
        let events = Arc::new(Events::default());
        let other = ContextId(8);
        let (channel, id) = events.open_channel(CONTEXT).unwrap();
        let (asynchronous, _) = events.open_asynchronous(CONTEXT).unwrap();
        let (untouched, other_id) = events.open_channel(other).unwrap();
        events.completion(id, Cqn(1), 0xa);
        events.asynchronous(CONTEXT, AsyncEvent::PortErr, AsyncObject::Port(1));
        events.asynchronous(CONTEXT, AsyncEvent::DeviceFatal, AsyncObject::Device);
        assert!(events.has_failed(CONTEXT) && !events.has_failed(other));
        // Later events are dropped.
        events.completion(id, Cqn(1), 0xb);
        let all = |reader: OwnedFd| {
            let mut bytes = Vec::new();
            File::from(reader).read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(all(channel), 0xa_u64.to_ne_bytes());
        let records = all(asynchronous);
        let types: Vec<u32> = records
            .chunks(size_of::<AsyncEventDesc>())
            .map(|record| {
                let desc: AsyncEventDesc = super::super::abi::request(record);
                desc.event_type
            })
            .collect();
        assert_eq!(types, [10, 8]);
        events.completion(other_id, Cqn(2), 0xc);
        assert_eq!(read_u64(&mut File::from(untouched)), 0xc);
        events.remove_context(CONTEXT);
        assert!(!events.has_failed(CONTEXT));
    }
}
