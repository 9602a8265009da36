//! Memory that a program registers with libmlx5 and then removes: requests fail,
//! and neither the device nor the program crashes.

use core::mem::zeroed;
use core::ptr;
use std::rc::Rc;

use dv_sys::inline::dv_reg_mr;
use dv_sys::verbs::*;

use crate::support::libmlx5::{Buffer, Cq, Link, Pd, Qp, all_access};
use crate::support::side::Memory;
use crate::support::system::System;

const BYTES: usize = 1 << 16;

/// A registered mapping that was removed afterwards.
struct RemovedMemory {
    at: u64,
    mr: *mut ibv_mr,
    _pd: Rc<Pd>,
}

impl RemovedMemory {
    fn new(pd: &Rc<Pd>) -> Self {
        // SAFETY: a fresh mapping, registered and unmapped by this test alone.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(ptr::null_mut(), BYTES, rights, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let mr = dv_reg_mr(pd.raw, at, BYTES, all_access() as i32);
            assert!(!mr.is_null());
            // Protected rather than unmapped, so that no other mapping of the
            // test takes its place.
            assert_eq!(libc::mprotect(at, BYTES, libc::PROT_NONE), 0);
            RemovedMemory {
                at: at as u64,
                mr,
                _pd: Rc::clone(pd),
            }
        }
    }

    fn segment(&self) -> ibv_sge {
        ibv_sge {
            addr: self.at,
            length: 64,
            // SAFETY: the region is registered.
            lkey: unsafe { (*self.mr).lkey },
        }
    }
}

impl Drop for RemovedMemory {
    fn drop(&mut self) {
        // SAFETY: created by `new`, not used afterwards.
        unsafe {
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            libc::munmap(self.at as *mut _, BYTES);
        }
    }
}

/// Writes from one mapping to another, of which the first or the second was
/// removed.
fn write(local_is_gone: bool) -> (System, u32) {
    let system = System::new();
    let pd = Pd::new(system.context());
    let cq = Cq::new(system.context(), 15);
    let ends = [(); 2].map(|()| Qp::of_every_operation(&pd, [&cq, &cq], 8, false));
    let link = Link::default();
    ends[0].connect(&ends[1].address(), &link);
    ends[1].connect(&ends[0].address(), &link);
    let gone = RemovedMemory::new(&pd);
    let there = Buffer::new(&pd, 64);
    let mut segment = gone.segment();
    let mut remote = (there.addr(), there.rkey());
    if !local_is_gone {
        (segment.addr, segment.lkey) = (there.addr(), there.lkey());
        // SAFETY: the region is registered.
        remote = (gone.at, unsafe { (*gone.mr).rkey });
    }
    // SAFETY: zeroes are a valid request; the device finds that the memory was
    // removed.
    unsafe {
        let mut wr: ibv_send_wr = zeroed();
        wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        (wr.sg_list, wr.num_sge) = (&raw mut segment, 1);
        let (remote_addr, rkey) = remote;
        wr.wr.rdma = rdma_t { remote_addr, rkey };
        ends[0].post(&mut wr).expect("posted");
    }
    system.run();
    let status = cq.poll().expect("it completes").status;
    (system, status)
}

#[test]
fn removed_source_memory_is_a_protection_error() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: on this processor an access to removed memory ends the process");
        return;
    }
    let (_system, status) = write(true);
    assert_eq!(status, ibv_wc_status::IBV_WC_LOC_PROT_ERR);
}

#[test]
fn a_removed_target_is_an_access_error() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: on this processor an access to removed memory ends the process");
        return;
    }
    let (_system, status) = write(false);
    assert_eq!(status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
}
