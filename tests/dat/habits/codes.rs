//! Programs that poll compare the whole code with `DAT_QUEUE_EMPTY`.

use dat::abi::*;

use crate::cno::Cno;
use crate::support::{End, Evd, Fixture, Shape, dequeue};

/// The code with the class of errors, as the header composes it.
const WITH_CLASS: DAT_RETURN = DAT_CLASS_ERROR | DAT_QUEUE_EMPTY;

/// Flags of EVDs that have completions, and of those that have none.
const COMPLETIONS: [DAT_EVD_FLAGS; 3] = [
    DAT_EVD_DTO_FLAG,
    DAT_EVD_RMR_BIND_FLAG,
    DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
];
const OTHERS: [DAT_EVD_FLAGS; 3] = [
    DAT_EVD_SOFTWARE_FLAG,
    DAT_EVD_CONNECTION_FLAG,
    DAT_EVD_CR_FLAG,
];

/// Checks what empty EVDs for completions return: without an endpoint, with one, with
/// several queues, and after an event has been taken.
#[track_caller]
fn empty_ones_return(fixture: &Fixture, code: DAT_RETURN) {
    for flags in COMPLETIONS {
        assert_eq!(
            dequeue(fixture.evd(8, flags)).err(),
            Some(code),
            "{flags:#x}"
        );
    }
    let end = End::new(fixture, &Shape::default());
    for evd in [end.recv, end.request] {
        assert_eq!(dequeue(evd).err(), Some(code));
    }
    let evd = Evd::new(fixture, 8, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG);
    evd.post(1);
    assert_eq!(evd.drain(), [1]);
    assert_eq!(dequeue(evd.0).err(), Some(code));
    for flags in OTHERS {
        let evd = fixture.evd(8, flags);
        assert_eq!(dequeue(evd).err(), Some(WITH_CLASS), "{flags:#x}");
    }
}

#[test]
fn dequeue_of_an_empty_evd_for_completions_equals_dat_queue_empty() {
    let fixture = Fixture::with_strict(false);
    empty_ones_return(&fixture, DAT_QUEUE_EMPTY);
    let cno = Cno::new(&fixture);
    for timeout in [0, 1000] {
        assert_eq!(cno.wait(timeout).err(), Some(DAT_QUEUE_EMPTY));
    }
}

#[test]
fn strict_empty_codes_have_the_class_of_errors() {
    let fixture = Fixture::strict();
    empty_ones_return(&fixture, WITH_CLASS);
    let cno = Cno::new(&fixture);
    for timeout in [0, 1000] {
        assert_eq!(cno.wait(timeout).err(), Some(WITH_CLASS));
    }
}
