//! The form of tables and files: the width of the terminal, and what other programs read.

use std::process::Command;

use crate::common::{Ended, emulated, run};

/// Runs dat-bench on a terminal of this width. Returns the lines, without the conditions.
fn on_a_terminal(columns: u32, words: &str) -> Vec<String> {
    let command = emulated("output", words);
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy());
    let arguments: Vec<_> = command.get_args().map(quoted).collect();
    let program = quoted(command.get_program());
    let mut script = Command::new("script");
    let set = format!("stty cols {columns} rows 40; exec {program}");
    script.args([
        "-qec",
        &format!("{set} {}", arguments.join(" ")),
        "/dev/null",
    ]);
    table(&run(script).expect(0, &[]))
}

/// Returns the lines from the first rule to the last row.
fn table(ended: &Ended) -> Vec<String> {
    let lines = ended.stdout.lines().map(|line| line.trim_end().to_owned());
    // The progress bar is on the terminal, too.
    let lines = lines.filter(|line| !line.contains(" measured "));
    let from = lines.skip_while(|line| !line.starts_with("---"));
    from.take_while(|line| !line.contains("t_typical:") && !line.contains("Mpps:"))
        .collect()
}

#[test]
fn a_row_is_a_line_in_a_pipe_and_as_wide_as_the_terminal_elsewhere() {
    for (words, columns) in [
        ("lat --loopback -n 20 --api engine,rust --rate 1k", 18),
        ("bw --loopback -n 20 -s 64 --api engine,rust", 7),
    ] {
        let piped = table(&run(emulated("output", words)).expect(0, &[]));
        // Two rules with the names between them, then a row for each interface (and time).
        let [rule, names, _, row, ..] = &piped[..] else {
            panic!("{piped:?}")
        };
        assert!(rule.len() >= names.len() && names.len() > 100, "{piped:?}");
        let cells = row.split("  ").filter(|cell| !cell.trim().is_empty());
        assert!(cells.count() >= columns - 4, "{row}");
        for width in [60, 100] {
            let lines = on_a_terminal(width as u32, words);
            assert!(lines.len() > piped.len(), "{lines:?}");
            assert!(
                lines.iter().all(|it| it.chars().count() <= width),
                "{lines:?}"
            );
            let longest = lines.iter().map(|it| it.chars().count()).max();
            assert!(longest > Some(width * 4 / 5), "{lines:?}");
        }
    }
}
