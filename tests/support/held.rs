//! What this process holds, which must not grow in a long test.

use std::fs;

/// Descriptors, threads and memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub descriptors: usize,
    pub threads: usize,
    /// Resident memory without what was freed, in KiB.
    pub kibibytes: usize,
}

impl Held {
    /// Makes the allocator return large pieces to the kernel at once. Else resident memory depends
    /// on which thread freed last.
    pub fn measure_memory() {
        // SAFETY: integers; both parameters may be set at any time.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        }
    }

    /// Counts without the descriptors by which an emulated device wakes each process that it has
    /// met: it keeps them for the next process in that place.
    pub fn now() -> Self {
        let entries = |folder: &str| fs::read_dir(folder).expect("proc(5)").flatten();
        let descriptors = entries("/proc/self/fd").filter(|entry| {
            let file = fs::read_link(entry.path()).unwrap_or_default();
            file.extension().is_none_or(|extension| extension != "wake")
        });
        // SAFETY: the call only gives free memory back.
        unsafe { libc::malloc_trim(0) };
        let status = fs::read_to_string("/proc/self/status").expect("proc(5)");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = resident.and_then(|line| line.split_whitespace().next());
        Self {
            descriptors: descriptors.count(),
            threads: entries("/proc/self/task").count(),
            kibibytes: number.and_then(|text| text.parse().ok()).expect("VmRSS"),
        }
    }

    /// Returns whether it is no more than `before`, with a quarter more memory at most.
    pub fn is_flat_since(&self, before: &Self) -> bool {
        self.descriptors == before.descriptors
            && self.threads == before.threads
            && self.kibibytes <= before.kibibytes + before.kibibytes / 4
    }
}
