//! The output of `mlx5-emu`, and what it leaves behind.

#[path = "../../tests/support/generated.rs"]
mod generated;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::{
    compiled_with, eventually, fabric, find, finish, launcher, library, parent_of, run, skipped,
};

/// Returns status and output of the launcher with these arguments.
fn emu(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(launcher());
    command.args(arguments);
    let outcome = finish(command);
    (outcome.status.code(), outcome.output)
}

fn run_script(script: &str) -> (Option<i32>, String) {
    emu(&["run", "--", "sh", "-c", script])
}

#[test]
fn manual_pages_and_completions_have_every_command_and_option() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    generated::check(launcher(), &["run", "port", "pci", "info", "dump"], &folder);
}

#[test]
fn the_launcher_exits_with_the_status_of_the_command() {
    assert_eq!(run_script("exit 0").0, Some(0));
    assert_eq!(run_script("exit 7").0, Some(7));
    assert_eq!(run_script("kill -KILL $$").0, Some(128 + 9));
    assert_eq!(run_script("kill -TERM $$").0, Some(128 + 15));
}

#[test]
fn a_command_that_cannot_be_run_gives_126_or_127() {
    let (status, output) = emu(&["run", "--", "/no/such/program"]);
    assert_eq!(status, Some(127), "{output}");
    assert!(output.contains("/no/such/program"), "{output}");
    assert_eq!(
        emu(&[
            "run",
            "--",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")
        ])
        .0,
        Some(126)
    );
    // Opening a pipe without a writer would wait for one.
    let pipe = format!(
        "pipe=$(mktemp -u) && mkfifo $pipe && timeout 20 {} run $pipe",
        launcher().display()
    );
    let output = Command::new("sh")
        .args(["-c", &format!("{pipe}; status=$?; rm $pipe; exit $status")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
}

#[test]
fn the_library_is_found_below_lib_or_lib64_and_missed_in_words() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library");
    let _ = std::fs::remove_dir_all(&folder);
    let program = folder.join("bin/mlx5-emu");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::fs::copy(launcher(), &program).unwrap();
    let run = || {
        let mut command = Command::new(&program);
        command.args(["run", "--", "printenv", "LD_PRELOAD"]);
        finish(command)
    };
    let missed = run();
    assert!(!missed.status.success(), "{}", missed.output);
    let remedy = "`cargo install` does not install it";
    assert!(missed.output.contains(remedy), "{}", missed.output);
    for lib in ["lib", "lib64"] {
        let own = folder.join(lib).join("mlx5-emu");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::copy(library(), own.join("libmlx5emu.so")).unwrap();
        let found = run();
        let preloaded = format!("/{lib}/mlx5-emu/libmlx5emu.so");
        assert!(found.output.contains(&preloaded), "{}", found.output);
        std::fs::remove_dir_all(own).unwrap();
    }
}

#[test]
fn invalid_command_lines_give_1_and_a_reason() {
    for (arguments, reason) in [
        (&["run"][..], "<CMD>"),
        (&["fly"], "fly"),
        (&["run", "--devices", "0", "--", "true"], "1 to 16"),
        (&["run", "--ports", "3", "--", "true"], "1 to 2"),
        (&["run", "--devices", "many", "--", "true"], "many"),
        (&["run", "--faults", "drop=2", "--", "true"], "from 0 to 1"),
        (
            &["run", "--limits", "max_sge=31", "--", "true"],
            "invalid --limits \"max_sge=31\": expected max_sge=N with N from 1 to 30",
        ),
        (
            &["run", "--limits", "max_ee=1", "--", "true"],
            "unknown limit: expected one of max_qp=N",
        ),
        (
            &["run", "--limits", "profile:x", "--", "true"],
            "unknown profile: expected one of irdma-roce, irdma-iwarp, irdma-x722, bnxt_re",
        ),
        (
            &["run", "--nasty", "all,kind", "--", "true"],
            "invalid --nasty \"kind\": unknown mode: expected all, random, seed=N, -NAME, or one of record",
        ),
        (&["run", "--fabric", "../x", "--", "true"], "../x"),
        (&["run", "--devices", "300", "--", "true"], "1 to 16"),
        (
            &["run", "--link", "eth", "--", "true"],
            "[possible values: ib, roce]",
        ),
        (
            &["run", "--fabric", "a b", "--", "true"],
            "invalid --fabric \"a b\": expected 1 to 64 letters",
        ),
        (
            &["run", "--fabric", "", "--", "true"],
            "invalid --fabric \"\": expected 1 to 64 letters",
        ),
        (
            &["run", "--trace", "/no/such/x", "--", "true"],
            "cannot write --trace /no/such/x: No such file",
        ),
        (&["dump", "cqe", "zz"], "zz"),
    ] {
        let (status, output) = emu(arguments);
        assert_eq!(status, Some(1), "{arguments:?}: {output}");
        assert!(output.contains(reason), "{arguments:?}: {output}");
    }
}

#[test]
fn help_and_info_succeed() {
    let (status, output) = emu(&["--help"]);
    assert_eq!(status, Some(0));
    assert!(
        output.contains("mlx5-emu run -- ibv_devinfo -v"),
        "{output}"
    );
    let (status, output) = emu(&["info"]);
    assert_eq!(status, Some(0));
    assert!(output.contains("rdma-core"), "{output}");
    let (status, output) = emu(&["info", "--limits"]);
    assert_eq!(status, Some(0));
    for words in ["profile:siw ", "siw_query_device", "max_inline=80"] {
        assert!(output.contains(words), "{output}");
    }
}

#[test]
fn dump_decodes_a_doorbell() {
    let (status, output) = emu(&["dump", "doorbell", "0000000a00000103"]);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("SEND"), "{output}");
}

#[test]
fn the_command_finds_library_and_devices_in_its_environment() {
    let (_, output) = emu(&[
        "run",
        "--fabric",
        "f-1",
        "--devices",
        "2",
        "--lenient",
        "--",
        "sh",
        "-c",
        "echo $LD_PRELOAD $MLX5EMU_FABRIC $MLX5EMU_DEVICES $MLX5EMU_LENIENT; \
         cat $SYSFS_PATH/class/infiniband_verbs/uverbs1/ibdev; echo $SYSFS_PATH",
    ]);
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].contains("libmlx5emu.so f-1 2 1"), "{output}");
    assert_eq!(lines[1], "mlx5_1");
    assert!(
        !Path::new(lines[2]).exists(),
        "{} was not removed",
        lines[2]
    );
}

#[test]
fn programs_listen_on_loopback_unless_configured_otherwise() {
    for (given, expected) in [
        (None, "loopback"),
        (Some(""), "loopback"),
        (Some("all"), "all"),
        (Some("192.0.2.9"), "192.0.2.9"),
    ] {
        let mut command = run::<&str>(&[]);
        command.env_remove("DAT_LISTEN");
        command.args(["sh", "-c", "echo $DAT_LISTEN"]);
        if let Some(given) = given {
            command.env("DAT_LISTEN", given);
        }
        let output = finish(command).expect_success("sh");
        assert_eq!(output.trim_end(), expected, "{given:?}");
    }
}

#[test]
fn preloaded_libraries_stay_preloaded() {
    let mut command = run::<&str>(&[]);
    command
        .env("LD_PRELOAD", "libdl.so.2")
        .args(["sh", "-c", "echo $LD_PRELOAD"]);
    let output = finish(command).expect_success("sh");
    assert!(
        output.trim_end().ends_with("libmlx5emu.so:libdl.so.2"),
        "{output}"
    );
}

#[test]
fn a_program_with_address_sanitizer_starts() {
    let sanitized = ["-fsanitize=address", "-lrdmacm", "-libverbs"];
    let program = compiled_with("life/life.c", &sanitized);
    let mut command = run(&["--fabric", &fabric()]);
    command.arg(&program).arg("use");
    finish(command).expect_success("started by the launcher");
    // The launcher cannot see what a script starts, so the user preloads the runtime.
    let runtime = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output();
    let runtime = String::from_utf8(runtime.unwrap().stdout).unwrap();
    let mut command = run(&["--fabric", &fabric()]);
    command
        .env("LD_PRELOAD", format!("{}:libdl.so.2", runtime.trim_end()))
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .args(["sh", "-c", "\"$0\" use && echo $LD_PRELOAD"])
        .arg(&program);
    let output = finish(command).expect_success("started by a script");
    let list = output.trim_end();
    assert!(
        list.starts_with(runtime.trim_end()) && list.ends_with("libmlx5emu.so:libdl.so.2"),
        "{output}"
    );
}

#[test]
fn a_program_that_cannot_have_a_device_is_named_with_the_remedy() {
    let starts = |program: &Path| {
        let mut command = run::<&str>(&[]);
        command.arg(program);
        finish(command).output
    };
    let expect = |program: &Path, words: &[&str]| {
        let output = starts(program);
        let shown = program.display().to_string();
        for words in words.iter().chain(&[shown.as_str()]) {
            assert!(output.contains(words), "{words:?} in {output:?}");
        }
    };
    let linked = |options: &[&str]| compiled_with("launcher/nothing.c", options);
    let plain = linked(&[]);
    assert_eq!(starts(&plain), "");
    // The loader itself needs none.
    let mut loaded = run::<&str>(&[]);
    loaded.arg("/lib64/ld-linux-x86-64.so.2").arg(&plain);
    assert_eq!(finish(loaded).output, "");
    expect(&linked(&["-static"]), &["statically", "CGO_ENABLED=1"]);
    expect(&linked(&["-static-pie"]), &["statically"]);
    let loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    expect(&linked(&[loader]), &["musl", "glibc"]);
    let mut other = std::fs::read(&plain).unwrap();
    // The lower byte of `e_machine`.
    other[18] ^= 0x80;
    std::fs::write(&plain, other).unwrap();
    expect(&plain, &["another processor"]);
    let directory = plain.with_extension("d");
    std::fs::create_dir_all(&directory).unwrap();
    let sudo = directory.join("sudo");
    std::fs::copy(linked(&[]), &sudo).unwrap();
    expect(&sudo, &["changes the user", "sudo mlx5-emu run"]);
    let setuid = linked(&[]);
    if std::os::unix::fs::chown(&setuid, Some(65534), None).is_err() {
        return skipped("only root can make a program of another user");
    }
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).unwrap();
    expect(&setuid, &["changes the user"]);
}

#[test]
fn signals_reach_the_command_and_its_files_are_removed() {
    // The shell waits for each `sleep` before it handles the signal, so it leaves no process.
    let mut scripted =
        Scripted::start("trap 'exit 9' TERM; echo $$; while sleep 0.1; do :; done; exit 1");
    let [_command] = scripted.pids();
    assert_eq!(scripted.terminate(), Some(9));
    assert!(!scripted.sysfs.exists());
}

#[test]
fn a_container_engine_s_signal_reaches_the_command() {
    let Some(unshare) = find("unshare", "util-linux") else {
        return;
    };
    // The launcher is process 1 of a PID namespace, in which the sender has no process id.
    let contained = || {
        let mut command = Command::new(&unshare);
        command.args(["--user", "--map-root-user", "--pid", "--fork"]);
        command
    };
    let probe = contained().arg("true").status();
    if !probe.is_ok_and(|status| status.success()) {
        skipped("no PID namespace can be made here");
        return;
    }
    let mut command = contained();
    command.arg(launcher()).args(["run", "--fabric", &fabric()]);
    command.arg("--");
    let script = "trap 'exit 9' TERM; echo $$; while sleep 0.1; do :; done; exit 1";
    let mut scripted = Scripted::start_with(command, script);
    let [_command] = scripted.pids();
    let unshare = scripted.launcher.id().cast_signed();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut processes = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let launcher = processes.find(|&it: &i32| parent_of(it) == Some(unshare));
    // SAFETY: its parent, unshare, was not waited for and waits for it.
    unsafe { libc::kill(launcher.expect("a child of unshare"), libc::SIGTERM) };
    eventually("the command has ended", || {
        scripted.launcher.try_wait().unwrap().is_some()
    });
    assert_eq!(scripted.launcher.wait().unwrap().code(), Some(9));
}

#[test]
fn programs_without_a_device_are_unaffected() {
    let mut command = run::<&str>(&[]);
    command.args([
        "sh",
        "-c",
        "echo one >&2; cat /proc/self/status | head -1; exit 3",
    ]);
    let outcome = finish(command);
    assert_eq!(outcome.status.code(), Some(3));
    assert_eq!(outcome.output, "Name:\tcat\none\n");
}

#[test]
fn dump_refuses_an_endless_file() {
    let mut command = Command::new(launcher());
    command.args(["dump", "cqe", "/dev/zero"]);
    let outcome = finish(command);
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.output);
    assert!(
        outcome.output.contains("more than 67108864 bytes"),
        "{}",
        outcome.output
    );
}

#[test]
fn dump_accepts_any_file_name_and_reports_invalid_hex() {
    let name = OsStr::from_bytes(b"mlx5-dump-\xff-bytes");
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, "00 00 00 0a\n00 00 01 03\n").unwrap();
    let mut command = Command::new(launcher());
    command.args(["dump", "doorbell"]).arg(&path);
    let outcome = finish(command);
    std::fs::remove_file(&path).unwrap();
    let output = outcome.expect_success("dump");
    assert!(output.contains("SEND"), "{output}");
    let line = "7".repeat(100_001);
    let (status, output) = emu(&["dump", "cqe", &format!("{line} \u{1b}[31m")]);
    assert_eq!(status, Some(1));
    assert!(output.len() < 1000, "{} bytes", output.len());
    let (status, output) = emu(&["dump", "cqe", "\u{1b}[31m"]);
    assert_eq!(status, Some(1));
    assert!(output.contains("neither a file nor hex"), "{output}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_without_a_panic() {
    for arguments in [&["info"][..], &["dump", "doorbell", "0000000a00000103"]] {
        let mut command = Command::new(launcher());
        command.args(arguments);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        command.stderr(Stdio::piped());
        let outcome = command.spawn().unwrap().wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(2), "{errors}");
        assert!(errors.contains("No space left"), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
    // A reader that closes the pipe early is not an error.
    let mut command = Command::new(launcher());
    let mut child = command
        .arg("info")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let outcome = child.wait_with_output().unwrap();
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
}

/// A running script that prints its `SYSFS_PATH` and then process ids, one per line.
struct Scripted {
    launcher: Child,
    sysfs: PathBuf,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Scripted {
    fn start(script: &str) -> Self {
        Self::start_with(run::<&str>(&[]), script)
    }

    fn start_with(mut command: Command, script: &str) -> Self {
        let mut launcher = command
            .args(["sh", "-c", &format!("echo $SYSFS_PATH; {script}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let sysfs = lines.next().unwrap().unwrap().into();
        Self {
            launcher,
            sysfs,
            lines,
        }
    }

    fn pids<const N: usize>(&mut self) -> [i32; N] {
        std::array::from_fn(|_| self.lines.next().unwrap().unwrap().parse().unwrap())
    }

    /// Sends the launcher SIGTERM, and returns its exit status.
    fn terminate(&mut self) -> Option<i32> {
        // SAFETY: the child was not waited for, so its process id is not reused.
        unsafe { libc::kill(self.launcher.id().cast_signed(), libc::SIGTERM) };
        self.launcher.wait().unwrap().code()
    }

    fn kill(&mut self) {
        self.launcher.kill().unwrap();
        self.launcher.wait().unwrap();
    }
}

/// Returns whether a process runs. A zombie does not.
fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.starts_with(" Z") && !rest.starts_with(" X"))
}

#[test]
fn after_a_killed_launcher_no_process_and_no_directory_is_left() {
    // In the background, in its own session, orphaned, and ignoring SIGTERM.
    let mut scripted = Scripted::start(
        "trap '' TERM HUP; echo $$; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; \
         (sh -c 'echo $$; exec sleep 1000' &); sleep 1000",
    );
    let pids: [i32; 4] = scripted.pids();
    assert!(pids.into_iter().all(is_running));
    assert!(scripted.sysfs.exists());
    scripted.kill();
    for pid in pids {
        eventually("the command and its children have ended", || {
            !is_running(pid)
        });
    }
    eventually("the directory is removed", || !scripted.sysfs.exists());
}

/// Returns a new directory that no other test's run sweeps.
fn unswept(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("mlx5emu-{name}-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    place
}

/// Returns a run whose files are in a directory.
fn run_in(place: &Path) -> Command {
    let mut command = run::<&str>(&[]);
    command.env("TMPDIR", place).env("XDG_RUNTIME_DIR", place);
    command
}

#[test]
fn the_next_run_removes_what_a_killed_run_has_left() {
    let place = unswept("next");
    let run_there = || run_in(&place);
    let mut alive = Scripted::start_with(run_there(), "exec sleep 1000");
    let mut killed = Scripted::start_with(run_there(), "echo $$; exec sleep 1000");
    let [command] = killed.pids();
    // Kill the launcher and its guardian, so that neither can clean up.
    let guardian = parent_of(command).expect("a guardian");
    // SAFETY: the guardian is the child of the launcher, which has not ended.
    unsafe { libc::kill(guardian, libc::SIGSTOP) };
    killed.kill();
    // SAFETY: a stopped process keeps its id.
    unsafe { libc::kill(guardian, libc::SIGKILL) };
    eventually("the command has ended", || !is_running(command));
    eventually("the guardian has ended", || !is_running(guardian));
    assert!(killed.sysfs.exists(), "no process was left to remove it");
    let mut next = run_there();
    next.arg("true");
    finish(next).expect_success("true");
    assert!(!killed.sysfs.exists(), "the next run removes it");
    assert!(alive.sysfs.exists(), "that of a running run stays");
    alive.kill();
    eventually("the running one removes its own", || !alive.sysfs.exists());
    std::fs::remove_dir(&place).unwrap();
}

#[test]
fn a_killed_guardian_ends_the_command() {
    let mut scripted = Scripted::start("echo $$; exec sleep 1000");
    let [command] = scripted.pids();
    let guardian = parent_of(command).expect("a guardian");
    assert_eq!(
        parent_of(guardian),
        Some(scripted.launcher.id().cast_signed())
    );
    // SAFETY: the guardian's parent, the launcher, has not waited for it.
    unsafe { libc::kill(guardian, libc::SIGKILL) };
    assert_eq!(scripted.launcher.wait().unwrap().code(), Some(128 + 9));
    eventually("the command has ended", || !is_running(command));
    assert!(!scripted.sysfs.exists());
}

#[test]
fn background_processes_of_a_command_keep_running_and_its_files_until_they_end() {
    let place = unswept("background");
    let by_itself = "sleep 1000 >&2 & echo $!; exit 5";
    let by_a_signal = "trap 'exit 9' TERM; sleep 1000 >&2 & echo $!; wait; exit 1";
    for (script, is_signalled, status) in [(by_itself, false, 5), (by_a_signal, true, 9)] {
        let mut scripted = Scripted::start_with(run_in(&place), script);
        let [background] = scripted.pids();
        let ended = match is_signalled {
            true => scripted.terminate(),
            false => scripted.launcher.wait().unwrap().code(),
        };
        assert_eq!(ended, Some(status));
        assert!(is_running(background) && scripted.sysfs.exists());
        // SAFETY: the process was seen running, and nothing else ends it.
        unsafe { libc::kill(background, libc::SIGKILL) };
        eventually("the guardian removes them", || !scripted.sysfs.exists());
    }
    std::fs::remove_dir(&place).unwrap();
}
