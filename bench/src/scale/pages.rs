//! Page faults and dTLB misses of the timed sections.
//!
//! Faults are the kernel's count for the thread (getrusage). Misses of the data TLB are those of
//! loads, in user mode, that the processor counts (perf_event_open). Virtual machines usually
//! have no such counters, and the kernel may forbid them; the results then say why.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use serde::{Deserialize, Serialize};

use crate::host::thread_usage;

/// Page faults of the thread.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Faults {
    /// Without a read from a disk.
    pub(super) minor: u64,
    pub(super) major: u64,
}

/// What the timed sections have caused, all together.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Pages {
    pub(super) faults: Faults,
    /// Misses of the data TLB; none if they cannot be counted.
    pub(super) tlb_misses: Option<u64>,
    /// Why they cannot be counted.
    pub(super) tlb_reason: Option<String>,
}

/// Counts in sections of the calling thread.
pub(super) struct Counter {
    events: Result<File, String>,
    begin: (Faults, u64),
    pages: Pages,
}

impl Counter {
    pub(super) fn new() -> Self {
        let events = open().map_err(|error| reason(&error));
        Self {
            events,
            begin: (Faults::default(), 0),
            pages: Pages::default(),
        }
    }

    /// Begins a section.
    pub(super) fn begin(&mut self) {
        self.begin = (Faults::now(), self.misses());
    }

    /// Ends a section.
    pub(super) fn end(&mut self) {
        let misses = self.misses().wrapping_sub(self.begin.1);
        let (now, before) = (Faults::now(), self.begin.0);
        self.pages.faults.minor += now.minor - before.minor;
        self.pages.faults.major += now.major - before.major;
        let all = self.pages.tlb_misses.get_or_insert_default();
        *all = all.wrapping_add(misses);
    }

    /// Returns what the sections have caused.
    pub(super) fn pages(mut self) -> Pages {
        if let Err(reason) = self.events {
            self.pages.tlb_misses = None;
            self.pages.tlb_reason = Some(reason);
        }
        self.pages
    }

    /// Returns the number of misses so far. Records the reason if they cannot be counted.
    fn misses(&mut self) -> u64 {
        let Ok(file) = &mut self.events else {
            return 0;
        };
        // The count, and the times for which it was wanted and counted.
        let mut words = [[0; 8]; 3];
        let read = file.read_exact(words.as_flattened_mut());
        let [count, _, counted] = words.map(u64::from_ne_bytes);
        match read {
            Ok(()) if counted > 0 => return count,
            Ok(()) => self.events = Err("the processor has no free counter for them".into()),
            Err(error) => self.events = Err(reason(&error)),
        }
        0
    }
}

impl Faults {
    fn now() -> Self {
        let usage = thread_usage();
        Self {
            minor: usage.ru_minflt as u64,
            major: usage.ru_majflt as u64,
        }
    }
}

/// The first version of `struct perf_event_attr` (linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Opens the counter of the calling thread.
fn open() -> io::Result<File> {
    const HW_CACHE: u32 = 3;
    const DTLB_READ_MISSES: u64 = 3 | 1 << 16;
    const ENABLED_AND_RUNNING_TIME: u64 = 3;
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
    let attributes = Attributes {
        kind: HW_CACHE,
        size: size_of::<Attributes>() as u32,
        config: DTLB_READ_MISSES,
        read_format: ENABLED_AND_RUNNING_TIME,
        flags: EXCLUDE_KERNEL_AND_HYPERVISOR,
        ..Attributes::default()
    };
    let (this_thread, any_cpu, no_group, close_on_exec) = (0, -1, -1, 8_u64);
    // SAFETY: the attributes are alive for the call, and of the size that they name.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_cpu,
            no_group,
            close_on_exec,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: a new descriptor, which nothing else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns why the counter cannot be opened or read, in words.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the processor does not count them here, as in most virtual machines".into()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel forbids it: set kernel.perf_event_paranoid to 2 or less, or leave the container"
                .into()
        }
        Some(libc::ENOSYS) => "the kernel has no performance events".into(),
        _ => format!("perf_event_open failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_touched_first_in_a_section_is_a_minor_fault() {
        const PAGES: usize = 64;
        let mut counter = Counter::new();
        // SAFETY: a new mapping, with no address asked for.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                PAGES * 4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        // SAFETY: the mapping just made; small pages, so that each is a fault.
        unsafe { libc::madvise(map, PAGES * 4096, libc::MADV_NOHUGEPAGE) };
        let touch = || {
            for page in 0..PAGES {
                // SAFETY: inside the mapping.
                unsafe { map.cast::<u8>().add(page * 4096).write_volatile(1) };
            }
        };
        counter.begin();
        touch();
        counter.end();
        let first = counter.pages.faults.minor;
        counter.begin();
        touch();
        counter.end();
        let pages = counter.pages();
        // SAFETY: the mapping, which is not used any more.
        unsafe { libc::munmap(map, PAGES * 4096) };
        // Pages of 64 KiB exist.
        assert!(first >= PAGES as u64 / 16, "{first}");
        assert!(pages.faults.minor - first < PAGES as u64 / 16, "{pages:?}");
        assert_eq!(pages.tlb_misses.is_none(), pages.tlb_reason.is_some());
    }

    #[test]
    fn a_refused_counter_has_a_reason_in_words() {
        for (code, expected) in [
            (libc::ENOENT, "virtual machines"),
            (libc::EACCES, "perf_event_paranoid"),
            (libc::ENOSYS, "no performance events"),
            (libc::EINVAL, "perf_event_open"),
        ] {
            let text = reason(&io::Error::from_raw_os_error(code));
            assert!(text.contains(expected), "{text}");
        }
    }
}
