//! Every attribute is true: its limit works, and one more is refused.

use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::ia::attributes::{
    ALLOCATED, AVAILABLE, HARD_WATERMARK, LOW_WATERMARK, OUTSTANDING, SOFT_WATERMARK, SPAN,
};
use dat_api::object::ia::{EpCreator, IovOwnership, PzSupport};
use dat_api::object::psp::{self, Psp};
use dat_api::object::pz::Pz;
use dat_api::object::srq::Srq;
use dat_api::types::{CompletionFlags, EpAttributes, EvdFlags, SrqAttributes};
use dat_api::{ReturnType, Subtype};

use crate::fixture::free_ep;
use crate::fixture::{self, Fixture, plain};
use crate::setup::*;

/// Creates an endpoint with these attributes; returns whether that works. A refusal must have the
/// right code.
fn works(fixture: &Fixture, attributes: EpAttributes) -> bool {
    let evd = fixture.evd(8);
    let ends = Some(&evd);
    match Ep::create(
        &fixture.ia,
        Some(&fixture.pz),
        ends,
        ends,
        ends,
        Some(&attributes),
    ) {
        Ok(ep) => {
            free_ep(ep.handle()).expect("not connected");
            true
        }
        Err(error) => {
            assert_eq!(
                error.code().kind(),
                Some(ReturnType::InvalidParameter),
                "{error}"
            );
            false
        }
    }
}

/// The limit itself works, and one more does not.
fn is_exact(fixture: &Fixture, what: &str, limit: i64, with: impl Fn(i64) -> EpAttributes) {
    assert!(works(fixture, with(limit)), "{what} of {limit}");
    assert!(!works(fixture, with(limit + 1)), "{what} of {limit} + 1");
}

#[test]
fn limits_of_endpoints_are_exact() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let ia = fixture.ia.query().ia;
    let one = EpAttributes {
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
        ..plain()
    };
    let i = |value: i64| i32::try_from(value).expect("a count");
    let u = |value: i64| u64::try_from(value).expect("a size");
    is_exact(
        &fixture,
        "max_dto_per_ep, receives",
        ia.max_dto_per_ep.into(),
        |n| EpAttributes {
            max_recv_dtos: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_dto_per_ep, requests",
        ia.max_dto_per_ep.into(),
        |n| EpAttributes {
            max_request_dtos: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_iov_segments_per_dto, receives",
        ia.max_iov_segments_per_dto.into(),
        |n| EpAttributes {
            max_recv_iov: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_iov_segments_per_dto, requests",
        ia.max_iov_segments_per_dto.into(),
        |n| EpAttributes {
            max_request_iov: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_iov_segments_per_rdma_read",
        ia.max_iov_segments_per_rdma_read.into(),
        |n| EpAttributes {
            max_rdma_read_iov: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_iov_segments_per_rdma_write",
        ia.max_iov_segments_per_rdma_write.into(),
        |n| EpAttributes {
            max_rdma_write_iov: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_rdma_read_per_ep_in",
        ia.max_rdma_read_per_ep_in.into(),
        |n| EpAttributes {
            max_rdma_read_in: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_rdma_read_per_ep_out",
        ia.max_rdma_read_per_ep_out.into(),
        |n| EpAttributes {
            max_rdma_read_out: i(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_message_size",
        ia.max_message_size.try_into().expect("small"),
        |n| EpAttributes {
            max_message_size: u(n),
            ..one
        },
    );
    is_exact(
        &fixture,
        "max_rdma_size",
        ia.max_rdma_size.try_into().expect("small"),
        |n| EpAttributes {
            max_rdma_size: u(n),
            ..one
        },
    );
}

#[test]
fn limits_of_other_objects_are_exact() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let ia = fixture.ia.query().ia;
    let evd = |length| Evd::create(&fixture.ia, length, EvdFlags::DTO, None);
    Evd::free(evd(ia.max_evd_qlen).expect("max_evd_qlen").handle()).expect("unused");
    let error = evd(ia.max_evd_qlen + 1).expect_err("one more");
    assert_eq!(
        error.code(),
        code(ReturnType::InsufficientResources, Subtype::ResourceTevd)
    );
    let srq = |max_recv_dtos, max_recv_iov| {
        let attributes = SrqAttributes {
            max_recv_dtos,
            max_recv_iov,
            low_watermark: 0,
        };
        Srq::create(&fixture.ia, &fixture.pz, &attributes)
    };
    let most = srq(ia.max_recv_per_srq, 1).expect("max_recv_per_srq");
    assert_eq!(most.query().attributes.max_recv_dtos, ia.max_recv_per_srq);
    Srq::free(most.handle()).expect("unused");
    let error = srq(ia.max_recv_per_srq + 1, 1).expect_err("one more");
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidParameter, Subtype::InvalidArg3)
    );
}

#[test]
fn counts_are_those_of_the_device() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_1-1");
    let limits = *ia.device().limits();
    let info = ia.device().info().clone();
    let is = ia.query().ia;
    let count = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    assert_eq!(is.max_eps, count(limits.qps));
    assert_eq!(is.max_ep_per_srq, is.max_eps);
    assert_eq!(is.max_evds, count(limits.cqs));
    assert_eq!(is.max_pzs, count(limits.domains));
    assert_eq!(is.max_srqs, count(limits.srqs));
    assert!(is.max_lmrs > 0 && is.max_lmrs <= count(limits.regions));
    assert_eq!(is.max_lmr_block_size, limits.region_size);
    assert_eq!(is.max_lmr_virtual_address, u64::MAX);
    assert_eq!(
        (is.max_rmrs, is.max_rmr_target_address),
        (count(limits.windows), u64::MAX),
        "each is a memory window"
    );
    // Each endpoint has its own reads: see `promises::reads_of_every_endpoint…`.
    assert_eq!(
        (is.max_rdma_read_in, is.max_rdma_read_out),
        (
            is.max_rdma_read_per_ep_in.saturating_mul(is.max_eps),
            is.max_rdma_read_per_ep_out.saturating_mul(is.max_eps)
        )
    );
    assert_eq!(is.adapter_name, "mlx5_1-1");
    assert_eq!(is.vendor_name, "Mellanox Technologies");
    assert_eq!(
        (is.hardware_version_major, is.hardware_version_minor),
        (info.part_id, 0)
    );
    assert_eq!(is.transport_attributes, []);
    let vendor: Vec<_> = is
        .vendor_attributes
        .iter()
        .map(|of| (of.name, of.value.as_str()))
        .collect();
    let guid = format!("{:016x}", info.guid.0);
    assert_eq!(
        vendor,
        [("firmware", info.firmware.as_str()), ("guid", &guid)]
    );
    let firmware = format!(
        "{}.{}.",
        is.firmware_version_major, is.firmware_version_minor
    );
    assert!(
        info.firmware.starts_with(&firmware),
        "{} {firmware}",
        info.firmware
    );
    close(ia);
}

#[test]
fn the_address_is_a_sockaddr_of_this_host() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let is = ia.query().ia;
    assert_eq!(is.ia_address_ptr, ia.local_address());
    let at = |offset: usize, len: usize| {
        // SAFETY: a sockaddr that lives as long as the IA is open.
        unsafe { std::slice::from_raw_parts((is.ia_address_ptr + offset) as *const u8, len) }
    };
    let family = i32::from(u16::from_ne_bytes(at(0, 2).try_into().expect("two bytes")));
    match is.ia_address {
        std::net::SocketAddr::V4(v4) => {
            assert_eq!(
                (family, at(4, 4)),
                (libc::AF_INET, v4.ip().octets().as_slice())
            );
        }
        std::net::SocketAddr::V6(v6) => {
            assert_eq!(
                (family, at(8, 16)),
                (libc::AF_INET6, v6.ip().octets().as_slice())
            );
        }
    }
    assert_eq!(is.ia_address, ia.address());
    // Binding succeeds only for an address of this host.
    std::net::TcpListener::bind((is.ia_address.ip(), 0)).expect("this host's");
    close(ia);
}

#[test]
fn provider_attributes_are_true() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let is = fixture.ia.query().provider;
    assert_eq!((is.dapl_version_major, is.dapl_version_minor), (1, 2));
    // All packages of the workspace have one version.
    let version = format!(
        "{}.{}.",
        is.provider_version_major, is.provider_version_minor
    );
    assert_eq!(is.provider_name, "udapl");
    assert!(env!("CARGO_PKG_VERSION").starts_with(&version), "{version}");
    assert_eq!(
        is.lmr_mem_types_supported, 3,
        "LMR and shared virtual; virtual is 0"
    );
    assert_eq!(is.iov_ownership_on_return, IovOwnership::Consumer);
    assert_eq!((is.dat_qos_supported, is.supports_multipath), (0, false));
    let connect = |qos, flags, private_data: &[u8]| {
        let evd = fixture.evd(8);
        let ep = fixture.ep(&evd, &plain());
        ep.connect(&dat_api::object::ep::Connect {
            qos,
            flags,
            ..fixture.to(1, private_data)
        })
    };
    let model = Some(ReturnType::ModelNotSupported);
    assert_eq!(
        connect(1, 0, b"").expect_err("a quality").code().kind(),
        model
    );
    assert_eq!(
        connect(0, 1, b"").expect_err("many paths").code().kind(),
        model
    );
    let most = usize::try_from(is.max_private_data_size).expect("a size");
    assert!(most >= 256);
    connect(0, 0, &vec![1; most]).expect("max_private_data_size");
    let error = connect(0, 0, &vec![1; most + 1]).expect_err("one more");
    assert_eq!(error.code().kind(), Some(ReturnType::InvalidParameter));
    assert_eq!(is.completion_flags_supported, CompletionFlags::all());
    assert_eq!(is.pz_support, PzSupport::Unique);
    // `promises` tests `lmr_sync_req` and `dto_async_return_guaranteed`. The next attribute is
    // about other transports: no peer sees whether a read came first.
    assert!(!is.rdma_write_for_rdma_read_req);
}

#[test]
fn r15_the_optimal_alignment_divides_the_headers_alignment() {
    let _lock = lock_device();
    let (ia, _) = open("mlx5_0");
    let alignment = ia.query().provider.optimal_buffer_alignment;
    assert!(alignment.is_power_of_two() && 256 % alignment == 0);
    close(ia);
}

#[test]
fn all_streams_can_share_one_evd() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let merging = fixture.ia.query().provider.evd_stream_merging_supported;
    let flags = [
        EvdFlags::SOFTWARE,
        EvdFlags::CR,
        EvdFlags::DTO,
        EvdFlags::CONNECTION,
        EvdFlags::RMR_BIND,
        EvdFlags::ASYNC,
    ];
    for (i, row) in merging.iter().enumerate() {
        for (j, &may) in row.iter().enumerate() {
            let made = Evd::create(&fixture.ia, 2, flags[i] | flags[j], None);
            assert_eq!(made.is_ok(), may, "{:?} and {:?}", flags[i], flags[j]);
        }
    }
}

#[test]
fn l07_q06_shared_receive_queues_support_what_the_attributes_report() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let is = fixture.ia.query().provider;
    assert!(is.srq_supported);
    let srq = fixture.srq(4);
    let all = LOW_WATERMARK | SOFT_WATERMARK | HARD_WATERMARK;
    assert_eq!(is.srq_watermarks_supported, all);
    srq.set_low_watermark(2).expect("supported");
    assert_eq!(is.srq_info_supported, AVAILABLE | OUTSTANDING);
    let info = srq.query();
    assert_eq!((info.available, info.outstanding), (0, 0));
    let zone = Pz::create(&fixture.ia).expect("a zone");
    let evd = fixture.evd(16);
    let ends = Some(&evd);
    let attributes = EpAttributes {
        max_recv_dtos: -1,
        ..plain()
    };
    let create =
        |zone| Ep::create_with_srq(&fixture.ia, Some(zone), ends, ends, ends, &srq, &attributes);
    match (create(&zone), is.srq_ep_pz_difference_supported) {
        (Ok(_), true) => {}
        (Err(error), false) => {
            let wanted = code(ReturnType::InvalidParameter, Subtype::InvalidArg2);
            assert_eq!(error.code(), wanted, "{error}");
        }
        (made, may) => panic!("a zone other than the queue's: {made:?}, and it may be: {may}"),
    }
    let ep = create(&fixture.pz).expect("the queue's own zone");
    assert_eq!(is.ep_recv_info_supported, ALLOCATED | SPAN);
    let query = ep.recv_query();
    assert_eq!((query.allocated, query.span), (0, 0));
}

#[test]
fn service_points_create_endpoints_if_asked() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let evd = fixture.evd(8);
    let made = Psp::create_any(&fixture.ia, &evd, psp::EpCreator::Provider);
    match fixture.ia.query().provider.ep_creator {
        EpCreator::IfAsked => drop(made.expect("asked")),
        EpCreator::Never => {
            let error = made.expect_err("never");
            assert_eq!(error.code().kind(), Some(ReturnType::ModelNotSupported));
        }
    }
    let _ = fixture::TIMEOUT;
}

/// The data path, the wait policy and the connection manager, as the environment selects them.
#[test]
fn the_provider_s_own_attributes_are_the_options_in_use() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let own = fixture.ia.query().provider.provider_specific_attributes;
    let of = |name| {
        let found = own.iter().find(|of| of.name == name);
        found.expect(name).value.as_str()
    };
    let names: Vec<_> = own.iter().map(|of| of.name).collect();
    assert_eq!(
        names,
        [
            "path",
            "wait",
            "cm",
            "scatter",
            "numa",
            "gid",
            "pkey",
            "sl",
            "traffic_class",
            "mtu",
            "timeout",
            "retry",
            "rnr_retry",
            "rnr_timer"
        ]
    );
    let asked = std::env::var("DAT_PATH").unwrap_or_default();
    let path = if asked == "verbs" { "verbs" } else { "direct" };
    assert!(of("path").starts_with(path), "{}", of("path"));
    assert_eq!(
        of("wait").parse(),
        Ok(dat_engine::wait::WaitPolicy::default())
    );
    assert_eq!(of("cm"), "socket");
    assert_eq!(of("numa"), "any");
}
