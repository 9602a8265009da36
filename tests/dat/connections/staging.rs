//! Fixtures for endpoints in every state.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use dat::abi::*;
use dat::exports::*;

use super::end;
use crate::support::{
    End, Fixture, Memory, Pair, ReservedPoint, ServicePoint, Shape, accept, arrival, cr_info,
    expect, here_ip, ok, state_of,
};

/// The states in which an endpoint can stay with any connection manager.
pub const STATES: [DAT_EP_STATE; 8] = [
    DAT_EP_STATE_UNCONNECTED,
    DAT_EP_STATE_RESERVED,
    DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
    DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
    DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING,
    DAT_EP_STATE_CONNECTED,
    DAT_EP_STATE_DISCONNECT_PENDING,
    DAT_EP_STATE_DISCONNECTED,
];

/// Returns the subtype of `DAT_INVALID_STATE` for a state.
pub fn subtype_of(state: DAT_EP_STATE) -> DAT_RETURN_SUBTYPE {
    match state {
        DAT_EP_STATE_UNCONNECTED => DAT_INVALID_STATE_EP_UNCONNECTED,
        DAT_EP_STATE_RESERVED => DAT_INVALID_STATE_EP_RESERVED,
        DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => DAT_INVALID_STATE_EP_PASSCONNPENDING,
        DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => DAT_INVALID_STATE_EP_ACTCONNPENDING,
        DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING => DAT_INVALID_STATE_EP_TENTCONNPENDING,
        DAT_EP_STATE_CONNECTED => DAT_INVALID_STATE_EP_CONNECTED,
        DAT_EP_STATE_DISCONNECT_PENDING => DAT_INVALID_STATE_EP_DISCPENDING,
        DAT_EP_STATE_DISCONNECTED => DAT_INVALID_STATE_EP_DISCONNECTED,
        DAT_EP_STATE_COMPLETION_PENDING => DAT_INVALID_STATE_EP_COMPLPENDING,
        other => panic!("state {other}"),
    }
}

/// An endpoint in a state, with the objects that brought it there.
pub struct EndpointInState {
    pub end: End,
    pub peer: Option<End>,
    /// The request that this endpoint came with.
    pub cr: Option<DAT_CR_HANDLE>,
    proxy: Option<Proxy>,
    /// The memory of an outstanding send.
    _memory: Option<Memory>,
}

impl EndpointInState {
    fn of(end: End, peer: Option<End>, cr: Option<DAT_CR_HANDLE>) -> Self {
        Self {
            end,
            peer,
            cr,
            proxy: None,
            _memory: None,
        }
    }

    /// Brings a new endpoint into this state, where it stays.
    #[track_caller]
    pub fn new(fixture: &Fixture, state: DAT_EP_STATE) -> Self {
        Self::made_by(fixture, state, || end(fixture))
    }

    /// Like [`Self::new`], with an endpoint that `make` creates, unless the state
    /// needs a request's endpoint.
    #[track_caller]
    pub fn made_by(fixture: &Fixture, state: DAT_EP_STATE, make: impl Fn() -> End) -> Self {
        let staged = match state {
            DAT_EP_STATE_UNCONNECTED => Self::of(make(), None, None),
            DAT_EP_STATE_RESERVED => {
                let end = make();
                ReservedPoint::new(fixture, end.ep);
                Self::of(end, None, None)
            }
            DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => {
                let (end, peer) = (make(), end(fixture));
                let point = ReservedPoint::new(fixture, end.ep);
                ok(point.service_point().connect(peer.ep, &[]));
                Self::of(end, Some(peer), Some(arrival(point.requests).cr_handle))
            }
            DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING => {
                let service_point = ServicePoint::of_kind(fixture, DAT_PSP_PROVIDER_FLAG);
                let peer = end(fixture);
                ok(service_point.connect(peer.ep, &[]));
                let cr = service_point.take_request();
                let mut end = End::without_ep(fixture, &Shape::default());
                end.ep = cr_info(cr).local_ep_handle;
                Self::of(end, Some(peer), Some(cr))
            }
            DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => {
                let service_point = ServicePoint::new(fixture);
                let end = make();
                ok(service_point.connect(end.ep, &[]));
                // The request is not answered.
                service_point.take_request();
                Self::of(end, None, None)
            }
            DAT_EP_STATE_COMPLETION_PENDING => return Self::completion_pending(fixture, make()),
            _ => {
                let pair = Pair::connect(fixture, make(), end(fixture));
                let end = pair.active;
                let mut kept = None;
                // SAFETY: a live endpoint.
                let disconnect = |flags| ok(unsafe { dat_ep_disconnect(end.ep, flags) });
                if state == DAT_EP_STATE_DISCONNECT_PENDING {
                    // The peer has posted no receive.
                    let memory = fixture.memory(64);
                    ok(end.post_send(&[memory.segment(0, 8)], 77, DAT_COMPLETION_DEFAULT_FLAG));
                    disconnect(DAT_CLOSE_GRACEFUL_FLAG);
                    kept = Some(memory);
                } else if state == DAT_EP_STATE_DISCONNECTED {
                    disconnect(DAT_CLOSE_ABRUPT_FLAG);
                    expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
                }
                Self {
                    _memory: kept,
                    ..Self::of(end, Some(pair.passive), None)
                }
            }
        };
        assert_eq!(state_of(staged.end.ep), state);
        staged
    }

    /// The request is accepted, but the requester does not get the answer,
    /// because a proxy between them keeps it. Needs the connection manager that
    /// uses TCP.
    #[track_caller]
    fn completion_pending(fixture: &Fixture, end: End) -> Self {
        let service_point = ServicePoint::new(fixture);
        let (peer, proxy) = Self::connect_without_answer(fixture, &service_point);
        ok(accept(service_point.take_request(), end.ep));
        assert_eq!(state_of(end.ep), DAT_EP_STATE_COMPLETION_PENDING);
        Self {
            proxy: Some(proxy),
            ..Self::of(end, Some(peer), None)
        }
    }

    /// Lets the requester have the answer that a proxy keeps.
    pub fn release_answer(&mut self) {
        self.proxy
            .as_mut()
            .expect("a proxy keeps the answer")
            .open();
    }

    /// Connects to a service point through a proxy that does not return the
    /// answer while it exists.
    #[track_caller]
    pub fn connect_without_answer(fixture: &Fixture, service_point: &ServicePoint) -> (End, Proxy) {
        let proxy = Proxy::new(service_point.qualifier);
        let peer = end(fixture);
        let there = ServicePoint {
            qualifier: proxy.port.into(),
            ..*service_point
        };
        ok(there.connect(peer.ep, &[]));
        (peer, proxy)
    }
}

/// Forwards one request to a service point, and returns nothing.
pub struct Proxy {
    port: u16,
    thread: Option<JoinHandle<(TcpStream, TcpStream)>>,
}

impl Proxy {
    fn new(qualifier: DAT_CONN_QUAL) -> Self {
        let here = here_ip();
        let listener = TcpListener::bind((here, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let service_point = SocketAddr::new(here, u16::try_from(qualifier).expect("a port"));
        let thread = std::thread::spawn(move || {
            let (mut from, _) = listener.accept().expect("a request");
            let mut to = TcpStream::connect(service_point).expect("a service point");
            // The header, which holds the length of the rest, and the rest.
            let mut header = [0; 8];
            from.read_exact(&mut header).expect("a header");
            let mut body = vec![0; usize::from(u16::from_be_bytes([header[6], header[7]]))];
            from.read_exact(&mut body).expect("a request");
            // The message begins with the qualifier.
            body[..8].copy_from_slice(&qualifier.to_be_bytes());
            to.write_all(&[&header[..], &body].concat())
                .expect("passed on");
            (from, to)
        });
        Self {
            port,
            thread: Some(thread),
        }
    }
}

impl Proxy {
    /// Passes on everything from now on.
    fn open(&mut self) {
        let (from, to) = self
            .thread
            .take()
            .expect("not open")
            .join()
            .expect("no panic");
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        for (mut one, mut other) in [(clone(&from), clone(&to)), (to, from)] {
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut one, &mut other);
                let _ = other.shutdown(Shutdown::Write);
            });
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(Ok((from, to))) = self.thread.take().map(JoinHandle::join) {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}
