//! The manager over rdma_cm: its own guarantees. These tests need a device that the
//! kernel's connection manager serves:
//!
//! ```text
//! DAT_TEST_CM=rdma_cm DAT_TEST_DEVICE=rxe0 cargo test -p dat-engine --test cm -- \
//!     --include-ignored --skip cm::socket --skip a_removed_device_is_reported_once
//! ```

mod connect;
mod device;
mod ports;
mod stale;
mod traffic;

use super::support::{Events, Host, assert_event, kind, local, own, parameters, target};
use dat_engine::cm::{Connection, ConnectionEvent, ManagerKind, Parameters};
use std::sync::Arc;

/// Returns a host, if these tests are enabled.
fn host() -> Host {
    require_rdma();
    Host::new()
}

fn require_rdma() {
    assert_eq!(
        kind(),
        ManagerKind::Rdma,
        "set DAT_TEST_CM=rdma_cm and DAT_TEST_DEVICE"
    );
}

/// Both ends of a connection.
struct Ends {
    active: Connection,
    active_events: Arc<Events>,
    passive: Connection,
    passive_events: Arc<Events>,
}

impl Ends {
    /// Connects two endpoints with the given parameters.
    fn connect(host: &Host, active_end: Parameters, passive_end: Parameters) -> Self {
        let (active_events, passive_events) = (Arc::new(Events::default()), Arc::default());
        let to = target(own(), host.qualifier, None);
        let sink = Arc::clone(&active_events);
        let made = host.manager.connect(&local(), to, active_end, b"", sink);
        let active = made.expect("the request is on its way");
        let request = host.requests.next();
        assert_event(request.parameters(), &active_end);
        let sink: Arc<Events> = Arc::clone(&passive_events);
        let passive = request.accept(passive_end, b"", sink).expect("accepted");
        active_events.assert_accepted();
        assert_eq!(passive_events.next(), ConnectionEvent::Established);
        Self {
            active,
            active_events,
            passive,
            passive_events,
        }
    }

    fn disconnect(self, from_active: bool) {
        if from_active {
            self.active.disconnect();
        } else {
            self.passive.disconnect();
        }
        assert_eq!(self.active_events.next(), ConnectionEvent::Disconnected);
        assert_eq!(self.passive_events.next(), ConnectionEvent::Disconnected);
    }
}

/// Returns parameters of new endpoints.
fn ends() -> (Parameters, Parameters) {
    (parameters(1), parameters(2))
}
