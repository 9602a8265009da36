//! Checking the attributes of an endpoint.
//!
//! The attributes are checked against the IA's limits before anything is created. An endpoint gets
//! exactly the requested attributes, or is not created.
//!
//! Decision: `docs/decisions/061-allow-what-the-reference-allows.md`

use super::MAX_SEGMENTS;
use crate::error::{DatError, Result};
use crate::object::ia::{IaAttributes, Rules};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EpAttributes};

/// The receives of an endpoint that is created without attributes.
const DEFAULT_RECEIVES: i32 = 128;
/// The requests of an endpoint that is created without attributes: one less than a power of two, so
/// that with the marker of a disconnect they fill a ring and do not need one of twice the size.
pub(crate) const DEFAULT_REQUESTS: i32 = 127;
/// The segments of its requests and receives.
const DEFAULT_IOV: i32 = 4;
/// `DAT_HW_DEFAULT` and `DAT_WATERMARK_INFINITE`.
const OFF: i32 = -1;

/// The accepted values of the flag words in `DAT_EP_ATTR`.
const REQUEST_FLAGS: [CompletionFlags; 3] = [
    CompletionFlags::empty(),
    CompletionFlags::UNSIGNALLED,
    CompletionFlags::EVD_THRESHOLD,
];
const RECV_FLAGS: [CompletionFlags; 4] = [
    CompletionFlags::empty(),
    CompletionFlags::UNSIGNALLED,
    CompletionFlags::EVD_THRESHOLD,
    CompletionFlags::SOLICITED_WAIT,
];

/// The kind of endpoint that the attributes are for, and which argument they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// It takes receives from an SRQ.
    pub(super) shared: bool,
    /// It has an EVD for receives.
    pub(super) has_recv: bool,
    /// It has an EVD for requests.
    pub(super) has_request: bool,
    /// The argument that errors name.
    pub(super) argument: Subtype,
}

/// Returns the attributes of an endpoint that is created without any. A connection never fails
/// because of the numbers of RDMA reads: the peers agree on the smaller ones.
pub(super) fn defaults(rules: &Rules, request: Request) -> EpAttributes {
    let ia = &rules.limits;
    let iov = DEFAULT_IOV.min(segments(ia));
    // Without EVDs, one completion queue holds both kinds of completions.
    let one_queue = !request.shared && !request.has_recv && !request.has_request;
    let room = match one_queue {
        true => ia.max_evd_qlen / 2,
        false => ia.max_evd_qlen,
    };
    let reads = |most: i32| rules.of_endpoint(request.shared).default_reads.min(most);
    EpAttributes {
        service_type: 0,
        max_message_size: ia.max_message_size,
        max_rdma_size: ia.max_rdma_size,
        qos: 0,
        recv_completion_flags: CompletionFlags::EVD_THRESHOLD,
        request_completion_flags: CompletionFlags::EVD_THRESHOLD,
        max_recv_dtos: if request.shared {
            OFF
        } else {
            DEFAULT_RECEIVES.min(ia.max_dto_per_ep).min(room)
        },
        max_request_dtos: DEFAULT_REQUESTS.min(ia.max_dto_per_ep).min(room - 1).max(0),
        max_recv_iov: iov,
        max_request_iov: iov,
        max_rdma_read_in: reads(ia.max_rdma_read_per_ep_in),
        max_rdma_read_out: reads(ia.max_rdma_read_per_ep_out),
        srq_soft_hw: OFF,
        max_rdma_read_iov: iov.min(ia.max_iov_segments_per_rdma_read),
        max_rdma_write_iov: iov.min(ia.max_iov_segments_per_rdma_write),
    }
}

fn segments(ia: &IaAttributes) -> i32 {
    ia.max_iov_segments_per_dto.min(MAX_SEGMENTS as i32)
}

/// Returns the attributes that the endpoint will have: those requested, with defaults for fields
/// that DAT allows to be left open.
///
/// # Errors
/// `INVALID_PARAMETER`, naming the argument.
pub(super) fn resolve(
    requested: &EpAttributes,
    rules: &Rules,
    request: Request,
) -> Result<EpAttributes> {
    let (default, ia) = (defaults(rules, request), &rules.limits);
    let mut resolved = *requested;
    let bad = |what: String| DatError::new(ReturnType::InvalidParameter, request.argument, what);
    if requested.service_type != 0 {
        return Err(bad(format!(
            "invalid service type {}: expected 0, a reliable connection",
            requested.service_type
        )));
    }
    if requested.qos != 0 {
        return Err(bad(format!(
            "invalid quality of service {:#x}: expected 0, best effort",
            requested.qos
        )));
    }
    flags(requested, rules.of_endpoint(request.shared).ignored_flags).map_err(bad)?;
    open(&mut resolved.max_message_size, default.max_message_size);
    open(&mut resolved.max_rdma_size, default.max_rdma_size);
    size(
        "max_message_size",
        resolved.max_message_size,
        ia.max_message_size,
    )
    .map_err(bad)?;
    size("max_rdma_size", resolved.max_rdma_size, ia.max_rdma_size).map_err(bad)?;

    let most = (ia.max_dto_per_ep, "max_dto_per_ep");
    let most_segments = (segments(ia), "max_iov_segments_per_dto");
    let named =
        |name, value, least, most: (i32, &str)| count(name, value, least, most).map_err(bad);
    if request.shared {
        // These fields are the hard and the soft high watermark.
        if requested.max_recv_dtos > 0 && requested.srq_soft_hw > requested.max_recv_dtos {
            return Err(bad(format!(
                "the soft high watermark {} is above the hard one, {}: expected at most the hard one",
                requested.srq_soft_hw, requested.max_recv_dtos
            )));
        }
        for (name, value) in [
            ("max_recv_dtos", requested.max_recv_dtos),
            ("srq_soft_hw", requested.srq_soft_hw),
        ] {
            named(name, value, OFF, (ia.max_recv_per_srq, "max_recv_per_srq"))?;
        }
        resolved.max_recv_iov = requested.max_recv_iov;
    } else {
        let least = i32::from(request.has_recv);
        named("max_recv_dtos", requested.max_recv_dtos, least, most)?;
        if !request.has_recv && requested.max_recv_dtos != 0 {
            return Err(bad(format!(
                "max_recv_dtos is {} but there is no EVD for receives: expected 0, or an EVD",
                requested.max_recv_dtos
            )));
        }
        if requested.max_recv_dtos > 0 {
            named("max_recv_iov", requested.max_recv_iov, 1, most_segments)?;
        }
    }
    named(
        "max_request_dtos",
        requested.max_request_dtos,
        i32::from(request.has_request && !request.shared),
        most,
    )?;
    if !request.shared && !request.has_request && requested.max_request_dtos != 0 {
        return Err(bad(format!(
            "max_request_dtos is {} but there is no EVD for requests: expected 0, or an EVD",
            requested.max_request_dtos
        )));
    }
    if request.shared && requested.max_request_dtos == 0 {
        // Left open: the default.
        resolved.max_request_dtos = default.max_request_dtos;
    }
    if requested.max_request_iov == 0 && request.shared {
        resolved.max_request_iov = default.max_request_iov;
    } else if resolved.max_request_dtos > 0 {
        named(
            "max_request_iov",
            requested.max_request_iov,
            1,
            most_segments,
        )?;
    }
    reads(requested, &default, &mut resolved, ia).map_err(bad)?;
    Ok(resolved)
}

/// Checks the numbers of outstanding RDMA reads and their segments. -1 leaves a number of reads
/// open; the endpoint then gets the default.
fn reads(
    requested: &EpAttributes,
    default: &EpAttributes,
    resolved: &mut EpAttributes,
    ia: &IaAttributes,
) -> Result<(), String> {
    let depths = [
        (
            "max_rdma_read_in",
            requested.max_rdma_read_in,
            (ia.max_rdma_read_per_ep_in, "max_rdma_read_per_ep_in"),
        ),
        (
            "max_rdma_read_out",
            requested.max_rdma_read_out,
            (ia.max_rdma_read_per_ep_out, "max_rdma_read_per_ep_out"),
        ),
    ];
    for (name, value, most) in depths {
        count(name, value, OFF, most)?;
    }
    if requested.max_rdma_read_in == OFF {
        resolved.max_rdma_read_in = default.max_rdma_read_in;
    }
    if requested.max_rdma_read_out == OFF {
        resolved.max_rdma_read_out = default.max_rdma_read_out;
    }
    let requests = resolved.max_request_iov;
    let iovs = [
        (
            "max_rdma_read_iov",
            &mut resolved.max_rdma_read_iov,
            ia.max_iov_segments_per_rdma_read,
            "max_iov_segments_per_rdma_read",
        ),
        (
            "max_rdma_write_iov",
            &mut resolved.max_rdma_write_iov,
            ia.max_iov_segments_per_rdma_write,
            "max_iov_segments_per_rdma_write",
        ),
    ];
    for (name, value, most, limit) in iovs {
        let most = most.min(MAX_SEGMENTS as i32);
        if *value == 0 {
            *value = requests.min(most);
        }
        count(name, *value, 0, (most, limit))?;
    }
    Ok(())
}

fn open(value: &mut u64, default: u64) {
    if *value == 0 {
        *value = default;
    }
}

/// Checks the flag words. An ignored flag is accepted as a request flag and has no effect: the flags
/// of each post decide.
fn flags(requested: &EpAttributes, ignored: CompletionFlags) -> Result<(), String> {
    if !RECV_FLAGS.contains(&requested.recv_completion_flags) {
        return Err(format!(
            "invalid recv completion flags {:#x}: expected UNSIGNALLED, SOLICITED_WAIT, EVD_THRESHOLD or 0",
            requested.recv_completion_flags.bits()
        ));
    }
    let also = match ignored.contains(CompletionFlags::SUPPRESS) {
        true => ", with or without SUPPRESS",
        false => "",
    };
    if !REQUEST_FLAGS.contains(&(requested.request_completion_flags - ignored)) {
        return Err(format!(
            "invalid request completion flags {:#x}: expected UNSIGNALLED, EVD_THRESHOLD or 0{also}",
            requested.request_completion_flags.bits()
        ));
    }
    Ok(())
}

fn size(name: &str, value: u64, most: u64) -> Result<(), String> {
    if value > most {
        return Err(format!(
            "{name} is {value}: expected at most {most}, the adapter's limit"
        ));
    }
    Ok(())
}

/// Refuses a count below `least` or above the adapter's limit of that name.
fn count(name: &str, value: i32, least: i32, (most, limit): (i32, &str)) -> Result<(), String> {
    if value < least || value > most {
        return Err(format!(
            "{name} is {value}; it must be {least} to {most}, the adapter's {limit}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ia::{Conformance, small_adapter as small};

    const ASKS: Request = Request {
        shared: false,
        has_recv: true,
        has_request: true,
        argument: Subtype::InvalidArg6,
    };

    #[test]
    fn defaults_respect_the_device_limits() {
        let ia = small(|_| ());
        let cut = defaults(&ia, ASKS);
        assert_eq!((cut.max_recv_dtos, cut.max_request_dtos), (15, 15));
        assert_eq!((cut.max_recv_iov, cut.max_request_iov), (4, 4));
        assert_eq!((cut.max_rdma_read_iov, cut.max_rdma_write_iov), (1, 4));
        assert_eq!((cut.max_rdma_read_in, cut.max_rdma_read_out), (2, 1));
        let ia = small(|limits| limits.segments = 1);
        assert_eq!(defaults(&ia, ASKS).max_recv_iov, 1);
        // One queue of 10 completions holds requests, receives and the marker.
        let without_evds = Request {
            has_recv: false,
            has_request: false,
            ..ASKS
        };
        let ia = small(|limits| limits.cq_depth = 10);
        let cut = defaults(&ia, without_evds);
        assert_eq!((cut.max_recv_dtos, cut.max_request_dtos), (5, 4));
        assert_eq!(defaults(&ia, ASKS).max_request_dtos, 9);
    }

    #[test]
    fn rdma_reads_default_to_4_and_to_none_on_an_srq_or_a_strict_adapter() {
        let ia = small(|limits| (limits.reads_issued, limits.reads_served) = (16, 4));
        let strict = Rules {
            conformance: Conformance::STRICT,
            ..ia.clone()
        };
        let shared = Request {
            shared: true,
            ..ASKS
        };
        for (ia, request, reads) in [(&ia, ASKS, 4), (&strict, ASKS, 0), (&ia, shared, 0)] {
            let default = defaults(ia, request);
            let of = |it: &EpAttributes| (it.max_rdma_read_in, it.max_rdma_read_out);
            assert_eq!(of(&default), (reads, reads), "{request:?}");
            // Left open, or set to 0, which stays 0.
            for (requested, resolved) in [(OFF, reads), (0, 0), (3, 3)] {
                let requested = EpAttributes {
                    max_rdma_read_in: requested,
                    max_rdma_read_out: requested,
                    ..default
                };
                let got = resolve(&requested, ia, request).expect("within the limits");
                assert_eq!(of(&got), (resolved, resolved), "{request:?}");
            }
        }
    }

    #[test]
    fn suppress_is_a_request_flag_unless_the_endpoint_is_strict() {
        let mut ia = small(|_| ());
        for (shared, strict) in [(false, false), (true, false), (false, true)] {
            if strict {
                ia.conformance = Conformance::STRICT;
            }
            let request = Request { shared, ..ASKS };
            for with in REQUEST_FLAGS {
                let requested = EpAttributes {
                    request_completion_flags: with | CompletionFlags::SUPPRESS,
                    ..defaults(&ia, request)
                };
                let got = resolve(&requested, &ia, request).map_err(|error| error.code().kind());
                match shared || strict {
                    false => assert_eq!(got, Ok(requested)),
                    true => assert_eq!(got, Err(Some(ReturnType::InvalidParameter))),
                }
            }
            let requested = EpAttributes {
                recv_completion_flags: CompletionFlags::SUPPRESS,
                ..defaults(&ia, request)
            };
            assert!(resolve(&requested, &ia, request).is_err(), "of receives");
        }
    }

    #[test]
    fn open_attributes_get_defaults_and_excessive_ones_are_refused() {
        let ia = small(|limits| limits.reads_issued = 0);
        let base = defaults(&ia, ASKS);
        let open = EpAttributes {
            max_rdma_read_iov: 0,
            max_rdma_write_iov: 0,
            ..base
        };
        assert_eq!(resolve(&open, &ia, ASKS).expect("open"), base);
        type Change = fn(&mut EpAttributes);
        let refused: [(Change, &str); 7] = [
            (
                |a| a.max_rdma_read_iov = 2,
                "max_rdma_read_iov is 2; it must be 0 to 1, the adapter's \
                 max_iov_segments_per_rdma_read",
            ),
            (
                |a| a.max_rdma_write_iov = 7,
                "0 to 6, the adapter's max_iov_segments_per_rdma_write",
            ),
            (
                |a| a.max_request_iov = 7,
                "1 to 6, the adapter's max_iov_segments_per_dto",
            ),
            (
                |a| a.max_recv_iov = 7,
                "1 to 6, the adapter's max_iov_segments_per_dto",
            ),
            (
                |a| a.max_request_dtos = 16,
                "max_request_dtos is 16; it must be 1 to 15, the adapter's max_dto_per_ep",
            ),
            (
                |a| a.max_rdma_read_out = 1,
                "-1 to 0, the adapter's max_rdma_read_per_ep_out",
            ),
            (
                |a| a.max_rdma_read_in = 3,
                "-1 to 2, the adapter's max_rdma_read_per_ep_in",
            ),
        ];
        for (change, cause) in refused {
            let mut requested = base;
            change(&mut requested);
            let error = resolve(&requested, &ia, ASKS).expect_err(cause);
            assert!(error.cause().contains(cause), "{error}");
            assert_eq!(
                error.code(),
                crate::status::DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg6)
            );
        }
    }
}
