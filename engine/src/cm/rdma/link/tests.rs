//! Sessions on a simulated rdma_cm.

use super::*;
use crate::cm::gate::Gate;
use crate::cm::rdma::event::CONSUMER_DEFINED;
use crate::cm::session::{STALE_FOR, Session, SessionStatus};
use crate::cm::wire::ConnectionGate;
use crate::cm::{ConnectionSink, Parameters};
use crate::control::{EndpointAddress, Greeting, LinkLayer, ManagedRoute};
use SessionStatus::{Continues, Ended};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod iwarp;

/// The calls of a simulated rdma_cm.
#[derive(Default)]
struct Log {
    asked: Vec<&'static str>,
    /// One bit per call, from the lowest: whether the call fails.
    fails: u64,
    /// The answer of `held_until`.
    held: Option<Instant>,
    greets: bool,
    /// Whether the id was destroyed, and while the kernel was connecting.
    ended: Option<bool>,
}

/// Records the calls, and fails those that the test selects.
struct Fake(Arc<Mutex<Log>>);

impl Fake {
    fn ask(&mut self, what: &'static str) -> io::Result<()> {
        let mut log = self.0.lock().unwrap();
        log.asked.push(what);
        let fails = log.fails & 1 != 0;
        log.fails >>= 1;
        if fails {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        } else {
            Ok(())
        }
    }
}

impl Calls for Fake {
    fn resolve_address(&mut self) -> io::Result<()> {
        self.ask("resolve address")
    }
    fn resolve_route(&mut self) -> io::Result<()> {
        self.ask("resolve route")
    }
    fn connect(&mut self) -> io::Result<()> {
        self.ask("connect")
    }
    fn renew(&mut self) -> io::Result<()> {
        self.ask("renew")
    }
    fn route(&mut self) -> io::Result<Route> {
        self.ask("route")
            .map(|()| Route::Managed(Box::new(ManagedRoute::nowhere())))
    }
    fn establish(&mut self) -> io::Result<()> {
        self.ask("establish")
    }
    fn notify_established(&mut self) -> io::Result<()> {
        self.ask("notify")
    }
    fn held_until(&mut self, _: &Answer) -> Option<Instant> {
        self.0.lock().unwrap().held
    }
    fn greets(&self) -> bool {
        self.0.lock().unwrap().greets
    }
    fn accept(&mut self, _: &Answer) -> io::Result<()> {
        self.ask("accept")
    }
    fn reject(&mut self, private_data: Option<&[u8]>) -> io::Result<()> {
        self.ask(if private_data.is_some() {
            "reject"
        } else {
            "refuse"
        })
    }
    fn disconnect(&mut self) -> io::Result<()> {
        self.ask("disconnect")
    }
    fn end(self, connecting: bool) {
        self.0.lock().unwrap().ended = Some(connecting);
    }
}

/// A session on a simulated rdma_cm.
struct Tried {
    session: Session,
    log: Arc<Mutex<Log>>,
}

impl Tried {
    fn active(log: Log, gate: Arc<ConnectionGate>, deadline: Option<Instant>) -> Self {
        let log = Arc::new(Mutex::new(log));
        let wire = Link::active(Fake(Arc::clone(&log)));
        let session = Session::active(Box::new(wire), gate, deadline);
        Self { session, log }
    }

    fn passive(log: Log, alive: Arc<AtomicBool>) -> Self {
        let log = Arc::new(Mutex::new(log));
        let wire = Link::passive(Fake(Arc::clone(&log)));
        let session = Session::passive(Box::new(wire), alive, TIMEOUT);
        Self { session, log }
    }

    fn asked(&self) -> Vec<&'static str> {
        self.log.lock().unwrap().asked.clone()
    }

    /// Ends it as the thread does. Returns whether the kernel was connecting.
    fn end(self) -> bool {
        self.session.wire.end();
        let ended = self.log.lock().unwrap().ended;
        ended.expect("the id is destroyed")
    }

    fn handle(&mut self, event: Event, clock: impl Fn() -> Instant) -> SessionStatus {
        self.session.receive(Some(event), clock)
    }

    /// Accepts, and holds the acceptance back until `held`.
    fn accept(
        &mut self,
        gate: Arc<ConnectionGate>,
        now: Instant,
        held: Option<Instant>,
    ) -> SessionStatus {
        self.log.lock().unwrap().held = held;
        self.session.accept(gate, answer(), now)
    }
}

impl core::ops::Deref for Tried {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl core::ops::DerefMut for Tried {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

#[derive(Default)]
struct Sink {
    seen: Mutex<Vec<ConnectionEvent>>,
    refuses: bool,
    greeting: Option<Arc<Greeting>>,
}

impl Sink {
    fn gate(self: &Arc<Self>) -> Arc<ConnectionGate> {
        let sink: Arc<dyn ConnectionSink> = self.clone();
        Arc::new(Gate::new(sink))
    }

    fn take(&self) -> Vec<ConnectionEvent> {
        core::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl ConnectionSink for Sink {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        self.seen.lock().unwrap().push(event);
        if self.refuses { Err(()) } else { Ok(()) }
    }

    fn greeting(&self) -> Option<Arc<Greeting>> {
        self.greeting.clone()
    }
}

fn answer() -> Answer {
    let address = EndpointAddress {
        qpn: 7,
        psn: 0,
        lid: 0,
        gid: [0; 16],
        gid_index: 0,
        mtu: 3,
        link: LinkLayer::Ethernet,
    };
    Answer {
        endpoint: Parameters {
            address,
            reads_served: 1,
            reads_requested: 1,
        },
        private_data: Vec::new(),
        greeting: None,
    }
}

fn rejected(reason: i32, private_data: &[u8]) -> Event {
    Event::Rejected {
        reason,
        private_data: private_data.to_vec(),
    }
}

fn active(deadline: Option<Instant>) -> (Tried, Arc<Sink>) {
    let sink = Arc::new(Sink::default());
    let mut session = Tried::active(Log::default(), sink.gate(), deadline);
    assert_eq!(session.begin(), Continues);
    (session, sink)
}

/// Returns an active session that waits for the answer.
fn requested(deadline: Option<Instant>) -> (Tried, Arc<Sink>, Instant) {
    let (mut session, sink) = active(deadline);
    let now = Instant::now();
    assert_eq!(session.handle(Event::AddressResolved, || now), Continues);
    assert_eq!(session.handle(Event::RouteResolved, || now), Continues);
    (session, sink, now)
}

#[test]
fn an_active_side_connects_and_disconnects() {
    let (mut session, sink, now) = requested(None);
    let event = Event::Accepted(PeerParameters::default());
    assert_eq!(session.handle(event, || now), Continues);
    assert!(matches!(
        sink.take()[..],
        [ConnectionEvent::Accepted { .. }]
    ));
    assert_eq!(session.handle(Event::Disconnected, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::Disconnected]);
    assert_eq!(
        session.asked(),
        [
            "resolve address",
            "resolve route",
            "connect",
            "route",
            "establish",
            "disconnect"
        ]
    );
}

#[test]
fn rejections_are_distinguished_by_their_origin() {
    let application = [payload::REFUSAL.to_vec(), vec![0; 144]].concat();
    let cases = [
        (
            CONSUMER_DEFINED,
            &application[..],
            ConnectionEvent::PeerRejected {
                private_data: Vec::new(),
            },
        ),
        // A kernel whose program has ended.
        (
            CONSUMER_DEFINED,
            &[0; 148],
            ConnectionEvent::NonPeerRejected,
        ),
        // There is no listener.
        (8, &application, ConnectionEvent::NonPeerRejected),
        // The same three cases on iWARP.
        (
            -libc::ECONNRESET,
            &application,
            ConnectionEvent::PeerRejected {
                private_data: Vec::new(),
            },
        ),
        (-libc::ECONNRESET, &[], ConnectionEvent::NonPeerRejected),
        (-libc::ECONNREFUSED, &[], ConnectionEvent::NonPeerRejected),
    ];
    for (reason, data, expected) in cases {
        let (mut session, sink, now) = requested(None);
        assert_eq!(session.handle(rejected(reason, data), || now), Ended);
        assert_eq!(sink.take(), [expected], "{reason}");
    }
}

#[test]
fn a_stale_request_is_repeated_until_it_is_accepted() {
    let (mut session, sink, mut now) = requested(None);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        assert_eq!(
            session.handle(rejected(STALE_CONNECTION, &[]), || now),
            Continues
        );
        let due = session.due().expect("a pause");
        assert_eq!(session.expire(due - Duration::from_millis(1)), Continues);
        pauses.push(due - now);
        now = due;
        assert_eq!(session.expire(now), Continues);
        assert_eq!(session.handle(Event::AddressResolved, || now), Continues);
        assert_eq!(session.handle(Event::RouteResolved, || now), Continues);
    }
    let pauses: Vec<u128> = pauses.iter().map(Duration::as_millis).collect();
    assert_eq!(pauses, [20, 40, 80, 160, 320, 320]);
    assert!(sink.take().is_empty());
    assert_eq!(
        session.handle(Event::Accepted(PeerParameters::default()), || now),
        Continues
    );
    assert_eq!(sink.take().len(), 1);
}

#[test]
fn a_request_that_stays_stale_is_given_up() {
    let (mut session, sink, begun) = requested(None);
    let mut now = begun;
    while session.handle(rejected(STALE_CONNECTION, &[]), || now) == Continues {
        now = session.due().expect("a pause");
        assert!(now - begun < Duration::from_secs(9), "for ever");
        assert_eq!(session.expire(now), Continues);
        let _ = session.handle(Event::AddressResolved, || now);
        let _ = session.handle(Event::RouteResolved, || now);
    }
    assert!(now - begun >= STALE_FOR);
    assert_eq!(sink.take(), [ConnectionEvent::NonPeerRejected]);

    // With a timeout, the timeout decides.
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(50);
    let (mut session, sink, now) = requested(Some(deadline));
    assert_eq!(
        session.handle(rejected(STALE_CONNECTION, &[]), || now),
        Continues
    );
    assert_eq!(session.expire(deadline), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::TimedOut]);
}

fn pending() -> (Tried, Arc<AtomicBool>) {
    let alive = Arc::new(AtomicBool::new(true));
    let session = Tried::passive(Log::default(), Arc::clone(&alive));
    (session, alive)
}

const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn an_accepted_requester_has_limited_time_to_become_ready() {
    let (now, sink) = (Instant::now(), Arc::new(Sink::default()));
    // The time starts at the acceptance, also for one that was delayed.
    for pause in [0, 500] {
        let (mut session, _) = pending();
        let answered = now + Duration::from_millis(pause);
        let not_before = (pause > 0).then_some(answered);
        let accepted = session.accept(sink.gate(), now, not_before);
        assert_eq!(accepted, Continues);
        assert_eq!(session.expire(answered), Continues);
        assert_eq!(session.due(), Some(answered + TIMEOUT));
        assert_eq!(session.expire(answered + TIMEOUT), Ended);
        assert_eq!(sink.take(), [ConnectionEvent::AcceptFailed]);
    }
    // Once the requester is ready, it may send nothing for any time.
    let (mut session, _) = pending();
    assert_eq!(session.accept(sink.gate(), now, None), Continues);
    assert_eq!(
        session.handle(Event::Established(PeerParameters::default()), || now),
        Continues
    );
    assert_eq!(session.due(), None);
    assert_eq!(session.expire(now + 10 * TIMEOUT), Continues);
    assert_eq!(sink.take(), [ConnectionEvent::Established]);
}

#[test]
fn an_acceptance_waits_until_the_requester_s_kernel_allows_the_queue_pair_again() {
    let (now, sink) = (Instant::now(), Arc::new(Sink::default()));
    let (mut session, _) = pending();
    let until = now + Duration::from_millis(500);
    assert_eq!(session.accept(sink.gate(), now, Some(until)), Continues);
    assert!(session.asked().is_empty());
    assert_eq!(session.due(), Some(until));
    assert_eq!(session.expire(until), Continues);
    assert_eq!(session.asked(), ["accept"]);
    assert_eq!(
        session.handle(Event::Established(PeerParameters::default()), || until),
        Continues
    );
    assert_eq!(sink.take(), [ConnectionEvent::Established]);
}

#[test]
fn an_acceptance_that_is_withdrawn_disconnects_when_possible() {
    let (now, sink) = (Instant::now(), Arc::new(Sink::default()));
    let (mut session, _) = pending();
    assert_eq!(session.accept(sink.gate(), now, None), Continues);
    let deadline = now + Duration::from_secs(2);
    assert_eq!(session.disconnect(Some(deadline)), Continues);
    assert_eq!(session.asked(), ["accept"]);
    assert_eq!(
        session.handle(Event::Established(PeerParameters::default()), || now),
        Continues
    );
    assert_eq!(session.asked(), ["accept", "disconnect"]);
    assert_eq!(session.handle(Event::Disconnected, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::Disconnected]);
}

#[test]
fn a_removed_device_ends_every_state() {
    let now = Instant::now();
    let (mut session, sink, _) = requested(None);
    assert_eq!(session.handle(Event::DeviceRemoved, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::Unreachable]);

    let (mut session, alive) = pending();
    assert_eq!(session.handle(Event::DeviceRemoved, || now), Ended);
    assert!(!alive.load(Ordering::Relaxed));

    let sink = Arc::new(Sink::default());
    let (mut session, _) = pending();
    assert_eq!(session.accept(sink.gate(), now, None), Continues);
    assert_eq!(session.handle(Event::DeviceRemoved, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::AcceptFailed]);

    let (mut session, _) = pending();
    assert_eq!(session.accept(sink.gate(), now, None), Continues);
    assert_eq!(
        session.handle(Event::Established(PeerParameters::default()), || now),
        Continues
    );
    // A hint, for example that a bond has changed its active member.
    assert_eq!(session.handle(Event::Other(14), || now), Continues);
    assert_eq!(session.handle(Event::DeviceRemoved, || now), Ended);
    let seen = [ConnectionEvent::Established, ConnectionEvent::Broken];
    assert_eq!(sink.take(), seen);
}

#[derive(Clone, Debug)]
enum Step {
    Event(Event),
    Pass(u64),
    Accept(Option<u64>),
    Reject(bool),
    Disconnect,
    Abort,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::AddressResolved),
        3 => Just(Event::RouteResolved),
        2 => Just(Event::Accepted(PeerParameters::default())),
        1 => Just(Event::Requested(PeerParameters::default())),
        2 => prop::sample::select(vec![8, 10, 28]).prop_map(|reason| rejected(reason, &[1; 148])),
        3 => Just(Event::Established(PeerParameters::default())),
        1 => Just(Event::Disconnected),
        1 => Just(Event::Failed(-110)),
        1 => Just(Event::DeviceRemoved),
        1 => Just(Event::Unsent(Some(libc::ECONNREFUSED))),
        1 => (12_u32..99).prop_map(Event::Other),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any_event().prop_map(Step::Event),
        4 => (0_u64..3000).prop_map(Step::Pass),
        4 => prop::option::of(0_u64..900).prop_map(Step::Accept),
        1 => any::<bool>().prop_map(Step::Reject),
        2 => Just(Step::Disconnect),
        1 => Just(Step::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// With any events in any order, an application with a connection gets exactly
    /// one terminal event, and no event after it.
    #[test]
    fn every_order_of_events_ends_in_exactly_one_terminal_event(
        is_active in any::<bool>(),
        refuses in prop::bool::weighted(0.2),
        timeout in prop::option::of(0_u64..5000),
        fails in prop_oneof![Just(0_u64), any::<u64>()],
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let begun = Instant::now();
        let sink = Arc::new(Sink { refuses, ..Sink::default() });
        let gate = sink.gate();
        let mut now = begun;
        let after = |now: Instant, milliseconds| now + Duration::from_millis(milliseconds);
        let log = Log { fails, ..Log::default() };
        // Whether the application has a connection that gets events.
        let mut has_sink = is_active;
        let mut aborted = false;
        let mut session = if is_active {
            let deadline = timeout.map(|timeout| after(begun, timeout));
            let mut session = Tried::active(log, Arc::clone(&gate), deadline);
            (session.begin() == Continues).then_some(session)
        } else {
            Some(Tried::passive(log, Arc::new(AtomicBool::new(true))))
        };
        for step in steps {
            let Some(current) = &mut session else { break };
            let status = match step {
                Step::Event(event) => current.handle(event, || now),
                Step::Pass(milliseconds) => {
                    now = after(now, milliseconds);
                    current.expire(now)
                }
                // A request is answered once, which creates the connection.
                Step::Accept(pause) if !is_active && !has_sink => {
                    has_sink = true;
                    current.accept(Arc::clone(&gate), now, pause.map(|it| after(now, it)))
                }
                Step::Reject(by_application) if !has_sink => current.reject(by_application.then_some(&[])),
                Step::Disconnect if has_sink => current.disconnect(Some(after(now, 2000))),
                Step::Abort if has_sink => {
                    aborted = true;
                    gate.close(true);
                    current.abort()
                }
                _ => Continues,
            };
            if status == Ended {
                session = None;
            }
        }
        // The disconnect timeout is the longest time limit.
        if let Some(mut current) = session {
            let status = if has_sink {
                match current.disconnect(Some(after(now, 2000))) {
                    Ended => Ended,
                    Continues => current.expire(after(now, 2001)),
                }
            } else {
                current.reject(None)
            };
            prop_assert_eq!(status, Ended);
        }
        let seen = sink.take();
        let ends = seen.iter().filter(|event| event.is_terminal()).count();
        let refused = refuses && seen.iter().any(|event| matches!(event, ConnectionEvent::Accepted { .. }));
        if refused || !has_sink {
            prop_assert_eq!(ends, 0, "{:?}", seen);
        } else if !aborted {
            prop_assert_eq!(ends, 1, "{:?}", seen);
        }
        if ends > 0 {
            prop_assert!(seen.last().is_some_and(ConnectionEvent::is_terminal), "{:?}", seen);
        }
        // At most an acceptance or an establishment, and a terminal event.
        prop_assert!(seen.len() <= 2, "{:?}", seen);
    }
}
