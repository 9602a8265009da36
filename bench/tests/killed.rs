//! A killed `dat-bench -d emu` leaves no process behind.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{LIMIT, bench, launcher};

/// An environment variable of all processes of a run.
const MARK: &str = "DAT_BENCH_TEST_RUN";

/// Returns the number of processes of this test's run.
fn processes(mark: &str) -> usize {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let has_mark = |entry: &std::fs::DirEntry| {
        // Empty if the process has ended.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|it| it == wanted)
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter(has_mark).count()
}

/// Waits until the number of processes is as wanted; `what` is the failure.
fn await_processes(mark: &str, what: &str, holds: impl Fn(usize) -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds(processes(mark)) {
        assert!(Instant::now() < end, "{what}: {}", processes(mark));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process; killed when dropped, so that a failed test leaves none.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killing_the_started_process_ends_the_launcher_and_all_workers() {
    let _built = launcher();
    let mark = std::process::id().to_string();
    // Has a worker process that runs for seconds.
    let mut started = Started(
        bench("scale -d emu -q 4096 -n 1000")
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dat-bench starts"),
    );
    // The launcher (which replaced dat-bench), its guardian, dat-bench, a worker.
    await_processes(&mark, "processes are missing", |count| count >= 4);
    started.0.kill().expect("the process runs");
    started.0.wait().expect("the process was started");
    await_processes(&mark, "processes are left", |count| count == 0);
}
