//! Text as wide as the terminal. Sentences are broken between words. A table that is wider
//! has several lines for each row, or several blocks of columns. Without a terminal (a pipe,
//! a file) nothing is broken, so that each row of a table is a line.

use crate::output::width;

/// Breaks the lines that are too long between words. The rest is indented: below the
/// text after ` name     : `, else by two more columns than the line. A word that is
/// longer than a line, such as a path, is kept whole.
pub(crate) fn fit(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        broken(line, &mut out);
        out.push_str(end);
    }
    out
}

fn broken(line: &str, out: &mut String) {
    let room = width();
    if line.chars().count() <= room {
        out.push_str(line);
        return;
    }
    let indent = line.len() - line.trim_start().len();
    let below = match line.find(": ") {
        // The name of a line of conditions.
        Some(colon) if colon < 14 => colon + 2,
        _ => indent + 2,
    };
    let mut width = 0;
    for (number, word) in line[indent..].split(' ').enumerate() {
        let length = word.chars().count();
        if number == 0 {
            out.push_str(&line[..indent]);
            width = indent;
        } else if width + 1 + length > room && !word.is_empty() {
            out.push('\n');
            out.push_str(&" ".repeat(below));
            width = below;
        } else {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
}

/// Puts cells one after the other into lines; the lines after the first one are
/// indented. Each cell begins with its distance from the one before it. Rows with
/// cells of the same widths are broken at the same places.
pub(crate) fn flow<T: AsRef<str>>(cells: impl IntoIterator<Item = T>, indent: usize) -> String {
    let room = width();
    let mut out = String::new();
    let mut width = 0;
    for cell in cells {
        let cell = cell.as_ref();
        let length = cell.chars().count();
        if width > 0 && width + length > room {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            width = indent;
        }
        out.push_str(cell);
        width += length;
    }
    out
}

/// Returns the names of columns between two rules.
pub(crate) fn ruled(names: &str) -> String {
    let longest = names.lines().map(|line| line.chars().count()).max();
    let rule = "-".repeat((longest.unwrap_or(0) + 1).min(width()));
    format!("{rule}\n{names}\n{rule}")
}

/// Fails the test if a line is too long, unless it is one word.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_fits(text: &str) {
    for line in text.lines() {
        let is_word = line.split_whitespace().count() == 1;
        let length = line.chars().count();
        assert!(
            length <= width() || is_word,
            "{length} columns: {line}\n{text}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_lines_continue_below_their_text() {
        let line = format!(" device   : {}", "word ".repeat(20).trim_end());
        let text = fit(&line);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("            word"), "{text}");
        let text = fit(&format!("  {}\nshort\n", "word ".repeat(20)));
        assert!(
            text.contains("\n    word") && text.ends_with("\nshort\n"),
            "{text}"
        );
    }

    #[test]
    fn cells_flow_into_lines_and_the_rest_is_indented() {
        let cells = vec![" 123456789"; 10];
        let text = flow(&cells, 10);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0].len()), (2, 80));
        assert_eq!(lines[1], format!("{:10} 123456789 123456789", ""));
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_every_line_fits(words in proptest::collection::vec("[a-z:]{1,30}", 1..60)) {
            let line = format!(" {}", words.join(" "));
            let text = fit(&line);
            assert_fits(&text);
            prop_assert_eq!(text.split_whitespace().collect::<Vec<_>>(), words);
        }
    }
}
