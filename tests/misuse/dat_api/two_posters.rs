//! Only one thread posts to an endpoint at a time.

use dat_api::safe::Endpoint;
use dat_api::types::CompletionFlags;

fn shared(endpoint: &Endpoint) {
    let _ = endpoint.post_send(&[], 0, CompletionFlags::empty());
}

fn beside(endpoint: &mut Endpoint) {
    std::thread::scope(|scope| {
        scope.spawn(|| endpoint.post_send(&[], 0, CompletionFlags::empty()));
        scope.spawn(|| endpoint.reset());
    });
}

fn cloned(endpoint: &Endpoint) -> Endpoint {
    endpoint.clone()
}

fn main() {
    let _ = (shared, beside, cloned);
}
