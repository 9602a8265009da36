//! `lat` on emulated devices with the limits of other NICs: inline sizes, queue
//! depths, and devices without RDMA reads.

use std::process::Command;

use crate::common::{check_row, executable, launcher, run};

/// Returns the names of the emulator's profiles, and whether each has RDMA reads.
fn profiles() -> Vec<(String, bool)> {
    let output = Command::new(launcher())
        .args(["info", "--limits"])
        .output()
        .expect("mlx5-emu runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let blocks = text.split("\n\n").filter_map(|block| {
        let name = block.strip_prefix("profile:")?.split_whitespace().next()?;
        Some((name.to_owned(), !block.contains("max_qp_rd_atom=0")))
    });
    let found: Vec<_> = blocks.collect();
    assert!(found.len() > 12, "{text}");
    found
}

fn on_all_profiles(path: &str) {
    for (name, reads) in profiles() {
        for operation in ["send", "write", "read"] {
            println!("profile:{name}, {operation}");
            let mut command = Command::new(launcher());
            let fabric = format!("profiles-{path}-{}", std::process::id());
            command
                .args(["run", "--fabric", &fabric, "--limits"])
                .arg(format!("profile:{name}"))
                .arg("--")
                .arg(executable())
                .args(["lat", "--loopback", "--path", path, "-o", operation])
                .args(["-s", "64", "-n", "100"]);
            let ended = run(command);
            if operation == "read" && !reads {
                assert_ne!(ended.status, Some(0), "{}", ended.text());
                assert!(ended.text().contains("no RDMA reads"), "{}", ended.text());
                continue;
            }
            check_row(&ended.expect(0, &["EMULATED"]), 64, 100);
        }
    }
}

#[test]
fn every_profile_is_measured_on_the_verbs_path() {
    on_all_profiles("verbs");
}

#[test]
fn every_profile_is_measured_on_the_direct_path() {
    on_all_profiles("direct");
}
