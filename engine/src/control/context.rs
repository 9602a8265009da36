//! An open device (`ibv_context`), shared by all objects that are created from it.

use super::cq_resize::Resizes;
use super::device::text;
use super::inline;
use super::numa::NumaNode;
use super::port::PortInfo;
use super::siw_offset::ReservedOffset;
use crate::environment::{self, EnvironmentOptions};
use crate::error::{ControlError, ControlErrorKind};
use crate::sync::Mutex;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use dv_sys::verbs::{self, ibv_context, ibv_node_type};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Returns how many forks separate this process from the one that loaded the
/// library. A load, where `getpid` is a system call: for checks per message.
#[inline(always)]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Run when the library is loaded, because a fork on one thread may happen while
/// another thread opens the first device.
// SAFETY: the section holds pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static COUNT_FORKS: extern "C" fn() = count_forks;

/// Registers the handler that counts for [`forks`].
extern "C" fn count_forks() {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler makes one atomic addition. Registration fails only
    // without memory; then a child does not detect the fork, and the application
    // must not use the parent's device.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// An open device, closed when its last object is dropped.
pub(super) struct Context {
    raw: NonNull<ibv_context>,
    /// The process that opened the device, and [`forks`] at that time: see
    /// [`Context::here`].
    process: u32,
    forks: u32,
    /// The ports as last queried. Emptied by an event that reports a change.
    ports: Mutex<Vec<Arc<PortInfo>>>,
    /// The largest inline sizes found so far.
    pub(super) inline_cache: inline::InlineCache,
    pub(super) resizes_cqs: Resizes,
    /// `MLX5_SHUT_UP_BF` is not set: see [`super::export`].
    pub(super) blue_flame: bool,
    pub(super) environment: EnvironmentOptions,
    /// The reserved offset of siw: see [`super::siw_offset`].
    reserved: Option<ReservedOffset>,
    /// The NUMA node on which memory is placed; none unless the program asks for that.
    pub(super) numa_node: OnceLock<NumaNode>,
}

// SAFETY: libibverbs allows any threads to use a context and its objects at the
// same time, and locks what the calls share. The pointer is only passed to such
// calls, and only fields that never change after opening are read.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Takes ownership of an open context.
    ///
    /// # Safety
    /// `raw` comes from `ibv_open_device` and has no other owner.
    pub(super) unsafe fn from_raw(raw: NonNull<ibv_context>) -> Self {
        Self {
            raw,
            process: std::process::id(),
            forks: forks(),
            ports: Mutex::default(),
            inline_cache: inline::InlineCache::default(),
            resizes_cqs: Resizes::default(),
            blue_flame: !is_blue_flame_disabled(),
            environment: EnvironmentOptions::from_environment(),
            reserved: None,
            numa_node: OnceLock::new(),
        }
    }

    /// Keeps siw from placing queues at an offset that its library takes for an
    /// error ([`super::siw_offset`]). Must be called before the first queue is
    /// created.
    pub(super) fn reserve_siw_offset(&mut self) {
        self.reserved = ReservedOffset::reserve(self);
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Returns whether this process may use the context. A forked child shares the
    /// kernel's objects with its parent: it must not use the parent's queues, nor
    /// destroy them by dropping its copies of the handles.
    pub(super) fn here(&self) -> bool {
        self.forks == forks()
    }

    /// Returns a port as last queried.
    pub(super) fn known_port(&self, number: u8) -> Option<Arc<PortInfo>> {
        let known = self.ports.lock();
        known.iter().find(|port| port.number == number).cloned()
    }

    /// Caches a port.
    pub(super) fn remember_port(&self, port: &PortInfo) {
        let mut known = self.ports.lock();
        known.retain(|old| old.number != port.number);
        known.push(Arc::new(port.clone()));
    }

    /// Empties the cache of ports.
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

    /// Returns whether the device is iWARP: see [`super::Transport`].
    pub(super) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open, so its device exists; libibverbs does not
        // change the node type of a device.
        let node = unsafe { (*(*self.raw.as_ptr()).device).node_type };
        node == ibv_node_type::IBV_NODE_RNIC
    }

    /// Returns the directory of the device in sysfs.
    pub(super) fn sysfs_path(&self) -> PathBuf {
        // SAFETY: as in `is_iwarp`; libibverbs does not change the path either.
        let device = unsafe { &*(*self.raw.as_ptr()).device };
        text(&device.ibdev_path).into()
    }

    /// Returns the number of completion vectors.
    pub(super) fn vectors(&self) -> u32 {
        // SAFETY: the context is open, and libibverbs writes the field only while
        // it opens the device.
        let vectors = unsafe { (*self.raw.as_ptr()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }

    /// Returns the descriptor of the asynchronous events.
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
        // SAFETY: the context has one owner (`from_raw`), and every object created
        // from it held an `Arc` of this and was destroyed.
        let failed = unsafe { verbs::ibv_close_device(self.raw.as_ptr()) } != 0;
        if failed {
            tracing::error!("ibv_close_device failed");
        }
    }
}

/// Returns whether the variable that disables BlueFlame in libmlx5 is set.
/// libmlx5 also reads it when the device is opened; for shared registers
/// `mlx5dv_init_obj` reports BlueFlame nevertheless.
fn is_blue_flame_disabled() -> bool {
    environment::driver_variable("MLX5_SHUT_UP_BF").is_some_and(|value| value != "0")
}

/// Sets `O_NONBLOCK`: the library waits with `poll`, never inside a read.
pub(super) fn set_nonblocking(fd: i32, operation: &'static str) -> Result<(), ControlError> {
    // SAFETY: fcntl with these commands accesses no memory of the program.
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
    fn a_child_detects_the_fork_although_no_device_was_opened() {
        let before = forks();
        // SAFETY: the child only loads a word and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(forks() == before + 1)) };
        }
        let mut status = 0;
        // SAFETY: waits for a child of this process; the status is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1);
        assert_eq!(forks(), before);
    }
}
