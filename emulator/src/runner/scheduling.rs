//! Scheduling settings of the NIC thread: no signals, any CPU, short slices.
//!
//! All settings are optional. If a kernel or container refuses one, latency
//! suffers, not correctness.

/// Blocks every signal in the calling thread, and so in the threads that it
/// starts. Restores the mask when dropped.
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        // SAFETY: sigset_t is plain memory that the calls below fill.
        let (mut all, mut before) = unsafe { std::mem::zeroed::<[libc::sigset_t; 2]>() }.into();
        // SAFETY: both sets are valid and distinct.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `new`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// The requested time slice in nanoseconds: the minimum that the scheduler
/// grants. A waking thread with a short slice preempts those with longer ones
/// (EEVDF).
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr`, its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Applies the scheduling settings of the NIC thread to the calling thread.
pub(crate) fn configure_nic_thread() {
    // The thread may run on any CPU, even if the thread that opened the device
    // is pinned.
    // SAFETY: cpu_set_t is plain memory; all ones selects every CPU, of which
    // the kernel keeps those that the process may use.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        std::ptr::from_mut(&mut all)
            .cast::<u8>()
            .write_bytes(0xff, size_of_val(&all));
        libc::sched_setaffinity(0, size_of_val(&all), &raw const all);
    }
    // SAFETY: prctl with numbers only. Naps and deadlines are a few microseconds
    // long; the default timer slack is 50 µs.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: `attr` is `size` bytes long and lives through both calls.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) == 0 {
            attr.size = size;
            attr.runtime = SLICE_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
            // A short slice preempts only while the thread has used less than
            // its share of the CPU; with this weight that is always so. Needs
            // CAP_SYS_NICE or RLIMIT_NICE.
            attr.nice = -20;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
    }
}
