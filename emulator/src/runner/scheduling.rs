//! The NIC thread's manners: no signals, any CPU, short turns.
//!
//! Everything here is a wish. What a kernel or a container does not grant
//! costs latency, not correctness.

/// Blocks every signal in the calling thread, and so in the threads it
/// starts; dropping it restores the mask.
pub(super) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(super) fn new() -> Self {
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

/// Slice asked for: the least that the scheduler grants. A thread with a
/// short slice preempts those with longer ones when it wakes (EEVDF).
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

/// Prepares the calling thread to be a NIC.
pub(super) fn become_nic() {
    // The device is not the application: it goes where there is room, not
    // where the thread that opened it was pinned.
    // SAFETY: cpu_set_t is plain memory; all ones names every CPU, of which
    // the kernel keeps those that the process may use.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        std::ptr::from_mut(&mut all)
            .cast::<u8>()
            .write_bytes(0xff, size_of_val(&all));
        libc::sched_setaffinity(0, size_of_val(&all), &raw const all);
    }
    // SAFETY: prctl with numbers only. Naps and deadlines are microseconds;
    // the default slack of timers is 50 of them.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: `attr` is `size` bytes long and lives through both calls.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) == 0 {
            attr.size = size;
            attr.runtime = SLICE_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
            // Short slices preempt only while the thread has used less than
            // its share; with this weight it always has. Needs CAP_SYS_NICE
            // or RLIMIT_NICE.
            attr.nice = -20;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
    }
}
