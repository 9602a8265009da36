//! The events of a file, and what makes the file readable.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use zerocopy::{FromZeros, IntoBytes};

use super::abi::{ConnParam, EceParam, EventReply, UdParam};
use super::id::IdState;
use super::rdma_cm::RdmaCm;
use crate::cm::Ece;
use crate::hidden::HiddenFile;

/// An event that the application has not taken.
#[derive(Debug)]
pub(super) struct Queued {
    /// The id whose event this is; for a request, the id that listens.
    pub(super) id: u32,
    /// The new id of a request.
    pub(super) request: Option<u32>,
    pub(super) reply: EventReply,
}

/// The events of a file, oldest first.
///
/// The application polls, and blocks on, the read end of a pipe. The pipe holds
/// one byte for each event, as far as they fit: then `poll`, `epoll` and blocking
/// reads work without the emulator.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Queued>,
    /// Number of bytes in the pipe, as far as known: a thread that has read one
    /// may not have reported it yet.
    bytes: usize,
    write: HiddenFile,
    /// A second, non-blocking descriptor of the read end.
    drain: HiddenFile,
}

impl EventQueue {
    /// Creates an empty queue, and the descriptor for the application,
    /// close-on-exec.
    ///
    /// # Errors
    /// `EMFILE` and other errors of creating a pipe.
    pub(super) fn open() -> io::Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 has just created both; they are owned here only.
        let (reader, write) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let write = HiddenFile::new(write);
        // SAFETY: a plain call on a descriptor we own.
        if unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Opening the link creates a new file description of the same pipe, with
        // flags of its own.
        let link = std::ffi::CString::new(format!("/proc/self/fd/{}", reader.as_raw_fd()))?;
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: `link` is a C string that lives through the call.
        let drain = unsafe { libc::open(link.as_ptr(), flags) };
        if drain < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: open has just created it; it is owned here only.
        let drain = HiddenFile::new(unsafe { OwnedFd::from_raw_fd(drain) });
        let queue = Self {
            events: VecDeque::new(),
            bytes: 0,
            write,
            drain,
        };
        Ok((queue, reader))
    }

    pub(super) fn push(&mut self, event: Queued) {
        self.events.push_back(event);
        self.adjust();
    }

    /// Returns the oldest event.
    pub(super) fn front(&self) -> Option<&Queued> {
        self.events.front()
    }

    /// Removes the oldest event.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        let event = self.events.pop_front();
        self.adjust();
        event
    }

    /// Records that a thread has read a byte of the pipe.
    pub(super) fn byte_was_read(&mut self) {
        self.bytes = self.bytes.saturating_sub(1);
        self.adjust();
    }

    /// Removes the events of an id. Returns the new ids of its requests.
    pub(super) fn remove_events_of(&mut self, id: u32) -> Vec<u32> {
        let requests = self.events.iter().filter(|event| event.id == id);
        let requests = requests.filter_map(|event| event.request).collect();
        self.events.retain(|event| event.id != id);
        self.adjust();
        requests
    }

    /// Takes the events of an id, which moves to another file.
    pub(super) fn take_events_of(&mut self, id: u32) -> Vec<Queued> {
        let (taken, left): (VecDeque<_>, _) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|event| event.id == id);
        self.events = left;
        self.adjust();
        taken.into()
    }

    /// Makes the number of bytes in the pipe that of the events.
    fn adjust(&mut self) {
        while self.bytes < self.events.len() {
            match (&*self.write).write(&[1]) {
                Ok(1) => self.bytes += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A full pipe is readable as well.
                _ => break,
            }
        }
        while self.bytes > self.events.len() {
            match (&*self.drain).read(&mut [0]) {
                Ok(1) => self.bytes -= 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another thread has the byte, and will report it.
                _ => break,
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum Content {
    /// None, or those of a connection.
    Connection(Box<ConnParam>),
    /// Those of a datagram service.
    Datagram(Box<UdParam>),
    /// A number.
    Argument(u64),
}

impl Content {
    pub(super) fn empty() -> Self {
        Self::Argument(0)
    }
}

impl RdmaCm {
    /// Queues an event of an id. Ids without a handle get none: requests that
    /// are not accepted yet.
    pub(super) fn notify(&mut self, number: u32, event: u32, status: i32, content: &Content) {
        self.notify_with_ece(number, event, status, content, Ece::default());
    }

    /// Queues an event of an id, with the options of drivers.
    pub(super) fn notify_with_ece(
        &mut self,
        number: u32,
        event: u32,
        status: i32,
        content: &Content,
        ece: Ece,
    ) {
        let Some(id) = self.ids.get(&number).filter(|id| id.uid != 0) else {
            return;
        };
        let reply = reply(id.uid, number, event, status, content, ece);
        if let Some(queue) = self.files.get_mut(&id.file) {
            queue.push(Queued {
                id: number,
                request: None,
                reply,
            });
        }
    }

    /// Queues the request `request` of a listening id.
    pub(super) fn notify_request(
        &mut self,
        listener: u32,
        request: u32,
        content: &Content,
        ece: Ece,
    ) {
        let Some(id) = self.ids.get(&listener) else {
            return;
        };
        let event = super::abi::event::CONNECT_REQUEST;
        let reply = reply(id.uid, request, event, 0, content, ece);
        if let Some(queue) = self.files.get_mut(&id.file) {
            queue.push(Queued {
                id: listener,
                request: Some(request),
                reply,
            });
        }
    }

    /// Removes the oldest event of a file, which the application has got.
    pub(super) fn take_event(&mut self, file: u64) {
        let Some(event) = self.files.get_mut(&file).and_then(EventQueue::pop) else {
            return;
        };
        if let Some(id) = self.ids.get_mut(&event.id) {
            id.events_reported += 1;
            if event.request.is_some() {
                id.backlog = id.backlog.saturating_add(1);
            }
        }
    }

    /// Handles the removal of a device: its ids get an event, and can then only
    /// be destroyed.
    pub(super) fn device_removed(&mut self, device: u8) {
        let of_device = |(number, id): (&u32, &super::id::Id)| {
            let is_on = id.port.is_some_and(|port| port.device == device);
            (is_on && id.state != IdState::DeviceRemoval).then_some(*number)
        };
        let ids: Vec<u32> = self.ids.iter().filter_map(of_device).collect();
        for number in ids {
            let removal = super::abi::event::DEVICE_REMOVAL;
            self.notify(number, removal, 0, &Content::empty());
            if let Some(id) = self.ids.get_mut(&number) {
                id.state = IdState::DeviceRemoval;
                if let Some(comm) = id.comm.take() {
                    self.comm_ids.remove(&comm);
                    self.cm.destroy(comm);
                }
            }
        }
        let _ = self.publish();
    }
}

fn reply(uid: u64, id: u32, event: u32, status: i32, content: &Content, ece: Ece) -> EventReply {
    let mut reply = EventReply::new_zeroed();
    (reply.uid, reply.id, reply.event) = (uid, id, event);
    reply.status = status.cast_unsigned();
    let bytes = match content {
        Content::Connection(param) => param.as_bytes(),
        Content::Datagram(param) => param.as_bytes(),
        Content::Argument(argument) => argument.as_bytes(),
    };
    reply.param[..bytes.len()].copy_from_slice(bytes);
    reply.ece = EceParam {
        vendor_id: ece.vendor_id,
        attr_mod: ece.options,
    };
    reply
}
