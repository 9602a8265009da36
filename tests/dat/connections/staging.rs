//! Fixtures for endpoints in every state.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use dat::abi::*;
use dat::exports::*;

use super::end;
use crate::support::{
    Bed, Door, End, Memory, Pair, Point, Shape, accept, arrival, cr_info, expect, here_ip, ok,
    state_of,
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
pub struct Staged {
    pub end: End,
    pub peer: Option<End>,
    /// The request that this endpoint came with.
    pub cr: Option<DAT_CR_HANDLE>,
    _proxy: Option<Proxy>,
    /// The memory of an outstanding send.
    _memory: Option<Memory>,
}

impl Staged {
    fn of(end: End, peer: Option<End>, cr: Option<DAT_CR_HANDLE>) -> Self {
        Self {
            end,
            peer,
            cr,
            _proxy: None,
            _memory: None,
        }
    }

    /// Brings a new endpoint into this state, where it stays.
    #[track_caller]
    pub fn new(bed: &Bed, state: DAT_EP_STATE) -> Self {
        Self::made_by(bed, state, || end(bed))
    }

    /// Like [`Self::new`], with an endpoint that `make` creates, unless the state
    /// needs a request's endpoint.
    #[track_caller]
    pub fn made_by(bed: &Bed, state: DAT_EP_STATE, make: impl Fn() -> End) -> Self {
        let staged = match state {
            DAT_EP_STATE_UNCONNECTED => Self::of(make(), None, None),
            DAT_EP_STATE_RESERVED => {
                let end = make();
                Point::new(bed, end.ep);
                Self::of(end, None, None)
            }
            DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => {
                let (end, peer) = (make(), end(bed));
                let point = Point::new(bed, end.ep);
                ok(point.door().knock(peer.ep, &[]));
                Self::of(end, Some(peer), Some(arrival(point.requests).cr_handle))
            }
            DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING => {
                let door = Door::of_kind(bed, DAT_PSP_PROVIDER_FLAG);
                let peer = end(bed);
                ok(door.knock(peer.ep, &[]));
                let cr = door.opens();
                let mut end = End::without_ep(bed, &Shape::default());
                end.ep = cr_info(cr).local_ep_handle;
                Self::of(end, Some(peer), Some(cr))
            }
            DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => {
                let door = Door::new(bed);
                let end = make();
                ok(door.knock(end.ep, &[]));
                // The request is not answered.
                door.opens();
                Self::of(end, None, None)
            }
            DAT_EP_STATE_COMPLETION_PENDING => return Self::completion_pending(bed, make()),
            _ => {
                let pair = Pair::connect(bed, make(), end(bed));
                let end = pair.active;
                let mut kept = None;
                // SAFETY: a live endpoint.
                let disconnect = |flags| ok(unsafe { dat_ep_disconnect(end.ep, flags) });
                if state == DAT_EP_STATE_DISCONNECT_PENDING {
                    // The peer has posted no receive.
                    let memory = bed.memory(64);
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
    fn completion_pending(bed: &Bed, end: End) -> Self {
        let door = Door::new(bed);
        let (peer, proxy) = Self::knock_unheard(bed, &door);
        ok(accept(door.opens(), end.ep));
        assert_eq!(state_of(end.ep), DAT_EP_STATE_COMPLETION_PENDING);
        Self {
            _proxy: Some(proxy),
            ..Self::of(end, Some(peer), None)
        }
    }

    /// Connects to a service point through a proxy that does not return the
    /// answer while it exists.
    #[track_caller]
    pub fn knock_unheard(bed: &Bed, door: &Door) -> (End, Proxy) {
        let proxy = Proxy::new(door.qualifier);
        let peer = end(bed);
        let there = Door {
            qualifier: proxy.port.into(),
            ..*door
        };
        ok(there.knock(peer.ep, &[]));
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
        let door = SocketAddr::new(here, u16::try_from(qualifier).expect("a port"));
        let thread = std::thread::spawn(move || {
            let (mut from, _) = listener.accept().expect("a request");
            let mut to = TcpStream::connect(door).expect("a service point");
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

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(Ok((from, to))) = self.thread.take().map(JoinHandle::join) {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}
