//! Hosts that forbid things: a read-only root, no `/dev/shm`, no `userfaultfd`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::{
    Outcome, await_listener, fabric, find, finish, free_port, launcher, run, skipped, start,
};

const UTILITIES: &str = "ibverbs-utils";

/// Runs a script of `sh` in a mount namespace of its own, where it finds other commands in
/// `$COMMANDS`. Returns `None` if there can be no such namespace.
fn in_namespace(script: &str, commands: &str) -> Option<Outcome> {
    let unshare = find("unshare", "util-linux")?;
    let shell = |script: &str| {
        let mut command = Command::new(&unshare);
        command.args(["--mount", "sh", "-ec", script]);
        command
    };
    let probe = shell("mount -t tmpfs none /mnt").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skipped("no file system can be mounted here");
        return None;
    }
    let mut command = shell(script);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR");
    command.env("COMMANDS", commands);
    command.env("LAUNCHER", launcher());
    Some(finish(command))
}

/// Returns commands that run a pingpong on a new fabric, and need only what is mounted.
fn pingpong(program: &Path) -> String {
    let (launcher, program, port) = (launcher().display(), program.display(), free_port());
    let side = format!(
        "{launcher} run --fabric {} -- {program} -n 20 -p {port}",
        fabric()
    );
    let listens = format!("grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    // A server that ended never listens.
    let waits =
        "tries=0; until {listens}; do tries=$((tries + 1)); [ $tries -lt 1200 ]; sleep 0.05; done";
    let waits = waits.replace("{listens}", &listens);
    format!("{side} & {waits}; {side} 127.0.0.1; wait $!")
}

/// Runs the commands on a root of which everything but `/dev` is read-only. The directories above
/// the launcher may be file systems of their own, which the bind mount of the root does not show.
const READ_ONLY: &str = "mount --bind / /mnt; mount -o remount,bind,ro /mnt; \
    at=; IFS=/; for part in ${LAUNCHER#/}; do at=\"$at/$part\"; if mountpoint -q \"$at\"; then \
        mount --bind \"$at\" \"/mnt$at\"; mount -o remount,bind,ro \"/mnt$at\"; fi; done; unset IFS; \
    for it in dev proc sys; do mount --rbind /$it /mnt/$it; done; \
    chroot /mnt sh -ec \"$COMMANDS\"";

#[test]
fn programs_run_on_a_read_only_root() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let commands = format!("if touch /tmp/x; then exit 9; fi; {}", pingpong(&program));
    if let Some(outcome) = in_namespace(READ_ONLY, &commands) {
        outcome.expect_success("a read-only root");
    }
}

#[test]
fn programs_run_without_dev_shm_and_say_why_not_if_nothing_can_be_written() {
    let (Some(program), Some(devinfo)) = (
        find("ibv_rc_pingpong", UTILITIES),
        find("ibv_devinfo", UTILITIES),
    ) else {
        return;
    };
    // Only the devices that every program needs.
    let without = "mount -t tmpfs none /mnt; for it in null zero random urandom; do \
        touch /mnt/$it; mount --bind /dev/$it /mnt/$it; done; mount --rbind /mnt /dev; \
        umount -R /mnt; test ! -e /dev/shm";
    let script = format!("{without}; sh -ec \"$COMMANDS\"");
    let Some(outcome) = in_namespace(&script, &pingpong(&program)) else {
        return;
    };
    outcome.expect_success("without /dev/shm");
    let run = format!("{} run -- {}", launcher().display(), devinfo.display());
    let script = format!("{without}; {READ_ONLY}");
    let outcome = in_namespace(&script, &run).expect("possible before");
    assert_eq!(outcome.status.code(), Some(2), "{}", outcome.output);
    for words in ["cannot write the devices' sysfs tree", "set TMPDIR"] {
        assert!(outcome.output.contains(words), "{}", outcome.output);
    }
}

/// Forbids a system call to a program, as containers do.
pub(crate) fn forbid(command: &mut Command, number: libc::c_long) {
    let [load, equal, result] = [
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    ]
    .map(|code| u16::try_from(code).expect("16 bits"));
    let filter = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let number = u32::try_from(number).expect("a small number");
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filters = [
        // The number of the system call comes first in seccomp_data.
        filter(load, 0, 0, 0),
        filter(equal, number, 0, 1),
        filter(result, refused, 0, 0),
        filter(result, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: 4,
            filter: filters.as_mut_ptr(),
        };
        // SAFETY: prctl(2) with numbers, and with a program that lives through the call.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) != 0
        };
        if failed {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(install) };
}

#[test]
fn programs_run_where_userfaultfd_is_forbidden_and_a_mode_that_needs_it_says_so() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let (fabric, port) = (fabric(), free_port().to_string());
    let side = |wake: &str, peer: &[&str]| {
        let mut command = run(&["--fabric", &fabric]);
        command.arg(&program).args(["-e", "-n", "20", "-p", &port]);
        command.args(peer).env("MLX5EMU_WAKE", wake);
        forbid(&mut command, libc::SYS_userfaultfd);
        start(command)
    };
    let server = side("auto", &[]);
    await_listener(port.parse().unwrap());
    side("auto", &["127.0.0.1"])
        .finish()
        .expect_success("client");
    server.finish().expect_success("server");
    for wake in ["signal", "uffd"] {
        let outcome = side(wake, &[]).finish();
        assert!(!outcome.status.success(), "{}", outcome.output);
        for words in [
            "userfaultfd",
            "Operation not permitted",
            "MLX5EMU_WAKE=auto",
        ] {
            assert!(outcome.output.contains(words), "{wake}: {}", outcome.output);
        }
    }
}

#[test]
fn a_profile_that_forbids_reading_commands_is_named_with_the_remedy() {
    let Some(devinfo) = find("ibv_devinfo", UTILITIES) else {
        return;
    };
    for number in [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev] {
        let mut command = run(&["--fabric", &fabric()]);
        command.arg(&devinfo);
        forbid(&mut command, number);
        let outcome = finish(command);
        assert!(!outcome.status.success(), "{}", outcome.output);
        let words = "is forbidden, and the emulated device reads commands by them: allow both";
        assert!(outcome.output.contains(words), "{}", outcome.output);
    }
}
