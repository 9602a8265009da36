//! Connections on iWARP, where only the kernel's connection manager can connect a
//! queue pair: two endpoints of this process connect over rdma_cm.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dat_engine::cm::{
    Connection, ConnectionEvent, ConnectionSink, ListenOn, ListenSink, Listener, Local, Manager,
    ManagerKind, ManagerOptions, Parameters, Request, Target, own_address,
};
use dat_engine::{ConnectOptions, Endpoint, EndpointHandle, Greeting, Transport, TransportOptions};

pub use super::device::installed::is_iwarp;
use super::device::{self, TIMEOUT};

/// Connects two endpoints, which may post afterwards.
pub fn join(ends: [&mut Endpoint; 2], options: &ConnectOptions) {
    join_handles(&ends.each_ref().map(|end| end.handle()), options);
    for end in ends {
        assert!(end.open_receives() && end.open_sends());
    }
}

/// Connects two endpoints by their handles. The first connects, the second
/// accepts.
pub fn join_handles(handles: &[EndpointHandle; 2], options: &ConnectOptions) {
    let exchange = Exchange::of_this_process();
    for handle in handles {
        // An endpoint that is already initialised stays so.
        let _ = handle.init(options);
    }
    let [active, passive] = handles;
    let (asking, accepted) = Sink::new(active, options, active.prepare_request(), None);
    let target = Target {
        host: (exchange.local.address, 0).into(),
        qualifier: exchange.listener.qualifier(),
        timeout: Some(TIMEOUT),
    };
    let asked = exchange
        .manager
        .connect(
            &exchange.local,
            target,
            parameters(active, options),
            b"",
            asking,
        )
        .expect("a request");
    let requests = exchange.requests.lock();
    let request = requests
        .unwrap_or_else(PoisonError::into_inner)
        .recv_timeout(TIMEOUT)
        .expect("the request comes");
    let greeting = passive.greeting().expect("a greeting");
    passive
        .connect_by(&request.parameters().route, options)
        .expect("the accepting endpoint is ready");
    let (accepting, established) = Sink::new(passive, options, false, greeting);
    let accepts = request
        .accept(parameters(passive, options), b"", accepting)
        .expect("an answer");
    for events in [accepted, established] {
        match events
            .recv_timeout(TIMEOUT)
            .expect("the connection is made")
        {
            ConnectionEvent::Accepted { .. } | ConnectionEvent::Established => {}
            other => panic!("no connection: {other:?}"),
        }
    }
    made().extend([asked, accepts]);
}

/// Ends the connections of a test.
pub fn forget() {
    made().clear();
}

/// The connections that tests have made. Each lasts until it is removed from this
/// list.
fn made() -> std::sync::MutexGuard<'static, Vec<Connection>> {
    static MADE: Mutex<Vec<Connection>> = Mutex::new(Vec::new());
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parameters(handle: &EndpointHandle, options: &ConnectOptions) -> Parameters {
    Parameters {
        address: handle.local_address(1).expect("an active port"),
        reads_served: options.reads_served,
        reads_requested: options.reads_issued,
    }
}

/// A manager with one listener, for all tests of the process.
struct Exchange {
    manager: Manager,
    local: Local,
    listener: Listener,
    requests: Mutex<Receiver<Request>>,
}

impl Exchange {
    fn of_this_process() -> &'static Self {
        static EXCHANGE: OnceLock<Exchange> = OnceLock::new();
        EXCHANGE.get_or_init(|| {
            let device = device::name().to_owned();
            let address = own_address(&device, 1).expect("the device has an address");
            let local = Local {
                device,
                transport: Transport::Iwarp,
                port: 1,
                address,
                listen_on: ListenOn::All,
                options: TransportOptions::default(),
            };
            let manager = Manager::start(ManagerKind::Rdma, ManagerOptions::default())
                .expect("rdma_cm is available in the kernel");
            let (sender, requests) = mpsc::channel();
            let (listener, _) = manager
                .listen_any(&local, Arc::new(Requests(sender)))
                .expect("a listener");
            Self {
                manager,
                local,
                listener,
                requests: Mutex::new(requests),
            }
        })
    }
}

struct Requests(Sender<Request>);

impl ListenSink for Requests {
    fn request(&self, request: Request) {
        let _ = self.0.send(request);
    }
}

/// Moves an endpoint with its connection, and forwards the events.
struct Sink {
    handle: EndpointHandle,
    options: ConnectOptions,
    greets: bool,
    greeting: Option<Arc<Greeting>>,
    sender: Sender<ConnectionEvent>,
}

impl Sink {
    fn new(
        handle: &EndpointHandle,
        options: &ConnectOptions,
        greets: bool,
        greeting: Option<Arc<Greeting>>,
    ) -> (Arc<Self>, Receiver<ConnectionEvent>) {
        let (sender, events) = mpsc::channel();
        let sink = Self {
            handle: handle.clone(),
            options: *options,
            greets,
            greeting,
            sender,
        };
        (Arc::new(sink), events)
    }
}

impl ConnectionSink for Sink {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        if let ConnectionEvent::Accepted { peer, .. } = &event {
            let followed = self.handle.connect_by(&peer.route, &self.options);
            followed.map_err(|error| println!("{error}"))?;
        }
        // Later events report the end of the connection, which no test waits for.
        let _ = self.sender.send(event);
        Ok(())
    }

    fn greets(&self) -> bool {
        self.greets
    }

    fn greeting(&self) -> Option<Arc<Greeting>> {
        self.greeting.clone()
    }
}
