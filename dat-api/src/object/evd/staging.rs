//! Staging: from a completion to an event that waits in the EVD.

use std::collections::VecDeque;

use dat_engine::Completion;

use super::convert::{Item, Taken, convert};
use super::notice::Notice;
use super::streams::Attribute;

/// Returns the room to reserve for staged events: as many as a threshold may count, what the
/// completion queues hold, and what may be posted.
pub(super) fn room(queue_length: u32, queues: usize) -> usize {
    2 * queue_length as usize + queues
}

/// Returns the most completions that one queue holds at a time: the streams on it have no more
/// outstanding than the length of the EVD, however long the queue is.
pub(super) fn held(capacity: u32, queue_length: u32) -> u32 {
    capacity.min(queue_length)
}

/// What polling has staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// An event that notifies a waiter.
    pub(super) notifies: bool,
    /// A completion, whether it notifies or not.
    pub(super) completion: bool,
}

impl Arrivals {
    /// A posted event, which always notifies.
    pub(super) const POSTED: Self = Self {
        notifies: true,
        completion: false,
    };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            notifies: self.notifies | other.notifies,
            completion: self.completion | other.completion,
        }
    }
}

/// Stages a completion if it produces an event.
#[inline(always)]
pub(super) fn put(
    completion: &Completion,
    staged: &mut VecDeque<Item>,
    attribute: Option<Attribute>,
    notice: &mut Notice,
    found: &mut Arrivals,
) {
    convert(completion, |taken| {
        taken.event.stage();
        staged.push_back(taken.event);
        found.completion = true;
        let notifies = does_notify(&taken, attribute);
        found.notifies |= notifies;
        notice.staged(notifies);
    });
}

/// Returns whether a completion wakes a waiter of an EVD with this attribute.
fn does_notify(taken: &Taken, attribute: Option<Attribute>) -> bool {
    match attribute {
        Some(Attribute::Solicited) => taken.solicited,
        Some(Attribute::Unsignalled) => taken.signalled,
        Some(Attribute::Default | Attribute::Threshold) | None => true,
    }
}
