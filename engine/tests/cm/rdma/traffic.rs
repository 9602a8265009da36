//! Endpoints that are connected by rdma_cm carry messages.

use super::host;
use crate::cm::support::{EventQueue, Host, local, own, target};
use dat_engine::cm::{Connection, ConnectionEvent, ConnectionSink, Local, Parameters, Peer};
use dat_engine::{
    Access, Completion, CompletionOp, CompletionQueue, ConnectOptions, ControlErrorKind, CqOptions,
    Device, Endpoint, EndpointHandle, EndpointOptions, RecvRequest, RegisteredBuffer, SendFlags,
    SendOp, SendRequest, Status, TransportOptions,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

struct End {
    endpoint: Endpoint,
    cq: CompletionQueue,
    buffer: RegisteredBuffer,
}

impl End {
    fn new(device: &Device) -> Self {
        let domain = device.alloc_pd().expect("a protection domain");
        let options = CqOptions {
            depth: 64,
            ..CqOptions::default()
        };
        let cq = device.create_cq(&options).expect("a completion queue");
        let options = EndpointOptions {
            send_depth: 8,
            recv_depth: 8,
            ..EndpointOptions::new(cq.handle(), cq.handle())
        };
        let mut endpoint = domain.create_endpoint(&options).expect("an endpoint");
        endpoint.init(&options_of()).expect("INIT");
        let buffer = domain.allocate(4096, Access::default()).expect("memory");
        Self {
            endpoint,
            cq,
            buffer,
        }
    }

    fn parameters(&self) -> Parameters {
        Parameters {
            address: self.endpoint.local_address(1).expect("an address"),
            reads_served: 4,
            reads_requested: 4,
        }
    }

    fn receive(&mut self) {
        let segments = [self.buffer.segment(2048, 64).expect("inside")];
        let request = RecvRequest {
            wr_id: 1,
            segments: &segments,
        };
        // SAFETY: the buffer is dropped after the endpoint's requests have
        // completed.
        unsafe { self.endpoint.post_recv(&request) }.expect("room for a receive");
    }

    fn send(&mut self, text: &[u8]) {
        // SAFETY: the buffer is longer than any text, and its first half has no
        // other user.
        unsafe {
            let to = self.buffer.as_ptr().as_ptr();
            std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
        }
        let length = u32::try_from(text.len()).expect("a short text");
        let segments = [self.buffer.segment(0, length).expect("inside")];
        let request = SendRequest {
            wr_id: 2,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            segments: &segments,
        };
        self.endpoint.open_sends();
        // SAFETY: as in `receive`.
        unsafe { self.endpoint.post_send(&request) }.expect("room for a send");
    }

    fn completion(&mut self) -> Completion {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(completion) = self.cq.poll() {
                return completion;
            }
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
    }

    fn received(&mut self) -> Vec<u8> {
        let completion = self.completion();
        assert_eq!(
            (completion.op, completion.status),
            (CompletionOp::Recv, Status::Success)
        );
        let length = completion.byte_len as usize;
        // SAFETY: the message has arrived, and no receive is posted for the next.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().as_ptr().add(2048), length) }
            .to_vec()
    }
}

/// A traffic class that no route has by default.
const CLASS: u8 = 104;

/// Returns options with retries and reads that are not the defaults.
fn options_of() -> ConnectOptions {
    ConnectOptions {
        transport: TransportOptions {
            retry: Some(5),
            rnr_retry: Some(6),
            traffic_class: Some(CLASS),
            sl: Some(3),
            ..TransportOptions::default()
        },
        // A power of two, since Soft-RoCE rounds up to one.
        reads_issued: 2,
        reads_served: 4,
        ..ConnectOptions::default()
    }
}

/// A sink that moves its endpoint at each event.
struct Mover {
    handle: EndpointHandle,
    options: ConnectOptions,
    events: EventQueue<ConnectionEvent>,
}

impl Mover {
    fn of(end: &End) -> Arc<Self> {
        Self::with(end, options_of())
    }

    fn with(end: &End, options: ConnectOptions) -> Arc<Self> {
        Arc::new(Self {
            handle: end.endpoint.handle(),
            options,
            events: EventQueue::default(),
        })
    }

    fn bring_up(&self, peer: &Peer) {
        self.handle
            .connect_by(&peer.route, &self.options)
            .expect("the endpoint follows");
    }
}

impl ConnectionSink for Mover {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        if let ConnectionEvent::Accepted { peer, .. } = &event {
            self.bring_up(peer);
        }
        self.events.put(event);
        Ok(())
    }
}

struct Bound {
    _connections: [Connection; 2],
    movers: [Arc<Mover>; 2],
}

impl Bound {
    fn connect(host: &Host, to: IpAddr, active: &End, passive: &End) -> Self {
        Self::with(host, to, [active, passive], &options_of())
    }

    /// Connects the active and the passive end with these options.
    fn with(
        host: &Host,
        to: IpAddr,
        [active, passive]: [&End; 2],
        options: &ConnectOptions,
    ) -> Self {
        let movers = [active, passive].map(|end| Mover::with(end, *options));
        let from = Local {
            options: options.transport,
            ..local()
        };
        let to = target(SocketAddr::new(to, 0), host.qualifier, None);
        let sink = movers[0].clone();
        let made = host
            .manager
            .connect(&from, to, active.parameters(), b"", sink);
        let request = host.requests.next();
        movers[1].bring_up(request.parameters());
        let accepted = request.accept(passive.parameters(), b"", movers[1].clone());
        assert!(matches!(
            movers[0].events.next(),
            ConnectionEvent::Accepted { .. }
        ));
        assert_eq!(movers[1].events.next(), ConnectionEvent::Established);
        Self {
            _connections: [made.expect("requested"), accepted.expect("accepted")],
            movers,
        }
    }

    fn disconnect(self) {
        self._connections[0].disconnect();
        for mover in &self.movers {
            assert_eq!(mover.events.next(), ConnectionEvent::Disconnected);
        }
    }
}

fn device() -> Device {
    Device::open(&local().device).expect("the device")
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn the_device_has_the_application_s_and_the_kernel_s_settings() {
    let (host, device) = (host(), device());
    let (active, passive) = (End::new(&device), End::new(&device));
    let _bound = Bound::connect(&host, own().ip(), &active, &passive);
    for (end, peer) in [(&active, &passive), (&passive, &active)] {
        let attributes = end
            .endpoint
            .verbs()
            .query()
            .expect("a connected queue pair");
        assert_eq!(attributes.peer_qpn, peer.endpoint.qpn());
        // The kernel leaves it 0, which is the longest delay: 655 ms.
        assert_eq!(attributes.min_rnr_timer, 12);
        assert_eq!((attributes.retry, attributes.rnr_retry), (5, 6));
        // Soft-RoCE does not report the service level.
        assert_eq!(attributes.traffic_class, CLASS);
        assert_eq!((attributes.reads_issued, attributes.reads_served), (2, 4));
        let port = device.port(1).expect("the port");
        assert_eq!(attributes.mtu, port.active_mtu.code());
        // The kernel's own value would be 19 (two seconds). To the value that it
        // was given it adds the delay of the requester's device, for the other
        // side.
        let least = TransportOptions::TIMEOUT;
        assert!(
            (least..=least + 3).contains(&attributes.timeout),
            "{attributes:?}"
        );
        // The entry of the address that was connected to.
        let entry = port
            .gids
            .iter()
            .find(|gid| gid.index == attributes.gid_index);
        let ip = std::net::Ipv6Addr::from(entry.expect("a GID").gid.0);
        assert_eq!(ip.to_canonical(), own().ip());
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn messages_go_both_ways_over_ipv4_and_ipv6() {
    let (host, device) = (host(), device());
    let all = if_addrs::get_if_addrs().unwrap();
    let ours = all.iter().find(|one| one.ip() == own().ip()).unwrap();
    let usable = |one: &&if_addrs::Interface| match one.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    let addresses = all
        .iter()
        .filter(|one| one.name == ours.name)
        .filter(usable);
    for address in addresses.map(if_addrs::Interface::ip) {
        let (mut active, mut passive) = (End::new(&device), End::new(&device));
        passive.receive();
        active.receive();
        let bound = Bound::connect(&host, address, &active, &passive);
        active.send(b"question");
        assert_eq!(active.completion().status, Status::Success, "{address}");
        assert_eq!(passive.received(), b"question");
        passive.send(b"answer");
        assert_eq!(passive.completion().status, Status::Success, "{address}");
        assert_eq!(active.received(), b"answer");
        bound.disconnect();
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_message_before_its_receive_is_repeated_soon() {
    let (host, device) = (host(), device());
    let (mut active, mut passive) = (End::new(&device), End::new(&device));
    // Without a limit of retries: six take less time than the receive.
    let mut options = options_of();
    options.transport.rnr_retry = None;
    let _bound = Bound::with(&host, own().ip(), [&active, &passive], &options);
    let begun = Instant::now();
    active.send(b"early");
    std::thread::sleep(Duration::from_millis(20));
    passive.receive();
    assert_eq!(passive.received(), b"early");
    // Sooner than the 655 ms of the kernel's setting.
    assert!(
        begun.elapsed() < Duration::from_millis(400),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn endpoints_that_are_reset_connect_again_at_once() {
    let (host, device) = (host(), device());
    let (mut active, mut passive) = (End::new(&device), End::new(&device));
    for round in 0..3_u8 {
        passive.receive();
        let begun = Instant::now();
        let bound = Bound::connect(&host, own().ip(), &active, &passive);
        active.send(&[round; 3]);
        assert_eq!(passive.received(), [round; 3]);
        assert_eq!(active.completion().status, Status::Success);
        bound.disconnect();
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "{:?}",
            begun.elapsed()
        );
        for end in [&mut active, &mut passive] {
            end.endpoint.reset().expect("RESET");
            end.endpoint.init(&options_of()).expect("INIT");
        }
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_route_through_another_port_is_refused() {
    let (host, device) = (host(), device());
    let (active, passive) = (End::new(&device), End::new(&device));
    let mover = Mover::of(&active);
    let to = target(own(), host.qualifier, None);
    let made = host
        .manager
        .connect(&local(), to, active.parameters(), b"", mover);
    let request = host.requests.next();
    let elsewhere = ConnectOptions {
        port: 2,
        ..options_of()
    };
    let handle = passive.endpoint.handle();
    let route = &request.parameters().route;
    let error = handle.connect_by(route, &elsewhere).unwrap_err();
    assert_eq!(error.kind(), ControlErrorKind::Invalid);
    assert!(error.to_string().contains("port 1"), "{error}");
    drop(made);
}
