//! `dat_evd_wait`: the statements W01 to W22 of its page.
//!
//! | file | statements |
//! | --- | --- |
//! | `taking` | W01 W13 W15 W20: what a wait dequeues, and what it leaves |
//! | `connection` | W02 W03 W04 W05: requests and private data |
//! | `owner` | W06 W07: one waiter |
//! | `clock` | W08 W09 W14: time |
//! | `threshold` | W10 W11 W12: how many events |
//! | `notify` | W21: which events |
//! | `ending` | W16 W17 W18: waits that end without an event |
//! | `signals` | W14 W19 |
//! | `threads` | W22 W06: many threads |
//! | `commands` | W10 W15: no wake-up is lost to calls that move completions |

mod clock;
mod commands;
mod connection;
mod ending;
mod notify;
mod owner;
mod signals;
mod taking;
mod threads;
mod threshold;

use std::sync::mpsc;

use dat::abi::DAT_TIMEOUT;

use crate::support::{self, Evd, LONG, MESSAGE, MessagePair, SOON, Waited, Waiter, joined, number};

/// A timeout of a minute, which is finite, and which no test reaches.
const MINUTE: DAT_TIMEOUT = 60_000_000;

/// Checks that the waiter goes on waiting for a while. It sleeps when this returns.
#[track_caller]
fn stays<T>(waiter: &Waiter<'_, T>, evd: Evd) {
    support::stays(waiter);
    assert!(evd.is_waited());
    waiter.until_asleep();
}

/// Sends the thread's own id, for signals.
fn own_thread(to: &mpsc::Sender<libc::pthread_t>) {
    // SAFETY: always safe.
    to.send(unsafe { libc::pthread_self() })
        .expect("the receiver is alive");
}
