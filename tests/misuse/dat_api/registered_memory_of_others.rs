//! The device may write registered memory at any time: the caller must promise
//! that no reference to it exists.

use dat_api::object::ia::Ia;
use dat_api::object::lmr::{Lmr, MemoryKind};
use dat_api::object::pz::Pz;
use dat_api::types::MemPrivileges;
use std::sync::Arc;

fn register(ia: &Arc<Ia>, pz: &Arc<Pz>, bytes: &mut [u8]) {
    let kind = MemoryKind::Virtual {
        address: bytes.as_mut_ptr().addr(),
        length: bytes.len() as u64,
    };
    let _ = Lmr::create(ia, kind, pz, MemPrivileges::all());
}

fn main() {
    let _ = register;
}
