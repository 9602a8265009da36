//! The engine on iWARP: the kernel's connection manager alone connects a queue
//! pair there, so the two ends find each other by rdma_cm, as those of DAT do
//! by DAT's connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::cm::{
    self, CmError, Connection, ConnectionEvent, ConnectionSink, ListenSink, Listener, Local,
    Manager, ManagerKind, ManagerOptions, Parameters, Request, Target,
};
use dat_engine::{ConnectOptions, EndpointHandle, Greeting};

use super::{Engine, EngineEnd};
use crate::cli::LatArgs;
use crate::failure::Failure;
use crate::lat::dat::{Answer, Dat, DatEnd, Door, nobody};
use crate::lat::ground::Ground;
use crate::lat::link::{Done, End, Fault, Link};
use crate::lat::payload::Payload;
use crate::lat::plan::Plan;

/// The engine, and rdma_cm on its port.
pub(in crate::lat) struct Managed {
    engine: Engine,
    manager: Manager,
    local: Local,
}

impl Managed {
    /// Starts the manager, and so a thread.
    pub(in crate::lat) fn open(ground: &Ground, args: &LatArgs) -> Result<Self, Failure> {
        if let Some(index) = args.gid_index {
            return Err(Failure::usage(format!(
                "GID {index} was asked for, and an iWARP device has no GIDs; leave -x out"
            )));
        }
        let device = ground.device.info();
        let port = ground.port.number;
        let listen_on = args.listen()?;
        let address = listen_on
            .address()
            .or_else(|| cm::own_address(&device.name, port))
            .ok_or_else(|| refused(CmError::NotServed(cm::why_no_address(&device.name, port))))?;
        Ok(Self {
            engine: Engine::open(ground, args)?,
            manager: Manager::start(ManagerKind::Rdma, ManagerOptions::default())
                .map_err(refused)?,
            local: Local {
                device: device.name.clone(),
                transport: device.transport,
                port,
                address,
                listen_on,
            },
        })
    }
}

impl Dat for Managed {
    type End = ManagedEnd;
    type Door = ManagedDoor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(SocketAddr::new(self.local.address, 0))
    }

    fn end(&self, plan: &Plan) -> Result<ManagedEnd, Failure> {
        let mut end = EngineEnd::create(&self.engine, plan)?;
        let limits = self.engine.domain.device().limits();
        let options = &mut end.options;
        options.reads_served = options.reads_served.min(limits.reads_served);
        options.reads_issued = options.reads_issued.min(limits.reads_issued);
        end.endpoint.init(&end.options)?;
        end.post_receives()?;
        Ok(ManagedEnd {
            connected: None,
            manager: self.manager.clone(),
            local: self.local.clone(),
            end,
        })
    }

    fn listen(&self) -> Result<ManagedDoor, Failure> {
        let (sender, requests) = mpsc::channel();
        let sink = Arc::new(Requests(sender));
        let (listener, _) = self
            .manager
            .listen_any(&self.local, sink)
            .map_err(refused)?;
        Ok(ManagedDoor { listener, requests })
    }
}

/// An endpoint, and its connection.
pub(in crate::lat) struct ManagedEnd {
    // Dropped first: the connection is that of the endpoint.
    connected: Option<Connected>,
    manager: Manager,
    local: Local,
    end: EngineEnd,
}

/// A connection that is made, or being made.
struct Connected {
    _connection: Connection,
    outcome: Outcome,
}

/// Where it is told what came of a connection: the peer's private data, or why
/// there is none.
type Outcome = Receiver<Result<Vec<u8>, Failure>>;

impl ManagedEnd {
    fn parameters(&self) -> Parameters {
        Parameters {
            address: self.end.address,
            reads_served: self.end.options.reads_served,
            reads_requested: self.end.options.reads_issued,
        }
    }

    /// The sink of its connection, and where the outcome is told. The one who
    /// accepts awaits a greeting, if the device's requesters greet.
    fn sink(&self, greets: bool, greeting: Option<Arc<Greeting>>) -> (Arc<Sink>, Outcome) {
        let (told, outcome) = mpsc::channel();
        let sink = Sink {
            handle: self.end.endpoint.handle(),
            options: self.end.options,
            greets,
            greeting,
            told,
        };
        (Arc::new(sink), outcome)
    }

    fn accept(&mut self, request: Request, private_data: &[u8]) -> Result<(), Failure> {
        let handle = self.end.endpoint.handle();
        let (sink, outcome) = self.sink(false, handle.greeting()?);
        handle.connect_by(&request.parameters().route, &self.end.options)?;
        let connection = request
            .accept(self.parameters(), private_data, sink)
            .map_err(refused)?;
        self.connected = Some(Connected {
            _connection: connection,
            outcome,
        });
        Ok(())
    }
}

impl DatEnd for ManagedEnd {
    fn window(&self) -> RemoteSegment {
        let buffer = &self.end.buffer;
        RemoteSegment {
            context: buffer.region().rkey(),
            address: buffer.as_ptr().addr().get() as u64,
            length: buffer.len() as u64,
        }
    }

    fn face(&mut self, theirs: RemoteSegment) {
        self.end.remote = (theirs.address, theirs.context);
    }

    fn connect(
        &mut self,
        to: SocketAddr,
        qualifier: u64,
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let target = Target {
            host: to,
            qualifier,
            timeout: Some(within),
        };
        let greets = self.end.endpoint.handle().prepare_request();
        let (sink, outcome) = self.sink(greets, None);
        let connection = self
            .manager
            .connect(&self.local, target, self.parameters(), private_data, sink)
            .map_err(refused)?;
        self.connected = Some(Connected {
            _connection: connection,
            outcome,
        });
        Ok(())
    }

    fn established(&mut self, within: Duration) -> Result<Vec<u8>, Failure> {
        let told = self
            .connected
            .as_ref()
            .and_then(|connected| connected.outcome.recv_timeout(within).ok());
        let private_data = told.ok_or_else(|| nobody("an rdma_cm connection", within))??;
        self.end.endpoint.open_sends();
        Ok(private_data)
    }
}

/// Passes on what comes of a connection.
struct Sink {
    handle: EndpointHandle,
    options: ConnectOptions,
    greets: bool,
    greeting: Option<Arc<Greeting>>,
    told: Sender<Result<Vec<u8>, Failure>>,
}

impl ConnectionSink for Sink {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        let outcome = match event {
            ConnectionEvent::Accepted { peer, private_data } => self
                .handle
                .connect_by(&peer.route, &self.options)
                .map(|()| private_data)
                .map_err(Failure::from),
            ConnectionEvent::Established => Ok(Vec::new()),
            other => Err(Failure::run(format!("no rdma_cm connection: {other:?}"))),
        };
        let answer = outcome.as_ref().map(drop).map_err(drop);
        // What comes later, the end of the run, is not needed.
        let _ = self.told.send(outcome);
        answer
    }

    fn greets(&self) -> bool {
        self.greets
    }

    fn greeting(&self) -> Option<Arc<Greeting>> {
        self.greeting.clone()
    }
}

/// A listener with its requests.
pub(in crate::lat) struct ManagedDoor {
    listener: Listener,
    requests: Receiver<Request>,
}

struct Requests(Sender<Request>);

impl ListenSink for Requests {
    fn request(&self, request: Request) {
        // Dropped, and so refused, if no end waits for a request any more.
        let _ = self.0.send(request);
    }
}

impl Door<ManagedEnd> for ManagedDoor {
    fn qualifier(&self) -> u64 {
        self.listener.qualifier()
    }

    fn accept(
        self,
        end: &mut ManagedEnd,
        within: Duration,
        answer: Answer<'_, ManagedEnd>,
    ) -> Result<(), Failure> {
        let request = self
            .requests
            .recv_timeout(within)
            .map_err(|_| nobody("a request to connect by rdma_cm", within))?;
        let private_data = answer(end, request.private_data())?;
        end.accept(request, &private_data)
    }
}

impl End for ManagedEnd {
    fn aim(&mut self, size: u32) {
        self.end.aim(size);
    }

    fn payload(&mut self) -> &mut Payload {
        self.end.payload()
    }
}

impl Link for ManagedEnd {
    #[inline(always)]
    fn post_receive(&mut self) -> Result<(), Fault> {
        self.end.post_receive()
    }

    #[inline(always)]
    fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        self.end.post(signaled)
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<Done> {
        self.end.poll_sent()
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<Done> {
        self.end.poll_received()
    }

    #[inline(always)]
    fn stamp(&mut self, sequence: u8) {
        self.end.stamp(sequence);
    }

    #[inline(always)]
    fn arrived(&self) -> u8 {
        self.end.arrived()
    }
}

fn refused(error: CmError) -> Failure {
    Failure::environment(format!("no connections by rdma_cm: {error}"))
}
