//! Memory on the device's NUMA node. On a host with one node all memory is there; with
//! two nodes the thread runs on the other one.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};

use core_affinity::CoreId;
use dat_engine::{
    Access, CompletionQueue, CqOptions, Endpoint, EndpointOptions, RegisteredBuffer,
    SharedReceiveQueue, SrqOptions,
};

use crate::support::system::System;

/// `MPOL_F_NODE | MPOL_F_ADDR` (`linux/mempolicy.h`).
const NODE_OF_ADDRESS: libc::c_ulong = 1 | 2;

/// Returns the node of the page at an address (get_mempolicy(2)).
fn node_of(address: NonNull<u8>) -> io::Result<u16> {
    let mut node: i32 = -1;
    // SAFETY: the call stores an int, and no mask, which is null.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            ptr::null_mut::<libc::c_ulong>(),
            0 as libc::c_ulong,
            address.as_ptr(),
            NODE_OF_ADDRESS,
        )
    };
    match result {
        0 => Ok(u16::try_from(node).expect("a node")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether a list such as `0-3,8` has a number.
fn has(list: &str, number: u16) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = (first.parse::<u16>(), last.parse::<u16>());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&number))
    })
}

/// Returns the nodes whose memory this process may use, as a list.
fn allowed_nodes() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    list.unwrap_or_default().trim().to_owned()
}

/// Returns a processor that this process may use, on another node whose memory it may use.
fn processor_elsewhere(node: u16) -> Option<CoreId> {
    let allowed = allowed_nodes();
    let nodes = fs::read_dir("/sys/devices/system/node").ok()?;
    nodes.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number: u16 = name.strip_prefix("node")?.parse().ok()?;
        let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        let mut own = core_affinity::get_core_ids()?.into_iter();
        (number != node && has(&allowed, number))
            .then(|| own.find(|cpu| has(&list, cpu.id as u16)))
            .flatten()
    })
}

/// Keeps the kernel from moving memory: to the node of this thread's processor (automatic NUMA
/// balancing, where no policy is set), or into a huge page with other memory (khugepaged). It
/// moves no memory that a device's driver has pinned; nothing pins what the emulated device uses.
/// Where the kernel refuses, it refuses every call of this test.
fn keep_pages_where_they_are() {
    // SAFETY: the policy "local", which is what applies without one, takes no mask; prctl(2) takes
    // numbers.
    unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::c_long::from(libc::MPOL_LOCAL),
            ptr::null::<libc::c_ulong>(),
            0 as libc::c_ulong,
        );
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

/// Gives the pages of free memory back: what the allocator hands out again stays on its node.
fn forget_used_pages() {
    // SAFETY: malloc_trim(3) takes a number, and leaves allocated memory alone.
    unsafe { libc::malloc_trim(0) };
}

/// Objects with memory. The rings have more bytes than the test lets the allocator hand out
/// again without asking the kernel.
struct Objects {
    end: Endpoint,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    buffer: RegisteredBuffer,
}

impl Objects {
    fn create(system: &System) -> Self {
        let domain = system.device.alloc_pd().expect("a domain");
        let depth = system.device.limits().queue_depth.min(4096);
        let cq = CqOptions {
            depth,
            ..CqOptions::default()
        };
        let cq = system.device.create_cq(&cq).expect("a CQ");
        let srq = SrqOptions {
            depth,
            max_segments: 4,
        };
        let end = EndpointOptions {
            send_depth: depth,
            recv_depth: depth,
            recv_segments: 4,
            ..EndpointOptions::new(cq.handle(), cq.handle())
        };
        Self {
            end: domain.create_endpoint(&end).expect("an endpoint"),
            srq: domain.create_srq(&srq).expect("an SRQ"),
            cq,
            buffer: domain.allocate(1 << 20, Access::default()).expect("memory"),
        }
    }

    /// Returns where the memory of each object is, as far as it is known: rings only on
    /// the direct path.
    fn places(&self) -> Vec<(&'static str, NonNull<u8>)> {
        let mut places = vec![("the buffer", self.buffer.as_ptr())];
        places.extend(self.cq.layout().map(|of| ("the completion queue", of.buf)));
        places.extend(self.srq.layout().map(|of| ("the shared queue", of.buf)));
        places.extend(self.end.send_layout().map(|of| ("the send queue", of.buf)));
        places.extend(
            self.end
                .recv_layout()
                .map(|of| ("the receive queue", of.buf)),
        );
        places
    }
}

#[test]
fn rings_and_buffers_are_on_the_node_of_the_device_if_asked() {
    let system = System::new();
    let Some(node) = system.device.numa_node() else {
        let error = system.device.prefer_its_numa_node().expect_err("no node");
        assert!(error.cause().contains("does not state"), "{error}");
        return eprintln!("SKIPPED: the host does not state the device's node");
    };
    if !has(&allowed_nodes(), node.number()) {
        return eprintln!("SKIPPED: this process may not use the memory of node {node}");
    }
    // SAFETY: the parameter is one of those of mallopt(3).
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
    let elsewhere = processor_elsewhere(node.number());
    match elsewhere {
        Some(cpu) => assert!(core_affinity::set_for_current(cpu)),
        None => eprintln!("SKIPPED in part: this host has one node"),
    }
    keep_pages_where_they_are();
    forget_used_pages();
    let before = Objects::create(&system);
    if let Err(error) = node_of(before.buffer.as_ptr()) {
        let refused = system.device.prefer_its_numa_node().expect_err("as here");
        assert_eq!(refused.errno(), error.raw_os_error());
        return eprintln!("SKIPPED: {error}");
    }
    if elsewhere.is_some() {
        for (what, at) in before.places() {
            assert_ne!(node_of(at).expect("a page"), node.number(), "{what}");
        }
    }
    assert_eq!(system.device.prefer_its_numa_node().expect("a node"), node);
    forget_used_pages();
    let placed = Objects::create(&system);
    for (what, at) in placed.places() {
        assert_eq!(node_of(at).expect("a page"), node.number(), "{what}");
    }
    if elsewhere.is_some() {
        // The thread's own memory is where it was before.
        let own = vec![1_u8; 1 << 20];
        let at = NonNull::from(&own[1 << 19]);
        assert_ne!(node_of(at).expect("a page"), node.number());
    }
}
