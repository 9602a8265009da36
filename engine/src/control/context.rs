//! An open device (`ibv_context`), shared by everything made of it.

use super::cq_resize::Resizes;
use super::inline;
use super::port::PortInfo;
use super::siw_offset::ReservedOffset;
use crate::environment;
use crate::error::{ControlError, ControlErrorKind};
use crate::sync::Mutex;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use dv_sys::verbs::{self, ibv_context, ibv_node_type};

/// Of how many forks this process is the child, since the library was loaded. A
/// load, where asking for the process is a system call: for checks per message.
#[inline(always)]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called as the library is loaded: a fork may come on one thread while another
/// opens the first device.
// SAFETY: the section is for pointers to functions like this one.
#[used]
#[unsafe(link_section = ".init_array")]
static COUNT_FORKS: extern "C" fn() = count_forks;

/// Has [`forks`] count.
extern "C" fn count_forks() {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler does one atomic addition. It fails for want of memory
    // only; then a child is not told, and must know itself that the device is
    // its parent's.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// Closed when the last object of the device is gone.
pub(super) struct Context {
    raw: NonNull<ibv_context>,
    /// The process that opened it, and [`forks`] then: see [`Context::here`].
    process: u32,
    forks: u32,
    /// Ports as they were when last asked for. Empty again after an event that
    /// says that one has changed.
    ports: Mutex<Vec<PortInfo>>,
    /// The largest inline sizes as far as they were found out.
    pub(super) inline_found: inline::Found,
    pub(super) resizes_cqs: Resizes,
    /// `MLX5_SHUT_UP_BF`: see [`super::export`].
    pub(super) blue_flame: bool,
    /// See [`super::siw_offset`].
    reserved: Option<ReservedOffset>,
}

// SAFETY: libibverbs lets any thread use a context and its objects, several at
// a time; what its calls share they lock themselves. The pointer is only
// passed to such calls, and fields that never change after opening are read.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Takes over an open context.
    ///
    /// # Safety
    /// `raw` comes from `ibv_open_device` and is closed by nobody else.
    pub(super) unsafe fn from_raw(raw: NonNull<ibv_context>) -> Self {
        Self {
            raw,
            process: std::process::id(),
            forks: forks(),
            ports: Mutex::default(),
            inline_found: inline::Found::default(),
            resizes_cqs: Resizes::default(),
            blue_flame: !asked_to_shut_up_blue_flame(),
            reserved: None,
        }
    }

    /// Keeps queues of siw from a place that its library takes for an error
    /// ([`super::siw_offset`]). Comes before the first queue.
    pub(super) fn reserve_siw_offset(&mut self) {
        self.reserved = ReservedOffset::reserve(self);
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Whether this process may use the context. A child after fork shares the
    /// kernel's objects with its parent, whose queues it must not touch, nor
    /// destroy by dropping its copies of the handles.
    pub(super) fn here(&self) -> bool {
        self.forks == forks()
    }

    /// A port as it was when last asked for.
    pub(super) fn known_port(&self, number: u8) -> Option<PortInfo> {
        let known = self.ports.lock();
        known.iter().find(|port| port.number == number).cloned()
    }

    /// Keeps what a port is now.
    pub(super) fn remember_port(&self, port: &PortInfo) {
        let mut known = self.ports.lock();
        known.retain(|old| old.number != port.number);
        known.push(port.clone());
    }

    /// Ports have changed.
    pub(super) fn forget_ports(&self) {
        self.ports.lock().clear();
    }

    pub(super) fn require_here(&self, operation: &'static str) -> Result<(), ControlError> {
        if self.here() {
            return Ok(());
        }
        Err(ControlError::new(
            ControlErrorKind::Forked,
            operation,
            format!(
                "the device was opened by process {}, of which this is a fork",
                self.process
            ),
        )
        .with_remedy("open the device again in this process"))
    }

    /// Whether the device speaks iWARP: see [`super::Transport`].
    pub(super) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open, so its device is there; libibverbs does
        // not change the node type of a device.
        let node = unsafe { (*(*self.raw.as_ptr()).device).node_type };
        node == ibv_node_type::IBV_NODE_RNIC
    }

    /// Completion vectors of the device.
    pub(super) fn vectors(&self) -> u32 {
        // SAFETY: the context is open, and libibverbs writes the field only
        // while it opens.
        let vectors = unsafe { (*self.raw.as_ptr()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }

    /// The descriptor that asynchronous events arrive on.
    pub(super) fn async_fd(&self) -> i32 {
        // SAFETY: as in `vectors`.
        unsafe { (*self.raw.as_ptr()).async_fd }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.here() {
            return;
        }
        if let Some(reserved) = self.reserved.take() {
            // SAFETY: the context is open, and of this process.
            unsafe { reserved.release() };
        }
        // SAFETY: nobody else closes it (`from_raw`), and every object made of
        // it held an `Arc` of this and is destroyed.
        let failed = unsafe { verbs::ibv_close_device(self.raw.as_ptr()) } != 0;
        if failed {
            tracing::error!("ibv_close_device failed");
        }
    }
}

/// libmlx5's switch against BlueFlame. It reads it at opening too; on shared
/// registers `mlx5dv_init_obj` reports BlueFlame nevertheless.
fn asked_to_shut_up_blue_flame() -> bool {
    environment::driver_switch("MLX5_SHUT_UP_BF").is_some_and(|value| value != "0")
}

/// Sets `O_NONBLOCK`: the library waits by poll, never inside a read.
pub(super) fn set_nonblocking(fd: i32, operation: &'static str) -> Result<(), ControlError> {
    // SAFETY: fcntl with these commands touches no memory of ours.
    let ok = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if ok {
        Ok(())
    } else {
        Err(ControlError::last(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_told_though_no_device_was_ever_opened() {
        let before = forks();
        // SAFETY: the child loads a word and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(forks() == before + 1)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1);
        assert_eq!(forks(), before);
    }
}
