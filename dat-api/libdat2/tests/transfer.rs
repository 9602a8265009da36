//! Transfers through uDAPL 2.0: a C program (`transfer/transfer.c`) on the emulated
//! adapter, by the name of the device and by an entry of dat.conf, on both data paths, over
//! a network that loses packets, and under valgrind.

use std::process::Command;
use std::sync::OnceLock;

use crate::c_program::CProgram;
use crate::emulator::{fabric, launcher};
use crate::tool::is_installed;

fn program() -> &'static CProgram {
    static PROGRAM: OnceLock<CProgram> = OnceLock::new();
    PROGRAM.get_or_init(|| CProgram::build("transfer", &["transfer.c"]))
}

/// Runs the program on an adapter, with this dat.conf.
fn run(adapter: &str, path: &str, conf: &str) {
    run_over("socket", &[], &[], adapter, path, conf);
}

/// As [`run`], over this connection manager, with these options of the launcher, under this
/// program.
fn run_over(
    manager: &str,
    options: &[&str],
    under: &[&str],
    adapter: &str,
    path: &str,
    conf: &str,
) {
    let program = program();
    let file = program
        .libraries
        .join(format!("{adapter}-{path}-{manager}-{}.conf", under.len()));
    std::fs::write(&file, conf).expect("the file can be written");
    let output = Command::new("timeout")
        .arg("300")
        .arg(launcher())
        .args(["run", "--fabric", &fabric()])
        .args(options)
        .arg("--")
        .args(under)
        .arg(&program.path)
        .arg(adapter)
        .env("LD_LIBRARY_PATH", &program.libraries)
        .env("DAT_OVERRIDE", &file)
        .env("DAT_PATH", path)
        .env("DAT_CM", manager)
        .env("DAT_DBG_TYPE", "1")
        .output()
        .expect("timeout can be run");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report = format!("{:?}\n{stdout}{stderr}", output.status);
    assert!(output.status.success(), "{report}");
    assert!(stdout.contains("well\n"), "{report}");
    // Every refusal has a cause, and names the library and the code.
    assert!(!stdout.contains("unknown"), "{report}");
    let refused = stdout
        .lines()
        .filter(|line| line.starts_with("libdat2: dat_"));
    assert!(refused.count() > 10, "{report}");
}

#[test]
fn a_device_needs_no_configuration() {
    run("mlx5_0", "direct", "");
}

#[test]
fn an_entry_of_dat_conf_opens_its_device() {
    let conf = "emu u2.0 nonthreadsafe default libdat2.so.2 dapl.2.0 \"mlx5_0 1\" \"\"\n\
                emu u1.2 nonthreadsafe default libnothing.so.1 dapl.1.2 \"mlx5_1 1\" \"\"\n";
    run("emu", "direct", conf);
}

/// As in Debian's dat.conf, where that library is not installed.
#[test]
fn an_entry_of_a_provider_that_is_not_installed_opens_its_device() {
    let name = "ofa-v2-mlx5_0-1s";
    let library = "/nowhere/libdaploscm.so.2";
    let conf = format!("{name} u2.0 nonthreadsafe default {library} dapl.2.0 \"mlx5_0 1\" \"\"\n");
    run(name, "direct", &conf);
}

#[test]
fn transfers_work_on_the_verbs_path() {
    run("mlx5_0", "verbs", "");
}

#[test]
fn private_data_and_rejections_are_carried_by_rdma_cm() {
    let options = ["--link", "roce"];
    run_over("rdma_cm", &options, &[], "mlx5_0", "direct", "");
}

#[test]
fn lost_and_late_packets_are_not_seen() {
    for path in ["direct", "verbs"] {
        run_over("socket", &crate::c_program::FAULTS, &[], "mlx5_0", path, "");
    }
}

#[test]
fn transfers_are_clean_under_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    let under = crate::c_program::VALGRIND;
    run_over("socket", &[], &under, "mlx5_0", "direct", "");
}
