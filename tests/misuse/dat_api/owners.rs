//! Memory owns the bytes that it registers, and gives copies of them.

use std::rc::Rc;
use std::sync::Arc;

use dat_api::safe::{Endpoint, Memory, Plain, ProtectionZone};
use dat_api::types::{CompletionFlags, MemPrivileges};

fn used_after(zone: &ProtectionZone, mut bytes: Vec<u8>) {
    let _memory = zone.register(bytes, MemPrivileges::all());
    bytes[0] = 1;
}

fn borrowed(zone: &ProtectionZone) {
    let mut bytes = [0; 64];
    let _ = zone.register(&mut bytes[..], MemPrivileges::all());
}

fn with_other_owners(zone: &ProtectionZone) {
    let _ = zone.register(Arc::<[u8]>::from([0; 64]), MemPrivileges::all());
    let _ = zone.register(Rc::<[u8]>::from([0; 64]), MemPrivileges::all());
    // The bytes would move with the value.
    let _ = zone.register([0_u8; 64], MemPrivileges::all());
}

fn taken_with_a_segment(memory: Memory<Vec<u8>>, endpoint: &mut Endpoint) {
    let segment = memory.segment(0..8);
    let _bytes = memory.into_inner();
    let _ = endpoint.post_recv(&[segment], 0, CompletionFlags::empty());
}

fn not_any_bytes(memory: &Memory) {
    let _: bool = memory.read_value(0);
    let _: &u8 = memory.read_value(0);
    memory.write_value(0, (1_u8, 2_u32));
}

#[derive(Clone, Copy)]
struct Own(bool);

impl Plain for Own {}

fn main() {
    let _ = (used_after, borrowed, with_other_owners, taken_with_a_segment, not_any_bytes);
}
