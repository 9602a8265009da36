//! `dat_rmr_*`: rows of the tables of the calls, and what binds promise.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    Bed, Bound, End, Memory, Pair, Shape, Window, abilities, dequeue, expect, fails, fails_with,
    nothing, nothing_on, ok, reaches, refused_access, state_of, take_bound,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const READ: DAT_MEM_PRIV_FLAGS = DAT_MEM_PRIV_REMOTE_READ_FLAG;
const WRITE: DAT_MEM_PRIV_FLAGS = DAT_MEM_PRIV_REMOTE_WRITE_FLAG;

/// Two ends: `owner` has the windows, `peer` goes through them.
struct Ends {
    peer: End,
    owner: End,
    local: Memory,
    region: Memory,
    bed: Bed,
}

impl Ends {
    fn new() -> Self {
        let bed = Bed::new();
        let pair = Pair::for_windows(&bed, &Shape::default());
        Self {
            peer: pair.active,
            owner: pair.passive,
            local: bed.memory(4096),
            region: bed.memory(4096),
            bed,
        }
    }

    fn window(&self) -> Window {
        Window::new(self.bed.pz)
    }

    /// The owner's completion of a bind, which must go well.
    #[track_caller]
    fn bound(&self, window: &Window, tag: u64) {
        self.bed.run();
        let (rmr, status) = (window.rmr, DAT_DTO_SUCCESS);
        let expected = Bound {
            rmr,
            cookie: tag,
            status,
        };
        assert_eq!(take_bound(self.owner.request), expected);
    }

    /// Binds a piece of the region, and waits.
    #[track_caller]
    fn bind(&self, window: &Window, at: usize, len: usize, rights: u32) -> DAT_RMR_TRIPLET {
        let segment = self.region.segment(at, len);
        let remote = window.bind(self.owner.ep, &segment, rights, 11);
        self.bound(window, 11);
        remote
    }

    /// The status of a write of the peer of so many bytes as the target has.
    #[track_caller]
    fn write(&self, remote: &DAT_RMR_TRIPLET) -> DAT_DTO_COMPLETION_STATUS {
        let iov = [self.local.segment(0, remote.segment_length as usize)];
        ok(self.peer.post_write(&iov, remote, 5, DEFAULT));
        self.bed.run();
        self.peer.requested().status
    }

    /// The same of a read.
    #[track_caller]
    fn read(&self, remote: &DAT_RMR_TRIPLET) -> DAT_DTO_COMPLETION_STATUS {
        let iov = [self.local.segment(2048, remote.segment_length as usize)];
        ok(self.peer.post_read(&iov, remote, 6, DEFAULT));
        self.bed.run();
        self.peer.requested().status
    }
}

/// A piece of a target.
fn part(of: &DAT_RMR_TRIPLET, offset: i64, len: u64) -> DAT_RMR_TRIPLET {
    DAT_RMR_TRIPLET {
        target_address: of.target_address.wrapping_add_signed(offset),
        segment_length: len,
        ..*of
    }
}

#[test]
fn rmr_bind_opens_what_it_says() {
    let mut ends = Ends::new();
    let window = ends.window();
    ends.local.write(0, &[7; 64]);
    let all = ends.bind(&window, 128, 64, READ | WRITE);
    assert_eq!(ends.write(&all), DAT_DTO_SUCCESS);
    assert_eq!(ends.region.read(128, 64), [7; 64]);
    assert_eq!(ends.read(&part(&all, 60, 4)), DAT_DTO_SUCCESS);
    assert_eq!(ends.local.read(2048, 4), [7; 4]);
}

#[test]
fn rmr_bind_opens_nothing_beside_what_it_says() {
    let open: [fn(&Ends, &DAT_RMR_TRIPLET) -> u32; 5] = [
        |ends, all| ends.write(&part(all, -1, 1)),
        |ends, all| ends.write(&part(all, 64, 1)),
        |ends, all| ends.write(&part(all, 1, 64)),
        |ends, all| ends.read(&part(all, -1, 64)),
        |ends, all| ends.read(&part(all, 63, 2)),
    ];
    for outside in open {
        let mut ends = Ends::new();
        let window = ends.window();
        ends.local.write(0, &[7; 64]);
        let all = ends.bind(&window, 128, 64, READ | WRITE);
        refused_access(outside(&ends, &all));
        assert_eq!(ends.region.read(127, 1), [0]);
        assert_eq!(ends.region.read(192, 1), [0]);
        expect(ends.peer.connect, DAT_CONNECTION_EVENT_BROKEN);
    }
}

#[test]
fn rmr_bind_gives_the_rights_it_says_and_no_others() {
    for (rights, reads, writes) in [
        (READ, true, false),
        (WRITE, false, true),
        (READ | WRITE, true, true),
        (DAT_MEM_PRIV_NONE_FLAG, false, false),
        // Those of this side mean nothing here.
        (DAT_MEM_PRIV_ALL_FLAG, true, true),
    ] {
        for (is_read, may) in [(true, reads), (false, writes)] {
            let ends = Ends::new();
            let window = ends.window();
            let all = ends.bind(&window, 0, 32, rights);
            let status = if is_read {
                ends.read(&all)
            } else {
                ends.write(&all)
            };
            if may {
                assert_eq!(status, DAT_DTO_SUCCESS, "{rights:#x} read {is_read}");
            } else {
                refused_access(status);
            }
        }
    }
}

/// A bind of what is bound moves it: the context is another, and the one before
/// is good no more once the bind is done.
#[test]
fn rmr_bind_each_has_a_context_of_its_own_and_ends_the_one_before() {
    let ends = Ends::new();
    let window = ends.window();
    let mut before: Option<DAT_RMR_TRIPLET> = None;
    for round in 0..20 {
        let remote = ends.bind(&window, round * 64, 64, READ | WRITE);
        if let Some(before) = before.replace(remote) {
            assert_ne!(before.rmr_context, remote.rmr_context);
        }
        assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
        assert_eq!(window.info().rmr_context, remote.rmr_context);
    }
    let old = before.expect("bound");
    ends.bind(&window, 0, 4096, READ | WRITE);
    refused_access(ends.write(&old));
}

#[test]
fn rmr_bind_of_length_0_unbinds() {
    let ends = Ends::new();
    let window = ends.window();
    // Also what is not bound.
    window.unbind(ends.owner.ep, 1);
    ends.bound(&window, 1);
    let remote = ends.bind(&window, 0, 64, READ | WRITE);
    assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
    window.unbind(ends.owner.ep, 2);
    ends.bound(&window, 2);
    assert_eq!(window.info().lmr_triplet.segment_length, 0);
    window.unbind(ends.owner.ep, 3);
    ends.bound(&window, 3);
    refused_access(ends.write(&remote));
    // The context is not wanted then, and may have nowhere to go.
    // SAFETY: a live handle; the segment is ours.
    let answer = unsafe {
        dat_rmr_bind(
            window.rmr,
            &nothing(),
            0,
            ends.owner.ep,
            crate::support::cookie(4),
            DEFAULT,
            ptr::null_mut(),
        )
    };
    // The connection is broken: it is flushed.
    ok(answer);
    ends.bed.run();
    assert_eq!(take_bound(ends.owner.request).status, DAT_DTO_ERR_FLUSHED);
}

/// 3.4 row 7: what is posted behind a bind starts when it is done.
#[test]
fn rmr_bind_is_a_fence_for_what_is_posted_behind_it() {
    let ends = Ends::new();
    let (first, second) = (ends.window(), ends.window());
    for round in 0..10 {
        ok(ends.peer.post_recv(&[ends.local.segment(0, 64)], round));
        let segment = ends.region.segment(64, 64);
        let one = first.bind(ends.owner.ep, &segment, WRITE, 1);
        let two = second.bind(ends.owner.ep, &segment, READ, 2);
        ok(ends
            .owner
            .post_send(&[ends.region.segment(0, 8)], 3, DEFAULT));
        ends.bed.run();
        // The message says that both are there.
        assert_eq!(ends.peer.received().status, DAT_DTO_SUCCESS);
        assert_eq!(ends.write(&one), DAT_DTO_SUCCESS);
        assert_eq!(ends.read(&two), DAT_DTO_SUCCESS);
        // And they completed in order.
        ends.bound(&first, 1);
        ends.bound(&second, 2);
        assert_eq!(ends.owner.requested().cookie, 3);
    }
}

/// 3.1, 3.7: the event, and which flags there are for it.
#[test]
fn rmr_bind_completes_as_its_flags_say() {
    let ends = Ends::new();
    let window = ends.window();
    let segment = ends.region.segment(0, 64);
    let bind = |flags| window.try_bind(ends.owner.ep, &segment, READ, 21, flags).0;
    for flag in [
        DAT_COMPLETION_UNSIGNALLED_FLAG,
        DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        0x20,
    ] {
        fails(bind(flag), DAT_INVALID_PARAMETER);
        fails(
            bind(flag | DAT_COMPLETION_SUPPRESS_FLAG),
            DAT_INVALID_PARAMETER,
        );
    }
    ok(bind(DAT_COMPLETION_BARRIER_FENCE_FLAG));
    ends.bound(&window, 21);
    // More than the queue holds, had they to be looked at one by one.
    for _ in 0..100 {
        ok(bind(DAT_COMPLETION_SUPPRESS_FLAG));
        ends.bed.run();
    }
    nothing_on(ends.owner.request);
    ok(bind(DEFAULT));
    ends.bound(&window, 21);
}

/// 3.7 UNSIGNALLED, where the endpoint has it: the event is there, and does not
/// notify.
#[test]
fn rmr_bind_unsignalled_where_the_endpoint_is() {
    let bed = Bed::new();
    let shape = Shape {
        request_flags: DAT_COMPLETION_UNSIGNALLED_FLAG,
        ..Shape::default()
    };
    let pair = Pair::for_windows(&bed, &shape);
    let (memory, window) = (bed.memory(64), Window::new(bed.pz));
    let segment = memory.segment(0, 64);
    let bind = |tag, flags| {
        ok(window
            .try_bind(pair.active.ep, &segment, READ, tag, flags)
            .0);
        bed.run();
    };
    std::thread::scope(|scope| {
        let evd = pair.active;
        let waiter = scope.spawn(move || {
            let evd = evd;
            let (answer, event, nmore) = crate::support::wait(evd.request, 20_000_000, 1);
            ok(answer);
            assert_eq!(event.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
            // SAFETY: the number tells which member holds; any bytes are 64 bits.
            let tag = unsafe {
                let data = event.event_data.rmr_completion_event_data;
                data.user_cookie.as_64
            };
            (tag, nmore)
        });
        let moment = std::time::Duration::from_millis(60);
        std::thread::sleep(moment);
        bind(1, DAT_COMPLETION_UNSIGNALLED_FLAG);
        std::thread::sleep(moment);
        assert!(!waiter.is_finished(), "woken by what was not signalled");
        bind(2, DEFAULT);
        assert_eq!(waiter.join().expect("no panic"), (1, 1));
    });
    assert_eq!(take_bound(pair.active.request).cookie, 2);
}

/// The table of failures of `dat_rmr_bind`, row by row.
#[test]
fn rmr_bind_row_by_row() {
    let ends = Ends::new();
    let mut window = ends.window();
    let ep = ends.owner.ep;
    let good = ends.region.segment(0, 64);
    let other_zone = ends.bed.pz();
    let foreign = ends.bed.memory_in(other_zone, 64, DAT_MEM_PRIV_ALL_FLAG);
    let foreign_window = Window::new(other_zone);
    let only = |rights| ends.bed.memory_in(ends.bed.pz, 64, rights);
    let (unreadable, unwritable) = (
        only(DAT_MEM_PRIV_LOCAL_WRITE_FLAG),
        only(DAT_MEM_PRIV_LOCAL_READ_FLAG),
    );
    let mut freed = ends.bed.memory(64);
    let stale = freed.segment(0, 8);
    ok(freed.free());
    let bind =
        |segment: &DAT_LMR_TRIPLET, rights| window.try_bind(ep, segment, rights, 1, DEFAULT).0;
    let row = |what: &str, answer: DAT_RETURN, kind, subtype| {
        println!("{what}");
        fails_with(answer, kind, subtype);
    };
    let (ip, none) = (DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);
    for bad in [ptr::null_mut(), ends.bed.pz, ep, ends.region.lmr] {
        // SAFETY: any handles may be given.
        let answer = unsafe {
            let mut context = 0;
            let cookie = crate::support::cookie(1);
            dat_rmr_bind(
                bad,
                &raw const good,
                READ,
                ep,
                cookie,
                DEFAULT,
                &raw mut context,
            )
        };
        row(
            "bad RMR",
            answer,
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_RMR,
        );
    }
    for bad in [ptr::null_mut(), ends.bed.pz, window.rmr, ends.owner.recv] {
        let answer = window.try_bind(bad, &good, READ, 1, DEFAULT).0;
        row("bad EP", answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    }
    for context in [0, u32::MAX, !good.lmr_context] {
        let unknown = DAT_LMR_TRIPLET {
            lmr_context: context,
            ..good
        };
        row(
            "unknown LMR context",
            bind(&unknown, READ),
            ip,
            DAT_INVALID_ARG2,
        );
    }
    row("freed LMR", bind(&stale, READ), ip, DAT_INVALID_ARG2);
    for (offset, length) in [(-1, 8), (0, 4097), (4095, 2), (4096, 1), (8, u64::MAX)] {
        let outside = DAT_LMR_TRIPLET {
            virtual_address: good.virtual_address.wrapping_add_signed(offset),
            segment_length: length,
            ..good
        };
        row(
            "range outside the LMR",
            bind(&outside, READ),
            ip,
            DAT_INVALID_ARG2,
        );
    }
    let protection = DAT_PROTECTION_VIOLATION;
    let answer = bind(&foreign.segment(0, 8), READ);
    row("PZ of the LMR differs", answer, protection, none);
    let answer = foreign_window
        .try_bind(ep, &foreign.segment(0, 8), READ, 1, DEFAULT)
        .0;
    row("PZ of the EP differs", answer, protection, none);
    let answer = foreign_window.try_bind(ep, &good, READ, 1, DEFAULT).0;
    row("PZ of the RMR differs", answer, protection, none);
    let answer = foreign_window.try_bind(ep, &nothing(), 0, 1, DEFAULT).0;
    row("PZ differs, unbind", answer, protection, none);
    let privileges = DAT_PRIVILEGES_VIOLATION;
    let answer = bind(&unreadable.segment(0, 8), READ);
    row("remote read without local read", answer, privileges, none);
    let answer = bind(&unwritable.segment(0, 8), WRITE);
    row("remote write without local write", answer, privileges, none);
    let answer = bind(&unwritable.segment(0, 8), READ | WRITE);
    row("remote write without local write", answer, privileges, none);
    row("no such privilege", bind(&good, 0x40), ip, DAT_INVALID_ARG3);
    // SAFETY: live handles; null is what is tried.
    unsafe {
        let mut context = 0;
        let cookie = crate::support::cookie(1);
        let answer = dat_rmr_bind(
            window.rmr,
            ptr::null(),
            READ,
            ep,
            cookie,
            DEFAULT,
            &raw mut context,
        );
        row("no segment", answer, ip, DAT_INVALID_ARG2);
        let answer = dat_rmr_bind(
            window.rmr,
            &raw const good,
            READ,
            ep,
            cookie,
            DEFAULT,
            ptr::null_mut(),
        );
        row("no context", answer, ip, DAT_INVALID_ARG7);
    }
    // What may be bound though it has but one privilege; and nothing that was
    // refused has had an effect.
    ok(bind(&unreadable.segment(0, 8), WRITE));
    ends.bound(&window, 1);
    ok(bind(&unwritable.segment(0, 8), READ));
    ends.bound(&window, 1);
    nothing_on(ends.owner.request);
    assert_eq!(state_of(ep), DAT_EP_STATE_CONNECTED);
    ok(window.free());
}

/// The row "queue full", and that a bind takes a place as any request does.
#[test]
fn rmr_bind_takes_a_place_in_the_request_queue() {
    let ends = Ends::new();
    let window = ends.window();
    let segment = ends.region.segment(0, 64);
    let most = Shape::default().requests;
    let all = (0..most).take_while(|_| {
        let answer = window.try_bind(ends.owner.ep, &segment, READ, 9, DEFAULT).0;
        answer == DAT_SUCCESS
    });
    if ends.bed.is_stepped() {
        assert_eq!(all.count() as DAT_COUNT, most);
        let answer = window.try_bind(ends.owner.ep, &segment, READ, 9, DEFAULT).0;
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        fails(
            ends.owner.post_send(&[segment], 9, DEFAULT),
            DAT_INSUFFICIENT_RESOURCES,
        );
    } else {
        all.count();
    }
    for _ in 0..most {
        ends.bound(&window, 9);
    }
    ok(window.try_bind(ends.owner.ep, &segment, READ, 9, DEFAULT).0);
}

/// The row of the EVD: its flags name the streams that it may carry.
#[test]
fn rmr_bind_needs_a_request_evd_for_it() {
    let bed = Bed::new();
    let pair = Pair::new(&bed, &Shape::default());
    let (memory, window) = (bed.memory(64), Window::new(bed.pz));
    let segment = memory.segment(0, 64);
    let answer = window
        .try_bind(pair.active.ep, &segment, READ, 1, DEFAULT)
        .0;
    fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST);
    assert_eq!(state_of(pair.active.ep), DAT_EP_STATE_CONNECTED);
}

/// Section 4: binds are taken in the states in which requests are.
#[test]
fn rmr_bind_row_by_state() {
    let bed = Bed::new();
    let (memory, window) = (bed.memory(64), Window::new(bed.pz));
    let segment = memory.segment(0, 64);
    let bind = |end: &End| window.try_bind(end.ep, &segment, READ, 31, DEFAULT).0;
    let alone = End::for_windows(&bed, &Shape::default());
    fails_with(
        bind(&alone),
        DAT_INVALID_STATE,
        DAT_INVALID_STATE_EP_UNCONNECTED,
    );
    let pair = Pair::for_windows(&bed, &Shape::default());
    ok(bind(&pair.active));
    bed.run();
    assert_eq!(take_bound(pair.active.request).status, DAT_DTO_SUCCESS);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    expect(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    reaches(pair.active.ep, DAT_EP_STATE_DISCONNECTED);
    // Flushed at once, and bound to nothing then.
    ok(bind(&pair.active));
    bed.run();
    let flushed = take_bound(pair.active.request);
    assert_eq!((flushed.cookie, flushed.status), (31, DAT_DTO_ERR_FLUSHED));
    assert_eq!(window.info().lmr_triplet.segment_length, 0);
}

/// 3.3 row 11: the device finds that a window cannot be bound. Here it is gone
/// by then: freed between the post and its execution, which only a device that
/// is stepped lets happen for certain.
#[test]
fn rmr_bind_that_fails_breaks_the_connection() {
    let ends = Ends::new();
    if !ends.bed.is_stepped() {
        println!("skipped: the device executes a bind before its window can be freed");
        return;
    }
    let mut window = ends.window();
    let segment = ends.region.segment(0, 64);
    window.bind(ends.owner.ep, &segment, READ, 41);
    ok(ends.owner.post_send(&[segment], 42, DEFAULT));
    let rmr = window.rmr;
    ok(window.free());
    ends.bed.run();
    let failed = take_bound(ends.owner.request);
    let expected = Bound {
        rmr,
        cookie: 41,
        status: DAT_RMR_OPERATION_FAILED,
    };
    assert_eq!(failed, expected);
    assert_eq!(ends.owner.requested().status, DAT_DTO_ERR_FLUSHED);
    expect(ends.owner.connect, DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(state_of(ends.owner.ep), DAT_EP_STATE_DISCONNECTED);
}

/// A window belongs to its zone: any endpoint of it binds and unbinds.
#[test]
fn rmr_bind_goes_through_any_endpoint_of_the_zone() {
    let ends = Ends::new();
    let window = ends.window();
    let remote = ends.bind(&window, 0, 64, WRITE);
    assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
    let other = Pair::for_windows(&ends.bed, &Shape::default()).active;
    let segment = ends.region.segment(64, 64);
    let moved = window.bind(other.ep, &segment, WRITE, 3);
    ends.bed.run();
    assert_eq!(take_bound(other.request).status, DAT_DTO_SUCCESS);
    assert_eq!(ends.write(&moved), DAT_DTO_SUCCESS);
    window.unbind(other.ep, 4);
    ends.bed.run();
    assert_eq!(take_bound(other.request).cookie, 4);
    refused_access(ends.write(&moved));
}

/// `dat_lmr_free`: bound RMRs exist. `dat_pz_free`: in use by an RMR.
/// `dat_ia_close`: an RMR is an object of the consumer's.
#[test]
fn rmr_keeps_what_it_is_made_of_and_bound_to() {
    let mut ends = Ends::new();
    let mut window = ends.window();
    let in_use = DAT_INVALID_STATE_LMR_IN_USE;
    ends.bind(&window, 0, 64, READ);
    fails_with(ends.region.free(), DAT_INVALID_STATE, in_use);
    // Bound elsewhere, it lets the first go.
    let mut second = ends.bed.memory(64);
    window.bind(ends.owner.ep, &second.segment(0, 8), READ, 2);
    fails_with(second.free(), DAT_INVALID_STATE, in_use);
    if ends.bed.is_stepped() {
        // The device does not know yet.
        fails_with(ends.region.free(), DAT_INVALID_STATE, in_use);
    }
    ends.bound(&window, 2);
    ok(ends.region.free());
    window.unbind(ends.owner.ep, 3);
    if ends.bed.is_stepped() {
        fails_with(second.free(), DAT_INVALID_STATE, in_use);
        // Which has harmed nothing.
        ok(ends
            .owner
            .post_send(&[second.segment(0, 8)], 4, DAT_COMPLETION_SUPPRESS_FLAG));
        ok(ends.peer.post_recv(&[ends.local.segment(0, 8)], 4));
    }
    ends.bound(&window, 3);
    ok(second.free());

    let pz = ends.bed.pz();
    let mut alone = Window::new(pz);
    // SAFETY: a live handle.
    let free = || unsafe { dat_pz_free(pz) };
    fails_with(free(), DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
    ok(alone.free());
    ok(free());
    let answer = ends.bed.close(DAT_CLOSE_GRACEFUL_FLAG);
    fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    ok(window.free());
}

/// `dat_rmr_free`: bound or not; bound implies unbind.
#[test]
fn rmr_free_closes_what_is_bound() {
    let mut ends = Ends::new();
    let mut window = ends.window();
    let remote = ends.bind(&window, 0, 64, READ | WRITE);
    assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
    ok(window.free());
    ok(ends.region.free());
    refused_access(ends.write(&remote));
    fails_with(window.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
    ok(ends.window().free());
}

/// The rows of `dat_rmr_create`, `dat_rmr_query` and `dat_rmr_free`.
#[test]
fn rmr_create_query_free_row_by_row() {
    let mut ends = Ends::new();
    let window = ends.window();
    let (ia, pz, ep) = (ends.bed.ia, ends.bed.pz, ends.owner.ep);
    let ih = DAT_INVALID_HANDLE;
    let mut made = ptr::null_mut();
    // SAFETY: any handles and null pointers are what is tried.
    unsafe {
        for bad in [ptr::null_mut(), ia, ep, window.rmr] {
            fails_with(
                dat_rmr_create(bad, &raw mut made),
                ih,
                DAT_INVALID_HANDLE_PZ,
            );
        }
        let answer = dat_rmr_create(pz, ptr::null_mut());
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        assert!(made.is_null());
        let mut info = std::mem::zeroed();
        for bad in [ptr::null_mut(), ia, pz, ep] {
            let answer = dat_rmr_query(bad, DAT_RMR_FIELD_ALL, &raw mut info);
            fails_with(answer, ih, DAT_INVALID_HANDLE_RMR);
            fails_with(dat_rmr_free(bad), ih, DAT_INVALID_HANDLE_RMR);
        }
        let answer = dat_rmr_query(window.rmr, 0x20, &raw mut info);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let answer = dat_rmr_query(window.rmr, DAT_RMR_FIELD_ALL, ptr::null_mut());
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    }
    let info = window.info();
    assert_eq!((info.ia_handle, info.pz_handle), (ia, pz));
    assert_eq!((info.rmr_context, info.mem_priv), (0, 0));
    let remote = ends.bind(&window, 8, 16, READ);
    let info = window.info();
    let segment = ends.region.segment(8, 16);
    assert_eq!(info.rmr_context, remote.rmr_context);
    assert_eq!(info.mem_priv, READ);
    assert_eq!(
        (
            info.lmr_triplet.lmr_context,
            info.lmr_triplet.virtual_address,
            info.lmr_triplet.segment_length
        ),
        (segment.lmr_context, segment.virtual_address, 16)
    );
    // Every object has a context and a kind.
    let mut kind = 99;
    // SAFETY: a live handle; the result is writable.
    ok(unsafe { dat_get_handle_type(window.rmr, &raw mut kind) });
    assert_eq!(kind, DAT_HANDLE_TYPE_RMR);
    ok(ends.bed.close(DAT_CLOSE_ABRUPT_FLAG));
    // SAFETY: any handle may be given.
    fails_with(
        unsafe { dat_rmr_free(window.rmr) },
        ih,
        DAT_INVALID_HANDLE_RMR,
    );
}

/// Attributes of the adapter tell of windows what is so.
#[test]
fn rmr_attributes_are_true() {
    let bed = Bed::new();
    let (adapter, provider) = abilities(&bed);
    assert!(adapter.max_rmrs > 0);
    assert_eq!(adapter.max_rmr_target_address, u64::MAX);
    assert_eq!(provider.evd_stream_merging_supported[4], [DAT_TRUE; 6]);
    let many: Vec<_> = (0..adapter.max_rmrs.min(64))
        .map(|_| Window::new(bed.pz))
        .collect();
    assert!(
        many.iter()
            .all(|one| dequeue(bed.async_evd).is_err() && !one.rmr.is_null())
    );
}
