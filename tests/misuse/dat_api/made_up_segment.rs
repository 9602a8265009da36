//! A post names pieces of a `Memory`, not three numbers.

use dat_api::safe::{Endpoint, Segment};
use dat_api::types::{CompletionFlags, LmrSegment};

fn numbers(endpoint: &mut Endpoint) {
    let anywhere = LmrSegment {
        context: 1,
        address: 0x1000,
        length: 64,
    };
    let _ = endpoint.post_recv(&[anywhere], 0, CompletionFlags::empty());
    let _ = endpoint.post_recv(&[Segment { segment: anywhere }], 0, CompletionFlags::empty());
}

fn main() {
    let _ = numbers;
}
