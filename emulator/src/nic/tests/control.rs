//! Creating and destroying objects: the error numbers of the kernel.

use super::fixtures::*;
use crate::nic::resources::{Field, Kind};
use crate::spec::*;

const BUSY: Errno = Errno(libc::EBUSY);
const INVALID: Errno = Errno(libc::EINVAL);

#[test]
fn objects_in_use_are_busy_and_the_numbers_of_others_are_reused_at_once() {
    let mut host = Host::new(3);
    let (first, second) = (host.create_cq(16, 64), host.create_cq(16, 64));
    let qp = host.create_qp(host.qp_spec(first.cqn));
    assert_eq!(qp.qpn.0 >> 16, 3, "the upper byte is the process's slot");
    assert_eq!(host.nic.destroy_cq(first.cqn), Err(BUSY));
    assert_eq!(host.nic.dealloc_pd(host.pd), Err(BUSY));
    host.nic.destroy_cq(second.cqn).unwrap();
    assert_eq!(host.create_cq(16, 64).cqn, second.cqn);
    host.nic.destroy_qp(qp.qpn).unwrap();
    assert_eq!(host.nic.destroy_qp(qp.qpn), Err(INVALID));
    host.nic.destroy_cq(first.cqn).unwrap();
    host.nic.dealloc_pd(host.pd).unwrap();
    assert_eq!(host.nic.dealloc_pd(host.pd), Err(INVALID));
}

#[test]
fn closing_a_context_destroys_its_objects() {
    let mut host = Host::new(1);
    let cq = host.create_cq(16, 64);
    let qp = host.create_qp(host.qp_spec(cq.cqn));
    let memory = Buffer::new(64);
    host.register_buffer(&memory, 64, ALL_ACCESS);
    host.nic.close_context(host.context);
    assert_eq!(host.nic.query_qp(qp.qpn), Err(INVALID));
    assert_eq!(host.nic.destroy_cq(cq.cqn), Err(INVALID));
    assert_eq!(host.nic.dealloc_pd(host.pd), Err(INVALID));
    assert_eq!(host.nic.alloc_pd(host.context), Err(INVALID));
    assert!(!host.nic.has_work());
    assert_eq!(host.nic.open_context(1), Err(Errno(libc::ENODEV)));
}

#[test]
fn registering_the_same_region_again_returns_another_key() {
    let mut host = Host::new(1);
    let memory = Buffer::new(64);
    let mut last = 0;
    for _ in 0..600 {
        let key = host.register_buffer(&memory, 64, ALL_ACCESS);
        assert!(key != last && key >= 0x1000, "{key:#x}");
        if last != 0 {
            assert_eq!(key >> 8, last >> 8, "the mkey index is reused at once");
        }
        host.nic.dereg_mr(host.context, key >> 8).unwrap();
        last = key;
    }
}

#[test]
fn invalid_registrations_fail_as_in_the_kernel() {
    let mut host = Host::new(1);
    let memory = Buffer::new(64);
    let valid = MrSpec {
        context: host.context,
        pd: host.pd,
        start: memory.at(),
        length: 64,
        hca_va: memory.at(),
        access: ALL_ACCESS,
    };
    let fault = Errno(libc::EFAULT);
    let cases = [
        (
            MrSpec {
                access: Access::REMOTE_WRITE,
                ..valid
            },
            INVALID,
        ),
        (
            MrSpec {
                access: Access::REMOTE_ATOMIC,
                ..valid
            },
            INVALID,
        ),
        (
            MrSpec {
                pd: PdId(99),
                ..valid
            },
            INVALID,
        ),
        (
            MrSpec {
                length: u64::MAX,
                ..valid
            },
            INVALID,
        ),
        (
            MrSpec {
                start: 0x1000,
                hca_va: 0x1000,
                length: 0,
                ..valid
            },
            INVALID,
        ),
        (
            MrSpec {
                start: 0x1000,
                hca_va: 0x1000,
                length: 8,
                ..valid
            },
            fault,
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(host.nic.reg_mr(&spec), Err(expected), "{spec:?}");
    }
    let keys = host.nic.reg_mr(&valid).unwrap();
    assert_eq!(keys.lkey, keys.rkey);
    assert_eq!(host.nic.dereg_mr(ContextId(77), keys.handle), Err(INVALID));
    host.nic.dereg_mr(host.context, keys.handle).unwrap();
    assert_eq!(host.nic.dereg_mr(host.context, keys.handle), Err(INVALID));
    host.nic.dealloc_pd(host.pd).unwrap();
}

#[test]
fn a_region_may_have_an_iova_other_than_its_virtual_address() {
    let mut pair = Pair::new();
    let spec = MrSpec {
        context: pair.b.host.context,
        pd: pair.b.host.pd,
        start: pair.b.memory.at(),
        length: 100,
        hca_va: 0,
        access: ALL_ACCESS | Access::ZERO_BASED,
    };
    let key = pair.b.host.nic.reg_mr(&spec).unwrap().rkey;
    pair.a.post(
        WRITE,
        SIGNALLED,
        &[raddr_segment(5, key), inline_segment(b"five")],
    );
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(5, 4), b"five");
    pair.a.post(
        WRITE,
        SIGNALLED,
        &[raddr_segment(97, key), inline_segment(b"five")],
    );
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (0x13, 1)]);
}

#[test]
fn invalid_ring_sizes_are_refused() {
    let mut host = Host::new(1);
    let cq = host.create_cq(16, 64);
    let valid = QpSpec {
        dbrec: cq.dbrec.at(),
        ..host.qp_spec(cq.cqn)
    };
    let cases = [
        QpSpec {
            rq_wqe_count: 3,
            ..valid
        },
        QpSpec {
            sq_wqebb_count: 1 << 16,
            ..valid
        },
        QpSpec {
            rq_stride_log2: 3,
            ..valid
        },
        QpSpec {
            pd: PdId(99),
            ..valid
        },
        QpSpec {
            recv_cq: Cqn(99),
            ..valid
        },
        QpSpec {
            srq: Some(Srqn(99)),
            ..valid
        },
    ];
    for spec in cases {
        assert_eq!(host.nic.create_qp(&spec), Err(INVALID), "{spec:?}");
    }
    assert_eq!(
        host.nic.create_qp(&QpSpec { dbrec: 0, ..valid }),
        Err(Errno(libc::EFAULT))
    );
}

#[test]
fn attributes_out_of_range_are_refused_and_change_nothing() {
    let mut host = Host::new(1);
    let cq = host.create_cq(16, 64);
    let qp = host.create_qp(host.qp_spec(cq.cqn));
    let attr = QpAttr {
        dest_qpn: 7,
        ..attributes()
    };
    let modify = |host: &mut Host, attr: QpAttr| host.nic.modify_qp(qp.qpn, &attr);
    let init = QpAttr {
        mask: INIT_MASK,
        state: 1,
        ..attr
    };
    assert_eq!(modify(&mut host, QpAttr { port: 2, ..init }), Err(INVALID));
    assert_eq!(
        modify(
            &mut host,
            QpAttr {
                pkey_index: 1,
                ..init
            }
        ),
        Err(INVALID)
    );
    modify(&mut host, init).unwrap();
    let rtr = QpAttr {
        mask: RTR_MASK,
        state: 2,
        ..attr
    };
    for invalid in [
        QpAttr { path_mtu: 6, ..rtr },
        QpAttr { path_mtu: 0, ..rtr },
        QpAttr {
            max_dest_rd_atomic: 17,
            ..rtr
        },
        QpAttr {
            dest_qpn: 1 << 24,
            ..rtr
        },
        QpAttr {
            min_rnr_timer: 32,
            ..rtr
        },
    ] {
        assert_eq!(modify(&mut host, invalid), Err(INVALID), "{invalid:?}");
    }
    modify(&mut host, rtr).unwrap();
    let rts = QpAttr {
        mask: RTS_MASK,
        state: 3,
        ..attr
    };
    for invalid in [
        QpAttr { timeout: 32, ..rts },
        QpAttr {
            retry_count: 8,
            ..rts
        },
        QpAttr {
            rnr_retry: 8,
            ..rts
        },
        QpAttr {
            max_rd_atomic: 17,
            ..rts
        },
        QpAttr {
            mask: RTS_MASK | 1 << 1,
            cur_state: 3,
            ..rts
        },
        QpAttr { state: 7, ..rts },
    ] {
        assert_eq!(modify(&mut host, invalid), Err(INVALID), "{invalid:?}");
    }
    assert_eq!(host.nic.query_qp(qp.qpn).unwrap().state, 2, "still in RTR");
    modify(&mut host, rts).unwrap();
    let now = host.nic.query_qp(qp.qpn).unwrap();
    assert_eq!(
        (now.state, now.dest_qpn, now.timeout, now.path_mtu),
        (3, 7, 14, 3)
    );
}

#[test]
fn all_objects_are_listed_with_their_users() {
    let mut host = Host::new(3);
    let cq = host.create_cq(64, 64);
    let spec = host.qp_spec(cq.cqn);
    let qp = host.create_qp(spec);
    let memory = Buffer::new(100);
    host.register_buffer(&memory, 100, ALL_ACCESS);
    let mut listed = host.nic.resources();
    listed.sort_by_key(|it| it.kind as u8);
    let kinds: Vec<_> = listed.iter().map(|it| it.kind).collect();
    assert_eq!(
        kinds,
        [Kind::Pd, Kind::Cq, Kind::Qp, Kind::Mr, Kind::Context]
    );
    let of = |kind: Kind, field| {
        let found = listed.iter().find(|it| it.kind == kind).unwrap();
        let mut fields = found.fields.iter();
        fields.find(|(it, _)| *it == field).unwrap().1
    };
    assert_eq!(of(Kind::Cq, Field::Entries), 63);
    assert_eq!(of(Kind::Cq, Field::Users), 2);
    assert_eq!(of(Kind::Pd, Field::Users), 2);
    assert_eq!(of(Kind::Mr, Field::Length), 100);
    // The numbers of a process have its slot in the upper byte.
    let pd = listed[0].number;
    assert_eq!(pd >> 24, 3);
    assert_eq!(of(Kind::Qp, Field::Pd), pd.into());
    assert_eq!(listed[2].number, qp.qpn.0);
    assert_eq!(of(Kind::Qp, Field::State), 0);
}
