//! Many connections at a time, made and ended by several threads, and peers that
//! are killed in between. Afterwards no object, descriptor or thread is left.
//!
//! `DAT_STORM=ENDPOINTS:ROUNDS` sets the number of endpoints, and how often all is done, for the
//! soak test. Without it the emulated device gets a thousand endpoints, once.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use crate::support::device::installed::given;
use crate::support::{
    End, Fixture, Held, ServicePoint, Shape, accept, broken_by_the_peer, cr_info, dequeue, dto,
    is_alone, ok, state_of, wait,
};

const THREADS: usize = 4;
/// Number of endpoints, unless `DAT_STORM` is set.
const ENDPOINTS: usize = 1000;
/// The number on a device that works on its own, which may be ten times slower.
const FEWER: usize = 240;
/// Makes a process the one to be killed; holds qualifier and number of endpoints.
const VICTIM: &str = "DAT_STORM_VICTIM";

const LONG: DAT_TIMEOUT = 30_000_000;

/// Returns the number of endpoints and of rounds.
fn size() -> (usize, usize) {
    match std::env::var("DAT_STORM") {
        Ok(text) => text
            .split_once(':')
            .and_then(|(endpoints, rounds)| Some((endpoints.parse().ok()?, rounds.parse().ok()?)))
            .unwrap_or_else(|| {
                panic!("invalid DAT_STORM={text}: expected ENDPOINTS:ROUNDS, such as 4000:5")
            }),
        Err(_) if given().is_some() => (FEWER, 1),
        Err(_) => (ENDPOINTS, 1),
    }
}

/// Small attributes, so that any device has room for a thousand endpoints.
fn shape(evd_qlen: usize) -> Shape {
    Shape {
        recvs: 2,
        requests: 2,
        iov: 1,
        evd_qlen: evd_qlen as DAT_COUNT,
        ..Shape::default()
    }
}

/// Raises the limit of descriptors as far as allowed.
fn raise_limit() {
    // SAFETY: an integer structure, written and read by the calls.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Runs `round` as often as asked for, each time with an adapter of its own. After each round the
/// process holds as many descriptors and threads as before the first, and after the last one about
/// as much memory as after a quarter of them.
fn in_rounds(round: impl Fn(&Fixture, usize)) {
    let mut before = before();
    let (endpoints, rounds) = size();
    for number in 0..rounds {
        let mut fixture = Fixture::new();
        round(&fixture, endpoints);
        // SAFETY: a live zone that is not in use.
        ok(unsafe { dat_pz_free(fixture.pz) });
        // Fails if an object is left.
        ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
        drop(fixture);
        if number <= rounds / 4 {
            // By then everything has been used.
            before.kibibytes = Held::now().kibibytes;
        }
        let since = Instant::now();
        // Threads end asynchronously.
        while !Held::now().is_flat_since(&before) && since.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(5));
        }
        let held = Held::now();
        println!("round {number}: {held:?}");
        assert!(held.is_flat_since(&before), "{held:?} of {before:?}");
    }
}

/// Returns what remains after an adapter was opened once: other libraries keep that for ever.
fn before() -> Held {
    raise_limit();
    Held::measure_memory();
    let mut fixture = Fixture::new();
    // An endpoint too, so that everything has been used once.
    let (a, b) = (super::end(&fixture), super::end(&fixture));
    let service_point = ServicePoint::new(&fixture);
    ok(service_point.connect(a.ep, &[]));
    ok(accept(service_point.take_request(), b.ep));
    super::established([&a, &b]);
    ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
    drop(fixture);
    thread::sleep(Duration::from_millis(50));
    Held::now()
}

/// Number of ways in which a pair disconnects; its number selects one.
const WAYS: usize = 5;

/// The endpoints of one thread. All their events go to the same EVDs.
struct EndpointGroup<'b> {
    fixture: &'b Fixture,
    service_point: ServicePoint,
    evds: End,
    eps: Vec<[DAT_EP_HANDLE; 2]>,
}

impl<'b> EndpointGroup<'b> {
    fn new(fixture: &'b Fixture, pairs: usize) -> Self {
        let shape = shape(4 * pairs + 8);
        let mut evds = End::without_ep(fixture, &shape);
        // SAFETY: live handles; the result is writable.
        unsafe {
            ok(dat_evd_free(evds.connect));
            evds.connect = fixture.evd(8 * pairs as DAT_COUNT + 8, DAT_EVD_CONNECTION_FLAG);
        }
        let attributes = shape.attributes();
        let make = || {
            let mut ep = ptr::null_mut();
            // SAFETY: live handles; the result is writable.
            ok(unsafe {
                dat_ep_create(
                    fixture.ia,
                    fixture.pz,
                    evds.recv,
                    evds.request,
                    evds.connect,
                    &raw const attributes,
                    &raw mut ep,
                )
            });
            ep
        };
        let requests = fixture.evd(pairs as DAT_COUNT + 8, DAT_EVD_CR_FLAG);
        let (mut qualifier, mut psp) = (0, ptr::null_mut());
        // SAFETY: live handles; results are writable.
        ok(unsafe {
            dat_psp_create_any(
                fixture.ia,
                &raw mut qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        });
        Self {
            fixture,
            service_point: ServicePoint {
                psp,
                qualifier,
                requests,
            },
            evds,
            eps: (0..pairs).map(|_| [make(), make()]).collect(),
        }
    }

    /// Requests all connections, accepts all, and waits until all are
    /// established.
    fn connect(&self) {
        for (number, [active, _]) in self.eps.iter().enumerate() {
            ok(self
                .service_point
                .connect_within(*active, LONG, &number.to_le_bytes()));
        }
        for _ in &self.eps {
            // The requests arrive in any order.
            let cr = self.service_point.take_request();
            let info = cr_info(cr);
            assert_eq!(info.private_data_size, 8);
            // SAFETY: the library has reported this many bytes.
            let number = unsafe { info.private_data.cast::<[u8; 8]>().read_unaligned() };
            ok(accept(cr, self.eps[usize::from_le_bytes(number)][1]));
        }
        let reported = self.reported(2 * self.eps.len());
        assert!(
            reported
                .values()
                .all(|numbers| numbers[..] == [DAT_CONNECTION_EVENT_ESTABLISHED])
        );
        for ep in self.eps.iter().flatten() {
            assert_eq!(state_of(*ep), DAT_EP_STATE_CONNECTED);
        }
    }

    /// Takes this many connection events, by endpoint.
    fn reported(&self, count: usize) -> HashMap<usize, Vec<DAT_EVENT_NUMBER>> {
        let mut reported: HashMap<usize, Vec<_>> = HashMap::new();
        for number in 0..count {
            let (answer, event, _) = wait(self.evds.connect, LONG, 1);
            assert_eq!(answer, DAT_SUCCESS, "{number} of {count}");
            // SAFETY: the EVD carries no other events.
            let ep = unsafe { event.event_data.connect_event_data.ep_handle };
            reported
                .entry(ep.addr())
                .or_default()
                .push(event.event_number);
        }
        reported
    }

    /// Sends one message each way over every connection.
    fn exchange(&self) {
        // A stepped device must see each doorbell before the next on the same
        // register.
        static STEPPING: Mutex<()> = Mutex::new(());
        let memory = self.fixture.memory(64);
        for (from, to) in self.eps.iter().flat_map(|[a, b]| [(*a, *b), (*b, *a)]) {
            let [from, to] = [from, to].map(|ep| End { ep, ..self.evds });
            ok(to.post_recv(&[memory.segment(0, 8)], 1));
            let turn = self.fixture.is_stepped().then(|| STEPPING.lock());
            ok(from.post_send(&[memory.segment(32, 8)], 2, DAT_COMPLETION_DEFAULT_FLAG));
            if turn.is_some() {
                self.fixture.run();
            }
        }
        for evd in [self.evds.recv, self.evds.request] {
            for _ in 0..2 * self.eps.len() {
                let (answer, event, _) = wait(evd, LONG, 1);
                ok(answer);
                assert_eq!(dto(&event).status, DAT_DTO_SUCCESS);
            }
        }
    }

    /// Disconnects every pair in one of the ways. Afterwards all endpoints are
    /// unconnected or freed.
    fn part(&mut self) {
        let mut left = Vec::new();
        for (number, [active, passive]) in self.eps.drain(..).enumerate() {
            // SAFETY: live endpoints.
            unsafe {
                match number % WAYS {
                    0 => ok(dat_ep_disconnect(active, DAT_CLOSE_GRACEFUL_FLAG)),
                    1 => ok(dat_ep_disconnect(passive, DAT_CLOSE_ABRUPT_FLAG)),
                    2 => {
                        ok(dat_ep_disconnect(active, DAT_CLOSE_ABRUPT_FLAG));
                        ok(dat_ep_disconnect(passive, DAT_CLOSE_GRACEFUL_FLAG));
                    }
                    3 => ok(dat_ep_free(active)),
                    _ => {
                        ok(dat_ep_free(passive));
                        ok(dat_ep_free(active));
                    }
                }
            }
            match number % WAYS {
                0..=2 => left.extend([active, passive]),
                3 => left.push(passive),
                _ => {}
            }
        }
        let since = Instant::now();
        loop {
            let states: Vec<_> = left.iter().map(|ep| state_of(*ep)).collect();
            if states
                .iter()
                .all(|&state| state == DAT_EP_STATE_DISCONNECTED)
            {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(300), "{states:?}");
            thread::sleep(Duration::from_millis(1));
        }
        let mut reported: HashMap<usize, usize> = HashMap::new();
        while let Ok(event) = dequeue(self.evds.connect) {
            assert_eq!(event.event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
            // SAFETY: the event number selects this member.
            let ep = unsafe { event.event_data.connect_event_data.ep_handle };
            *reported.entry(ep.addr()).or_default() += 1;
        }
        for ep in &left {
            assert_eq!(reported.get(&ep.addr()), Some(&1), "once each");
        }
        for (number, ep) in left.into_iter().enumerate() {
            // SAFETY: live endpoints.
            unsafe {
                if number % 2 == 0 {
                    ok(dat_ep_reset(ep));
                }
                ok(dat_ep_free(ep));
            }
        }
    }

    fn end(self) {
        self.service_point.close();
        for evd in [self.evds.recv, self.evds.request, self.evds.connect] {
            // SAFETY: live EVDs, which are no longer in use.
            ok(unsafe { dat_evd_free(evd) });
        }
    }
}

#[test]
fn many_connections_by_several_threads_leave_nothing_behind() {
    if !is_alone() {
        return;
    }
    in_rounds(connect_and_part);
}

fn connect_and_part(fixture: &Fixture, endpoints: usize) {
    let pairs = endpoints / 2 / THREADS;
    let begin = Instant::now();
    let times: Vec<[Duration; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut group = EndpointGroup::new(fixture, pairs);
                    let begin = Instant::now();
                    group.connect();
                    let connected = begin.elapsed();
                    group.exchange();
                    let begin = Instant::now();
                    group.part();
                    let parted = begin.elapsed();
                    group.end();
                    [connected, parted]
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread's part"))
            .collect()
    });
    let all = pairs * THREADS;
    let slowest = |at: usize| times.iter().map(|time| time[at]).max().unwrap_or_default();
    println!(
        "{all} connections of {} endpoints: {:.0} connections/s, {:.0} ends/s, {:.1} s in all",
        2 * all,
        all as f64 / slowest(0).as_secs_f64(),
        all as f64 / slowest(1).as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
}

/// Runs a process that connects endpoints repeatedly until it is killed.
fn run_as_child(what: &str) -> ! {
    let (qualifier, count) = what.split_once(' ').expect("two numbers");
    let qualifier = qualifier.parse().expect("a qualifier");
    let count: usize = count.parse().expect("a number");
    let fixture = Fixture::new();
    let service_point = ServicePoint {
        psp: ptr::null_mut(),
        qualifier,
        requests: ptr::null_mut(),
    };
    let ends: Vec<End> = (0..count).map(|_| End::new(&fixture, &shape(8))).collect();
    // The process exits if the parent fails to kill it.
    let begin = Instant::now();
    for end in ends.iter().cycle() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not killed");
        match state_of(end.ep) {
            DAT_EP_STATE_UNCONNECTED => ok(service_point.connect_within(end.ep, LONG, &[])),
            DAT_EP_STATE_CONNECTED if begin.elapsed().as_micros().is_multiple_of(3) => {
                // SAFETY: a live endpoint.
                ok(unsafe { dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG) });
            }
            DAT_EP_STATE_DISCONNECTED => {
                // SAFETY: a live endpoint.
                ok(unsafe { dat_ep_reset(end.ep) });
            }
            _ => thread::sleep(Duration::from_micros(100)),
        }
        while dequeue(end.connect).is_ok() {}
    }
    unreachable!("endless")
}

fn victim(qualifier: DAT_CONN_QUAL, endpoints: usize) -> Child {
    let name = "connections::storm::peers_that_are_killed_leave_nothing_behind";
    Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(VICTIM, format!("{qualifier} {endpoints}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process")
}

/// Accepts requests up to a number, then kills the requesting process.
fn accept_and_kill(
    fixture: &Fixture,
    service_point: &ServicePoint,
    evds: &End,
    count: usize,
    victim: &mut Child,
) {
    let attributes = shape(8).attributes();
    let mut eps = Vec::new();
    let mut others = Vec::new();
    let take = |eps: &mut Vec<DAT_EP_HANDLE>| {
        let (answer, event, _) = wait(service_point.requests, 500_000, 1);
        if answer != DAT_SUCCESS {
            return None;
        }
        // SAFETY: the EVD carries no other events.
        let cr = unsafe { event.event_data.cr_arrival_event_data.cr_handle };
        let mut ep = ptr::null_mut();
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                evds.recv,
                evds.request,
                evds.connect,
                &raw const attributes,
                &raw mut ep,
            )
        });
        ok(accept(cr, ep));
        eps.push(ep);
        Some(())
    };
    let begin = Instant::now();
    while eps.len() < count {
        assert!(begin.elapsed() < Duration::from_secs(300), "{}", eps.len());
        take(&mut eps);
    }
    victim.kill().expect("the process runs");
    victim.wait().expect("the child process");
    // Requests that it had made before.
    while take(&mut others).is_some() {}
    let all: Vec<_> = eps.into_iter().chain(others).collect();
    let since = Instant::now();
    while all
        .iter()
        .any(|ep| state_of(*ep) != DAT_EP_STATE_DISCONNECTED)
    {
        assert!(
            since.elapsed() < Duration::from_secs(300),
            "an endpoint without a final event"
        );
        thread::sleep(Duration::from_millis(1));
    }
    // Each endpoint got one final event, after at most one Established event. The
    // process may have disconnected some endpoints itself before it was killed.
    let ends = [
        DAT_CONNECTION_EVENT_DISCONNECTED,
        broken_by_the_peer(fixture),
    ];
    let mut reported: HashMap<usize, Vec<DAT_EVENT_NUMBER>> = HashMap::new();
    while let Ok(event) = dequeue(evds.connect) {
        // SAFETY: the EVD carries no other events.
        let ep = unsafe { event.event_data.connect_event_data.ep_handle };
        reported
            .entry(ep.addr())
            .or_default()
            .push(event.event_number);
    }
    for ep in all {
        let reported = &reported[&ep.addr()];
        let fine = match reported[..] {
            [DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR] => true,
            [DAT_CONNECTION_EVENT_ESTABLISHED, end] => ends.contains(&end),
            _ => false,
        };
        assert!(fine, "{reported:x?}");
        // SAFETY: a live endpoint.
        ok(unsafe { dat_ep_free(ep) });
    }
}

#[test]
fn peers_that_are_killed_leave_nothing_behind() {
    if !is_alone() {
        return;
    }
    if let Ok(what) = std::env::var(VICTIM) {
        run_as_child(&what);
    }
    in_rounds(accept_and_kill_all);
}

fn accept_and_kill_all(fixture: &Fixture, endpoints: usize) {
    let each = endpoints / 8;
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let mut evds = End::without_ep(fixture, &shape(64));
                // SAFETY: a live EVD.
                ok(unsafe { dat_evd_free(evds.connect) });
                evds.connect = fixture.evd(4096, DAT_EVD_CONNECTION_FLAG);
                let service_point = ServicePoint::new(fixture);
                let mut victim = victim(service_point.qualifier, each);
                // Killed at different times.
                accept_and_kill(
                    fixture,
                    &service_point,
                    &evds,
                    1 + each * number / 2,
                    &mut victim,
                );
                service_point.close();
                for evd in [evds.recv, evds.request, evds.connect] {
                    // SAFETY: live EVDs, which are no longer in use.
                    ok(unsafe { dat_evd_free(evd) });
                }
            });
        }
    });
    println!("{THREADS} peers killed");
    // The adapter still works.
    let (a, b) = (super::end(fixture), super::end(fixture));
    let service_point = ServicePoint::new(fixture);
    ok(service_point.connect(a.ep, &[]));
    ok(accept(service_point.take_request(), b.ep));
    super::established([&a, &b]);
    super::exchange(fixture, &a, &b);
    service_point.close();
    for end in [a, b] {
        // SAFETY: live handles.
        unsafe {
            ok(dat_ep_free(end.ep));
            for evd in [end.recv, end.request, end.connect] {
                ok(dat_evd_free(evd));
            }
        }
    }
}
