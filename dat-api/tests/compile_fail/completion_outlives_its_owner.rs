//! What was found in a queue is another thread's once the EVD is not owned any
//! more: apart from the EVD, it can neither be looked at nor taken.

use dat_api::object::evd::Found;

fn late(found: Found) {
    let (owned, place) = found.into_parts();
    drop(owned);
    let _ = place.look();
}

fn swapped(one: Found, other: Found) {
    let ((first, _), (_, place)) = (one.into_parts(), other.into_parts());
    let _ = Found::from_parts(first, place);
}

fn main() {
    let _ = (late, swapped);
}
