//! The library's own threads: signals are the consumer's.

use std::collections::BTreeMap;
use std::fs;

use dat::abi::*;

use crate::connections::staging::Staged;
use crate::support::{Bed, within_seconds};

/// What somebody can send: no `SIGKILL`, no `SIGSTOP`, not the two that the C
/// library keeps for itself, and not the faults of a thread's own, by which the
/// emulated device moves.
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

/// Name and blocked signals of each thread of the library.
fn threads() -> BTreeMap<String, u64> {
    let threads = fs::read_dir("/proc/self/task").expect("procfs");
    let told = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        // The first has the name of the program.
        let is_first = path.ends_with(std::process::id().to_string());
        // One that has just ended has none.
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
    for (name, blocked) in told {
        // Of several of a name: what all of them block.
        *found.entry(name).or_insert(!0) &= blocked;
    }
    found
}

/// No handler of the consumer runs on a thread that it did not start: not while
/// an adapter is open, and not while a graceful disconnect goes on.
#[test]
fn the_library_s_threads_block_every_signal() {
    let bed = Bed::new();
    let staged = Staged::new(&bed, DAT_EP_STATE_DISCONNECT_PENDING);
    // A thread that has just been started gives itself its name.
    let seen = within_seconds(|| {
        let seen = threads();
        let named = ["dat-async", "dat-drain", "engine-cm"];
        named
            .iter()
            .all(|&name| seen.contains_key(name))
            .then_some(seen)
    });
    let seen = seen.unwrap_or_else(|| panic!("some are not there: {:?}", threads()));
    for (name, blocked) in seen {
        assert_eq!(blocked & ALL, ALL, "{name} blocks {blocked:#x}");
    }
    drop(staged);
}
