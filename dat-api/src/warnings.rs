//! Warnings of the library's threads, as lines of text.
//!
//! The library reports what no call returns (a request that is refused, and why) as events of the
//! crate `tracing`. A Rust program chooses a subscriber for them, as for those of any crate. A
//! library for C programs has no such choice to offer, and passes them on as lines.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write};

use dat_engine::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// Calls `print` with one line for each warning and error, on the thread where it occurs. Returns
/// `false` if the program has set another subscriber.
pub fn forward_to(print: fn(&str)) -> bool {
    subscriber::set_global_default(Lines(print)).is_ok()
}

/// Warns, unless this process has already given the same warning for the same contents of a file
/// (0: of none).
pub(crate) fn warn_once(contents: u64, text: &str) {
    /// The most warnings that are remembered; when they are forgotten, they may be repeated.
    const MOST: usize = 1024;
    static GIVEN: Mutex<BTreeSet<(u64, String)>> = Mutex::new(BTreeSet::new());
    let is_new = {
        let mut given = GIVEN.lock();
        if given.len() >= MOST {
            given.clear();
        }
        given.insert((contents, text.to_owned()))
    };
    if is_new {
        tracing::warn!("{text}");
    }
}

/// Calls `print` with the warnings and errors of `call`, on this thread.
#[cfg(test)]
pub(crate) fn collect(print: fn(&str), call: impl FnOnce()) {
    subscriber::with_default(Lines(print), call);
}

struct Lines(fn(&str));

/// The message, followed by the values of the event.
#[derive(Default)]
struct Line {
    message: String,
    values: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.values, ", {} {value:?}", field.name())
        };
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        (self.0)(&format!("{}{}", line.message, line.values));
    }

    // The library has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn warnings_and_errors_become_lines_with_their_values() {
        let lines = Lines(|line| PRINTED.lock().expect("not poisoned").push(line.to_owned()));
        subscriber::with_default(lines, || {
            tracing::warn!(peer = ?Some(7), left = 3, "refused: version {}", 2);
            tracing::error!("ended");
            tracing::debug!("of no interest");
        });
        let printed = PRINTED.lock().expect("not poisoned");
        assert_eq!(
            *printed,
            ["refused: version 2, peer Some(7), left 3", "ended"]
        );
    }
}
