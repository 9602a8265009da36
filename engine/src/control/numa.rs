//! Memory on the device's NUMA node.
//!
//! libmlx5 allocates rings and doorbell records itself, in the call that creates the
//! queue, and a registration allocates the pages that it is the first to touch. The
//! kernel takes such pages from the node that the memory policy of the calling thread
//! prefers, so the policy is changed for the length of these calls
//! (set_mempolicy(2)). Pages that the process has used before, and that its allocator
//! hands out again, stay where they are.
//!
//! Decision: `docs/decisions/075-numa-by-memory-policy.md`

use core::ffi::{c_int, c_long, c_ulong};
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use std::fs;

use super::context::Context;
use super::device::Device;
use crate::error::{ControlError, ControlErrorKind, last_errno};

/// A NUMA node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaNode(u16);

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl NumaNode {
    /// Returns the number of the node.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// Takes the number that sysfs states: `-1` if the firmware names no node.
    fn parse(stated: &str) -> Option<Self> {
        let number = stated.trim().parse().ok()?;
        (usize::from(number) < NODES).then_some(Self(number))
    }
}

const OPERATION: &str = "place memory on the device's NUMA node";

impl Device {
    /// Returns the NUMA node of the device, as sysfs states it; `None` if it states
    /// none, as for devices on virtual interfaces, and on most hosts with one node.
    #[must_use]
    pub fn numa_node(&self) -> Option<NumaNode> {
        let path = self.context.sysfs_path().join("device/numa_node");
        NumaNode::parse(&fs::read_to_string(path).ok()?)
    }

    /// Places the memory of this device's objects on its NUMA node from now on, while
    /// that has free memory: rings, doorbell records, [`super::RegisteredBuffer`]s, and
    /// memory that its registration is the first to touch. Returns the node.
    ///
    /// # Errors
    /// sysfs states no node, or the kernel does not let this process choose one. Memory
    /// is then placed as before: by default on the node of the thread that touches it
    /// first.
    pub fn prefer_its_numa_node(&self) -> Result<NumaNode, ControlError> {
        let node = self.numa_node().ok_or_else(|| {
            ControlError::new(
                ControlErrorKind::Unsupported,
                OPERATION,
                "the host does not state the device's node",
            )
        })?;
        // A trial, whose errors are the caller's.
        drop(Preference::begin(node)?);
        let _ = self.context.numa_node.set(node);
        Ok(node)
    }
}

impl Context {
    /// Makes this thread prefer the device's node until the result is dropped, if the
    /// program has asked for that.
    pub(super) fn prefer_node(&self) -> Option<Preference> {
        let node = *self.numa_node.get()?;
        Preference::begin(node)
            .inspect_err(|error| tracing::warn!("{error}"))
            .ok()
    }
}

/// The nodes that a mask has room for: as many as any kernel has.
const NODES: usize = 1024;
const WORD: usize = c_ulong::BITS as usize;
/// The kernel takes one more than the number of bits (`get_nodes` in mm/mempolicy.c).
const MASK_BITS: c_ulong = NODES as c_ulong + 1;

/// The memory policy of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    mode: c_int,
    nodes: [c_ulong; NODES / WORD],
}

impl Policy {
    fn preferring(node: NumaNode) -> Self {
        let mut nodes = [0; NODES / WORD];
        let at = usize::from(node.0);
        nodes[at / WORD] = 1 << (at % WORD);
        Self {
            mode: libc::MPOL_PREFERRED,
            nodes,
        }
    }

    fn current() -> Result<Self, ControlError> {
        let mut policy = Self {
            mode: 0,
            nodes: [0; NODES / WORD],
        };
        // SAFETY: get_mempolicy(2) stores an int and as many bits as the mask has.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                MASK_BITS,
                ptr::null_mut::<()>(),
                0 as c_ulong,
            )
        };
        match result {
            0 => Ok(policy),
            _ => Err(refused()),
        }
    }

    fn set(&self) -> Result<(), ControlError> {
        // SAFETY: set_mempolicy(2) reads as many bits as the mask has.
        let result = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                c_long::from(self.mode),
                self.nodes.as_ptr(),
                MASK_BITS,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(refused()),
        }
    }
}

/// Returns the error of a call that has just failed.
fn refused() -> ControlError {
    let errno = last_errno();
    let error = ControlError::verbs(OPERATION, errno);
    match errno {
        libc::EINVAL => error
            .with_cause("the node has no memory that this process may use")
            .with_remedy("allow it the node's memory: cpuset.mems of its cgroup"),
        libc::EPERM | libc::ENOSYS => error
            .with_cause("the kernel or the container does not let this process choose a node")
            .with_remedy("docker: --cap-add SYS_NICE"),
        _ => error,
    }
}

/// Makes the calling thread prefer the memory of a node while it lives.
#[derive(Debug)]
pub(super) struct Preference {
    before: Policy,
    // It must be dropped by the same thread.
    _thread: PhantomData<*const ()>,
}

impl Preference {
    fn begin(node: NumaNode) -> Result<Self, ControlError> {
        let before = Policy::current()?;
        Policy::preferring(node).set()?;
        Ok(Self {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        if let Err(error) = self.before.set() {
            let errno = error.errno();
            tracing::error!(errno, "this thread goes on preferring the device's node");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_states_a_node_or_minus_one() {
        assert_eq!(NumaNode::parse("1\n"), Some(NumaNode(1)));
        for none in ["-1\n", "", "x", "1024"] {
            assert_eq!(NumaNode::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_thread_prefers_the_node_until_the_preference_is_dropped() {
        // The kernel has node 0, unless it was built without NUMA, or a container forbids
        // the calls; then the refusal is the result.
        let before = match Policy::current() {
            Ok(policy) => policy,
            Err(error) => {
                assert!(matches!(error.errno(), Some(libc::ENOSYS | libc::EPERM)));
                return eprintln!("SKIPPED: {error}");
            }
        };
        let preference = match Preference::begin(NumaNode(0)) {
            Ok(preference) => preference,
            Err(error) => {
                assert_eq!(error.errno(), Some(libc::EINVAL));
                return eprintln!("SKIPPED: {error}");
            }
        };
        assert_eq!(
            Policy::current().expect("asked before"),
            Policy::preferring(NumaNode(0))
        );
        drop(preference);
        assert_eq!(Policy::current().expect("asked before"), before);
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused_with_cause_and_remedy() {
        let error = Preference::begin(NumaNode(1000)).expect_err("no such node");
        if error.errno() == Some(libc::EINVAL) {
            assert!(error.to_string().contains("cpuset.mems"), "{error}");
        }
    }
}
