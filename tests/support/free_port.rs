//! TCP ports for programs that tests start.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a TCP port on which no socket listens. The kernel gives ports from 32768 to
/// sockets that ask for none; these are below, so that no such socket takes one before
/// the program listens. Processes of tests begin at different ports.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < COUNT, "no free port");
        let at = std::process::id().wrapping_mul(31).wrapping_add(tried);
        let port = u16::try_from(FIRST + at % COUNT).expect("below 32768");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
