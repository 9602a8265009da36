//! The library's own threads: the application's signals are not handled there.

use std::collections::BTreeMap;
use std::fs;

use dat::abi::*;

use crate::connections::staging::EndpointInState;
use crate::support::{Fixture, within_seconds};

/// Every signal that another process can send: without `SIGKILL`, `SIGSTOP`, the
/// two that the C library reserves, and the synchronous faults, which the
/// emulated device uses.
const ALL: u64 = {
    let (mut but, others) = (
        0,
        [
            libc::SIGKILL,
            libc::SIGSTOP,
            32,
            33,
            libc::SIGBUS,
            libc::SIGSEGV,
        ],
    );
    let mut at = 0;
    while at < others.len() {
        but |= 1 << (others[at] - 1);
        at += 1;
    }
    !but
};

/// Returns name and blocked signals of each thread of the library.
fn threads() -> BTreeMap<String, u64> {
    let threads = fs::read_dir("/proc/self/task").expect("procfs");
    let reported = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        // The first thread has the name of the program.
        let is_first = path.ends_with(std::process::id().to_string());
        // A thread that has just ended has no status.
        let text = fs::read_to_string(path.join("status")).ok()?;
        let of = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            Some(line?.trim().to_owned())
        };
        let (name, blocked) = (of("Name:")?, of("SigBlk:")?);
        let blocked = u64::from_str_radix(&blocked, 16).expect("a set of signals");
        let ours = name.starts_with("dat-") || name.starts_with("engine-");
        (ours && !is_first).then_some((name, blocked))
    });
    let mut found = BTreeMap::new();
    for (name, blocked) in reported {
        // For several threads of one name: the signals that all of them block.
        *found.entry(name).or_insert(!0) &= blocked;
    }
    found
}

/// No handler of the application runs on a thread of the library: neither while
/// an adapter is open, nor during a graceful disconnect.
#[test]
fn the_library_s_threads_block_every_signal() {
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, DAT_EP_STATE_DISCONNECT_PENDING);
    // A new thread sets its own name.
    let seen = within_seconds(|| {
        let seen = threads();
        let named = ["dat-async", "dat-drain", "engine-cm"];
        named
            .iter()
            .all(|&name| seen.contains_key(name))
            .then_some(seen)
    });
    let seen = seen.unwrap_or_else(|| panic!("some threads do not exist: {:?}", threads()));
    for (name, blocked) in seen {
        assert_eq!(blocked & ALL, ALL, "{name} blocks {blocked:#x}");
    }
    drop(staged);
}
