//! The reference: libibverbs and libmlx5 as an application uses them.
//!
//! Thin owners of verbs objects. Each keeps its parents alive, and every failure
//! ends the test with the errno.

mod context;
mod cq;
mod qp;
mod requests;
mod srq;
mod window;

pub use context::{Buffer, Context, Pd, all_access};
pub use cq::{Answer, Channel, Cq};
pub use qp::{Link, Peer, Qp, Shape};
pub use srq::Srq;
pub use window::{Bind, Window};

fn errno() -> std::io::Error {
    std::io::Error::last_os_error()
}

fn checked(call: &str, result: i32) {
    assert_eq!(result, 0, "{call} returned {result} ({})", errno());
}
