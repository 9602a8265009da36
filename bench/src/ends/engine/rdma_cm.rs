//! The engine with `-R`, and on iWARP, where only the kernel can connect a queue pair: the
//! two ends connect through rdma_cm.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use dat_engine::cm::{
    self, CmError, ConnectionEvent, ConnectionSink, ListenSink, Listener, Local, Manager,
    ManagerKind, ManagerOptions, Parameters, Request, Target,
};
use dat_engine::{ConnectOptions, EndpointHandle, Greeting};

use super::Engine;
use super::end::{Connection, EngineEnd, Outcome};
use crate::ends::dat::Dat;
use crate::ends::device_port::DevicePort;
use crate::ends::interface::Shape;
use crate::failure::Failure;
use crate::options::RunArgs;

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
                "-x {index} has no meaning with rdma_cm, by which -R and all iWARP devices connect: the IP address determines the GID; leave it out"
            )));
        }
        let device = device_port.device.info();
        let port = device_port.port.number;
        let transport = args.perftest.network.transport();
        let listen_on = args.listen()?;
        let address = listen_on
            .address()
            .or_else(|| cm::own_address(&device.name, port))
            .ok_or_else(|| {
                call_failed(CmError::NotServed(cm::why_no_address(&device.name, port)))
            })?;
        Ok(Self {
            engine: Engine::open(&device_port.device, device_port.port.clone(), true)?
                .through(None, transport),
            manager: Manager::start(ManagerKind::Rdma, ManagerOptions::default())
                .map_err(call_failed)?,
            local: Local {
                device: device.name.clone(),
                transport: device.transport,
                port,
                address,
                listen_on,
                options: transport,
            },
        })
    }
}

impl Dat for EngineRdmaCm {
    type End<const SHARED: bool> = EngineEnd<SHARED>;
    type Acceptor = Acceptor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(SocketAddr::new(self.local.address, 0))
    }

    fn end<const SHARED: bool>(&self, shape: &Shape) -> Result<EngineEnd<SHARED>, Failure> {
        let mut end = self.engine.end(shape)?;
        let limits = self.engine.domain.device().limits();
        let options = &mut end.options;
        options.reads_served = options.reads_served.min(limits.reads_served);
        options.reads_issued = options.reads_issued.min(limits.reads_issued);
        end.endpoint.init(&end.options)?;
        Ok(end)
    }

    fn listen(&self) -> Result<(Acceptor, u64), Failure> {
        let (sender, requests) = mpsc::channel();
        let sink = Arc::new(Requests(sender));
        let (listener, _) = self
            .manager
            .listen_any(&self.local, sink)
            .map_err(call_failed)?;
        let qualifier = listener.qualifier();
        let acceptor = Acceptor {
            _listener: listener,
            requests,
        };
        Ok((acceptor, qualifier))
    }

    fn accept<const SHARED: bool>(
        &self,
        acceptor: Acceptor,
        end: &mut EngineEnd<SHARED>,
        within: Duration,
        private_data: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let request = acceptor
            .requests
            .recv_timeout(within)
            .map_err(|_| Failure::timed_out("an rdma_cm connection request", within))?;
        let theirs = request.private_data().to_vec();
        let handle = end.endpoint.handle();
        let (sink, outcome) = end.sink(false, handle.greeting()?);
        handle.connect_by(&request.parameters().route, &end.options)?;
        let connection = request
            .accept(end.parameters(), private_data, sink)
            .map_err(call_failed)?;
        end.connection = Some(Connection {
            _kept: connection,
            outcome,
        });
        Ok(theirs)
    }

    fn connect<const SHARED: bool>(
        &self,
        end: &mut EngineEnd<SHARED>,
        (host, qualifier): (SocketAddr, u64),
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let target = Target {
            host,
            qualifier,
            timeout: Some(within),
        };
        let greets = end.endpoint.handle().prepare_request();
        let (sink, outcome) = end.sink(greets, None);
        let connection = self
            .manager
            .connect(&self.local, target, end.parameters(), private_data, sink)
            .map_err(call_failed)?;
        end.connection = Some(Connection {
            _kept: connection,
            outcome,
        });
        Ok(())
    }

    fn established<const SHARED: bool>(
        &self,
        end: &mut EngineEnd<SHARED>,
        within: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let result = end
            .connection
            .as_ref()
            .and_then(|connection| connection.outcome.recv_timeout(within).ok());
        let private_data =
            result.ok_or_else(|| Failure::timed_out("an rdma_cm connection", within))??;
        end.endpoint.open_sends();
        Ok(private_data)
    }
}

impl<const SHARED: bool> EngineEnd<SHARED> {
    fn parameters(&self) -> Parameters {
        Parameters {
            address: self.address,
            reads_served: self.options.reads_served,
            reads_requested: self.options.reads_issued,
        }
    }

    /// Creates the sink of the connection's events, and the receiver of the
    /// result. `greets` is for the requesting side, `greeting` for the accepting
    /// side (see `dat_engine::Greeting`).
    fn sink(&self, greets: bool, greeting: Option<Arc<Greeting>>) -> (Arc<Sink>, Outcome) {
        let (result, outcome) = mpsc::channel();
        let sink = Sink {
            handle: self.endpoint.handle(),
            options: self.options,
            greets,
            greeting,
            result,
        };
        (Arc::new(sink), outcome)
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
pub(crate) struct Acceptor {
    _listener: Listener,
    requests: Receiver<Request>,
}

struct Requests(Sender<Request>);

impl ListenSink for Requests {
    fn request(&self, request: Request) {
        // If no end waits for a request any more, dropping it rejects it.
        let _ = self.0.send(request);
    }
}

fn call_failed(error: CmError) -> Failure {
    Failure::environment(format!("cannot connect through rdma_cm: {error}"))
}
