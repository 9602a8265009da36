//! Changing how many events an EVD holds.
//!
//! Completion queues are not resized: they hold what the streams attached to them can produce. What
//! changes is how many events may be posted, and the room for staged events.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use dat_engine::sync::Backoff;

use super::Evd;
use super::consumer::Consumer;
use super::posted::Command;
use super::take::CommandResult;
use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};

/// The command that counts the events of an EVD.
pub(super) struct EventCount(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// All events.
    events: AtomicUsize,
    /// Those among them that were not posted.
    completions: AtomicUsize,
    /// The threshold of the wait in progress.
    awaited: AtomicUsize,
}

impl EventCount {
    /// Called by the owner: stores the counts.
    pub(super) fn store(&self, evd: &Evd, consumer: &Consumer) {
        self.0.events.store(consumer.known(evd), Ordering::Relaxed);
        let completions = consumer.completions_staged();
        self.0.completions.store(completions, Ordering::Relaxed);
        self.0.awaited.store(consumer.awaited, Ordering::Relaxed);
    }
}

impl Evd {
    /// Makes the EVD hold at least `min_qlen` events: more or fewer than before, but never fewer
    /// than the streams attached to it can have outstanding. No event is lost, including those that
    /// arrive meanwhile. A thread that waits on the EVD continues to wait.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` (argument 2) for a length of 0 or less, or above the IA's limit;
    /// `INVALID_STATE` if more events than that are queued, or if a thread waits with a higher
    /// threshold; `INSUFFICIENT_RESOURCES`. Nothing has changed then.
    pub fn resize(&self, min_qlen: i32) -> Result<()> {
        let most = self.context.max_queue_length();
        let asked = u32::try_from(min_qlen).unwrap_or(0);
        if asked == 0 || asked > most {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                format!("invalid EVD length {min_qlen}: expected 1 to {most}"),
            ));
        }
        let mut backoff = Backoff::new();
        loop {
            let completions = match asked < self.queue_length() {
                true => Some(self.check_shrinking(asked)?),
                false => None,
            };
            let mut attachments = self.attachments();
            attachments.release_detached(|command| self.posted.is_done(command));
            let length = asked.max(attachments.depth());
            match completions {
                Some(completions) if !self.lower_length(length, completions) => {
                    // Events have arrived since the count, or the length has changed: count again.
                    drop(attachments);
                    backoff.wait();
                    continue;
                }
                Some(_) => {}
                None => self.set_length(&mut attachments, length)?,
            }
            attachments.asked = asked;
            break;
        }
        self.process_commands();
        Ok(())
    }

    /// Checks that the events that are there fit. Returns how many of them were not posted.
    fn check_shrinking(&self, asked: u32) -> Result<u32> {
        let counted = Arc::new(Counts::default());
        let event_count = EventCount(Arc::clone(&counted));
        if self.send_and_wait(Command::Count(event_count), |_| false) == CommandResult::Freed {
            return Err(super::create::stale());
        }
        let refused = |subtype, cause| Err(DatError::new(ReturnType::InvalidState, subtype, cause));
        let (events, awaited) = (
            counted.events.load(Ordering::Relaxed),
            counted.awaited.load(Ordering::Relaxed),
        );
        if events > asked as usize {
            return refused(
                Subtype::NoSubtype,
                format!(
                    "{events} events are queued, more than the new length {asked}: dequeue some first"
                ),
            );
        }
        if awaited > asked as usize {
            return refused(
                Subtype::InvalidStateEvdWaiter,
                format!(
                    "a thread waits with threshold {awaited}, above the new length {asked}: end that \
                     wait first, or keep the length"
                ),
            );
        }
        // At most `asked`.
        Ok(counted.completions.load(Ordering::Relaxed) as u32)
    }
}
