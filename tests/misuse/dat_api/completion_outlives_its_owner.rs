//! A CQE that was found belongs to the owner of the EVD: it cannot be
//! separated from the EVD, and is taken at most once.

use dat_api::object::evd::PeekedEvent;

fn apart(found: PeekedEvent) {
    drop(found.owned);
    let _ = found.queue;
}

fn twice(found: PeekedEvent) {
    let _ = found.take::<false, _>(|event| event);
    let _ = found.take::<false, _>(|event| event);
}

fn main() {
    let _ = (apart, twice);
}
