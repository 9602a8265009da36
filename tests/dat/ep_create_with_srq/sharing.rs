//! Which streams may share an EVD.

use dat::abi::*;
use dat::exports::*;

use super::Call;
use crate::support::{End, Fixture, fails, ok, srq};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
const THRESHOLD: DAT_COMPLETION_FLAGS = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
const ALL: [DAT_COMPLETION_FLAGS; 4] = [DEFAULT, UNSIGNALLED, SOLICITED, THRESHOLD];

/// A fixture, a queue, and an EVD shared by everything.
struct SharedEvd {
    fixture: Fixture,
    queue: DAT_SRQ_HANDLE,
    evd: DAT_EVD_HANDLE,
}

impl SharedEvd {
    fn new() -> Self {
        let fixture = Fixture::new();
        let queue = srq(&fixture, 8);
        let evd = fixture.evd(
            64,
            DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG,
        );
        Self {
            fixture,
            queue,
            evd,
        }
    }

    /// An endpoint whose roles report to separate EVDs.
    fn apart(&self) -> Call {
        Call::new(&self.fixture, self.queue)
    }

    /// An endpoint whose receives are reported to the shared EVD.
    fn recv(&self, flags: DAT_COMPLETION_FLAGS) -> Call {
        let mut call = self.apart();
        call.recv = self.evd;
        call.attributes.recv_completion_flags = flags;
        call
    }

    /// An endpoint whose requests are reported to the shared EVD.
    fn request(&self, flags: DAT_COMPLETION_FLAGS) -> Call {
        let mut call = self.apart();
        call.request = self.evd;
        call.attributes.request_completion_flags = flags;
        call
    }

    /// An endpoint whose connection events are reported to the shared EVD.
    fn connect(&self) -> Call {
        let mut call = self.apart();
        call.connect = self.evd;
        call
    }

    /// Checks that the second endpoint can be created while the first exists, or
    /// is refused, in either order.
    #[track_caller]
    fn meet(&self, first: &Call, second: &Call, together: bool) {
        for (first, second) in [(first, second), (second, first)] {
            let one = first.make();
            let (answer, ep) = second.call();
            if together {
                ok(answer);
                free(ep);
            } else {
                fails(answer, DAT_INVALID_PARAMETER);
                assert_eq!(ep.addr(), 0x77);
            }
            let End { ep, .. } = one;
            free(ep);
        }
        // An endpoint that was refused or freed is no longer attached.
        let alone = self.recv(SOLICITED).make();
        free(alone.ep);
    }
}

fn free(ep: DAT_EP_HANDLE) {
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_free(ep) });
}

#[test]
fn ep_create_with_srq_e12_receives_share_with_equal_flags() {
    let setup = SharedEvd::new();
    for one in ALL {
        for two in ALL {
            setup.meet(&setup.recv(one), &setup.recv(two), one == two);
        }
    }
}

#[test]
fn ep_create_with_srq_e12_requests_share_with_equal_flags() {
    let setup = SharedEvd::new();
    for one in [DEFAULT, UNSIGNALLED, THRESHOLD] {
        for two in [DEFAULT, UNSIGNALLED, THRESHOLD] {
            setup.meet(&setup.request(one), &setup.request(two), one == two);
        }
    }
}

/// SOLICITED_WAIT applies to receives only, so requests cannot match it.
#[test]
fn ep_create_with_srq_e12_receives_and_requests_share_with_equal_flags() {
    let setup = SharedEvd::new();
    for recv in ALL {
        for request in [DEFAULT, UNSIGNALLED, THRESHOLD] {
            setup.meet(&setup.recv(recv), &setup.request(request), recv == request);
        }
    }
}

/// The roles of one endpoint follow the same rules.
#[test]
fn ep_create_with_srq_e12_roles_of_one_endpoint_share_with_equal_flags() {
    let setup = SharedEvd::new();
    for recv in ALL {
        for request in [DEFAULT, UNSIGNALLED, THRESHOLD] {
            let mut call = setup.recv(recv);
            call.request = setup.evd;
            call.attributes.request_completion_flags = request;
            let (answer, ep) = call.call();
            if recv == request {
                ok(answer);
                free(ep);
            } else {
                fails(answer, DAT_INVALID_PARAMETER);
                assert_eq!(ep.addr(), 0x77);
            }
        }
    }
}

/// Streams of other kinds cannot share with endpoints whose wake-ups depend on
/// the poster's or the peer's flags.
#[test]
fn ep_create_with_srq_e12_other_streams_share_with_thresholds_only() {
    let setup = SharedEvd::new();
    for (flags, together) in [
        (THRESHOLD, true),
        (DEFAULT, true),
        (SOLICITED, false),
        (UNSIGNALLED, false),
    ] {
        setup.meet(&setup.recv(flags), &setup.connect(), together);
        if flags != SOLICITED {
            setup.meet(&setup.request(flags), &setup.connect(), together);
        }
    }
    // A service point.
    for (flags, together) in [(THRESHOLD, true), (SOLICITED, false), (UNSIGNALLED, false)] {
        let (mut qualifier, mut psp) = (0, std::ptr::null_mut());
        // SAFETY: live handles; results are writable.
        unsafe {
            ok(dat_psp_create_any(
                setup.fixture.ia,
                &raw mut qualifier,
                setup.evd,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            ));
            let (answer, ep) = setup.recv(flags).call();
            if together {
                ok(answer);
                free(ep);
            } else {
                fails(answer, DAT_INVALID_PARAMETER);
            }
            ok(dat_psp_free(psp));
        }
    }
}

/// Endpoints with their own receive queues follow the same rules.
#[test]
fn ep_create_with_srq_e12_endpoints_with_and_without_an_srq_follow_the_same_rules() {
    let setup = SharedEvd::new();
    for own in ALL {
        for shared in ALL {
            let attributes = crate::support::Shape {
                recv_flags: own,
                ..crate::support::Shape::default()
            }
            .attributes();
            let mut ep = std::ptr::null_mut();
            // SAFETY: live handles; attributes and result are local.
            ok(unsafe {
                dat_ep_create(
                    setup.fixture.ia,
                    setup.fixture.pz,
                    setup.evd,
                    setup.apart().request,
                    DAT_HANDLE_NULL,
                    &raw const attributes,
                    &raw mut ep,
                )
            });
            let (answer, second) = setup.recv(shared).call();
            if own == shared {
                ok(answer);
                free(second);
            } else {
                fails(answer, DAT_INVALID_PARAMETER);
            }
            free(ep);
        }
    }
}
