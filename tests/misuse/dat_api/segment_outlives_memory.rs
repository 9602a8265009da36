//! A segment borrows its memory, which is mapped as long as it lives.

use dat_api::safe::{Endpoint, Memory, Segment};
use dat_api::types::CompletionFlags;

fn kept(memory: Memory, endpoint: &mut Endpoint) {
    let segment = memory.segment(0..8);
    drop(memory);
    let _ = endpoint.post_recv(&[segment], 0, CompletionFlags::empty());
}

fn returned(memory: Memory) -> Segment<'static> {
    memory.segment(0..8)
}

fn main() {
    let _ = (kept, returned);
}
