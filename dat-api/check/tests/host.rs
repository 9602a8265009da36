//! What `dat-check` says about a host and an environment: a dat.conf that cannot be read, another
//! libdat, no device, wrong variables, programs with more rights, too little locked memory.

use std::fs;
use std::os::unix::process::CommandExt;

use crate::common::{CONF, Folder, check, emulated, emulated_with, finish, json};

#[test]
fn a_file_that_cannot_be_read_is_a_problem_with_the_next_step() {
    let folder = Folder::new("absent");
    let absent = folder.at("no.conf");
    for (path, said) in [
        (&absent, "there is no file"),
        (&folder.0, "cannot be read: Is a directory"),
    ] {
        let mut command = emulated("");
        command.env("DAT_OVERRIDE", path);
        let ended = finish(command, 2);
        ended.says(&[
            "(named by DAT_OVERRIDE): PROBLEM",
            said,
            "correct DAT_OVERRIDE or unset it",
            "1 name: 1 ok; 1 PROBLEM",
        ]);
        // The heading and the reason name it, and so does the variable.
        let count = ended.stdout.matches(path.to_str().expect("text")).count();
        assert_eq!(count, 3, "{}", ended.stdout);
        let mut command = emulated("--json");
        command.env("DAT_OVERRIDE", path);
        let report = json(finish(command, 2));
        assert!(report["dat_conf"]["problem"].to_string().contains(said));
    }
    let mut command = emulated("");
    command.env("DAT_OVERRIDE", folder.file("empty.conf", "# nothing\n"));
    finish(command, 0).says(&[
        "no entries; devices are opened by their own names",
        "no problems",
    ]);
}

/// dat-check has the library built in, so it does not say that it has found none.
#[test]
fn programs_without_a_library_are_told_so_without_contradiction() {
    let folder = Folder::new("library");
    let mut command = emulated("mlx5_0");
    command.env_remove("LD_LIBRARY_PATH");
    let ended = finish(command, 0);
    if ended.stdout.contains("C programs    load") {
        eprintln!("SKIPPED: this host has a libdat.so.1");
    } else {
        ended.says(&["it has the library built in", "dat-api/install.sh"]);
        assert!(
            !ended.stdout.contains("libdat.so.1 (this library)"),
            "{}",
            ended.stdout
        );
    }
    // Any file of this name that does not have this library's own call is another library.
    if !copy_of_a_library(&folder.at("libdat.so.1")) {
        eprintln!("SKIPPED: libibverbs.so.1 was not found");
        return;
    }
    let mut command = emulated("mlx5_0");
    command.env("LD_LIBRARY_PATH", &folder.0);
    finish(command, 0).says(&[
        "ANOTHER library than dat-check has built in",
        "no problems in this library; C programs load ANOTHER one",
    ]);
}

/// Copies libibverbs, a library that is not libdat. Returns whether it was found.
fn copy_of_a_library(to: &std::path::Path) -> bool {
    let folder = Folder::new("copied");
    let mut command = emulated("--json other");
    command.env("DAT_OVERRIDE", folder.file("dat.conf", CONF));
    let report = json(finish(command, 2));
    let path = report["adapters"][0]["library_path"]
        .as_str()
        .unwrap_or_default();
    fs::copy(path, to).is_ok()
}

#[test]
fn a_host_without_devices_is_a_problem_with_a_remedy() {
    let mut real = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    if real.next().is_some() {
        eprintln!("SKIPPED: this host has an RDMA device");
        return;
    }
    let folder = Folder::new("empty");
    let mut command = check("");
    command
        .env("DAT_OVERRIDE", folder.file("dat.conf", ""))
        // libibverbs finds its devices there.
        .env("SYSFS_PATH", &folder.0);
    let ended = finish(command, 2);
    ended.says(&[
        "RDMA devices  PROBLEM  none was found",
        "no RDMA device was found",
        "modprobe mlx5_ib",
        "container",
        "mlx5-emu run -- PROGRAM",
        "no RDMA device; 1 PROBLEM",
    ]);
    for absent in ["(any)", "no entry of dat.conf", "this library)"] {
        assert!(!ended.stdout.contains(absent), "{}", ended.stdout);
    }
    let mut command = check("--loopback");
    command
        .env("DAT_OVERRIDE", folder.file("dat.conf", ""))
        .env("SYSFS_PATH", &folder.0);
    finish(command, 2).says(&[
        "loopback      NOT RUN",
        "no RDMA device; loopback NOT RUN; 1 PROBLEM",
    ]);
}

#[test]
fn wrong_and_unknown_variables_are_shown() {
    let mut command = emulated("--json mlx5_0");
    command.env("DAT_WAIT", "sleep").env("DAT_WIAT", "poll");
    let report = json(finish(command, 2));
    let variables = report["variables"].as_array().expect("a list");
    let of = |name: &str| {
        let found = variables.iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is missing"))
    };
    assert!(of("DAT_WAIT")["problem"].to_string().contains("sleep"));
    assert!(
        of("DAT_WAIT")["next"]
            .to_string()
            .contains("unset DAT_WAIT")
    );
    assert!(
        of("DAT_WIAT")["note"]
            .to_string()
            .contains("not a variable")
    );
    assert!(
        report["adapters"][0]["problem"]
            .to_string()
            .contains("DAT_WAIT")
    );
}

#[test]
fn a_setuid_program_ignores_the_variables() {
    let folder = Folder::new("setuid");
    let program = folder.file("program", "");
    let said = |mode| {
        folder.set_mode("program", mode);
        let mut command = emulated("mlx5_0");
        command
            .args(["--json", "--program"])
            .arg(&program)
            .env("DAT_WAIT", "poll");
        json(finish(command, 0))
    };
    assert_eq!(said(0o755)["adapters"][0]["attributes"]["wait"], "poll");
    let report = said(0o4755);
    assert_ne!(report["adapters"][0]["attributes"]["wait"], "poll");
    assert_eq!(report["variables"].as_array().map(Vec::len), Some(0));
    finish(emulated("--program /no/such/file"), 1).says(&["/no/such/file"]);
}

#[test]
fn too_little_locked_memory_is_named_with_the_remedies() {
    const LIMIT: u64 = 16 << 10;
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let mut command = emulated_with(&["--memlock"], "mlx5_0");
    // SAFETY: both calls may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // Fails for ordinary users, who do not have the capability.
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            let limit = libc::rlimit {
                rlim_cur: LIMIT,
                rlim_max: LIMIT,
            };
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let ended = finish(command, 2);
    ended.says(&[
        "memlock       at most 16 KiB",
        "LimitMEMLOCK",
        "PROBLEM",
        "ulimit -l",
    ]);
}

#[test]
fn too_few_descriptors_are_named_and_change_no_connection_manager() {
    for most in [20, 24, 28, 40] {
        let mut command = emulated("mlx5_0");
        // SAFETY: the call may be made between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit {
                    rlim_cur: most,
                    rlim_max: most,
                };
                match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let output = command.output().expect("dat-check runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("by socket"), "{most}: {text}");
        let opened = text.contains("by rdma_cm");
        assert!(opened || text.contains("os error 24"), "{most}: {text}");
    }
}
