//! The attributes of endpoints, and changing them.

use dat_api::object::ep::{Ep, EpChange, EpFields};
use dat_api::object::evd::Evd;
use dat_api::object::pz::Pz;
use dat_api::types::{CompletionFlags, EpAttributes, EpState, EvdFlags};
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::fixture::*;

fn arg(subtype: Subtype) -> DatReturn {
    refusal(ReturnType::InvalidParameter, subtype)
}

#[test]
fn e09_attributes_are_exact_or_refused() {
    let fixture = Fixture::new();
    let evd = fixture.evd(64);
    let all = Some(&evd);
    let ep = fixture.ep(&evd, &plain());
    assert_eq!(ep.query().attributes, plain());
    let limits = fixture.ia.query().ia;
    for bad in [
        EpAttributes {
            service_type: 1,
            ..plain()
        },
        EpAttributes { qos: 2, ..plain() },
        EpAttributes {
            max_recv_dtos: 0,
            ..plain()
        },
        EpAttributes {
            max_recv_dtos: -1,
            ..plain()
        },
        EpAttributes {
            max_request_dtos: 0,
            ..plain()
        },
        EpAttributes {
            max_request_dtos: i32::MIN,
            ..plain()
        },
        EpAttributes {
            max_recv_dtos: limits.max_dto_per_ep + 1,
            ..plain()
        },
        EpAttributes {
            max_request_dtos: i32::MAX,
            ..plain()
        },
        EpAttributes {
            max_recv_iov: 0,
            ..plain()
        },
        EpAttributes {
            max_request_iov: 0,
            ..plain()
        },
        EpAttributes {
            max_request_iov: limits.max_iov_segments_per_dto + 1,
            ..plain()
        },
        EpAttributes {
            max_rdma_read_in: limits.max_rdma_read_per_ep_in + 1,
            ..plain()
        },
        EpAttributes {
            max_rdma_read_out: limits.max_rdma_read_per_ep_out + 1,
            ..plain()
        },
        EpAttributes {
            max_message_size: limits.max_message_size + 1,
            ..plain()
        },
        EpAttributes {
            max_rdma_size: u64::MAX,
            ..plain()
        },
        EpAttributes {
            recv_completion_flags: CompletionFlags::SUPPRESS,
            ..plain()
        },
        EpAttributes {
            request_completion_flags: CompletionFlags::SOLICITED_WAIT,
            ..plain()
        },
        EpAttributes {
            recv_completion_flags: CompletionFlags::all(),
            ..plain()
        },
    ] {
        let refused =
            Ep::create(&fixture.ia, Some(&fixture.pz), all, all, all, Some(&bad)).unwrap_err();
        assert_eq!(refused.code(), arg(Subtype::InvalidArg6), "{bad:?}");
    }
    // Counts without an EVD for them.
    for (recv, request) in [(None, all), (all, None)] {
        let refused = Ep::create(
            &fixture.ia,
            Some(&fixture.pz),
            recv,
            request,
            all,
            Some(&plain()),
        )
        .unwrap_err();
        assert_eq!(refused.code(), arg(Subtype::InvalidArg6));
    }
    let none = EpAttributes {
        max_recv_dtos: 0,
        max_recv_iov: 0,
        ..plain()
    };
    let ep = Ep::create(&fixture.ia, Some(&fixture.pz), None, all, all, Some(&none))
        .expect("no receives");
    let full = refusal(ReturnType::InsufficientResources, Subtype::ResourceMemory);
    assert_eq!(recv(&ep, &[], 1), Err(full));
}

#[test]
fn e07_e08_e15_open_attributes_get_defaults() {
    let fixture = Fixture::new();
    let evd = fixture.evd(64);
    let all = Some(&evd);
    let srq = fixture.srq(7);
    let open = EpAttributes {
        max_message_size: 0,
        max_rdma_size: 0,
        max_recv_dtos: -1,
        max_request_dtos: 0,
        max_request_iov: 0,
        max_recv_iov: 12_345,
        max_rdma_read_in: -1,
        max_rdma_read_out: -1,
        ..plain()
    };
    let ep = Ep::create_with_srq(&fixture.ia, Some(&fixture.pz), all, all, all, &srq, &open)
        .expect("made");
    let real = ep.query().attributes;
    let limits = fixture.ia.query().ia;
    assert_eq!(real.max_message_size, limits.max_message_size);
    assert!(
        real.max_request_dtos > 0 && real.max_request_iov > 0,
        "{real:?}"
    );
    assert_eq!(
        (real.max_rdma_read_in, real.max_rdma_read_out),
        (0, 0),
        "e15"
    );
    let bad = EpAttributes {
        max_rdma_read_in: 1000,
        ..open
    };
    let refused =
        Ep::create_with_srq(&fixture.ia, Some(&fixture.pz), all, all, all, &srq, &bad).unwrap_err();
    assert_eq!(refused.code(), arg(Subtype::InvalidArg7));
    // Without any attributes. Such completions need an EVD of their own.
    let evd = fixture.evd(64);
    let all = Some(&evd);
    let ep = Ep::create(&fixture.ia, Some(&fixture.pz), all, all, all, None).expect("made");
    let real = ep.query().attributes;
    assert!(
        real.max_recv_dtos > 0 && real.max_request_dtos > 0,
        "{real:?}"
    );
    assert_eq!(
        (real.max_rdma_read_in, real.max_rdma_read_out),
        (
            limits.max_rdma_read_per_ep_in.min(4),
            limits.max_rdma_read_per_ep_out.min(4)
        )
    );
    assert_eq!(
        (real.recv_completion_flags, real.request_completion_flags),
        (
            CompletionFlags::EVD_THRESHOLD,
            CompletionFlags::EVD_THRESHOLD
        )
    );
}

#[test]
fn e10_evds_must_be_created_for_their_role() {
    let fixture = Fixture::new();
    let dto = fixture.evd_for(8, EvdFlags::DTO);
    let conn = fixture.evd_for(8, EvdFlags::CONNECTION);
    let make = |recv, request, connect| {
        Ep::create(
            &fixture.ia,
            Some(&fixture.pz),
            Some(recv),
            Some(request),
            Some(connect),
            Some(&plain()),
        )
        .map(|ep| ep.handle())
        .map_err(|error| error.code())
    };
    let bad = |subtype| Err(refusal(ReturnType::InvalidHandle, subtype));
    assert_eq!(make(&dto, &dto, &dto), bad(Subtype::InvalidHandleEvdConn));
    assert_eq!(make(&conn, &dto, &conn), bad(Subtype::InvalidHandleEvdRecv));
    assert_eq!(
        make(&dto, &conn, &conn),
        bad(Subtype::InvalidHandleEvdRequest)
    );
    let ep = make(&dto, &dto, &conn).expect("as it should be");
    let used = refusal(ReturnType::InvalidState, Subtype::InvalidStateEvdInUse);
    for evd in [&dto, &conn] {
        assert_eq!(Evd::free(evd.handle()).unwrap_err().code(), used);
    }
    free_ep(ep).expect("unconnected");
    for evd in [&dto, &conn] {
        Evd::free(evd.handle()).expect("no stream is attached");
    }
    // Those of another open: never for completions, for connections unless it is strict.
    let other = Fixture::new();
    let foreign = other.evd_for(8, EvdFlags::DTO);
    assert_eq!(
        make(&foreign, &dto, &conn),
        bad(Subtype::InvalidHandleEvdRecv)
    );
    let strict = Fixture::with_strict(true);
    let foreign = other.evd(8);
    let refused = Ep::create(&strict.ia, None, None, None, Some(&foreign), None);
    assert_eq!(
        refused.unwrap_err().code(),
        refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleEvdConn)
    );
}

#[test]
fn e12_streams_of_different_kinds_do_not_share_an_evd() {
    let fixture = Fixture::with_strict(true);
    let evd = fixture.evd_for(64, EvdFlags::DTO);
    let conn = fixture.evd(8);
    let make = |flags| {
        let attributes = EpAttributes {
            recv_completion_flags: flags,
            request_completion_flags: flags,
            ..plain()
        };
        let dto = Some(&evd);
        Ep::create(
            &fixture.ia,
            Some(&fixture.pz),
            dto,
            dto,
            Some(&conn),
            Some(&attributes),
        )
        .map_err(|error| error.code().kind())
    };
    make(CompletionFlags::UNSIGNALLED).expect("the first");
    make(CompletionFlags::UNSIGNALLED).expect("the same attribute");
    assert_eq!(
        make(CompletionFlags::EVD_THRESHOLD).unwrap_err(),
        Some(ReturnType::InvalidParameter)
    );
    make(CompletionFlags::UNSIGNALLED).expect("nothing has changed");
}

fn change(ep: &Ep) -> EpChange {
    let info = ep.query();
    EpChange {
        pz: info.pz,
        recv_evd: info.recv_evd,
        request_evd: info.request_evd,
        connect_evd: info.connect_evd,
        attributes: info.attributes,
    }
}

#[test]
fn modify_supplies_a_zone_and_evds_later() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(64), fixture.evd(64)];
    let ep = Ep::create(&fixture.ia, None, None, None, None, None).expect("bare");
    let no_zone = refusal(ReturnType::InvalidState, Subtype::InvalidStateEpPz);
    assert_eq!(recv(&ep, &[], 1), Err(no_zone));
    let fields = EpFields::PZ
        | EpFields::RECV_EVD
        | EpFields::REQUEST_EVD
        | EpFields::CONNECT_EVD
        | EpFields::MAX_RECV_DTOS
        | EpFields::MAX_REQUEST_DTOS;
    let new = EpChange {
        pz: Some(fixture.pz.handle()),
        recv_evd: Some(evds[0].handle()),
        request_evd: Some(evds[0].handle()),
        connect_evd: Some(evds[0].handle()),
        attributes: EpAttributes {
            max_recv_dtos: 3,
            max_request_dtos: 5,
            ..ep.query().attributes
        },
    };
    ep.modify_now(fields, &new).expect("unconnected");
    let info = ep.query();
    assert_eq!(info.pz, Some(fixture.pz.handle()));
    assert_eq!(info.recv_evd, Some(evds[0].handle()));
    assert_eq!(
        (
            info.attributes.max_recv_dtos,
            info.attributes.max_request_dtos
        ),
        (3, 5)
    );
    let peer = fixture.ep(&evds[1], &plain());
    let eps = [ep, peer];
    fixture.join(&eps, &evds);
    for cookie in 0..3 {
        recv(&eps[0], &[fixture.memory.local(0, 8)], cookie).expect("room");
    }
    assert!(recv(&eps[0], &[fixture.memory.local(0, 8)], 3).is_err());
    send(&eps[1], &[fixture.memory.local(64, 8)], 9).expect("room");
    assert_eq!(success(&evds[0]), (0, 8));
}

#[test]
fn a_refused_modify_changes_nothing() {
    let fixture = Fixture::with_strict(true);
    let evds = [fixture.evd(64), fixture.evd(64)];
    let ep = fixture.ep(&evds[0], &plain());
    let before = ep.query();
    let good = change(&ep);
    let bad_mask = arg(Subtype::InvalidArg2);
    for field in [
        EpFields::IA,
        EpFields::STATE,
        EpFields::LOCAL_ADDRESS,
        EpFields::REMOTE_PORT,
        EpFields::SRQ,
        EpFields::SRQ_SOFT_HW,
        EpFields::from_bits_retain(1 << 11),
        EpFields::from_bits_retain(1 << 40),
    ] {
        assert_eq!(
            ep.modify_now(field, &good).unwrap_err().code(),
            bad_mask,
            "{field:?}"
        );
    }
    let bad = arg(Subtype::InvalidArg3);
    let attributes = |attributes| EpChange { attributes, ..good };
    for (field, new) in [
        (
            EpFields::PZ,
            EpChange {
                pz: Some(evds[0].handle()),
                ..good
            },
        ),
        (
            EpFields::RECV_EVD,
            EpChange {
                recv_evd: Some(fixture.pz.handle()),
                ..good
            },
        ),
        (
            EpFields::MAX_RECV_DTOS,
            attributes(EpAttributes {
                max_recv_dtos: -5,
                ..plain()
            }),
        ),
        (
            EpFields::MAX_REQUEST_IOV,
            attributes(EpAttributes {
                max_request_iov: 9999,
                ..plain()
            }),
        ),
        (
            EpFields::SERVICE_TYPE,
            attributes(EpAttributes {
                service_type: 7,
                ..plain()
            }),
        ),
        (
            EpFields::QOS,
            attributes(EpAttributes { qos: 1, ..plain() }),
        ),
    ] {
        assert_eq!(
            ep.modify_now(field, &new).unwrap_err().code(),
            bad,
            "{field:?}"
        );
        assert_eq!(ep.query(), before);
    }
    // A mismatch that is found only when the EVD is attached to.
    let threshold = EpAttributes {
        recv_completion_flags: CompletionFlags::EVD_THRESHOLD,
        request_completion_flags: CompletionFlags::EVD_THRESHOLD,
        ..plain()
    };
    let _other = fixture.ep(&evds[1], &threshold);
    let moved = EpChange {
        recv_evd: Some(evds[1].handle()),
        ..good
    };
    let refused = ep
        .modify_now(EpFields::RECV_EVD, &moved)
        .unwrap_err()
        .code();
    assert_eq!(refused.kind(), Some(ReturnType::InvalidParameter));
    assert_eq!(ep.query(), before);
    recv(&ep, &[fixture.memory.local(0, 8)], 1).expect("it works as before");
    // Receives are posted now.
    let deeper = attributes(EpAttributes {
        max_recv_dtos: 20,
        ..plain()
    });
    let refused = ep
        .modify_now(EpFields::MAX_RECV_DTOS, &deeper)
        .unwrap_err()
        .code();
    assert_eq!(refused.kind(), Some(ReturnType::InvalidState));
    let sizes = attributes(EpAttributes {
        max_message_size: 100,
        ..plain()
    });
    ep.modify_now(EpFields::MAX_MESSAGE_SIZE, &sizes)
        .expect("needs no other queue pair");
    assert_eq!(ep.query().attributes.max_message_size, 100);
}

#[test]
fn modify_is_refused_while_connected() {
    let fixture = Fixture::with_strict(true);
    let pair = fixture.pair();
    let ep = &pair.eps[0];
    let wrong = refusal(ReturnType::InvalidState, Subtype::InvalidStateEpConnected);
    for field in [
        EpFields::PZ,
        EpFields::QOS,
        EpFields::CONNECT_EVD,
        EpFields::PROVIDER_ATTRIBUTES,
    ] {
        assert_eq!(ep.modify_now(field, &change(ep)).unwrap_err().code(), wrong);
    }
    let info = ep.query();
    assert_eq!(info.state, EpState::Connected);
    assert_ne!(info.remote_address, 0);
    assert_ne!(info.remote_port_qualifier, 0);
    ep.disconnect_now(false).expect("connected");
    reaches(ep, EpState::Disconnected);
    ep.reset_now().expect("disconnected");
    assert_eq!(ep.query().remote_address, 0);
    let zone = Pz::create(&fixture.ia).expect("a zone");
    let moved = EpChange {
        pz: Some(zone.handle()),
        ..change(ep)
    };
    ep.modify_now(EpFields::PZ, &moved).expect("unconnected");
    assert_eq!(ep.query().pz, Some(zone.handle()));
    let refused = recv(ep, &[fixture.memory.local(0, 8)], 1).unwrap_err();
    assert_eq!(refused.kind(), Some(ReturnType::ProtectionViolation));
    assert_eq!(
        Pz::free(zone.handle()).unwrap_err().code().subtype(),
        Some(Subtype::InvalidStatePzInUse)
    );
    ep.modify_now(
        EpFields::PZ,
        &EpChange {
            pz: None,
            ..change(ep)
        },
    )
    .expect("none");
    Pz::free(zone.handle()).expect("not in use");
}
