//! Hosts that answer nothing, as behind a firewall that drops packets: a connection attempt ends at
//! its timeout, and the endpoint can be used again or is gone.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use super::{end, established, exchange};
use crate::support::{
    Fixture, ServicePoint, accept, expect, fails, here_ip, nothing_on, ok, state_of, wait,
};

/// A port whose host answers nothing.
struct Silent {
    listener: TcpListener,
    /// Connections that fill its queue.
    _waiting: Vec<TcpStream>,
}

impl Silent {
    /// TCP connects, and no byte follows.
    fn connecting() -> Self {
        let listener = TcpListener::bind((here_ip(), 0)).expect("a port");
        Self {
            listener,
            _waiting: Vec::new(),
        }
    }

    /// TCP is not answered either: the queue of the port is full.
    fn dropping() -> Self {
        let Self { listener, .. } = Self::connecting();
        // SAFETY: a listening socket; listen(2) changes the length of its queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().expect("bound");
        let attempt = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        Self {
            listener,
            _waiting: std::iter::from_fn(attempt).collect(),
        }
    }

    /// Returns the service point that would be on this port.
    fn point(&self) -> ServicePoint {
        let address: SocketAddr = self.listener.local_addr().expect("bound");
        ServicePoint {
            psp: ptr::null_mut(),
            qualifier: address.port().into(),
            requests: ptr::null_mut(),
        }
    }
}

#[test]
fn a_host_that_answers_nothing_times_out_and_the_endpoint_connects_elsewhere() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    for silent in [Silent::connecting(), Silent::dropping()] {
        let (active, passive) = (end(&fixture), end(&fixture));
        for milliseconds in [50, 400] {
            let begun = Instant::now();
            let to = silent.point();
            ok(to.connect_within(active.ep, milliseconds * 1000, &[]));
            expect(active.connect, DAT_CONNECTION_EVENT_TIMED_OUT);
            let took = begun.elapsed();
            let limit = Duration::from_millis(milliseconds.into());
            assert!(took >= limit, "{took:?} of {limit:?}");
            // Far less than any timeout of TCP, and enough for a busy machine.
            assert!(took < limit + Duration::from_secs(20), "{took:?}");
            assert_eq!(state_of(active.ep), DAT_EP_STATE_DISCONNECTED);
            nothing_on(active.connect);
            // SAFETY: a live endpoint.
            ok(unsafe { dat_ep_reset(active.ep) });
        }
        ok(service_point.connect(active.ep, &[]));
        ok(accept(service_point.take_request(), passive.ep));
        established([&active, &passive]);
        exchange(&fixture, &active, &passive);
    }
}

#[test]
fn an_endpoint_that_is_freed_while_it_connects_has_no_later_event() {
    const MICROSECONDS: u32 = 50_000;
    let fixture = Fixture::new();
    let point = ServicePoint::new(&fixture);
    let (connecting, dropping) = (Silent::connecting(), Silent::dropping());
    for to in [point, connecting.point(), dropping.point()] {
        let end = end(&fixture);
        ok(to.connect_within(end.ep, MICROSECONDS, &[]));
        // SAFETY: a live endpoint.
        ok(unsafe { dat_ep_free(end.ep) });
        let (answer, ..) = wait(end.connect, 4 * MICROSECONDS, 1);
        fails(answer, DAT_TIMEOUT_EXPIRED);
        // SAFETY: a live EVD, which the endpoint does not use any more.
        ok(unsafe { dat_evd_free(end.connect) });
    }
}
