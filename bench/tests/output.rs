//! The form of tables and files: the width of the terminal, and what other programs read.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Ended, emulated, file, run, schema};

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

/// Returns the names of the columns, and the rows.
fn csv(path: &Path) -> (String, Vec<Vec<String>>) {
    let text = fs::read_to_string(path).expect("a CSV file");
    let mut lines = text.lines().map(str::to_owned);
    let names = lines.next().expect("names");
    let row = |line: String| line.split(',').map(str::to_owned).collect();
    (names, lines.map(row).collect())
}

#[test]
fn every_measured_message_is_a_row_of_the_samples() {
    let (samples, json) = (file("samples.csv"), file("samples.json"));
    let files = format!("--samples {} --json {}", samples.display(), json.display());
    let words = format!("lat --loopback --api engine,rust -n 200 --warmup 20 {files}");
    let line = format!("samples : 400 messages in {}", samples.display());
    run(emulated("output", &words)).expect(0, &[&line]);
    let (names, rows) = csv(&samples);
    assert_eq!(names, "time_us,round,size_bytes,api,latency_us");
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    schema::check(&value);
    for (at, api) in ["engine", "rust"].iter().enumerate() {
        let of: Vec<_> = rows.iter().filter(|row| row[3] == *api).collect();
        let numbers = |column: usize| -> Vec<f64> {
            of.iter().map(|row| row[column].parse().unwrap()).collect()
        };
        let (times, latencies) = (numbers(0), numbers(4));
        assert_eq!((times.len(), times[0]), (200, 0.0));
        assert!(times.is_sorted() && numbers(1).is_sorted());
        let result = &value["results"][at];
        let figure = |name: &str| result[name].as_f64().unwrap();
        let max = latencies.iter().copied().fold(0.0, f64::max);
        assert!((max - figure("max")).abs() < 0.002, "{max} {result}");
        let mean = latencies.iter().sum::<f64>() / 200.0;
        assert!((mean - figure("t_avg")).abs() < 0.002, "{mean} {result}");
        // The series has the same messages, and the same largest one at its time.
        let slots = result["series"]["slots"].as_array().unwrap();
        let counts = slots.iter().map(|slot| slot["samples"].as_u64().unwrap());
        assert_eq!((slots.len(), counts.sum::<u64>()), (100, 200));
        let place = latencies.iter().position(|it| *it == max).unwrap();
        let slot = slots
            .iter()
            .rfind(|slot| slot["begin"].as_f64().unwrap() <= times[place] + 0.001);
        assert!((slot.unwrap()["t_max"].as_f64().unwrap() - max).abs() < 0.002);
        assert_eq!(result["series"]["rounds"].as_array().unwrap().len(), 10);
    }
}

#[test]
fn samples_of_an_open_loop_have_both_times_and_what_has_no_room_is_counted() {
    let samples = file("samples-open.csv");
    let words = format!(
        "lat --loopback -n 50 --rate 2k,4k --samples {}",
        samples.display()
    );
    run(emulated("output", &words)).expect(0, &["samples : 100 messages"]);
    let (names, rows) = csv(&samples);
    assert_eq!(
        names,
        "time_us,round,size_bytes,api,rate_per_s,response_us,service_us"
    );
    assert_eq!(rows.iter().filter(|row| row[4] == "4000").count(), 50);
    let least = |row: &Vec<String>| row[5].parse::<f64>().unwrap() - row[6].parse::<f64>().unwrap();
    assert!(rows.iter().all(|row| least(row) >= -0.001), "{rows:?}");
    run(emulated(
        "output",
        "lat --loopback -n 20 --samples /nonexistent/s.csv",
    ))
    .expect(1, &["cannot write /nonexistent/s.csv"]);
    run(emulated("output", "lat --samples s.csv"))
        .expect(1, &["--samples has no effect on a server"]);
}
