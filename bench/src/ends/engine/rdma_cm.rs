//! The engine on iWARP, where only the kernel can connect a queue pair: the two
//! ends connect through rdma_cm.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::cm::{
    self, CmError, Connection, ConnectionEvent, ConnectionSink, ListenSink, Listener, Local,
    Manager, ManagerKind, ManagerOptions, Parameters, Request, Target,
};
use dat_engine::{ConnectOptions, DataInOrder, EndpointHandle, Greeting, TransportOptions};

use super::{Engine, EngineEnd};
use crate::cli::RunArgs;
use crate::ends::dat::{Acceptor, Answer, Dat, DatEnd};
use crate::ends::device_port::DevicePort;
use crate::ends::link::{CompletionResult, End, Fault, Link};
use crate::ends::payload::Payload;
use crate::ends::setup::Setup;
use crate::failure::Failure;

/// The engine with an rdma_cm connection manager.
pub(crate) struct EngineRdmaCm {
    engine: Engine,
    manager: Manager,
    local: Local,
}

impl EngineRdmaCm {
    /// Opens the engine and starts the connection manager, which has a thread.
    pub(crate) fn open(device_port: &DevicePort, args: &RunArgs) -> Result<Self, Failure> {
        if let Some(index) = args.gid_index {
            return Err(Failure::usage(format!(
                "-x {index} has no meaning on an iWARP device, which has no GIDs; leave it out"
            )));
        }
        let device = device_port.device.info();
        let port = device_port.port.number;
        let listen_on = args.listen()?;
        let address = listen_on
            .address()
            .or_else(|| cm::own_address(&device.name, port))
            .ok_or_else(|| {
                call_failed(CmError::NotServed(cm::why_no_address(&device.name, port)))
            })?;
        Ok(Self {
            engine: Engine::open(device_port, args)?,
            manager: Manager::start(ManagerKind::Rdma, ManagerOptions::default())
                .map_err(call_failed)?,
            local: Local {
                device: device.name.clone(),
                transport: device.transport,
                port,
                address,
                listen_on,
                options: TransportOptions::default(),
            },
        })
    }
}

impl Dat for EngineRdmaCm {
    type End = RdmaCmEnd;
    type Acceptor = RdmaCmAcceptor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(SocketAddr::new(self.local.address, 0))
    }

    fn end(&self, setup: &Setup) -> Result<RdmaCmEnd, Failure> {
        let mut end = EngineEnd::create(&self.engine, setup)?;
        let limits = self.engine.domain.device().limits();
        let options = &mut end.options;
        options.reads_served = options.reads_served.min(limits.reads_served);
        options.reads_issued = options.reads_issued.min(limits.reads_issued);
        end.endpoint.init(&end.options)?;
        end.post_receives()?;
        Ok(RdmaCmEnd {
            connected: None,
            manager: self.manager.clone(),
            local: self.local.clone(),
            end,
        })
    }

    fn listen(&self) -> Result<RdmaCmAcceptor, Failure> {
        let (sender, requests) = mpsc::channel();
        let sink = Arc::new(Requests(sender));
        let (listener, _) = self
            .manager
            .listen_any(&self.local, sink)
            .map_err(call_failed)?;
        Ok(RdmaCmAcceptor { listener, requests })
    }
}

/// An endpoint with its connection.
pub(crate) struct RdmaCmEnd {
    // Dropped first: the connection uses the endpoint.
    connected: Option<Connected>,
    manager: Manager,
    local: Local,
    end: EngineEnd,
}

/// An established connection, or one in progress.
struct Connected {
    _connection: Connection,
    outcome: Outcome,
}

/// Receives the result of connecting: the peer's private data, or the failure.
type Outcome = Receiver<Result<Vec<u8>, Failure>>;

impl RdmaCmEnd {
    fn parameters(&self) -> Parameters {
        Parameters {
            address: self.end.address,
            reads_served: self.end.options.reads_served,
            reads_requested: self.end.options.reads_issued,
        }
    }

    /// Creates the sink of the connection's events, and the receiver of the
    /// result. `greets` is for the requesting side, `greeting` for the accepting
    /// side (see `dat_engine::Greeting`).
    fn sink(&self, greets: bool, greeting: Option<Arc<Greeting>>) -> (Arc<Sink>, Outcome) {
        let (result, outcome) = mpsc::channel();
        let sink = Sink {
            handle: self.end.endpoint.handle(),
            options: self.end.options,
            greets,
            greeting,
            result,
        };
        (Arc::new(sink), outcome)
    }

    fn accept(&mut self, request: Request, private_data: &[u8]) -> Result<(), Failure> {
        let handle = self.end.endpoint.handle();
        let (sink, outcome) = self.sink(false, handle.greeting()?);
        handle.connect_by(&request.parameters().route, &self.end.options)?;
        let connection = request
            .accept(self.parameters(), private_data, sink)
            .map_err(call_failed)?;
        self.connected = Some(Connected {
            _connection: connection,
            outcome,
        });
        Ok(())
    }
}

impl DatEnd for RdmaCmEnd {
    fn exposed_buffer(&self) -> RemoteSegment {
        let buffer = &self.end.buffer;
        RemoteSegment {
            context: buffer.region().rkey(),
            address: buffer.as_ptr().addr().get() as u64,
            length: buffer.len() as u64,
        }
    }

    fn set_remote_buffer(&mut self, theirs: RemoteSegment) {
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
            .map_err(call_failed)?;
        self.connected = Some(Connected {
            _connection: connection,
            outcome,
        });
        Ok(())
    }

    fn established(&mut self, within: Duration) -> Result<Vec<u8>, Failure> {
        let result = self
            .connected
            .as_ref()
            .and_then(|connected| connected.outcome.recv_timeout(within).ok());
        let private_data =
            result.ok_or_else(|| Failure::timed_out("an rdma_cm connection", within))??;
        self.end.endpoint.open_sends();
        Ok(private_data)
    }
}

/// Passes the events of a connection on to its end.
struct Sink {
    handle: EndpointHandle,
    options: ConnectOptions,
    greets: bool,
    greeting: Option<Arc<Greeting>>,
    result: Sender<Result<Vec<u8>, Failure>>,
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
            other => Err(Failure::run(format!(
                "the rdma_cm connection was not established: {other:?}"
            ))),
        };
        let answer = outcome.as_ref().map(drop).map_err(drop);
        // Fails for events after the end of the run, which are not needed.
        let _ = self.result.send(outcome);
        answer
    }

    fn greets(&self) -> bool {
        self.greets
    }

    fn greeting(&self) -> Option<Arc<Greeting>> {
        self.greeting.clone()
    }
}

/// A listener and the queue of its connection requests.
pub(crate) struct RdmaCmAcceptor {
    listener: Listener,
    requests: Receiver<Request>,
}

struct Requests(Sender<Request>);

impl ListenSink for Requests {
    fn request(&self, request: Request) {
        // If no end waits for a request any more, dropping it rejects it.
        let _ = self.0.send(request);
    }
}

impl Acceptor<RdmaCmEnd> for RdmaCmAcceptor {
    fn qualifier(&self) -> u64 {
        self.listener.qualifier()
    }

    fn accept(
        self,
        end: &mut RdmaCmEnd,
        within: Duration,
        answer: Answer<'_, RdmaCmEnd>,
    ) -> Result<(), Failure> {
        let request = self
            .requests
            .recv_timeout(within)
            .map_err(|_| Failure::timed_out("an rdma_cm connection request", within))?;
        let private_data = answer(end, request.private_data())?;
        end.accept(request, &private_data)
    }
}

impl End for RdmaCmEnd {
    fn set_request_size(&mut self, size: u32) {
        self.end.set_request_size(size);
    }

    fn payload(&mut self) -> &mut Payload {
        self.end.payload()
    }

    fn data_in_order(&self) -> DataInOrder {
        self.end.data_in_order()
    }
}

impl Link for RdmaCmEnd {
    #[inline(always)]
    fn post_receive(&mut self) -> Result<(), Fault> {
        self.end.post_receive()
    }

    #[inline(always)]
    fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        self.end.post(signaled)
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        self.end.post_empty(signaled)
    }

    #[inline(always)]
    fn post_list(&mut self, signaled: &[bool]) -> Result<(), Fault> {
        self.end.post_list(signaled)
    }

    #[inline(always)]
    fn post_grant(&mut self, received: u32) -> Result<(), Fault> {
        self.end.post_grant(received)
    }

    #[inline(always)]
    fn granted(&self) -> Option<u32> {
        self.end.granted()
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<CompletionResult> {
        self.end.poll_sent()
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<CompletionResult> {
        self.end.poll_received()
    }

    #[inline(always)]
    fn write_sequence(&mut self, sequence: u8) {
        self.end.write_sequence(sequence);
    }

    #[inline(always)]
    fn read_sequence(&self) -> u8 {
        self.end.read_sequence()
    }
}

fn call_failed(error: CmError) -> Failure {
    Failure::environment(format!("cannot connect through rdma_cm: {error}"))
}
