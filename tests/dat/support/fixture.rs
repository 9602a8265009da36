//! The fixture of these tests: an open adapter, and the device behind it.

use std::env;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Memory, abilities, address, device, ok, with_entry};

/// Makes calls follow the DAT pages where the reference implementation allows more.
const STRICT: &str = "DAT_STRICT";

/// Returns the name of the device.
pub fn c_name() -> CString {
    CString::new(device::name()).expect("no NUL")
}

/// An open adapter. It is closed abruptly when dropped, or by [`Fixture::close`].
pub struct Fixture {
    pub ia: DAT_IA_HANDLE,
    pub async_evd: DAT_EVD_HANDLE,
    pub pz: DAT_PZ_HANDLE,
    closed: bool,
    violations: device::Violations,
    /// Held by the fixture that was opened first.
    _lock: Option<device::DeviceLock>,
}

// SAFETY: handles are numbers; tests make from several threads only calls that
// DAT allows there.
unsafe impl Sync for Fixture {}

impl Fixture {
    /// Opens the adapter. Tests of one process run one at a time.
    pub fn new() -> Self {
        let lock = device::lock();
        Self::open(Some(lock), ptr::null_mut())
    }

    /// Opens the adapter with `DAT_STRICT=1`.
    pub fn strict() -> Self {
        Self::with_strict(true)
    }

    /// Opens the adapter with `DAT_STRICT` 1 or 0.
    pub fn with_strict(is_strict: bool) -> Self {
        let lock = device::lock();
        let before = env::var_os(STRICT);
        // SAFETY: tests read the environment only while they hold a fixture, of which
        // there is one at a time.
        unsafe { env::set_var(STRICT, if is_strict { "1" } else { "0" }) };
        let opened = Self::open(Some(lock), ptr::null_mut());
        // SAFETY: as above.
        unsafe {
            match before {
                Some(before) => env::set_var(STRICT, before),
                None => env::remove_var(STRICT),
            }
        }
        opened
    }

    /// Opens the adapter once more, in a fixture that must be dropped after this
    /// one. Asynchronous events go to a new EVD, or to this fixture's.
    pub fn beside(&self, async_evd: DAT_EVD_HANDLE) -> Self {
        Self::open(None, async_evd)
    }

    /// Opens the adapter as [`Self::new`] does, with these keys of dat.conf.
    pub fn configured(settings: &str) -> Self {
        let lock = device::lock();
        with_entry(settings, |name| {
            Self::open_as(name, Some(lock), ptr::null_mut())
        })
    }

    /// Opens the adapter once more as [`Self::beside`] does, with these keys of
    /// dat.conf.
    pub fn configured_beside(&self, settings: &str) -> Self {
        with_entry(settings, |name| Self::open_as(name, None, ptr::null_mut()))
    }

    fn open(lock: Option<device::DeviceLock>, async_evd: DAT_EVD_HANDLE) -> Self {
        Self::open_as(&c_name(), lock, async_evd)
    }

    fn open_as(
        name: &CStr,
        lock: Option<device::DeviceLock>,
        mut async_evd: DAT_EVD_HANDLE,
    ) -> Self {
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
        address::store_address(ia);
        Self {
            ia,
            async_evd,
            pz,
            closed: false,
            violations: device::Violations::from_now(),
            _lock: lock,
        }
    }

    /// Runs the device until it has nothing left to do.
    pub fn run(&self) {
        device::run();
    }

    /// Runs this many steps of a stepped device. A device that works on its own
    /// gets an amount of time that grows with the number.
    pub fn steps(&self, count: u32) {
        device::steps(count);
    }

    /// Makes a call before, between and after all steps of the device.
    pub fn meanwhile(&self, call: impl FnMut()) {
        device::meanwhile(call);
    }

    /// Returns whether the test steps the device.
    pub fn is_stepped(&self) -> bool {
        device::emulator().is_some()
    }

    /// Advances virtual time, and runs what becomes due.
    pub fn advance(&self, by: Duration) {
        device::advance(by);
    }

    /// Runs the device on another thread until the result is dropped. For calls
    /// that block.
    pub fn run_in_background<'s, 'e>(&'e self, scope: &'s Scope<'s, 'e>) -> DeviceRunner<'s> {
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
        DeviceRunner {
            stop,
            thread: Some(thread),
        }
    }

    /// Creates an EVD for these streams.
    pub fn evd(&self, qlen: DAT_COUNT, flags: DAT_EVD_FLAGS) -> DAT_EVD_HANDLE {
        let mut evd = ptr::null_mut();
        // SAFETY: a live adapter; the result is writable.
        ok(unsafe { dat_evd_create(self.ia, qlen, ptr::null_mut(), flags, &raw mut evd) });
        evd
    }

    /// Creates another protection zone.
    pub fn pz(&self) -> DAT_PZ_HANDLE {
        let mut pz = ptr::null_mut();
        // SAFETY: a live adapter; the result is writable.
        ok(unsafe { dat_pz_create(self.ia, &raw mut pz) });
        pz
    }

    /// Registers memory with all privileges in the fixture's zone.
    pub fn memory(&self, len: usize) -> Memory {
        Memory::new(self.ia, self.pz, len, DAT_MEM_PRIV_ALL_FLAG)
    }

    /// Registers memory with these privileges in this zone.
    pub fn memory_in(&self, pz: DAT_PZ_HANDLE, len: usize, rights: DAT_MEM_PRIV_FLAGS) -> Memory {
        Memory::new(self.ia, pz, len, rights)
    }

    /// Closes the adapter with these flags, and returns the call's code.
    pub fn close(&mut self, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        // SAFETY: the call validates its handles.
        let answer = unsafe { dat_ia_close(self.ia, flags) };
        self.closed |= answer == DAT_SUCCESS;
        answer
    }

    /// Returns the violations that the device has recorded so far, and excludes
    /// them from the check at the end. Doorbell violations are left out: these
    /// tests post several requests before the device looks, and then a doorbell
    /// differs from its record.
    pub fn take_violations(&mut self) -> Vec<String> {
        let seen = self.violations.take_violations().into_iter();
        seen.filter(|text| !text.starts_with("doorbell")).collect()
    }

    /// Returns the adapter's connection manager: `socket` or `rdma_cm`.
    pub fn manager(&self) -> String {
        self.attribute(c"cm")
            .expect("the adapter has an attribute for its connection manager")
    }

    /// Returns the value of a provider-specific attribute, if there is one of this
    /// name.
    pub fn attribute(&self, wanted: &CStr) -> Option<String> {
        let provider = abilities(self).1;
        (0..provider.num_provider_specific_attr as usize)
            .map(|at| {
                // SAFETY: the attributes are static or living strings, as many as
                // the count says.
                unsafe {
                    let attribute = *provider.provider_specific_attr.add(at);
                    [attribute.name, attribute.value].map(|text| CStr::from_ptr(text))
                }
            })
            .find(|[name, _]| *name == wanted)
            .map(|[_, value]| value.to_string_lossy().into_owned())
    }

    /// Records that another call has closed the adapter.
    pub fn was_closed(mut self) {
        self.closed = true;
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !self.closed {
            let answer = self.close(DAT_CLOSE_ABRUPT_FLAG);
            if !std::thread::panicking() {
                ok(answer);
            }
        }
        let violations = self.take_violations();
        if !std::thread::panicking() {
            assert!(
                violations.is_empty(),
                "the NIC has recorded violations: {violations:#?}"
            );
        }
    }
}

/// Runs the device until it is dropped; see [`Fixture::run_in_background`].
pub struct DeviceRunner<'s> {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<ScopedJoinHandle<'s, ()>>,
}

impl Drop for DeviceRunner<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
