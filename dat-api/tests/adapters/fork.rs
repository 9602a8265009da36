//! A child after fork gets errors from its parent's objects, and opens adapters of its own.

use std::sync::Arc;

use dat_api::ReturnType;
use dat_api::handle::{self, Handle};
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::types::EvdFlags;

use crate::setup::*;

/// Makes calls in the child, with handles and with an object that it still holds. Returns the
/// number of the first wrong result, or 0.
fn child(adapter: &Arc<Ia>, ia: Handle, pz: Handle) -> i32 {
    let refused = |result: Result<(), dat_api::DatError>| {
        result.is_err_and(|error| error.code().kind() == Some(ReturnType::InvalidHandle))
    };
    if handle::pin::<Ia>(ia).is_some() || handle::pin::<Pz>(pz).is_some() {
        return 1;
    }
    if adapter.query().ia.adapter_name != "mlx5_0" {
        return 2;
    }
    if !refused(Pz::create(adapter).map(drop)) {
        return 3;
    }
    if !refused(Pz::free(pz)) {
        return 5;
    }
    for graceful in [true, false] {
        if !refused(close_ia(ia, graceful)) {
            return 4;
        }
    }
    let waits = EvdFlags::SOFTWARE;
    if let Ok(evd) = Evd::create(adapter, 4, waits, None) {
        let _ = Evd::free(evd.handle());
    }
    let (own, _) = open("mlx5_0");
    let zone = Pz::create(&own).expect("a zone of this process");
    Pz::free(zone.handle()).expect("nothing uses it");
    close(own);
    0
}

#[test]
fn a_forked_child_is_refused_its_parents_objects_and_opens_its_own() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let pz = Pz::create(&ia).expect("a zone");
    let handles = (ia.handle(), pz.handle());
    // SAFETY: the child calls the code under test, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(20) };
        let looks = std::panic::AssertUnwindSafe(|| child(&ia, handles.0, handles.1));
        let surprise = std::panic::catch_unwind(looks).unwrap_or(99);
        // SAFETY: `_exit` runs no cleanup of the parent's objects.
        unsafe { libc::_exit(surprise) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(
        libc::WIFEXITED(status),
        "the child hung or died: {status:#x}"
    );
    assert_eq!(
        libc::WEXITSTATUS(status),
        0,
        "the number of the wrong result"
    );
    // The parent's objects still work.
    Pz::free(pz.handle()).expect("nothing uses it");
    close(ia);
}
