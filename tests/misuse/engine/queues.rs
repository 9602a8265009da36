//! A queue has one poster and one poller at a time, posts are `unsafe`, and a
//! reference to a CQE ends when the queue is polled.

use dat_engine::control::VerbsQp;
use dat_engine::{
    CompletionQueue, Device, Endpoint, EndpointOptions, MemoryRegion, ProtectionDomain,
    RecvRequest, RegisteredBuffer, SharedReceiveQueue,
};

fn posts(endpoint: &mut Endpoint, queue: &mut SharedReceiveQueue, request: &RecvRequest<'_>) {
    let _ = endpoint.post_recv(request);
    let _ = queue.post(request);
}

fn shared(endpoint: &Endpoint, completions: &CompletionQueue) {
    let _ = endpoint.reset();
    let _ = completions.poll();
}

fn stale(completions: &mut CompletionQueue) {
    let Some(cqe) = completions.peek() else {
        return;
    };
    let _ = completions.poll();
    let _ = cqe.consume();
}

fn behind_its_back(queue_pair: &VerbsQp) {
    let _ = queue_pair.to_reset();
}

fn registered(domain: &ProtectionDomain, bytes: &mut [u8]) -> Option<MemoryRegion> {
    domain
        .register(bytes.as_mut_ptr(), bytes.len(), Default::default())
        .ok()
}

fn copied(buffer: &RegisteredBuffer) {
    let _ = buffer.write(0, b"bytes");
}

fn unlocked(domain: &ProtectionDomain, cq: &CompletionQueue) {
    let options = EndpointOptions {
        thread_mode: true,
        ..EndpointOptions::new(cq, cq)
    };
    let _ = domain.create_endpoint(&options);
}

fn main() {
    let _ = (posts, shared, stale, behind_its_back, registered, copied, unlocked);
    let _ = Device::open;
}
