//! Calls of other threads that move completions from the device's queues into the
//! EVD, by way of its waiter: `dat_ep_recv_query`, `dat_srq_query`,
//! `dat_srq_set_lw`, `dat_ep_get_status`. Whatever they move, and whenever they
//! run relative to a message, the waiter must find the message: no other event
//! would wake it.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use super::{Evd, LONG, MessagePair, SOON};
use crate::support::{
    End, Fixture, Memory, Pair, Shape, held, nothing_on, ok, post_srq, srq, srq_info, state_of,
    take_dto,
};

/// A shared receive queue, and an endpoint on it.
struct Shared<'b> {
    messages: MessagePair<'b>,
    srq: DAT_SRQ_HANDLE,
    buffers: Memory,
}

impl<'b> Shared<'b> {
    fn new(fixture: &'b Fixture, recv_flags: DAT_COMPLETION_FLAGS) -> Self {
        let srq = srq(fixture, 16);
        let shape = Shape {
            recv_flags,
            ..Shape::default()
        };
        let pair = Pair::connect(
            fixture,
            End::new(fixture, &Shape::default()),
            End::on_srq(fixture, &shape, srq),
        );
        Self {
            messages: MessagePair::of(fixture, pair),
            srq,
            buffers: fixture.memory(4096),
        }
    }

    #[track_caller]
    fn post(&self, tag: u64) {
        ok(post_srq(self.srq, &[self.buffers.segment(0, 64)], tag));
    }

    /// Makes one of the calls. The watermark that it sets is never reached.
    #[track_caller]
    fn ask(&self, which: usize) {
        let ep = self.messages.pair.passive.ep;
        match which % 4 {
            0 => assert!(held(ep).0 >= 0),
            1 => assert_eq!(srq_info(self.srq).ia_handle, self.messages.fixture.ia),
            // SAFETY: a live queue.
            2 => ok(unsafe { dat_srq_set_lw(self.srq, 1) }),
            _ => assert_eq!(state_of(ep), DAT_EP_STATE_CONNECTED),
        }
    }
}

/// Pins the calling thread to one processor until dropped.
struct OneCpu(libc::cpu_set_t);

impl OneCpu {
    fn new() -> Self {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: zero is the empty set; sets are written before they are read.
        unsafe {
            let mut all: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size, &raw mut all), 0);
            let first = (0..libc::CPU_SETSIZE as usize)
                .find(|&cpu| libc::CPU_ISSET(cpu, &all))
                .expect("one is allowed");
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(first, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size, &raw const one), 0);
            Self(all)
        }
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: a set that was read.
        unsafe { libc::sched_setaffinity(0, size, &raw const self.0) };
    }
}

/// Gives the calling thread a scheduling policy by which it does not preempt
/// other threads when it wakes.
fn modest() {
    // SAFETY: zero is valid; the parameters are live.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters);
    }
}

/// Sends messages, one at a time, to a waiter. Another thread makes the calls
/// when `ask` says so. The waiter must get each message.
fn every_message_wakes(
    shared: &Shared<'_>,
    rounds: u64,
    flags: DAT_COMPLETION_FLAGS,
    deliver: impl Fn(u64),
) {
    let recv = shared.messages.recv();
    for tag in 0..4 {
        shared.post(tag);
    }
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            modest();
            for _ in 0..rounds {
                let waited = recv.wait(LONG, 1);
                let late = waited.took >= SOON;
                sender.send(waited).expect("the receiver is alive");
                if late {
                    return;
                }
            }
        });
        for round in 0..rounds {
            shared.post(round + 4);
            let begin = Instant::now();
            while !recv.is_waited() {
                assert!(begin.elapsed() < SOON);
                thread::yield_now();
            }
            if round % 3 == 0 {
                // The waiter usually sleeps by then.
                thread::sleep(Duration::from_millis(1));
            }
            ok(shared.messages.pair.active.post_send(
                &[shared.messages.memory.segment(0, 8)],
                round,
                flags,
            ));
            deliver(round);
            let waited = receiver.recv_timeout(SOON).unwrap_or_else(|_| {
                panic!("message {round}: the waiter sleeps although the message has arrived")
            });
            assert_eq!(waited.soon().tag(), (round, 0));
            assert_eq!(take_dto(shared.messages.request().0).cookie, round);
        }
    });
    nothing_on(recv.0);
    nothing_on(shared.messages.fixture.async_evd);
}

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// All threads run on one processor, which the waiter gets only while the other
/// thread sleeps: it finds the message and the command together.
#[test]
fn evd_wait_w10_a_message_and_a_query_at_once_wake_the_waiter() {
    let fixture = Fixture::new();
    for flags in [DEFAULT, DAT_COMPLETION_EVD_THRESHOLD_FLAG] {
        let shared = Shared::new(&fixture, flags);
        let _one = OneCpu::new();
        every_message_wakes(&shared, 240, DEFAULT, |round| {
            fixture.run();
            shared.ask(round as usize);
        });
    }
}

/// With any scheduling, before, between and after all steps of the device.
#[test]
fn evd_wait_w10_queries_around_a_message_lose_no_wake_up() {
    let fixture = Fixture::new();
    let shared = Shared::new(&fixture, DEFAULT);
    every_message_wakes(&shared, 400, DEFAULT, |round| {
        let which = (round / 4) as usize;
        match round % 4 {
            0 => {
                shared.ask(which);
                fixture.run();
            }
            1 => {
                fixture.run();
                shared.ask(which);
            }
            2 => {
                fixture.run();
                (0..4).for_each(|which| shared.ask(which));
            }
            _ => fixture.meanwhile(|| shared.ask(which)),
        }
    });
}

/// If only solicited receives notify, a solicited receive that a query has moved
/// still does.
#[test]
fn evd_wait_w21_a_solicited_message_and_a_query_at_once_wake_the_waiter() {
    let fixture = Fixture::new();
    let flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
    let shared = Shared::new(&fixture, flags);
    let _one = OneCpu::new();
    every_message_wakes(&shared, 120, flags, |round| {
        fixture.run();
        shared.ask(round as usize);
    });
}

/// The wait is for several messages; a query follows each.
#[test]
fn evd_wait_w10_queries_between_messages_lose_none_of_the_threshold() {
    let fixture = Fixture::new();
    let shared = Shared::new(&fixture, DEFAULT);
    let recv = shared.messages.recv();
    let mut next = 0;
    for round in 0..100 {
        for tag in next..next + 3 {
            shared.post(tag);
        }
        thread::scope(|scope| {
            let waiter = recv.in_thread(scope, LONG, 3);
            for which in 0..3 {
                shared.ask(round + which);
                shared.messages.deliver();
                shared.ask(round + which + 1);
            }
            let waited = super::joined(waiter).soon();
            assert_eq!(waited.tag(), (next, 2));
        });
        assert_eq!(take_dto(recv.0).cookie, next + 1);
        assert_eq!(take_dto(recv.0).cookie, next + 2);
        next += 3;
    }
}

/// A waiter that gathers events takes them from the device's queue and keeps them.
/// A receive counts for the endpoint all the while.
#[test]
fn evd_wait_w10_receives_that_a_waiter_gathers_are_held_meanwhile() {
    const AT_ONCE: DAT_COUNT = 8;
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let (recv, ep) = (messages.recv(), messages.pair.passive.ep);
    for round in 0..100 {
        let first = round * AT_ONCE as u64;
        messages.post_recvs(first..first + AT_ONCE as u64);
        thread::scope(|scope| {
            let waiter = recv.in_thread(scope, LONG, AT_ONCE);
            recv.until_waited();
            for _ in 1..AT_ONCE {
                messages.deliver();
                for _ in 0..20 {
                    assert_eq!(held(ep), (AT_ONCE, AT_ONCE), "no event was handed out");
                }
            }
            messages.deliver();
            let waited = super::joined(waiter).soon();
            assert_eq!(waited.tag(), (first, AT_ONCE - 1));
        });
        for left in (1..AT_ONCE).rev() {
            assert_eq!(held(ep).0, left);
            take_dto(recv.0);
        }
    }
}

/// Without a waiter, the query itself moves the completions. They come out in
/// order with later ones.
#[test]
fn evd_wait_w15_what_a_query_has_moved_stays_in_order() {
    let fixture = Fixture::new();
    let shared = Shared::new(&fixture, DEFAULT);
    let recv = shared.messages.recv();
    let mut next = 0;
    for round in 0..40_usize {
        for tag in next..next + 4 {
            shared.post(tag);
        }
        for message in 0..4 {
            shared.messages.deliver();
            if (round >> message) & 1 == 1 {
                shared.ask(round + message);
            }
        }
        for left in (0..4).rev() {
            let tag = if (round + left) % 2 == 0 {
                let (tag, nmore) = recv.wait(0, 1).tag();
                assert_eq!(nmore, left as DAT_COUNT);
                tag
            } else {
                take_dto(recv.0).cookie
            };
            assert_eq!(tag, next);
            next += 1;
        }
        nothing_on(recv.0);
    }
}

/// The same for a waiter on an EVD that several endpoints share.
#[test]
fn evd_wait_w10_a_state_query_of_any_endpoint_on_the_evd_loses_no_wake_up() {
    let fixture = Fixture::new();
    let shape = Shape::default();
    let messages = MessagePair::new(&fixture, &shape);
    let mut bystander = End::without_ep(&fixture, &shape);
    bystander.recv = messages.pair.passive.recv;
    let attributes = shape.attributes();
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            bystander.recv,
            bystander.request,
            bystander.connect,
            &raw const attributes,
            &raw mut bystander.ep,
        )
    });
    let recv = Evd(bystander.recv);
    let _one = OneCpu::new();
    for tag in 0..150 {
        messages.post_recvs(tag..tag + 1);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                modest();
                recv.wait(LONG, 1)
            });
            recv.until_waited();
            messages.deliver();
            let ep = [bystander.ep, messages.pair.passive.ep][tag as usize % 2];
            assert_ne!(state_of(ep), DAT_EP_STATE_DISCONNECTED);
            assert_eq!(super::joined(waiter).soon().tag(), (tag, 0));
        });
    }
}
