//! What disturbs a measuring thread, and whether its results can be relied on. A module names only
//! those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `verdict` | when a result is unreliable: reason and remedy |
//! | `counters` | what the kernel counts: CPU time, switches, run queue, steal, frequency |
//! | `record` | the sums over the rounds |
//! | `look` | a short look at the core before each round: gaps and speed |
//!
//! Nothing of this runs in a measuring loop. The counters are read before the
//! first and after the last message of a round. Gaps are looked for before a
//! round, by a thread that only reads the clock: in the loop, each reading would
//! add to the latency that it measures.

mod counters;
mod look;
mod record;
mod verdict;

pub(crate) use counters::{Watch, thread_nanoseconds};
pub(crate) use record::{Noise, Ran};
pub(crate) use verdict::{Problem, Waiting, problems};
