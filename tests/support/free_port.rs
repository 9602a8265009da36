//! TCP ports for programs that tests start.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a TCP port that no socket of this host has, and that no other test gets while this
/// process lives. The kernel gives ports from 32768 to sockets that ask for none; these are
/// below, so that no such socket takes one before the program listens.
///
/// No socket is bound to the port for a trial: a process that another thread forks at that moment
/// would inherit it, and a test that waits for its server's socket would find this one.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < COUNT, "no free port");
        let at = std::process::id().wrapping_mul(31).wrapping_add(tried);
        let port = u16::try_from(FIRST + at % COUNT).expect("below 32768");
        if is_reserved(port) && !is_used(port) {
            return port;
        }
    }
}

/// Reserves a port among the processes of tests, until this one ends.
fn is_reserved(port: u16) -> bool {
    let name = format!("udapl-test-port-{port}");
    let name = SocketAddr::from_abstract_name(name).expect("a short name");
    UnixListener::bind_addr(&name).map(std::mem::forget).is_ok()
}

/// Returns whether a socket has this port at its own end.
fn is_used(port: u16) -> bool {
    let end = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let mut lines = table.lines().skip(1);
        lines.any(|line| {
            let local = line.split_whitespace().nth(1);
            local.is_some_and(|local| local.ends_with(&end))
        })
    })
}
