//! A connection request is answered once: the answer consumes it.

use dat_api::safe::{ConnectionRequest, Endpoint};

fn accepted_twice(request: ConnectionRequest, one: &mut Endpoint, other: &mut Endpoint) {
    let _ = request.accept(one, b"");
    let _ = request.accept(other, b"");
}

fn accepted_and_rejected(request: ConnectionRequest, endpoint: &mut Endpoint) {
    let _ = request.accept(endpoint, b"");
    request.reject();
}

fn main() {
    let _ = (accepted_twice, accepted_and_rejected);
}
