//! Several measuring threads (`--threads`). Each has the device open for itself, with endpoints,
//! queues, memory and a control connection of its own, so that they share nothing in the measured
//! loops. They begin each pass together, and the first one collects what the others have recorded.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// The threads of one side. `R` is what a thread records in a pass.
pub(crate) struct Team<R> {
    threads: u32,
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    /// Threads at the current meeting.
    here: u32,
    meetings: u64,
    /// Why a thread has ended.
    ended: Option<String>,
    recordings: Vec<(u32, R)>,
    /// The server's port for the control connections of all threads but the first.
    port: u16,
}

impl<R> Team<R> {
    pub(crate) fn new(threads: u32) -> Self {
        let state = State {
            here: 0,
            meetings: 0,
            ended: None,
            recordings: Vec::new(),
            port: 0,
        };
        Self {
            threads,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all threads have called this. Fails if one has ended.
    pub(crate) fn meet(&self) -> Result<(), Failure> {
        let mut state = self.state();
        state.check()?;
        let meeting = state.meetings;
        state.here += 1;
        if state.here == self.threads {
            (state.here, state.meetings) = (0, meeting + 1);
            self.changed.notify_all();
        }
        // A meeting that took place counts, whatever has ended since.
        while state.meetings == meeting {
            state.check()?;
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Ends the meetings of all threads.
    pub(crate) fn end(&self, cause: &str) {
        let mut state = self.state();
        state.ended.get_or_insert_with(|| cause.to_owned());
        self.changed.notify_all();
    }

    /// Hands over what a thread has recorded.
    pub(super) fn give(&self, thread: u32, recording: R) {
        self.state().recordings.push((thread, recording));
    }

    /// Takes what the threads have handed over, in their order.
    pub(super) fn take(&self) -> Vec<R> {
        let mut all = core::mem::take(&mut self.state().recordings);
        all.sort_by_key(|&(thread, _)| thread);
        all.into_iter().map(|(_, recording)| recording).collect()
    }

    pub(super) fn set_port(&self, port: u16) {
        self.state().port = port;
    }

    pub(super) fn port(&self) -> u16 {
        self.state().port
    }
}

impl<R> State<R> {
    /// Fails if a thread has ended.
    fn check(&self) -> Result<(), Failure> {
        let failed = |cause| Failure::run(format!("another measuring thread ended: {cause}"));
        self.ended
            .as_ref()
            .map_or(Ok(()), |cause| Err(failed(cause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_meet_and_hand_over_in_their_order() {
        let team = Team::new(3);
        std::thread::scope(|scope| {
            for thread in [2, 1] {
                let team = &team;
                scope.spawn(move || {
                    team.give(thread, thread);
                    team.meet().unwrap();
                    team.meet().unwrap();
                });
            }
            team.meet().unwrap();
            assert_eq!(team.take(), [1, 2]);
            team.meet().unwrap();
        });
        assert!(team.take().is_empty());
    }

    #[test]
    fn a_thread_that_ends_ends_the_meetings_of_the_others() {
        let team = Team::<()>::new(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| team.meet());
            team.end("no device");
            let failure = waits.join().unwrap().unwrap_err();
            assert!(failure.to_string().contains("no device"), "{failure}");
        });
        assert!(team.meet().is_err());
    }
}
