//! `dat-bench compare` on the emulated device. No test asserts a time.

use std::fs;

use crate::common::{bench, emulated, file, run};
use serde_json::Value;

fn has_perftest() -> bool {
    let there = std::process::Command::new("ib_send_lat")
        .arg("--version")
        .output()
        .is_ok();
    if !there {
        println!("SKIPPED: perftest is not installed");
    }
    there
}

#[test]
fn both_programs_run_in_pairs() {
    if !has_perftest() {
        return;
    }
    for operation in ["send", "write", "read"] {
        let json = file(&format!("compare-{operation}.json"));
        let words = format!(
            "compare -o {operation} -s 64 -n 20 --pairs 2 --json {}",
            json.display()
        );
        let program = format!("ib_{operation}_lat");
        let said = [
            "EMULATED",
            &program,
            "dat-bench lat",
            "relative to perftest",
            "hides",
        ];
        let ended = run(emulated("compare", &words));
        let words: Vec<_> = ended.stderr.split_whitespace().collect();
        if words.join(" ").contains("found no processor frequency") {
            println!("SKIPPED: {program} printed no figure on this busy host");
            continue;
        }
        ended.expect(0, &said);
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(value["schema"], "dat-bench/compare/2");
        crate::common::schema::check(&value);
        let pairs = value["pairs"].as_array().unwrap();
        // On a busy host, perftest may find no processor frequency.
        let left_out = value["conditions"]["pairs_left_out"].as_u64().unwrap() as usize;
        assert_eq!(pairs.len() + left_out, 2);
        for pair in pairs {
            let (theirs, ours) = (&pair["perftest"], &pair["dat_bench"]);
            // perftest measures from post to post, so there is one sample less; not for reads.
            assert!(theirs["samples"].as_u64() >= Some(19), "{pair}");
            assert!(
                theirs["true_max"].as_f64() >= theirs["t_max"].as_f64(),
                "{pair}"
            );
            assert!(theirs["t_typical"].as_f64() > Some(0.0), "{pair}");
            assert!(ours["t_typical"].as_f64() > Some(0.0), "{pair}");
        }
        assert!(value["ratio"].as_f64() > Some(0.0));
        assert!(
            value["ratio_interval"].is_null(),
            "two pairs have no interval"
        );
    }
}

#[test]
fn ucx_perftest_runs_in_pairs_with_the_layout_that_carries_the_size() {
    let there = std::process::Command::new("ucx_perftest")
        .arg("-h")
        .output();
    if there.is_err() {
        println!("SKIPPED: ucx_perftest is not installed");
        return;
    }
    // A get by bcopy carries 64 bytes, short messages do not carry 4096.
    for (operation, size, ran) in [
        ("send", 8, "-t am_lat -x rc_mlx5 -D short"),
        ("write", 4096, "-t put_lat -x rc_mlx5 -D bcopy"),
        ("read", 64, "-t get -x rc_mlx5 -D bcopy"),
    ] {
        let json = file(&format!("compare-ucx-{operation}.json"));
        let words = format!(
            "compare --with ucx_perftest -o {operation} -s {size} -n 20 --pairs 2 --json {}",
            json.display()
        );
        run(emulated("compare-ucx", &words)).expect(0, &["relative to ucx_perftest", ran]);
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        crate::common::schema::check(&value);
        assert!(
            value["conditions"]["program"]
                .as_str()
                .unwrap()
                .ends_with(ran)
        );
        for pair in value["pairs"].as_array().unwrap() {
            assert!(
                pair["ucx_perftest"]["t_typical"].as_f64() > Some(0.0),
                "{pair}"
            );
            assert!(pair["perftest"].is_null(), "{pair}");
        }
    }
}

#[test]
fn wrong_options_and_a_missing_perftest_are_refused_with_a_remedy() {
    for (words, named) in [
        ("compare -n 4", "--iters"),
        ("compare --pairs 0", "--pairs"),
        ("compare -o atomic", "--op"),
        ("compare -s 0", "--size"),
        ("compare --with netperf", "--with"),
    ] {
        run(bench(words)).expect(1, &[named]);
    }
    let mut command = bench("compare -d emu");
    command.env("PATH", "/nonexistent");
    run(command).expect(2, &["ib_send_lat", "apt-get install perftest"]);
    let mut command = bench("compare -d emu --with ucx_perftest");
    command.env("PATH", "/nonexistent");
    run(command).expect(2, &["ucx_perftest", "apt-get install ucx-utils"]);
    run(bench("compare --help")).expect(0, &["No difference measurable", "--pairs"]);
}
