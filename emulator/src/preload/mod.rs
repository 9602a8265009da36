//! The interposed libc calls through which libibverbs and libmlx5 access a
//! device.
//!
//! The library is preloaded (`libmlx5emu.so`) or linked into a test binary (see
//! [`link`]); its definitions then take precedence over libc's. Calls that do not
//! concern an emulated device are passed on to libc unchanged, after one relaxed
//! load or a comparison of the first bytes of a path.
//!
//! Paths of `/sys` and `/dev` that show RDMA devices lead to the sysfs tree of the
//! emulated ones: see `redirect`.
//!
//! Calls that unmap or replace memory are interposed for registered memory: see
//! `memory_calls`.
//!
//! Signal functions are interposed too, for `SIGBUS` and `SIGSEGV`: see
//! `crate::trap`.
//!
//! `/dev/infiniband/rdma_cm` is emulated too; its descriptor is the read end of a
//! pipe, so that waiting for events needs no interposed call.
//!
//! Nothing runs before the program looks for a device: there is no constructor,
//! and the NIC thread starts when the first device is opened.

mod calls;
mod memory_calls;
mod netlink;
mod nic_control;
mod node;
mod path_calls;
mod redirect;
mod session;
mod stat_calls;
mod verbs_calls;

pub use session::{Installed, install};

use crate::trap::SIGNAL_CALLS;

/// Makes the linker include the interposed calls in a program that links this
/// crate as an `rlib`. The program must be linked with `-rdynamic`, so that
/// libibverbs resolves its calls to them.
pub fn link() {
    std::hint::black_box((
        calls::ALL,
        memory_calls::ALL,
        netlink::ALL,
        path_calls::ALL,
        stat_calls::ALL,
        SIGNAL_CALLS,
        verbs_calls::ALL,
    ));
}
