//! The file descriptor of a CNO, polled by an edge-triggered `epoll` and by `poll`.

use std::os::fd::RawFd;
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Cno, Evd, NO_AGENT, joined};
use crate::support::{End, Fixture, MessagePair, ServicePoint, Shape, fails, fails_with, ok, take};

/// A CNO with a descriptor, and the program's `epoll`, which watches it edge-triggered.
struct Polled {
    cno: Cno,
    fd: RawFd,
    epoll: RawFd,
}

impl Polled {
    fn new(fixture: &Fixture) -> Self {
        let (mut fd, mut cno) = (-1, DAT_HANDLE_NULL);
        // SAFETY: a live adapter, and places for the results.
        ok(unsafe { dat_cno_fd_create(fixture.ia, &raw mut fd, &raw mut cno) });
        // SAFETY: takes an integer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET).cast_unsigned(),
            u64: 9,
        };
        // SAFETY: two descriptors, and an event that is only read.
        let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        assert!(fd >= 0 && epoll >= 0 && added == 0);
        let polled = Self {
            cno: Cno(cno),
            fd,
            epoll,
        };
        assert!(!polled.edge(0));
        polled
    }

    /// Returns whether the `epoll` reports the descriptor within `millis` milliseconds.
    fn edge(&self, millis: i32) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let found = unsafe { libc::epoll_wait(self.epoll, &raw mut event, 1, millis) };
        assert!(found >= 0);
        found == 1
    }

    /// Returns whether `poll` finds the descriptor readable now.
    fn is_readable(&self) -> bool {
        let mut fd = libc::pollfd {
            fd: self.fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor.
        let found = unsafe { libc::poll(&raw mut fd, 1, 0) };
        assert!(found == 0 || fd.revents == libc::POLLIN, "{fd:?}");
        found == 1
    }

    /// Requires that the descriptor has become readable.
    #[track_caller]
    fn triggers(&self) {
        assert!(self.edge(10_000) && self.is_readable());
    }

    /// Requires that the descriptor is not readable, and has not become so.
    #[track_caller]
    fn is_quiet(&self) {
        assert!(!self.is_readable() && !self.edge(0));
    }

    fn arm(&self) {
        // SAFETY: the call validates its handle.
        ok(unsafe { dat_cno_fd_arm(self.cno.0) });
    }

    /// Calls `dat_cno_trigger`.
    fn take(&self) -> Result<Evd, DAT_RETURN> {
        let mut evd = std::ptr::without_provenance_mut(77);
        // SAFETY: the place is writable.
        match unsafe { dat_cno_trigger(self.cno.0, &raw mut evd) } {
            DAT_SUCCESS => Ok(Evd(evd)),
            answer => {
                assert!(
                    evd.is_null() || evd.addr() == 77,
                    "an EVD with the error {answer:#x}"
                );
                Err(answer)
            }
        }
    }

    /// Takes triggers until it gets this EVD.
    #[track_caller]
    fn until_taken(&self, evd: Evd) {
        loop {
            self.triggers();
            match self.take() {
                Ok(taken) => return assert_eq!(taken, evd),
                Err(answer) => fails(answer, DAT_QUEUE_EMPTY),
            }
        }
    }

    #[track_caller]
    fn takes_nothing(&self) {
        fails(self.take().expect_err("no trigger"), DAT_QUEUE_EMPTY);
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // SAFETY: a descriptor of this struct.
        unsafe { libc::close(self.epoll) };
    }
}

/// Software events: by `dat_cno_trigger`, by an explicit arm, and by `dat_cno_wait` without time.
#[test]
fn cno_n22_a_posted_event_makes_the_descriptor_readable_until_it_is_armed() {
    for is_strict in [false, true] {
        let fixture = Fixture::with_strict(is_strict);
        let polled = Polled::new(&fixture);
        polled.takes_nothing();
        polled.is_quiet();
        let evd = polled.cno.software(&fixture, 4);
        // A new EVD is to be looked at.
        polled.triggers();
        polled.takes_nothing();
        polled.is_quiet();
        let arms: [fn(&Polled, Evd); 3] = [
            |polled, evd| assert_eq!(polled.take(), Ok(evd)),
            |polled, _| polled.arm(),
            |polled, evd| assert_eq!(polled.cno.wait(0).map(Evd), Ok(evd)),
        ];
        for arm in arms.iter().cycle().take(7) {
            evd.post(1);
            polled.triggers();
            assert_eq!(evd.drain(), [1]);
            assert!(polled.is_readable(), "a dequeue does not arm");
            evd.post(2);
            arm(&polled, evd);
            polled.is_quiet();
            // What came before the arm is there, and what comes after it triggers.
            assert_eq!(evd.drain(), [2]);
        }
        evd.post(3);
        polled.triggers();
        assert_eq!(polled.cno.wait(0).map(Evd), Ok(evd), "and for waiters");
    }
}

/// Programs that take one trigger, or one event, at a time.
#[test]
fn cno_n22_the_descriptor_stays_readable_while_triggers_are_left() {
    let fixture = Fixture::strict();
    let polled = Polled::new(&fixture);
    let evds = [(); 3].map(|()| polled.cno.software(&fixture, 4));
    polled.arm();
    evds.iter().for_each(|evd| evd.post(1));
    for evd in evds {
        polled.triggers();
        assert_eq!(polled.take(), Ok(evd));
        assert_eq!(evd.drain(), [1]);
    }
    polled.is_quiet();
    drop((polled, fixture));

    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    let evd = polled.cno.software(&fixture, 8);
    polled.arm();
    (0..5).for_each(|number| evd.post(number));
    for number in 0..5 {
        polled.triggers();
        assert_eq!(polled.take(), Ok(evd));
        assert_eq!(evd.take_number(), number);
    }
    polled.is_quiet();
}

#[test]
fn cno_n22_a_completion_makes_the_descriptor_readable() {
    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    let messages = MessagePair::new(&fixture, &Shape::default());
    polled.cno.bind(messages.recv().0);
    messages.post_recvs(0..8);
    let take: [fn(&Polled, Evd); 2] = [
        |polled, evd| assert_eq!(polled.take(), Ok(evd)),
        |polled, _| polled.arm(),
    ];
    for tag in 0..8 {
        // The first arm looks at what was there.
        while polled.edge(0) || polled.is_readable() {
            polled.arm();
        }
        messages.deliver();
        polled.triggers();
        take[tag as usize % 2](&polled, messages.recv());
        assert_eq!(messages.received_tag(), tag);
    }
}

/// Connection requests and events, as they arrive on threads of the library.
#[test]
fn cno_n22_connection_events_make_the_descriptor_readable() {
    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    let end = End::new(&fixture, &Shape::default());
    let point = ServicePoint::new(&fixture);
    for evd in [point.requests, end.connect] {
        polled.cno.bind(evd);
    }
    polled.arm();
    ok(point.connect(end.ep, &[]));
    polled.until_taken(Evd(point.requests));
    // SAFETY: the call validates its handles.
    ok(unsafe { dat_cr_reject(point.take_request()) });
    polled.until_taken(Evd(end.connect));
    let event = take(end.connect, "the rejection");
    assert_eq!(event.event_number, DAT_CONNECTION_EVENT_PEER_REJECTED);
}

/// An EVD that is enabled, bound or unbound, or that a thread has waited on, while the descriptor is
/// armed.
#[test]
fn cno_n22_events_of_an_evd_that_changes_are_not_lost() {
    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    messages.post_recvs(0..4);
    let unbind = || {
        // SAFETY: the call validates its handles.
        ok(unsafe { dat_evd_modify_cno(recv.0, DAT_HANDLE_NULL) });
    };
    // Bound with an event.
    polled.arm();
    messages.deliver();
    polled.is_quiet();
    polled.cno.bind(recv.0);
    polled.triggers();
    assert_eq!(polled.take(), Ok(recv));
    assert_eq!(messages.received_tag(), 0);
    // Disabled, and enabled with an event.
    recv.calls(dat_evd_disable);
    polled.arm();
    messages.deliver();
    polled.takes_nothing();
    polled.is_quiet();
    recv.calls(dat_evd_enable);
    polled.triggers();
    assert_eq!(polled.take(), Ok(recv));
    assert_eq!(messages.received_tag(), 1);
    // Waited on meanwhile.
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        polled.arm();
        polled.is_quiet();
        messages.deliver();
        assert_eq!(joined(waiter).tag().0, 2);
    });
    polled.triggers();
    polled.takes_nothing();
    messages.deliver();
    polled.triggers();
    assert_eq!(polled.take(), Ok(recv));
    assert_eq!(messages.received_tag(), 3);
    // Unbound.
    polled.arm();
    unbind();
    messages.post_recvs(4..5);
    messages.deliver();
    polled.takes_nothing();
    polled.is_quiet();
    assert_eq!(messages.received_tag(), 4);
}

/// The last EVD is freed, and another is bound.
#[test]
fn cno_n22_the_descriptor_is_released_with_the_last_evd() {
    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    for _ in 0..2 {
        let evd = polled.cno.software(&fixture, 4);
        polled.arm();
        polled.is_quiet();
        evd.free();
        polled.triggers();
        assert_eq!(polled.take(), Ok(Evd(DAT_HANDLE_NULL)));
        polled.is_quiet();
    }
    let evd = polled.cno.software(&fixture, 4);
    evd.post(1);
    polled.triggers();
    assert_eq!(polled.take(), Ok(evd));
    evd.free();
    ok(polled.cno.free());
    let answer = polled.take().expect_err("freed");
    fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    // A program's set loses a descriptor that is closed.
    assert!(!polled.edge(0));
}

/// A thread that sleeps in `dat_cno_wait` gets the trigger, too.
#[test]
fn cno_n22_a_trigger_reaches_the_descriptor_a_waiter_and_the_agent() {
    static CALLED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    extern "C-unwind" fn agent(_: DAT_PVOID, _: DAT_EVD_HANDLE) {
        CALLED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
    let fixture = Fixture::strict();
    let polled = Polled::new(&fixture);
    let evd = polled.cno.software(&fixture, 4);
    ok(polled.cno.set_agent(DAT_OS_WAIT_PROXY_AGENT {
        instance_data: std::ptr::null_mut(),
        proxy_agent_func: Some(agent),
    }));
    thread::scope(|scope| {
        let waiter = polled.cno.asleep(scope);
        polled.arm();
        polled.is_quiet();
        evd.post(1);
        polled.triggers();
        assert_eq!(polled.take(), Ok(evd));
        assert_eq!(joined(waiter), Ok(evd));
    });
    while CALLED.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    ok(polled.cno.set_agent(NO_AGENT));
}

/// Two threads post, one polls; each event is taken once.
#[test]
fn cno_n22_no_event_is_lost_among_threads() {
    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    let evds = [(); 2].map(|()| polled.cno.software(&fixture, 64));
    const EACH: usize = 3_000;
    thread::scope(|scope| {
        for evd in evds {
            scope.spawn(move || {
                for number in 0..EACH {
                    while evd.try_post(number) != DAT_SUCCESS {
                        thread::yield_now();
                    }
                    if number % 97 == 0 {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        }
        let mut taken = [0; 2];
        while taken != [EACH; 2] {
            assert!(polled.edge(10_000));
            polled.arm();
            for (evd, taken) in evds.iter().zip(&mut taken) {
                for number in evd.drain() {
                    assert_eq!(number, *taken);
                    *taken += 1;
                }
            }
        }
    });
}

#[test]
fn cno_n22_bad_calls_are_refused() {
    let fixture = Fixture::new();
    let polled = Polled::new(&fixture);
    let plain = Cno::new(&fixture);
    let mut evd = DAT_HANDLE_NULL;
    // SAFETY: the calls validate their handles and pointers.
    unsafe {
        fails(dat_cno_trigger(plain.0, &raw mut evd), DAT_INVALID_STATE);
        fails(dat_cno_fd_arm(plain.0), DAT_INVALID_STATE);
        for bad in [DAT_HANDLE_NULL, fixture.ia] {
            let answer = dat_cno_trigger(bad, &raw mut evd);
            fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
            fails_with(
                dat_cno_fd_arm(bad),
                DAT_INVALID_HANDLE,
                DAT_INVALID_HANDLE_CNO,
            );
        }
        let null = std::ptr::null_mut();
        let answer = dat_cno_trigger(polled.cno.0, null);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let (mut fd, mut cno) = (-1, DAT_HANDLE_NULL);
        let answer = dat_cno_fd_create(fixture.ia, std::ptr::null_mut(), &raw mut cno);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let answer = dat_cno_fd_create(fixture.ia, &raw mut fd, null);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
        let answer = dat_cno_fd_create(plain.0, &raw mut fd, &raw mut cno);
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        assert!(fd == -1 && cno.is_null());
    }
}
