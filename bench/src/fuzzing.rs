//! A target of `fuzz/`: result files, and command lines.

use clap::Parser;

use crate::cli::Cli;
use crate::results::{Condition, ResultFile};
use crate::{diff, page};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    match text.strip_prefix('$') {
        Some(words) => command_line(words),
        None => result_files(text),
    }
});

/// Parses words as those of a command line.
fn command_line(words: &str) {
    let words = std::iter::once("dat-bench").chain(words.split('\n'));
    if let Err(error) = Cli::try_parse_from(words) {
        assert!(!error.to_string().is_empty());
    }
}

/// Reads two result files, with a condition between them, and does what the commands do with them.
fn result_files(text: &str) {
    let mut parts = text.splitn(3, "\n\n");
    let mut next = || parts.next().unwrap_or_default();
    let (before, after, condition) = (next(), next(), next());
    let before = match ResultFile::parse(before) {
        Ok(file) => file,
        Err(cause) => return assert!(!cause.is_empty()),
    };
    let after = ResultFile::parse(after).unwrap_or_else(|_| before.clone());
    assert!(!diff::text(&before, &after).contains('\u{1b}'));
    if let Ok(condition) = condition.parse::<Condition>() {
        let conditions = [condition];
        let _ = before.require(&conditions);
        let _ = after.require_since(&before, &conditions);
    }
    assert!(page::of(&[("a.json", before), ("b.json", after)]).contains("</html>"));
}
