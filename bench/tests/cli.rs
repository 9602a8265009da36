//! Help, error messages and exit statuses. No test needs a device: all commands
//! are refused before one is opened.

#[path = "../../tests/support/generated.rs"]
mod generated;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{bench, executable, run};

#[test]
fn help_explains_what_is_reported_and_ends_with_status_0() {
    run(bench("--help")).expect(0, &["devices", "lat", "cost"]);
    let words = [
        "HALF of the round trip",
        "FULL round trip",
        "Examples:",
        "governor",
        "--loopback",
    ];
    run(bench("lat --help")).expect(0, &words);
    run(bench("--version")).expect(0, &[env!("CARGO_PKG_VERSION")]);
}

#[test]
fn manual_pages_and_completions_have_every_command_and_option() {
    let commands = [
        "devices", "lat", "bw", "rate", "cost", "wake", "scale", "compare", "diff", "report",
    ];
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    generated::check(executable(), &commands, &folder);
    run(bench("generate /proc/none")).expect(2, &["/proc/none"]);
}

#[test]
fn usage_errors_have_status_1_and_name_the_option() {
    for (words, named) in [
        ("", "Usage"),
        ("bwx", "bwx"),
        ("lat -t 0", "--tx-depth"),
        ("lat -r 0", "--rx-depth"),
        ("lat -n 0", "--iters"),
        ("lat -D 0", "--duration"),
        ("lat -s 0", "--size"),
        ("lat -s 2G", "--size"),
        ("lat -s x", "--size"),
        ("lat -o atomic", "--op"),
        ("lat --warmup 18446744073709551615", "1000000000"),
        ("lat --warmup 1000000001", "--warmup"),
        ("lat --listen nowhere", "--listen"),
        ("lat --listen 0.0.0.0", "expected all, loopback"),
        ("lat --listen 127.0.0.1 host", "--listen"),
        ("lat --persist host", "--persist"),
        ("lat --persist --loopback", "--persist"),
        ("lat --rate 0", "such as 500, 10k"),
        ("lat --rate 1k,1000", "--rate names 1000 twice"),
        (
            "lat --rate 1k --api rust --wait poll host",
            "dat-bench wake",
        ),
        ("lat -q 0", "--qp"),
        ("lat --wait block", "--wait"),
        ("lat --api rust --wait sometimes", "--wait"),
        ("lat --api rust -o write --wait block host", "--wait"),
        ("lat --api c --loopback --wait block", "--wait"),
        ("lat --api verbs", "--api"),
        ("lat --api engine,verbs", "--api"),
        ("lat --api engine,rust,engine", "--api"),
        ("lat --api rust -I 8", "-I"),
        ("lat --api c -x 1", "-x"),
        ("lat --path scenic", "--path"),
        ("devices --path scenic", "--path"),
        ("lat --loopback host", "--loopback"),
        ("lat -o write -r 4", "-r"),
        ("lat -o read -I 4", "-I"),
        ("lat --json out.json", "--json"),
        ("lat -p 0 localhost", "-p 0"),
    ] {
        run(bench(words)).expect(1, &[named]);
    }
}

#[test]
fn without_a_device_the_failure_names_the_cause_and_the_remedy() {
    let has_device = std::fs::read_dir("/sys/class/infiniband")
        .is_ok_and(|mut entries| entries.next().is_some());
    if has_device {
        println!("SKIPPED: this host has an RDMA device");
        return;
    }
    run(bench("devices")).expect(
        2,
        &[
            "this host has no RDMA device",
            "modprobe mlx5_ib",
            "dat-bench devices -d emu",
        ],
    );
}

#[test]
fn an_invalid_dat_listen_is_refused_with_the_accepted_values() {
    let mut command = bench("lat");
    command.env("DAT_LISTEN", "nowhere");
    run(command).expect(
        1,
        &["DAT_LISTEN: ", "\"nowhere\"", "expected all, loopback"],
    );
}

#[test]
fn help_of_lat_says_that_nothing_is_authenticated() {
    run(bench("lat --help")).expect(0, &["Nothing is authenticated", "--listen", "--persist"]);
}

#[test]
fn a_missing_libdat_is_an_environment_failure_with_a_remedy() {
    let mut command = bench("lat --loopback --api engine,c -d emu");
    command.env("DAT_BENCH_LIBDAT", "/nonexistent/libdat.so");
    run(command).expect(
        2,
        &["/nonexistent/libdat.so", "cargo build", "DAT_BENCH_LIBDAT"],
    );
}

#[test]
fn a_library_other_than_libdat_is_refused() {
    let mut command = bench("lat --loopback --api c -d emu");
    command.env("DAT_BENCH_LIBDAT", executable());
    run(command).expect(2, &["--api c needs libdat.so"]);
}

#[test]
fn an_unwritable_result_file_is_refused_before_the_run() {
    run(bench("lat --loopback --json /nonexistent/out.json")).expect(1, &["/nonexistent/out.json"]);
}

#[test]
fn an_unresolvable_host_is_an_environment_failure_with_a_remedy() {
    run(bench("lat no-such-host.invalid")).expect(2, &["no-such-host.invalid", "getent"]);
}

#[test]
fn an_unknown_device_is_refused_with_a_list_of_those_present() {
    let ended = run(bench("lat --loopback -d no_such_device"));
    ended.expect(1, &["no_such_device", "this host has ", "-d emu"]);
}

/// Creates a folder with dat-bench and this script as launcher. Returns the path of the program.
fn folder_with_launcher(name: &str, script: Option<&str>) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("dat-bench");
    // A hard link: if the file were written here, a fork in another test could hold it open.
    let _ = fs::remove_file(&copy);
    fs::hard_link(executable(), &copy)
        .or_else(|_| fs::copy(executable(), &copy).map(drop))
        .unwrap();
    let launcher = folder.join("mlx5-emu");
    let _ = fs::remove_file(&launcher);
    if let Some(script) = script {
        fs::write(&launcher, script).unwrap();
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

fn in_folder(copy: PathBuf) -> Command {
    let mut command = Command::new(copy);
    command.args(["lat", "--loopback", "-d", "emu"]);
    command
        .env_remove("MLX5EMU_FABRIC")
        .env_remove("DAT_BENCH_RELAUNCHED");
    command
}

#[test]
fn a_missing_launcher_is_an_environment_failure() {
    let copy = folder_with_launcher("no-launcher", None);
    run(in_folder(copy)).expect(2, &["no-launcher/mlx5-emu", "cargo build"]);
}

#[test]
fn a_launcher_without_a_device_is_started_only_once() {
    let copy = folder_with_launcher("idle-launcher", Some("#!/bin/sh\nshift 2\nexec \"$@\"\n"));
    run(in_folder(copy)).expect(2, &["MLX5EMU_FABRIC"]);
}

#[test]
fn the_launcher_gets_all_arguments() {
    let script = "#!/bin/sh\necho \"$1 $2 ... $4 $5 $6 $7\"\n";
    let copy = folder_with_launcher("echo-launcher", Some(script));
    run(in_folder(copy)).expect(0, &["run -- ... lat --loopback -d emu"]);
}

#[test]
fn a_wrong_rust_log_is_refused_with_examples() {
    let mut command = bench("devices -d emu");
    command.env("RUST_LOG", "dat_engine=loud");
    run(command).expect(1, &["RUST_LOG=dat_engine=loud", "RUST_LOG=debug"]);
}
