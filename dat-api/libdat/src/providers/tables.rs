//! The provider tables that the first words of foreign handles may point to.
//!
//! A C handle may be any number. Memory behind it is read only if a provider of
//! another library is registered, and then only after checking that the address
//! is readable.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{DAT_HANDLE, DAT_PROVIDER};
use crate::face::handles::ours;
use dat_api::sync::RwLock;

/// Address of each table, with the number of entries and open adapters that use
/// it.
static KNOWN: RwLock<Vec<(usize, usize)>> = RwLock::new(Vec::new());
/// Number of known tables. While it is 0, no lock is taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds a table to the known ones, or counts one more use of it.
pub(super) fn add(table: NonNull<DAT_PROVIDER>) {
    let address = table.addr().get();
    let mut known = KNOWN.write();
    match known.iter_mut().find(|(it, _)| *it == address) {
        Some((_, uses)) => *uses += 1,
        None => known.push((address, 1)),
    }
    COUNT.store(known.len(), Ordering::Relaxed);
}

/// Undoes one [`add`]. The last one removes the table.
pub(super) fn remove(table: NonNull<DAT_PROVIDER>) {
    let address = table.addr().get();
    let mut known = KNOWN.write();
    if let Some(at) = known.iter().position(|(it, _)| *it == address) {
        known[at].1 -= 1;
        if known[at].1 == 0 {
            known.swap_remove(at);
        }
    }
    COUNT.store(known.len(), Ordering::Relaxed);
}

/// Returns the table of a handle that is not of this library.
#[inline(always)]
pub(crate) fn of(handle: DAT_HANDLE) -> Option<NonNull<DAT_PROVIDER>> {
    match COUNT.load(Ordering::Relaxed) {
        0 => None,
        _ => look_up(handle),
    }
}

#[cold]
#[inline(never)]
fn look_up(handle: DAT_HANDLE) -> Option<NonNull<DAT_PROVIDER>> {
    if ours(handle)?.is_ours() {
        return None;
    }
    let table = first_word(handle)?;
    let known = KNOWN.read();
    let found = known.iter().any(|(it, _)| *it == table.addr().get());
    found.then_some(table)
}

/// Reads the first word behind a handle. The kernel copies the word, and fails
/// without a fault if the address is not readable.
pub(super) fn first_word(handle: DAT_HANDLE) -> Option<NonNull<DAT_PROVIDER>> {
    let place = handle.cast::<*mut DAT_PROVIDER>();
    if place.is_null() || !place.is_aligned() {
        return None;
    }
    let mut word = core::ptr::null_mut::<DAT_PROVIDER>();
    let part = |base: *mut c_void| libc::iovec {
        iov_base: base,
        iov_len: size_of::<*mut DAT_PROVIDER>(),
    };
    let (here, there) = (part((&raw mut word).cast()), part(handle));
    // SAFETY: the word is writable; the kernel reports a bad remote address as an
    // error.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0)
    };
    if copied == size_of_val(&word).cast_signed() {
        return NonNull::new(word);
    }
    let error = std::io::Error::last_os_error().raw_os_error();
    // A container may forbid the system call.
    if matches!(error, Some(libc::EPERM | libc::ENOSYS)) && can_be_read(handle) {
        // SAFETY: the kernel has just read these eight bytes. A thread that
        // unmaps the object of a handle during a call breaks the contract of
        // `exports`.
        return NonNull::new(unsafe { place.read_volatile() });
    }
    None
}

/// Returns whether eight bytes can be read at an address. `rt_sigprocmask` copies
/// the signal set before it checks its first argument, so an invalid first
/// argument tests the address and changes nothing.
fn can_be_read(place: DAT_HANDLE) -> bool {
    const NOTHING: i32 = -1;
    const SET: usize = 8;
    // SAFETY: the invalid argument changes no mask, and a bad address is reported
    // as an error.
    let code = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NOTHING,
            place,
            core::ptr::null_mut::<u8>(),
            SET,
        )
    };
    code != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use core::ptr::{null_mut, without_provenance_mut};

    use super::*;

    #[test]
    fn only_memory_can_be_read_in_both_ways() {
        let word = 8_usize;
        let place = (&raw const word).cast_mut().cast();
        assert!(can_be_read(place));
        assert_eq!(first_word(place).map(|word| word.addr().get()), Some(8));
        for wrong in [0_usize, 8, 0x1000, 0xdead_0000, usize::MAX - 7] {
            let wrong = without_provenance_mut(wrong);
            assert!(!can_be_read(wrong), "{wrong:?}");
            assert_eq!(first_word(wrong), None);
        }
    }

    #[test]
    fn a_handle_is_foreign_if_it_leads_to_a_table_that_is_known() {
        let table = crate::PROVIDER;
        let table = NonNull::from(&table);
        let other = crate::PROVIDER;
        let object = [table.as_ptr(), null_mut()];
        let unknown = [(&raw const other).cast_mut(), null_mut()];
        let handle = |words: &[*mut DAT_PROVIDER; 2]| words.as_ptr().cast_mut().cast();
        assert_eq!(of(handle(&object)), None);
        add(table);
        add(table);
        for times in 0..2 {
            assert_eq!(of(handle(&object)), Some(table), "{times}");
            assert_eq!(of(handle(&unknown)), None);
            let misaligned = object.as_ptr().cast::<u8>().wrapping_add(1);
            assert_eq!(of(misaligned.cast_mut().cast()), None);
            assert_eq!(of(null_mut()), None);
            assert_eq!(of(without_provenance_mut(0xdead_0000)), None);
            remove(table);
        }
        assert_eq!(of(handle(&object)), None);
    }
}
