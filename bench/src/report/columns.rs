//! Tables of a whole run.

use crate::output::width;

/// Returns a table: the names of the columns, with `|` between them, then the rows. Columns are as wide as their widest
/// cell. The first columns, `keys` in number, distinguish the rows; if the others do not fit a
/// terminal together, they are in several blocks, each with the keys. Words are aligned to the
/// left, and numbers to the right.
pub(crate) fn table(keys: usize, names: &str, rows: &[Vec<String>]) -> String {
    let names: Vec<&str> = names.split('|').collect();
    let width_of = |at: usize| {
        let cells = rows.iter().map(|row| row[at].as_str());
        let lengths = cells.chain([names[at]]).map(|cell| cell.chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width_of).collect();
    let is_word = |at: usize| {
        let begins = |row: &Vec<String>| row[at].starts_with(char::is_alphabetic);
        rows.iter().any(begins)
    };
    let words: Vec<bool> = (0..names.len()).map(is_word).collect();
    let cell = |at: usize, text: &str| match (widths[at], words[at]) {
        (width, true) => format!(" {text:<width$}"),
        (width, false) => format!(" {text:>width$}"),
    };
    let length = |columns: &[usize]| columns.iter().map(|&at| widths[at] + 1).sum::<usize>();
    let only_keys: Vec<usize> = (0..keys).collect();
    let room = width();
    let mut blocks = vec![only_keys.clone()];
    for (at, width) in widths.iter().enumerate().skip(keys) {
        match blocks.last_mut() {
            Some(block) if block.len() == keys || length(block) + width < room => block.push(at),
            _ => blocks.push([&only_keys[..], &[at]].concat()),
        }
    }
    let drawn = blocks.iter().map(|block| {
        let line = |text: &dyn Fn(usize) -> String| {
            let line: String = block.iter().map(|&at| cell(at, &text(at))).collect();
            format!("{}\n", line.trim_end())
        };
        let head = line(&|at| names[at].to_owned());
        head + &rows
            .iter()
            .map(|row| line(&|at| row[at].clone()))
            .collect::<String>()
    });
    drawn.collect::<Vec<_>>().join("\n")
}

/// Returns a figure with this many decimals, or a dash.
pub(crate) fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fit::assert_fits;

    #[test]
    fn words_are_at_the_left_numbers_at_the_right_and_wide_tables_have_blocks() {
        let row = |key: &str, word: &str, number: &str| {
            let mut row = vec![key.to_owned(), word.to_owned()];
            row.extend((0..30).map(|_| number.to_owned()));
            row
        };
        let names = format!("n|wait{}", "|figure".repeat(30));
        let text = table(2, &names, &[row("1", "poll", "1.5"), row("10", "a", "-")]);
        assert_fits(&text);
        assert!(text.starts_with("  n wait figure figure"), "{text}");
        assert!(text.contains("\n  1 poll    1.5    1.5"), "{text}");
        assert!(text.contains("\n 10 a         -      -"), "{text}");
        let blocks: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(blocks.len(), 3);
        assert!(
            blocks.iter().all(|block| block.contains(" 10 a ")),
            "{text}"
        );
        assert_eq!(text.matches("1.5").count(), 30);
    }
}
