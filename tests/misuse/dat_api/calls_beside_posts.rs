//! These calls use what a post uses without a lock: another thread may be
//! posting to an endpoint that was found by its handle.

use dat_api::Handle;
use dat_api::handle;
use dat_api::object::ep::{Ep, EpChange, EpFields};
use dat_api::object::ia::Ia;
use dat_api::object::rmr::Rmr;
use dat_api::object::srq::Srq;
use dat_api::types::{CompletionFlags, LmrSegment, MemPrivileges};

fn by_handle(endpoint: Handle, change: &EpChange) {
    let ep = handle::pin::<Ep>(endpoint).expect("live");
    let _ = ep.reset();
    let _ = ep.modify(EpFields::PZ, change);
    let _ = ep.disconnect(true);
    let _ = Ep::free(endpoint);
    let _ = ep.post_recv(&[], 0, CompletionFlags::empty());
}

fn others(adapter: Handle, queue: &Srq, window: &Rmr, ep: &Ep) {
    let _ = Ia::close(adapter, false);
    let _ = queue.resize(7);
    let none = LmrSegment::default();
    let _ = window.bind(ep, none, MemPrivileges::empty(), 0, CompletionFlags::empty());
}

fn main() {
    let _ = (by_handle, others);
}
