//! A NIC with lower limits: numbers of objects, and limits of requests, which only the
//! device can check.

use super::fixtures::*;
use crate::limits::Limits;
use crate::nic::NicOptions;
use crate::spec::*;

const LOCAL_QP_OPERATION: u8 = 0x02;

fn host_with_limits(slot: u8, text: &str) -> Host {
    let limits: Limits = text.parse().unwrap();
    Host::with_options(NicOptions {
        slot,
        limits,
        ..NicOptions::default()
    })
}

#[test]
fn creating_more_objects_than_the_limits_fails_with_enomem() {
    let full = Some(Errno(libc::ENOMEM));
    let mut host = host_with_limits(1, "max_pd=2,max_cq=1,max_qp=1,max_srq=1,max_mr=2,max_mw=1");
    let context = host.context;
    let second = host.nic.alloc_pd(context).unwrap();
    assert_eq!(host.nic.alloc_pd(context).err(), full);
    host.nic.dealloc_pd(second).unwrap();
    host.nic.alloc_pd(context).unwrap();

    let cq = host.create_cq(64, 64);
    let again = *host.nic.cq_spec(cq.cqn).unwrap();
    assert_eq!(host.nic.create_cq(&again).err(), full);
    let qp = host.create_qp(host.qp_spec(cq.cqn));
    assert_eq!(host.nic.create_qp(&qp.spec).err(), full);

    let memory = Buffer::new(4096);
    let mr = MrSpec {
        context,
        pd: host.pd,
        start: memory.at(),
        length: 64,
        hca_va: memory.at(),
        access: ALL_ACCESS,
    };
    let mw = MwSpec {
        context,
        pd: host.pd,
        kind: WindowType::One,
    };
    // Windows and regions have separate limits, and destroying an object permits a new
    // one.
    for _ in 0..2 {
        let window = host.nic.alloc_mw(&mw).unwrap();
        let regions = [host.nic.reg_mr(&mr).unwrap(), host.nic.reg_mr(&mr).unwrap()];
        assert_eq!(host.nic.alloc_mw(&mw).err(), full);
        assert_eq!(host.nic.reg_mr(&mr).err(), full);
        host.nic.dealloc_mw(context, window.handle).unwrap();
        for region in regions {
            host.nic.dereg_mr(context, region.handle).unwrap();
        }
    }

    let srq = SrqSpec {
        context,
        pd: host.pd,
        buf: memory.at(),
        dbrec: memory.at(),
        wqe_count: 16,
        stride_log2: 5,
        limit: 0,
        user_handle: 1,
        user_index: 1,
    };
    host.nic.create_srq(&srq).unwrap();
    assert_eq!(host.nic.create_srq(&srq).err(), full);
}

fn pair(limits: &str) -> Pair {
    Pair::connect(
        peer(host_with_limits(1, limits), |_| {}),
        peer(Host::new(2), |_| {}),
        attributes(),
    )
}

/// Posts one request under these limits. Returns its syndrome.
fn syndrome_with_limits(
    limits: &str,
    opcode: u8,
    list: impl FnOnce(&mut Pair) -> Vec<Vec<u8>>,
) -> u8 {
    let mut pair = pair(limits);
    let list = list(&mut pair);
    pair.a.post(opcode, SIGNALLED, &list);
    pair.run_until_idle();
    let completions = pair.a.cq.poll_all();
    assert_eq!(completions.len(), 1);
    let refused = completions[0].syndrome == LOCAL_QP_OPERATION;
    assert_eq!(pair.a.host.nic.violations().count(), u64::from(refused));
    completions[0].syndrome
}

#[test]
fn inline_data_beyond_the_limit_fails() {
    let write = |bytes: &'static [u8]| {
        move |pair: &mut Pair| vec![pair.b.raddr_segment(0), inline_segment(bytes)]
    };
    assert_eq!(
        syndrome_with_limits("max_inline=8", WRITE, write(&[7; 8])),
        OK
    );
    let failed = syndrome_with_limits("max_inline=8", WRITE, write(&[7; 9]));
    assert_eq!(failed, LOCAL_QP_OPERATION);
    let failed = syndrome_with_limits("max_inline=0", WRITE, write(&[7; 1]));
    assert_eq!(failed, LOCAL_QP_OPERATION);
    // Inline segments are added up; data segments do not count.
    let two = |pair: &mut Pair| {
        vec![
            pair.b.raddr_segment(0),
            inline_segment(&[1; 5]),
            inline_segment(&[2; 4]),
        ]
    };
    assert_eq!(syndrome_with_limits("max_inline=9", WRITE, two), OK);
    assert_eq!(
        syndrome_with_limits("max_inline=8", WRITE, two),
        LOCAL_QP_OPERATION
    );
    let gathered = |pair: &mut Pair| {
        let local = data_segment(64, pair.a.key, pair.a.memory.at());
        vec![pair.b.raddr_segment(0), local]
    };
    assert_eq!(syndrome_with_limits("max_inline=0", WRITE, gathered), OK);
}

#[test]
fn a_read_into_too_many_segments_fails() {
    let into = |count: u64| {
        move |pair: &mut Pair| {
            let (key, at) = (pair.a.key, pair.a.memory.at());
            let local = (0..count).map(|n| data_segment(8, key, at + 8 * n));
            std::iter::once(pair.b.raddr_segment(0))
                .chain(local)
                .collect()
        }
    };
    assert_eq!(syndrome_with_limits("max_sge_rd=1", READ, into(1)), OK);
    assert_eq!(
        syndrome_with_limits("max_sge_rd=1", READ, into(2)),
        LOCAL_QP_OPERATION
    );
    assert_eq!(syndrome_with_limits("max_sge_rd=1", WRITE, into(2)), OK);
}
