//! Readings of the kernel's counters for the calling thread and its CPU.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::look::Look;
use super::record::{Noise, Ran, Range};
use crate::clock::{Clock, kernel_nanoseconds};
use crate::host::thread_usage;

const CPUS: &str = "/sys/devices/system/cpu";

/// Watches the calling thread from [`Watch::begin`] to [`Watch::end`].
pub(crate) struct Watch {
    look: Look,
    host: HostReading,
    /// The thread's scheduler statistics, opened in advance.
    schedstat: Option<File>,
    thread: ThreadReading,
}

impl Watch {
    /// Looks at the thread's core for a few milliseconds, then begins to count.
    pub(crate) fn begin(clock: &Clock) -> Self {
        Self::after(Look::at_the_core(clock))
    }

    /// Begins to count, without a look at the core.
    pub(crate) fn counting() -> Self {
        Self::after(Look::default())
    }

    fn after(look: Look) -> Self {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        Self {
            look,
            host: HostReading::now(),
            thread: ThreadReading::now(schedstat.as_ref()),
            schedstat,
        }
    }

    /// Returns how long the thread has run so far: four system calls.
    pub(crate) fn ran(&self) -> Ran {
        ThreadReading::now(self.schedstat.as_ref()).since(&self.thread)
    }

    /// Returns what disturbed the thread. Called on the same thread.
    pub(crate) fn end(self) -> Noise {
        let thread = ThreadReading::now(self.schedstat.as_ref());
        let host = HostReading::now();
        let frequency = [self.host.megahertz, host.megahertz];
        Noise {
            ran: thread.since(&self.thread),
            run_queue_nanoseconds: thread
                .run_queue
                .zip(self.thread.run_queue)
                .map(|(after, before)| after.saturating_sub(before)),
            voluntary_switches: thread.voluntary - self.thread.voluntary,
            migrations: u64::from(host.cpu != self.host.cpu),
            stolen_nanoseconds: host.stolen_since(&self.host),
            frequency_megahertz: frequency
                .into_iter()
                .flatten()
                .map(Range::of)
                .reduce(Range::with),
            step_nanoseconds: self.look.step_nanoseconds.map(Range::of),
            hiccups: self.look.hiccups,
            responder: None,
        }
    }
}

/// Counters of the calling thread.
#[derive(Clone, Copy, Debug)]
struct ThreadReading {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    wall: u64,
    cpu: u64,
    run_queue: Option<u64>,
    voluntary: u64,
    involuntary: u64,
}

/// Returns the CPU time of the calling thread, in nanoseconds.
pub(crate) fn thread_nanoseconds() -> u64 {
    kernel_nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

impl ThreadReading {
    fn now(schedstat: Option<&File>) -> Self {
        let mut text = [0; 80];
        let run_queue = schedstat
            .and_then(|file| file.read_at(&mut text, 0).ok())
            .and_then(|length| run_queue(str::from_utf8(&text[..length]).ok()?));
        let usage = thread_usage();
        Self {
            wall: kernel_nanoseconds(libc::CLOCK_MONOTONIC),
            cpu: thread_nanoseconds(),
            run_queue,
            voluntary: usage.ru_nvcsw as u64,
            involuntary: usage.ru_nivcsw as u64,
        }
    }
}

impl ThreadReading {
    fn since(&self, earlier: &Self) -> Ran {
        Ran {
            elapsed_nanoseconds: self.wall - earlier.wall,
            cpu_nanoseconds: self.cpu - earlier.cpu,
            involuntary_switches: self.involuntary - earlier.involuntary,
        }
    }
}

/// Returns the time on run queues from `schedstat`: CPU time, waiting time, time slices.
fn run_queue(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Counters of the CPU on which the calling thread runs.
#[derive(Clone, Debug)]
struct HostReading {
    cpu: Option<usize>,
    /// `/proc/stat`, empty if it cannot be read.
    stat: String,
    megahertz: Option<f64>,
}

impl HostReading {
    fn now() -> Self {
        // SAFETY: the call has no arguments and accesses no memory of the program.
        let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
        Self {
            cpu,
            stat: fs::read_to_string("/proc/stat").unwrap_or_default(),
            megahertz: cpu.and_then(|cpu| megahertz(Path::new(CPUS), cpu)),
        }
    }

    /// Returns the time that the hypervisor took from the CPU; from all CPUs if
    /// the thread has moved to another one.
    fn stolen_since(&self, before: &Self) -> Option<u64> {
        let cpu = self.cpu.filter(|_| self.cpu == before.cpu);
        let ticks = steal(&self.stat, cpu)?.saturating_sub(steal(&before.stat, cpu)?);
        // SAFETY: the call has no pointers.
        let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
        Some(ticks * 1_000_000_000 / per_second.max(1))
    }
}

/// Returns the ticks of steal from `/proc/stat`, of one CPU or of all together.
fn steal(stat: &str, cpu: Option<usize>) -> Option<u64> {
    let name = cpu.map_or("cpu".to_owned(), |cpu| format!("cpu{cpu}"));
    let mut words = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next()? == name).then_some(words))?;
    // user, nice, system, idle, iowait, irq, softirq, steal.
    words.nth(7)?.parse().ok()
}

/// Returns the current frequency of a CPU.
fn megahertz(cpus: &Path, cpu: usize) -> Option<f64> {
    let path = cpus.join(format!("cpu{cpu}/cpufreq/scaling_cur_freq"));
    let kilohertz: f64 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (kilohertz > 0.0).then_some(kilohertz / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 2 3 4 5 6 7 88 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu10 1 2 3 4 5 6 7 80 0 0\nintr 1 2\n";

    #[test]
    fn steal_is_read_for_one_cpu_and_for_all() {
        assert_eq!(steal(STAT, None), Some(88));
        assert_eq!(steal(STAT, Some(0)), Some(8));
        assert_eq!(steal(STAT, Some(10)), Some(80));
        assert_eq!(steal(STAT, Some(1)), None);
        // Old kernels have fewer columns, and a container may have no file.
        assert_eq!(steal("cpu 1 2 3 4\n", None), None);
        assert_eq!(steal("", Some(0)), None);
    }

    fn reading(cpu: usize, stat: &str) -> HostReading {
        HostReading {
            cpu: Some(cpu),
            stat: stat.to_owned(),
            megahertz: None,
        }
    }

    #[test]
    fn the_steal_of_a_thread_that_moved_is_that_of_all_cpus() {
        let later = STAT.replace(" 80 ", " 81 ").replace(" 88 ", " 90 ");
        // SAFETY: the call has no pointers.
        let tick = 1_000_000_000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        let stolen = |from, to| reading(to, &later).stolen_since(&reading(from, STAT));
        assert_eq!(stolen(10, 10), Some(tick));
        assert_eq!(stolen(0, 0), Some(0));
        assert_eq!(stolen(0, 10), Some(2 * tick));
        assert_eq!(reading(0, "").stolen_since(&reading(0, STAT)), None);
    }

    #[test]
    fn the_frequency_comes_from_sysfs_if_it_has_one() {
        let cpus = std::env::temp_dir().join(format!("dat-bench-cpus-{}", std::process::id()));
        let folder = cpus.join("cpu3/cpufreq");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("scaling_cur_freq"), "2400000\n").unwrap();
        assert_eq!(megahertz(&cpus, 3), Some(2400.0));
        assert_eq!(megahertz(&cpus, 1), None);
        fs::write(folder.join("scaling_cur_freq"), "<unknown>\n").unwrap();
        assert_eq!(megahertz(&cpus, 3), None);
        fs::remove_dir_all(&cpus).unwrap();
    }

    #[test]
    fn the_second_number_of_schedstat_is_the_time_on_run_queues() {
        assert_eq!(run_queue("135681 66682 1\n"), Some(66682));
        assert_eq!(run_queue("0\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_to_run_less_than_the_elapsed_time() {
        let watch = Watch::counting();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let early = watch.ran();
        let noise = watch.end();
        assert!(early.elapsed_nanoseconds >= 20_000_000, "{early:?}");
        let rest = noise.ran.since(early);
        assert!(rest.elapsed_nanoseconds <= noise.ran.elapsed_nanoseconds - 20_000_000);
        assert!(noise.ran.elapsed_nanoseconds >= 20_000_000, "{noise:?}");
        assert!(noise.voluntary_switches >= 1, "{noise:?}");
        assert!(
            noise.ran.cpu_nanoseconds < noise.ran.elapsed_nanoseconds,
            "{noise:?}"
        );
        assert_eq!(noise.step_nanoseconds, None);
    }
}
