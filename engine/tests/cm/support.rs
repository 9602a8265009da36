//! Fixtures: recording sinks, and established connections.

use dat_engine::cm::{
    Connection, ConnectionEvent, ConnectionSink, ListenOn, ListenSink, Listener, Local, Manager,
    ManagerKind, ManagerOptions, Parameters, Peer, Request, Target, own_address,
};
use dat_engine::{EndpointAddress, LinkLayer, Route, Transport, TransportOptions};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A timeout that is longer than any expected event takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for an event that must not come, in which it would come on
/// loopback.
pub(crate) const ABSENCE: Duration = Duration::from_millis(50);

/// A queue that another thread fills.
pub(crate) struct EventQueue<T> {
    items: Mutex<VecDeque<T>>,
    came: Condvar,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self {
            items: Mutex::default(),
            came: Condvar::new(),
        }
    }
}

impl<T> EventQueue<T> {
    pub(crate) fn put(&self, item: T) {
        self.items.lock().unwrap().push_back(item);
        self.came.notify_all();
    }

    pub(crate) fn within(&self, time: Duration) -> Option<T> {
        let end = Instant::now() + time;
        let mut items = self.items.lock().unwrap();
        loop {
            if let Some(item) = items.pop_front() {
                return Some(item);
            }
            let left = end.checked_duration_since(Instant::now())?;
            items = self.came.wait_timeout(items, left).unwrap().0;
        }
    }

    pub(crate) fn next(&self) -> T {
        self.within(TIMEOUT).expect("something comes in time")
    }
}

/// Records the events of a connection.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) events_seen: EventQueue<ConnectionEvent>,
    /// Return an error for `Accepted`.
    pub(crate) refuses: bool,
}

impl Events {
    pub(crate) fn next(&self) -> ConnectionEvent {
        self.events_seen.next()
    }

    /// Asserts that no further event comes.
    pub(crate) fn assert_no_event(&self) {
        assert_eq!(self.events_seen.within(ABSENCE), None);
    }

    pub(crate) fn assert_accepted(&self) {
        let event = self.next();
        assert!(
            matches!(event, ConnectionEvent::Accepted { .. }),
            "{event:?}"
        );
    }
}

impl ConnectionSink for Events {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        self.events_seen.put(event);
        if self.refuses { Err(()) } else { Ok(()) }
    }
}

/// Records requests.
#[derive(Default)]
pub(crate) struct Requests(pub(crate) EventQueue<Request>);

impl Requests {
    pub(crate) fn next(&self) -> Request {
        self.0.next()
    }

    pub(crate) fn assert_no_event(&self) {
        assert!(self.0.within(ABSENCE).is_none());
    }
}

impl ListenSink for Requests {
    fn request(&self, request: Request) {
        self.0.put(request);
    }
}

/// Returns the kind of manager to test: rdma_cm with `DAT_TEST_CM=rdma_cm`, on the
/// device `DAT_TEST_DEVICE`.
pub(crate) fn kind() -> ManagerKind {
    match std::env::var("DAT_TEST_CM").as_deref() {
        Err(_) | Ok("" | "socket") => ManagerKind::Socket,
        Ok("rdma_cm") => ManagerKind::Rdma,
        Ok(other) => panic!("DAT_TEST_CM={other} is none of socket, rdma_cm"),
    }
}

pub(crate) fn start() -> Manager {
    start_with(ManagerOptions::default())
}

pub(crate) fn start_with(options: ManagerOptions) -> Manager {
    Manager::start(kind(), options).expect("a manager")
}

/// Returns the address for raw streams of the tests.
pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Returns the address by which the tests connect to this host.
pub(crate) fn own() -> SocketAddr {
    SocketAddr::new(local().address, 0)
}

/// Returns the local port; over TCP the device does not matter.
pub(crate) fn local() -> Local {
    static LOCAL: OnceLock<Local> = OnceLock::new();
    LOCAL.get_or_init(find_local).clone()
}

fn find_local() -> Local {
    let device = match kind() {
        ManagerKind::Socket => String::new(),
        ManagerKind::Rdma => std::env::var("DAT_TEST_DEVICE").expect("DAT_TEST_DEVICE is set"),
    };
    let address = match kind() {
        ManagerKind::Socket => Ipv4Addr::LOCALHOST.into(),
        ManagerKind::Rdma => own_address(&device, 1).expect("the device has an address"),
    };
    let devices = dat_engine::devices().unwrap_or_default();
    let found = devices.into_iter().find(|one| one.name == device);
    Local {
        device,
        transport: found.map_or(Transport::Roce, |device| device.transport),
        port: 1,
        address,
        listen_on: ListenOn::All,
        options: TransportOptions::default(),
    }
}

pub(crate) fn target(host: SocketAddr, qualifier: u64, timeout: Option<Duration>) -> Target {
    Target {
        host,
        qualifier,
        timeout,
    }
}

/// Asserts that the peer's parameters are those that the other side gave.
pub(crate) fn assert_event(peer: &Peer, given: &Parameters) {
    match &peer.route {
        Route::Address(address) => {
            assert_eq!(*address, given.address);
            assert_eq!(peer.reads_served, given.reads_served);
            assert_eq!(peer.reads_requested, given.reads_requested);
        }
        // The RDMA reads are checked in the tests of rdma_cm.
        Route::Managed(route) => assert_eq!(route.peer_qpn(), given.address.qpn),
        // The kernel connects the queue pairs itself.
        Route::Iwarp(_) => (),
    }
}

/// Returns parameters that differ in every field for different numbers.
pub(crate) fn parameters(number: u8) -> Parameters {
    let address = EndpointAddress {
        qpn: qpn(number),
        psn: 0xab_0000 + u32::from(number),
        lid: 0x100 + u16::from(number),
        gid: [number; 16],
        gid_index: number,
        mtu: 1 + number % 5,
        link: if number.is_multiple_of(2) {
            LinkLayer::InfiniBand
        } else {
            LinkLayer::Ethernet
        },
    };
    Parameters {
        address,
        reads_served: match kind() {
            ManagerKind::Socket => number.wrapping_add(100),
            ManagerKind::Rdma => 1 + number % 8,
        },
        reads_requested: match kind() {
            ManagerKind::Socket => number.wrapping_add(200),
            ManagerKind::Rdma => 2 + number % 8,
        },
    }
}

/// Returns a new QP number: to the kernel, a repeated number is the same queue
/// pair.
fn qpn(number: u8) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    match kind() {
        ManagerKind::Socket => 0x10_0000 + u32::from(number),
        ManagerKind::Rdma => {
            let first = (std::process::id() & 0x3f) << 16;
            0x80_0000 + first + (NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff)
        }
    }
}

/// A manager with a listener.
pub(crate) struct Host {
    pub(crate) manager: Manager,
    pub(crate) listener: Listener,
    pub(crate) qualifier: u64,
    pub(crate) requests: Arc<Requests>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(ManagerOptions::default())
    }

    pub(crate) fn with(options: ManagerOptions) -> Self {
        Self::on(ListenOn::All, options)
    }

    pub(crate) fn on(listen_on: ListenOn, options: ManagerOptions) -> Self {
        let manager = start_with(options);
        let requests = Arc::new(Requests::default());
        let local = Local {
            listen_on,
            ..local()
        };
        let (listener, qualifier) = manager
            .listen_any(&local, requests.clone())
            .expect("a listener");
        Self {
            manager,
            listener,
            qualifier,
            requests,
        }
    }

    /// Returns the address for raw streams to the listener.
    pub(crate) fn raw_address(&self) -> SocketAddr {
        let mut address = loopback();
        address.set_port(u16::try_from(self.qualifier).expect("a port"));
        address
    }

    /// Requests a connection with itself, without a timeout.
    pub(crate) fn connect(&self) -> (Connection, Arc<Events>) {
        connect(&self.manager, self.qualifier, None)
    }

    /// Returns an established connection with itself.
    pub(crate) fn connected(&self) -> Pair {
        let (active, active_events) = self.connect();
        let passive_events = Arc::new(Events::default());
        let request = self.requests.next();
        let passive = request
            .accept(parameters(2), b"", passive_events.clone())
            .expect("accepted");
        active_events.assert_accepted();
        assert_eq!(passive_events.next(), ConnectionEvent::Established);
        Pair {
            active,
            active_events,
            passive,
            passive_events,
        }
    }
}

pub(crate) fn connect(
    manager: &Manager,
    qualifier: u64,
    timeout: Option<Duration>,
) -> (Connection, Arc<Events>) {
    let events = Arc::new(Events::default());
    let sink = events.clone();
    let connection = manager
        .connect(
            &local(),
            target(own(), qualifier, timeout),
            parameters(1),
            b"",
            sink,
        )
        .expect("the request is on its way");
    (connection, events)
}

/// Blocks a manager's service thread in a callback until dropped: meanwhile
/// commands are queued, and nothing is sent or received.
pub(crate) struct Held {
    gate: Arc<HoldingSink>,
    _listener: Listener,
    _connection: Connection,
}

#[derive(Default)]
struct HoldingSink {
    entered: EventQueue<()>,
    released: EventQueue<()>,
}

impl ListenSink for HoldingSink {
    fn request(&self, _refused: Request) {
        self.entered.put(());
        self.released.next();
    }
}

impl Held {
    pub(crate) fn new(manager: &Manager) -> Self {
        let gate = Arc::new(HoldingSink::default());
        let (listener, qualifier) = manager
            .listen_any(&local(), gate.clone())
            .expect("a listener");
        let (connection, _events) = connect(manager, qualifier, None);
        gate.entered.next();
        Self {
            gate,
            _listener: listener,
            _connection: connection,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before the listener is dropped, which waits for the callback.
        self.gate.released.put(());
    }
}

/// Both ends of a connection.
pub(crate) struct Pair {
    pub(crate) active: Connection,
    pub(crate) active_events: Arc<Events>,
    pub(crate) passive: Connection,
    pub(crate) passive_events: Arc<Events>,
}
