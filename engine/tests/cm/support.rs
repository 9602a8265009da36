//! Sinks that remember, and connections ready-made.

use dat_engine::cm::{
    Connection, ConnectionEvent, ConnectionSink, ListenSink, Listener, Local, Manager, ManagerKind,
    ManagerOptions, Parameters, Peer, Request, Target,
};
use dat_engine::{EndpointAddress, LinkLayer, Route};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything takes that is going to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than anything takes on loopback that ought not to happen.
pub(crate) const QUIET: Duration = Duration::from_millis(50);

/// A queue that another thread fills.
pub(crate) struct Mailbox<T> {
    letters: Mutex<VecDeque<T>>,
    came: Condvar,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            letters: Mutex::default(),
            came: Condvar::new(),
        }
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn put(&self, letter: T) {
        self.letters.lock().unwrap().push_back(letter);
        self.came.notify_all();
    }

    pub(crate) fn within(&self, time: Duration) -> Option<T> {
        let end = Instant::now() + time;
        let mut letters = self.letters.lock().unwrap();
        loop {
            if let Some(letter) = letters.pop_front() {
                return Some(letter);
            }
            let left = end.checked_duration_since(Instant::now())?;
            letters = self.came.wait_timeout(letters, left).unwrap().0;
        }
    }

    pub(crate) fn next(&self) -> T {
        self.within(PATIENCE).expect("something comes in time")
    }
}

/// Remembers what happens to a connection.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) mailbox: Mailbox<ConnectionEvent>,
    /// The answer to `Accepted` is `Err`.
    pub(crate) refuses: bool,
}

impl Events {
    pub(crate) fn next(&self) -> ConnectionEvent {
        self.mailbox.next()
    }

    /// Nothing (more) happens.
    pub(crate) fn assert_quiet(&self) {
        assert_eq!(self.mailbox.within(QUIET), None);
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
        self.mailbox.put(event);
        if self.refuses { Err(()) } else { Ok(()) }
    }
}

/// Remembers requests.
#[derive(Default)]
pub(crate) struct Requests(pub(crate) Mailbox<Request>);

impl Requests {
    pub(crate) fn next(&self) -> Request {
        self.0.next()
    }

    pub(crate) fn assert_quiet(&self) {
        assert!(self.0.within(QUIET).is_none());
    }
}

impl ListenSink for Requests {
    fn request(&self, request: Request) {
        self.0.put(request);
    }
}

pub(crate) fn start() -> Manager {
    Manager::start(ManagerKind::Socket, ManagerOptions::default()).expect("a manager")
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Of no device: over TCP it does not matter.
pub(crate) fn local() -> Local {
    Local {
        device: String::new(),
        port: 1,
        address: loopback().ip(),
    }
}

pub(crate) fn target(host: SocketAddr, qualifier: u64, timeout: Option<Duration>) -> Target {
    Target {
        host,
        qualifier,
        timeout,
    }
}

/// What the peer is told of [`parameters`].
pub(crate) fn peer(number: u8) -> Peer {
    let parameters = parameters(number);
    Peer {
        route: Route::Address(parameters.address),
        reads_served: parameters.reads_served,
        reads_asked: parameters.reads_asked,
    }
}

/// Parameters that differ in every field from those of another number.
pub(crate) fn parameters(number: u8) -> Parameters {
    let address = EndpointAddress {
        qpn: 0x10_0000 + u32::from(number),
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
        reads_served: number.wrapping_add(100),
        reads_asked: number.wrapping_add(200),
    }
}

/// Somebody who listens.
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
        let manager = Manager::start(ManagerKind::Socket, options).expect("a manager");
        let requests = Arc::new(Requests::default());
        let (listener, qualifier) = manager
            .listen_any(&local(), requests.clone())
            .expect("a listener");
        Self {
            manager,
            listener,
            qualifier,
            requests,
        }
    }

    /// Where a raw stream finds it.
    pub(crate) fn raw_address(&self) -> SocketAddr {
        let mut address = loopback();
        address.set_port(u16::try_from(self.qualifier).expect("a port"));
        address
    }

    /// Requests a connection with itself, without a timeout.
    pub(crate) fn connect(&self) -> (Connection, Arc<Events>) {
        connect(&self.manager, self.qualifier, None)
    }

    /// A connection with itself, made.
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
            target(loopback(), qualifier, timeout),
            parameters(1),
            b"",
            sink,
        )
        .expect("the request is on its way");
    (connection, events)
}

/// Both ends of a connection.
pub(crate) struct Pair {
    pub(crate) active: Connection,
    pub(crate) active_events: Arc<Events>,
    pub(crate) passive: Connection,
    pub(crate) passive_events: Arc<Events>,
}
