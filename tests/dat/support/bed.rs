//! The adapter that a test works on, and the device behind it.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Memory, abilities, address, device, ok};

/// The name of the device.
pub fn c_name() -> CString {
    CString::new(device::name()).expect("no NUL")
}

/// An open adapter. Closed abruptly when dropped, or by [`Bed::close`].
pub struct Bed {
    pub ia: DAT_IA_HANDLE,
    pub async_evd: DAT_EVD_HANDLE,
    pub pz: DAT_PZ_HANDLE,
    closed: bool,
    breaches: device::Breaches,
    /// Kept by the first opening.
    _turn: Option<device::Turn>,
}

// SAFETY: handles are numbers; the calls that the tests make from several
// threads are those that DAT allows.
unsafe impl Sync for Bed {}

impl Bed {
    /// Opens the adapter. Tests of one process take turns.
    pub fn new() -> Self {
        let turn = device::turn();
        Self::open(Some(turn), ptr::null_mut())
    }

    /// The adapter opened once more, in the turn of this one, which has to be
    /// dropped after it. Its asynchronous events go to an EVD of its own, or to
    /// this one.
    pub fn beside(&self, async_evd: DAT_EVD_HANDLE) -> Self {
        Self::open(None, async_evd)
    }

    fn open(turn: Option<device::Turn>, mut async_evd: DAT_EVD_HANDLE) -> Self {
        let name = c_name();
        let (mut ia, mut pz) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: every pointer leads to what the call expects.
        unsafe {
            ok(dat_ia_openv(
                name.as_ptr().cast_mut(),
                64,
                &raw mut async_evd,
                &raw mut ia,
                1,
                2,
                DAT_FALSE,
            ));
            ok(dat_pz_create(ia, &raw mut pz));
        }
        address::learn(ia);
        Self {
            ia,
            async_evd,
            pz,
            closed: false,
            breaches: device::Breaches::from_now(),
            _turn: turn,
        }
    }

    /// Lets the device work until nothing is left to do now.
    pub fn run(&self) {
        device::run();
    }

    /// Lets the device do so many things; one that is not stepped by hand has
    /// a while that is the longer the more things there are.
    pub fn steps(&self, count: u32) {
        device::steps(count);
    }

    /// Calls something between all that the device does.
    pub fn meanwhile(&self, call: impl FnMut()) {
        device::meanwhile(call);
    }

    /// Whether nothing happens before the test says so.
    pub fn is_stepped(&self) -> bool {
        device::emulator().is_some()
    }

    /// Lets virtual time pass, and the device do what falls due.
    pub fn advance(&self, by: Duration) {
        device::advance(by);
    }

    /// Keeps the device running from a thread of its own until the answer is
    /// dropped: for calls that block.
    pub fn turning<'s, 'e>(&'e self, scope: &'s Scope<'s, 'e>) -> Turning<'s> {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&stop);
        let thread = scope.spawn(move || {
            while !seen.load(Ordering::Acquire) {
                match device::emulator() {
                    Some(emulator) if emulator.run_until_idle() > 0 => {}
                    Some(emulator) => {
                        emulator.advance(Duration::from_micros(100));
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    None => device::run(),
                }
            }
        });
        Turning {
            stop,
            thread: Some(thread),
        }
    }

    /// An EVD of its own for these streams.
    pub fn evd(&self, qlen: DAT_COUNT, flags: DAT_EVD_FLAGS) -> DAT_EVD_HANDLE {
        let mut evd = ptr::null_mut();
        // SAFETY: a live adapter; the result is writable.
        ok(unsafe { dat_evd_create(self.ia, qlen, ptr::null_mut(), flags, &raw mut evd) });
        evd
    }

    /// Another protection zone.
    pub fn pz(&self) -> DAT_PZ_HANDLE {
        let mut pz = ptr::null_mut();
        // SAFETY: a live adapter; the result is writable.
        ok(unsafe { dat_pz_create(self.ia, &raw mut pz) });
        pz
    }

    /// Registered memory with every right, in the bed's zone.
    pub fn memory(&self, len: usize) -> Memory {
        Memory::new(self.ia, self.pz, len, DAT_MEM_PRIV_ALL_FLAG)
    }

    /// Registered memory with these rights in this zone.
    pub fn memory_in(&self, pz: DAT_PZ_HANDLE, len: usize, rights: DAT_MEM_PRIV_FLAGS) -> Memory {
        Memory::new(self.ia, pz, len, rights)
    }

    /// Closes the adapter in this way, and answers what the call answered.
    pub fn close(&mut self, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        // SAFETY: any value may be given.
        let answer = unsafe { dat_ia_close(self.ia, flags) };
        self.closed |= answer == DAT_SUCCESS;
        answer
    }

    /// What the device has seen since that hardware would not forgive: it is
    /// not held against the library when the bed goes. Doorbells are left out:
    /// these tests post several requests before the device looks, and then a
    /// doorbell no longer agrees with its record.
    pub fn forgive(&mut self) -> Vec<String> {
        let seen = self.breaches.forgive().into_iter();
        seen.filter(|text| !text.starts_with("doorbell")).collect()
    }

    /// Which connection manager it has: `socket`, `rdma_cm`.
    pub fn manager(&self) -> String {
        let provider = abilities(self).1;
        (0..provider.num_provider_specific_attr as usize)
            .map(|at| {
                // SAFETY: so many attributes of static or living strings.
                unsafe {
                    let attribute = *provider.provider_specific_attr.add(at);
                    [attribute.name, attribute.value].map(|text| CStr::from_ptr(text))
                }
            })
            .find(|[name, _]| *name == c"cm")
            .map(|[_, value]| value.to_string_lossy().into_owned())
            .expect("an adapter tells its connection manager")
    }

    /// Somebody else has closed it.
    pub fn was_closed(mut self) {
        self.closed = true;
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.closed {
            let answer = self.close(DAT_CLOSE_ABRUPT_FLAG);
            if !std::thread::panicking() {
                ok(answer);
            }
        }
        let breaches = self.forgive();
        if !std::thread::panicking() {
            assert!(breaches.is_empty(), "the NIC saw breaches: {breaches:#?}");
        }
    }
}

/// Keeps the device running; see [`Bed::turning`].
pub struct Turning<'s> {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<ScopedJoinHandle<'s, ()>>,
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
