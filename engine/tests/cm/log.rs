//! The log of the library.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::support::TIMEOUT;

/// Records every warning and error of the process as one line.
#[derive(Clone, Copy)]
pub(crate) struct Log(&'static Mutex<Vec<String>>);

impl Log {
    /// Returns the process's log; the first call installs it.
    pub(crate) fn get() -> Self {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        static SET: OnceLock<()> = OnceLock::new();
        let log = Self(&LINES);
        SET.get_or_init(|| tracing::subscriber::set_global_default(log).expect("no other"));
        log
    }

    /// Waits for a line with all these parts.
    pub(crate) fn await_line(self, parts: &[&str]) {
        let end = Instant::now() + TIMEOUT;
        let has = |line: &String| parts.iter().all(|part| line.contains(part));
        while !self.0.lock().unwrap().iter().any(has) {
            assert!(
                Instant::now() < end,
                "no line with {parts:?} in {:#?}",
                self.0.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
