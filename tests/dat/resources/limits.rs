//! Temporary limits of the process, and rights of a thread.

/// A limit of the process, restored when dropped.
pub(super) struct Limit {
    of: libc::__rlimit_resource_t,
    before: libc::rlimit,
}

impl Limit {
    pub(super) fn now(of: libc::__rlimit_resource_t) -> Self {
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the result is writable.
        let answer = unsafe { libc::getrlimit(of, &raw mut before) };
        assert_eq!(answer, 0);
        Self { of, before }
    }

    pub(super) fn set(&self, value: libc::rlim_t) {
        let limit = libc::rlimit {
            rlim_cur: value,
            ..self.before
        };
        // SAFETY: the limit is valid.
        let answer = unsafe { libc::setrlimit(self.of, &raw const limit) };
        assert_eq!(answer, 0);
    }

    pub(super) fn lift(&self) {
        self.set(self.before.rlim_cur);
    }

    /// For the limit of descriptors: allows this many more, counting the free
    /// numbers below the limit.
    pub(super) fn leave(&self, more: usize) {
        let mut free = 0;
        let first_beyond = (0..).find(|&number| {
            // SAFETY: queries a descriptor number.
            let is_free = unsafe { libc::fcntl(number, libc::F_GETFD) } < 0;
            free += usize::from(is_free);
            free > more
        });
        self.set(first_beyond.expect("a free one") as libc::rlim_t);
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.lift();
    }
}

/// The calling thread without `CAP_IPC_LOCK`, which is restored when dropped.
pub(super) struct Unprivileged([u32; 6]);

impl Unprivileged {
    const IPC_LOCK: u32 = 1 << 14;

    pub(super) fn now() -> Self {
        let mut rights = [0; 6];
        Self::capabilities(libc::SYS_capget, &mut rights);
        let before = Self(rights);
        // The effective set is the first word of the first half.
        rights[0] &= !Self::IPC_LOCK;
        Self::capabilities(libc::SYS_capset, &mut rights);
        before
    }

    /// Calls `capget(2)` or `capset(2)` for the calling thread.
    fn capabilities(call: libc::c_long, rights: &mut [u32; 6]) {
        const VERSION_3: u32 = 0x2008_0522;
        let mut header = [VERSION_3, 0];
        // SAFETY: a header of version 3, which has two halves of three words.
        let answer = unsafe { libc::syscall(call, header.as_mut_ptr(), rights.as_mut_ptr()) };
        assert_eq!(answer, 0);
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        Self::capabilities(libc::SYS_capset, &mut self.0);
    }
}
