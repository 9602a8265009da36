//! Which staged events notify.

use crate::object::evd::pending::Notice;

fn of(events: &[bool]) -> Notice {
    let mut notice = Notice::new();
    events.iter().for_each(|&notifies| notice.staged(notifies));
    notice
}

#[test]
fn events_are_left_until_the_last_one_that_notifies_is_taken() {
    let notice = of(&[false, true, false, true, false, false]);
    let left = [6, 5, 4, 3, 2, 1, 0].map(|staged| notice.end(staged) > 0);
    assert_eq!(left, [true, true, true, true, false, false, false]);
    assert_eq!(of(&[false; 3]).end(3), 0);
    assert_eq!(Notice::new().end(0), 0);
}

#[test]
fn an_event_counts_again_after_all_were_taken() {
    let mut notice = of(&[true, false]);
    notice.staged(false);
    assert_eq!(notice.end(1), 0, "only the last one is left");
    notice.staged(true);
    assert_eq!(notice.end(2), 2);
    notice.staged(false);
    notice.count_all();
    assert_eq!(notice.end(3), 3);
}

#[test]
fn events_that_were_removed_are_not_counted() {
    let mut notice = of(&[true, false, false, false]);
    assert_eq!(notice.end(4), 1);
    notice.removed(2);
    assert_eq!((notice.end(2), notice.end(1)), (1, 0));
    let mut none = of(&[false; 2]);
    none.removed(2);
    assert_eq!(none.end(0), 0);
}

#[test]
fn fresh_is_returned_once() {
    let mut notice = of(&[false]);
    assert!(!notice.take_fresh());
    notice.staged(true);
    notice.staged(false);
    assert!(notice.take_fresh() && !notice.take_fresh());
    notice.posted();
    assert!(notice.take_fresh());
}
