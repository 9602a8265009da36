//! The fabric's files with other users, other versions and full file systems.

use std::fs::{DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    await_listener, fabric, find, finish, free_port, launcher, run, skipped, start,
};

const UTILITIES: &str = "ibverbs-utils";

fn user() -> u32 {
    // SAFETY: geteuid(2) cannot fail.
    unsafe { libc::geteuid() }
}

/// Removes a directory when dropped, also after a panic.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the id of a user without files and other processes.
fn other_user() -> u32 {
    1_000_000 + std::process::id()
}

/// Returns another user's id, or prints why tests with two users are skipped.
fn with_two_users() -> Option<u32> {
    if user() != 0 {
        skipped("only root can run programs as two users");
        return None;
    }
    if !Path::new("/dev/shm").is_dir() {
        skipped("there is no /dev/shm");
        return None;
    }
    let mut command = Command::new(launcher());
    let other = other_user();
    command.arg("info").uid(other).gid(other);
    if let Err(error) = command.output() {
        skipped(&format!("other users cannot run mlx5-emu here: {error}"));
        return None;
    }
    Some(other)
}

#[test]
fn users_with_the_same_fabric_name_have_separate_fabrics_and_untrusted_directories_are_not_used() {
    let (Some(other), Some(program)) = (with_two_users(), find("ibv_rc_pingpong", UTILITIES))
    else {
        return;
    };
    let untrusted = Removed(format!("/dev/shm/mlx5emu-{other}").into());
    std::fs::create_dir(&untrusted.0).unwrap();
    std::fs::set_permissions(&untrusted.0, Permissions::from_mode(0o777)).unwrap();
    let fabric = fabric();
    let side = |user: u32, port: u16, peer: &[&str]| {
        let mut command = run(&["--fabric", &fabric]);
        command.arg(&program).args(["-n", "20", "-p"]);
        command.arg(port.to_string()).args(peer);
        if user != 0 {
            command.uid(user).gid(user);
        }
        start(command)
    };
    let ports = [free_port(), free_port()];
    let servers = [side(other, ports[0], &[]), side(0, ports[1], &[])];
    ports.into_iter().for_each(await_listener);
    let clients = [
        side(other, ports[0], &["127.0.0.1"]),
        side(0, ports[1], &["127.0.0.1"]),
    ];
    let outputs = clients.into_iter().chain(servers);
    let outputs: Vec<_> = outputs
        .map(|it| it.finish().expect_success("ibv_rc_pingpong"))
        .collect();
    let warning = format!("{} belongs to user 0; using", untrusted.0.display());
    for (output, of_other) in outputs.iter().zip([true, false, true, false]) {
        assert_eq!(output.contains(&warning), of_other, "{output}");
    }
    let instead = untrusted.0.with_file_name(format!("mlx5emu-{other}-1"));
    assert!(!instead.exists(), "the last process removes it");
}

/// Locks a whole file, waiting until it is unlocked.
fn lock(file: &File) {
    // SAFETY: flock is a C struct of integers, for which zero is valid: the
    // whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the descriptor is open and `lock` lives through the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
    assert_eq!(done, 0);
}

/// Creates the directory of a fabric, and holds the locks of these slots.
fn occupied(fabric: &str, slots: std::ops::RangeInclusive<u8>) -> (Removed, Vec<File>) {
    let path = PathBuf::from(format!("/dev/shm/mlx5emu-{}/{fabric}", user()));
    let create = || {
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)?;
        File::create(path.join("lock"))
    };
    // The runs of other tests remove a fabric without processes, unless this
    // lock is held.
    let _held = loop {
        match create() {
            Ok(file) => {
                lock(&file);
                if path.join("lock").exists() {
                    break file;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
    };
    let take = |slot: u8| {
        let file = File::create(path.join(format!("slot-{slot:02}.lock"))).unwrap();
        lock(&file);
        file
    };
    let locks = slots.map(take).collect();
    (Removed(path), locks)
}

#[test]
fn a_full_fabric_and_another_version_are_reported() {
    let Some(program) = find("ibv_devinfo", UTILITIES) else {
        return;
    };
    if !Path::new("/dev/shm").is_dir() {
        return skipped("there is no /dev/shm");
    }
    let devinfo = |fabric: &str| {
        let mut command = run(&["--fabric", fabric]);
        command.arg(&program);
        finish(command)
    };
    let name = fabric();
    let full = occupied(&name, 1..=64);
    let outcome = devinfo(&name);
    assert!(!outcome.status.success());
    let message = format!("fabric {name} is full: 64 processes are on it; choose another");
    assert!(outcome.output.contains(&message), "{}", outcome.output);
    drop(full);
    let name = fabric();
    let other = occupied(&name, 7..=7);
    std::fs::write(other.0.0.join("segment"), "of another version").unwrap();
    let outcome = devinfo(&name);
    assert!(!outcome.status.success());
    let message = format!("fabric {name} is in use by another version");
    assert!(outcome.output.contains(&message), "{}", outcome.output);
    // After its processes have ended, its files disturb no other process.
    let (_removed, locks) = other;
    drop(locks);
    devinfo(&name).expect_success("ibv_devinfo");
}

#[test]
fn a_full_file_system_is_reported_without_a_signal() {
    let (Some(program), Some(unshare)) = (
        find("ibv_devinfo", UTILITIES),
        find("unshare", "util-linux"),
    ) else {
        return;
    };
    let mounts = "mount -t tmpfs -o size=8k none /dev/shm";
    let probe = Command::new(&unshare)
        .args(["-m", "sh", "-c", mounts])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return skipped("no file system can be mounted here");
    }
    let script = format!(
        "{mounts} && '{}' run -- '{}'; echo status $?; ls /dev/shm",
        launcher().display(),
        program.display()
    );
    let mut command = Command::new(unshare);
    command.args(["-m", "sh", "-c", &script]);
    let output = finish(command).expect_success("sh");
    assert!(
        output.contains("no space left for fabric file /dev/shm/"),
        "{output}"
    );
    assert!(output.contains("status "), "{output}");
    assert!(!output.contains("status 135"), "SIGBUS: {output}");
    assert!(
        !output.lines().any(|line| line.starts_with("mlx5emu-")),
        "{output}"
    );
}
