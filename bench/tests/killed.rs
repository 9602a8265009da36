//! What a killed `dat-bench -d emu` leaves behind: no process.

mod common;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{LIMIT, bench, launcher};

/// A variable that every process of one run has in its environment.
const MARK: &str = "DAT_BENCH_TEST_RUN";

/// The processes of this test's run.
fn processes(mark: &str) -> usize {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let has_mark = |entry: &std::fs::DirEntry| {
        // Empty for a process that has ended.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|it| it == wanted)
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter(has_mark).count()
}

fn await_processes(mark: &str, what: &str, holds: impl Fn(usize) -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds(processes(mark)) {
        assert!(Instant::now() < end, "{what}: {}", processes(mark));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that does not outlive a failed test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn neither_itself_nor_its_workers_outlive_the_process_that_was_started() {
    let _built = launcher();
    let mark = std::process::id().to_string();
    // A worker process that is busy for seconds.
    let mut started = Started(
        bench("scale -d emu -q 4096 -n 1000")
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dat-bench starts"),
    );
    // The launcher that took its place, its guardian, itself again, a worker.
    await_processes(&mark, "all are there", |count| count >= 4);
    started.0.kill().expect("it runs");
    started.0.wait().expect("it was started");
    await_processes(&mark, "none is left", |count| count == 0);
}
