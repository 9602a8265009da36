//! `dat-bench diff` and `--fail-if`, on files of runs on the emulated device.

use std::fs;

use crate::common::{bench, emulated, file, run};

/// Measures, and returns the name of the result file.
fn measured(name: &str, words: &str) -> String {
    let path = file(&format!("diff-{name}.json")).display().to_string();
    run(emulated("diff", &format!("{words} --json {path}"))).expect(0, &["wrote"]);
    path
}

#[test]
fn two_runs_of_lat_are_compared() {
    let words = "lat --loopback -n 1000 --warmup 50";
    let (one, two) = (measured("lat-1", words), measured("lat-2", words));
    let words = format!("diff {one} {two}");
    let said = [
        "2 bytes, engine",
        "p50[us]",
        "p99[us]",
        "stdev[us]",
        "95 % confidence",
    ];
    run(bench(&words)).expect(0, &said);
    // A file is as fast as itself.
    let words = format!("diff {one} {one} --fail-if p50>+0% --fail-if p50<-0%");
    let ended = run(bench(&words)).expect(0, &["no difference measurable", "+0.0 %"]);
    assert!(!ended.stdout.contains("differs:"), "{}", ended.stdout);
}

#[test]
fn a_condition_that_holds_fails_the_run_after_its_files_are_written() {
    let path = file("diff-failed.json");
    let _ = fs::remove_file(&path);
    let words = format!(
        "lat --loopback -n 1000 --json {} --fail-if p50>1ns --fail-if min>1000s",
        path.display()
    );
    run(emulated("diff", &words)).expect(3, &["--fail-if: p50>1ns: 2 bytes", "p50 is"]);
    assert!(path.is_file());
    let words = "lat --loopback -n 1000 --fail-if max>1000s --fail-if p50<1ns";
    run(emulated("diff", words)).expect(0, &[]);
    let words = "lat --loopback -n 100 --fail-if p99>1000s";
    let refused = run(emulated("diff", words)).expect(1, &["p99 needs 1000 samples", "-n"]);
    assert!(!refused.stdout.contains("#bytes"), "{}", refused.stdout);
    let words = "lat --loopback -n 1000 --fail-if p98.5>1ns";
    run(emulated("diff", words)).expect(3, &["p98.5>1ns: 2 bytes", "p98.5 is"]);
    let words = "cost -d emu --fail-if instructions>1";
    run(bench(words)).expect(1, &["give --instructions, too"]);
    let words = "scale -d emu --fail-if p50>1us";
    run(bench(words)).expect(1, &["scale measures no percentiles; it has time"]);
    let words = "wake -d emu --fail-if bw_avg>1";
    run(bench(words)).expect(1, &["wake has no figure 'bw_avg'", "cpu-share"]);
    let words = "wake --rounds 1 -D 0.02 --wait poll --rate 1000 --fail-if cpu>1ns";
    run(emulated("diff", words)).expect(3, &["poll, 1000/s: cpu is"]);
}

#[test]
fn files_and_conditions_without_sense_are_refused() {
    let words = "lat --loopback -n 100";
    let lat = measured("lat-3", words);
    let wake = measured("wake", "wake --rounds 1 -D 0.02 --wait poll --rate 1000");
    let text = file("diff-text.json");
    fs::write(&text, "no JSON").unwrap();
    let newer = file("diff-newer.json");
    fs::write(&newer, r#"{"schema": "dat-bench/lat/99", "results": []}"#).unwrap();
    for (words, named) in [
        (format!("diff {lat} {wake}"), "lat and wake"),
        (format!("diff {lat} {}", text.display()), "not JSON"),
        (
            format!("diff {lat} {}", newer.display()),
            "a newer dat-bench",
        ),
        (format!("diff {lat} /nonexistent"), "/nonexistent"),
        (format!("diff {lat} {lat} --fail-if p99=1"), "FIGURE>LIMIT"),
        (format!("diff {lat} {lat} --fail-if p42.x>1"), "no figure"),
        (
            format!("diff {lat} {lat} --fail-if p99.9>1"),
            "needs 10000 samples",
        ),
        (
            format!("diff {lat} {lat} --fail-if p42>1MiB/s"),
            "p42 is a time",
        ),
        (format!("diff {lat}"), "AFTER"),
        ("lat --loopback --fail-if p50>+5%".into(), "dat-bench diff"),
        ("lat --fail-if p50>5us".into(), "--fail-if has no effect"),
    ] {
        run(bench(&words)).expect(1, &[named]);
    }
    run(bench("diff --help")).expect(0, &["no difference measurable", "--fail-if"]);
}
