//! The time of one side's messages: from the first post to the last completion,
//! and of the fastest part of them; and the processor time of its thread meanwhile.

use crate::clock::Clock;
use crate::exchange::Transfer;
use crate::noise::thread_nanoseconds;

/// The turns of a loop that polls, of which some find nothing to do.
struct Turns {
    made: u64,
    idle: u64,
    /// The shortest of the timed turns that found nothing, in ticks.
    least: u64,
}

impl Turns {
    /// One in this many turns is timed, because reading the clock takes time.
    const TIMED: u64 = 1024;
}

/// When which messages were posted and completed, for the peak.
struct Stamps {
    /// The number of messages before a post, and its time.
    posted: Vec<(u64, u64)>,
    /// The number of messages up to a completion, and its time.
    completed: Vec<(u64, u64)>,
}

/// Times the messages of one phase.
pub(super) struct Meter {
    clock: Clock,
    begin: u64,
    end: u64,
    /// Ticks after which no more messages are posted.
    duration: u64,
    posted: u64,
    completed: u64,
    stamps: Option<Stamps>,
    /// The thread's CPU time: at the beginning, then until the end.
    cpu: u64,
    turns: Turns,
}

impl Meter {
    /// `peak_of` is the number of messages of which the fastest part is looked for;
    /// none if it is not. Call [`Self::begin`] before the first post.
    pub(super) fn new(clock: Clock, duration: u64, peak_of: Option<u64>) -> Self {
        let stamps = |most: u64| Stamps {
            // So that a post never allocates.
            posted: Vec::with_capacity(most as usize),
            completed: Vec::with_capacity(most as usize),
        };
        Self {
            clock,
            begin: 0,
            end: 0,
            duration,
            posted: 0,
            completed: 0,
            stamps: peak_of.map(stamps),
            cpu: 0,
            turns: Turns {
                made: 0,
                idle: 0,
                least: u64::MAX,
            },
        }
    }

    pub(super) fn begin(&mut self) {
        self.cpu = thread_nanoseconds();
        self.begin = self.clock.now();
    }

    /// Begins a turn. Returns the time, if the turn is timed.
    #[inline(always)]
    pub(super) fn begin_turn(&mut self) -> Option<u64> {
        self.turns.made += 1;
        self.turns
            .made
            .is_multiple_of(Turns::TIMED)
            .then(|| self.clock.now())
    }

    /// Ends a turn, in which nothing has happened.
    #[inline(always)]
    pub(super) fn end_idle_turn(&mut self, begin: Option<u64>) {
        self.turns.idle += 1;
        if let Some(begin) = begin {
            let ticks = self.clock.now().wrapping_sub(begin);
            self.turns.least = self.turns.least.min(ticks);
        }
    }

    /// Returns whether the time is over.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.duration != u64::MAX && self.clock.now().wrapping_sub(self.begin) >= self.duration
    }

    /// Called before messages are posted.
    #[inline(always)]
    pub(super) fn post(&mut self, messages: u32) {
        if let Some(stamps) = &mut self.stamps {
            stamps.posted.push((self.posted, self.clock.now()));
        }
        self.posted += u64::from(messages);
    }

    /// Called when messages are complete.
    #[inline(always)]
    pub(super) fn complete(&mut self, messages: u32) {
        self.completed += u64::from(messages);
        if let Some(stamps) = &mut self.stamps {
            stamps.completed.push((self.completed, self.clock.now()));
        }
    }

    /// Called when the last message is complete.
    pub(super) fn end(&mut self) {
        self.end = self.clock.now();
        self.cpu = thread_nanoseconds() - self.cpu;
    }

    /// Returns the result.
    pub(super) fn transfer(&self) -> Transfer {
        let picoseconds =
            |ticks: u64| ((ticks as f64 * self.clock.nanoseconds_per_tick() * 1e3) as u64).max(1);
        let peak = self.stamps.as_ref().and_then(peak);
        let (peak_messages, peak_picoseconds) =
            peak.map_or((0, 0), |(messages, ticks)| (messages, picoseconds(ticks)));
        // Without a timed turn, nothing is known of the idle ones.
        let idle = match self.turns.least {
            u64::MAX => 0,
            ticks => picoseconds(ticks.saturating_mul(self.turns.idle)) / 1000,
        };
        Transfer {
            messages: self.completed,
            picoseconds: picoseconds(self.end.wrapping_sub(self.begin)),
            peak_messages,
            peak_picoseconds,
            cpu_nanoseconds: self.cpu,
            idle_nanoseconds: idle.min(self.cpu),
        }
    }
}

/// Returns the messages and ticks of the fastest part, from a post to a later
/// completion, as perftest does. Takes time in proportion to posts times completions.
fn peak(stamps: &Stamps) -> Option<(u64, u64)> {
    let mut best: Option<(u64, u64)> = None;
    for &(before, begin) in &stamps.posted {
        let from = stamps
            .completed
            .partition_point(|&(upto, _)| upto <= before);
        for &(upto, end) in &stamps.completed[from..] {
            let (messages, ticks) = (upto - before, end.wrapping_sub(begin).max(1));
            let is_faster = best.is_none_or(|(most, of)| {
                u128::from(messages) * u128::from(of) > u128::from(most) * u128::from(ticks)
            });
            if is_faster {
                best = Some((messages, ticks));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_fastest_part_from_a_post_to_a_completion() {
        // Posted at 0, 10, 20 and 100; complete at 15, 30, 40 and 200.
        let stamps = Stamps {
            posted: vec![(0, 0), (1, 10), (2, 20), (3, 100)],
            completed: vec![(1, 15), (2, 30), (3, 40), (4, 200)],
        };
        // The first three: 3 messages in 40 ticks, against 1 in 15 and 2 in 30.
        assert_eq!(peak(&stamps), Some((3, 40)));
        let none = Stamps {
            posted: vec![],
            completed: vec![],
        };
        assert_eq!(peak(&none), None);
    }

    #[test]
    fn messages_and_time_are_those_from_begin_to_end() {
        let mut meter = Meter::new(Clock::monotonic(), u64::MAX, Some(8));
        meter.begin();
        for _ in 0..2 {
            meter.post(4);
            meter.complete(4);
        }
        meter.end();
        assert!(!meter.is_over());
        let transfer = meter.transfer();
        assert_eq!(transfer.messages, 8);
        assert!(transfer.peak_messages == 4 || transfer.peak_messages == 8);
        // The peak is at least as fast as all messages together.
        let rate = |messages: u64, time: u64| messages as f64 / time as f64;
        let all = rate(8, transfer.picoseconds);
        assert!(rate(transfer.peak_messages, transfer.peak_picoseconds) >= all);
        // This thread was never idle, as far as is known.
        assert_eq!(transfer.idle_nanoseconds, 0);
        let mut short = Meter::new(Clock::monotonic(), 0, None);
        short.begin();
        assert!(short.is_over());
    }

    #[test]
    fn idle_turns_count_with_the_shortest_that_was_timed() {
        let mut meter = Meter::new(Clock::monotonic(), u64::MAX, None);
        meter.begin();
        for turn in 1..=3 * Turns::TIMED {
            let begin = meter.begin_turn();
            assert_eq!(begin.is_some(), turn.is_multiple_of(Turns::TIMED));
            // All turns but these find something to do.
            if turn > Turns::TIMED {
                meter.end_idle_turn(begin);
            }
        }
        // So that there is CPU time.
        let since = std::time::Instant::now();
        while since.elapsed() < std::time::Duration::from_millis(2) {}
        meter.end();
        assert_eq!(meter.turns.idle, 2 * Turns::TIMED);
        let transfer = meter.transfer();
        assert!(transfer.cpu_nanoseconds > 0);
        let idle = meter.turns.least as f64 * meter.clock.nanoseconds_per_tick() * 2048.0;
        let idle = (idle as u64).min(transfer.cpu_nanoseconds);
        assert!(
            transfer.idle_nanoseconds.abs_diff(idle) <= 1,
            "{transfer:?}"
        );
    }
}
