//! A handle of a kind is converted to its one type unchecked; and an object has
//! one handle, so that it has one owner at a time.

use dat_api::handle::{self, Object};
use dat_api::{Handle, Kind};
use std::sync::Arc;

struct Other;

impl Object for Other {
    const KIND: Kind = Kind::Ep;
}

fn second_handle(evd: Arc<dat_api::object::evd::Evd>) {
    let _ = handle::publish_for_test(evd);
}

fn ended(handle: Handle) {
    let _ = handle::retire_for_test::<dat_api::object::ep::Ep>(handle);
}

fn meters(handle: Handle) {
    let _ = handle.slot();
    handle.set_table(std::ptr::null());
}

fn main() {
    let _ = (second_handle, ended, meters);
}
