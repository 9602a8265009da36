//! Send doorbells: which stores and records start a send queue.

use super::fixtures::*;
use crate::nic::NicOptions;
use crate::spec::*;

/// A NIC with one QP that is connected to itself.
struct Loopback {
    host: Host,
    cq: TestCq,
    qp: TestQp,
    wire: Wire,
}

impl Loopback {
    fn new(view: DoorbellView) -> Self {
        let mut host = Host::with_options(NicOptions {
            view,
            ..NicOptions::default()
        });
        let cq = host.create_cq(64, 64);
        let mut qp = host.create_qp(host.qp_spec(cq.cqn));
        modify_to_rts(&mut host.nic, qp.qpn, qp.qpn, attributes());
        qp.write_wqe(NOP, SIGNALLED, &[]);
        Self {
            host,
            cq,
            qp,
            wire: Wire::new(),
        }
    }

    fn completions(&mut self) -> usize {
        self.host.nic.work(1, &mut self.wire, 64);
        self.cq.poll_all().len()
    }

    fn first_bytes(&self) -> [u8; 8] {
        self.qp.sq.get(0, 8).try_into().unwrap()
    }
}

#[test]
fn a_doorbell_record_alone_starts_no_wqe_in_the_strict_views() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut loopback = Loopback::new(view);
        loopback.qp.dbrec.put_be32(4, 1);
        assert_eq!(loopback.completions(), 0, "{view:?}");
        loopback.host.store_doorbell(0x900, loopback.first_bytes());
        assert_eq!(
            loopback.completions(),
            1,
            "{view:?}: both buffers of the register are accepted"
        );
    }
    let mut loopback = Loopback::new(DoorbellView::Records);
    loopback.qp.dbrec.put_be32(4, 1);
    assert_eq!(loopback.completions(), 1);
}

#[test]
fn a_doorbell_that_does_not_match_starts_no_wqe_and_is_a_violation() {
    type Change = fn(&mut Loopback, &mut [u8; 8]);
    let changes: [(&str, Change); 6] = [
        ("another opcode", |_, bytes| bytes[3] = SEND),
        ("another index", |_, bytes| bytes[2] = 1),
        ("another length", |_, bytes| bytes[7] = 2),
        ("a QP that does not exist", |_, bytes| bytes[6] = 9),
        ("a doorbell record that is too low", |loopback, _| {
            loopback.qp.dbrec.put_be32(4, 0)
        }),
        ("a doorbell record that is too high", |loopback, _| {
            loopback.qp.dbrec.put_be32(4, 2)
        }),
    ];
    for (case, change) in changes {
        let mut loopback = Loopback::new(DoorbellView::Exact);
        loopback.qp.dbrec.put_be32(4, 1);
        let mut bytes = loopback.first_bytes();
        change(&mut loopback, &mut bytes);
        loopback.host.store_doorbell(0x800, bytes);
        assert_eq!(loopback.completions(), 0, "{case}");
        assert_eq!(loopback.host.nic.violations().count(), 1, "{case}");
    }
}

#[test]
fn a_doorbell_on_the_uar_page_of_another_context_is_ignored() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut loopback = Loopback::new(view);
        loopback.qp.dbrec.put_be32(4, 1);
        let page = UarPage {
            page: 2,
            ..loopback.host.uar_page()
        };
        let bytes = loopback.first_bytes();
        loopback.host.nic.doorbell(&UarWrite {
            page,
            offset: 0x800,
            bytes,
            copy: None,
        });
        assert_eq!(loopback.completions(), 0, "{view:?}");
    }
}

#[test]
fn a_doorbell_before_rts_is_a_violation() {
    let mut loopback = Loopback::new(DoorbellView::Exact);
    set_state(&mut loopback.host.nic, loopback.qp.qpn, 0);
    loopback.qp.ring_doorbell(&mut loopback.host);
    let texts: Vec<_> = loopback.host.nic.violations().recent().collect();
    assert!(texts.len() == 1 && texts[0].contains("Reset"), "{texts:?}");
}

#[test]
fn more_posted_wqebbs_than_the_ring_holds_are_a_violation() {
    let mut loopback = Loopback::new(DoorbellView::Exact);
    for _ in 0..64 {
        loopback.qp.write_wqe(NOP, SIGNALLED, &[]);
    }
    loopback.qp.ring_doorbell(&mut loopback.host);
    assert_eq!(loopback.completions(), 0);
    assert_eq!(loopback.host.nic.violations().count(), 1);
}

#[test]
fn one_doorbell_starts_all_wqes_posted_before_it() {
    let mut loopback = Loopback::new(DoorbellView::Exact);
    for _ in 0..9 {
        loopback.qp.write_wqe(NOP, SIGNALLED, &[]);
    }
    loopback.qp.ring_doorbell(&mut loopback.host);
    assert_eq!(loopback.completions(), 10);
}

#[test]
fn the_rest_of_a_blueflame_copy_is_not_a_doorbell() {
    let mut loopback = Loopback::new(DoorbellView::Exact);
    loopback.qp.ring_doorbell(&mut loopback.host);
    loopback.host.store_doorbell(0x840, [0xff; 8]);
    assert_eq!(loopback.completions(), 1);
    assert_eq!(loopback.host.nic.violations().count(), 0);
}

/// The kernel's driver tests so whether stores to the register are combined: the copy in the
/// register asks for a completion, the request in the ring does not.
#[test]
fn a_nop_completes_if_its_blueflame_copy_asks_for_it() {
    let mut loopback = Loopback::new(DoorbellView::Register);
    loopback.qp.write_wqe(NOP, 0, &[]);
    loopback.qp.write_wqe(NOP, 0, &[]);
    let copy_of = |slot: usize, opcode| {
        let mut bytes: [u8; 8] = loopback.qp.sq.get(slot * 64, 8).try_into().unwrap();
        bytes[3] = opcode;
        bytes
    };
    let signalled = [0, 0, 0, SIGNALLED, 0, 0, 0, 0];
    // The rest of the first is that of an older request.
    let copies = [
        (0x900, copy_of(0, NOP), [0; 8]),
        (0x800, copy_of(1, NOP), signalled),
        (0x900, copy_of(2, SEND), signalled),
    ];
    loopback.qp.dbrec.put_be32(4, 3);
    for (offset, bytes, rest) in copies {
        loopback.host.nic.doorbell(&UarWrite {
            page: loopback.host.uar_page(),
            offset,
            bytes,
            copy: Some(rest),
        });
    }
    loopback.host.nic.work(1, &mut loopback.wire, 64);
    let counters: Vec<_> = loopback
        .cq
        .poll_all()
        .iter()
        .map(|cqe| cqe.counter)
        .collect();
    assert_eq!(counters, [0, 1], "the copy of a SEND counts for nothing");
}

#[test]
fn two_qps_on_one_register_both_work_and_their_sharing_is_detected() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut loopback = Loopback::new(view);
        let mut other = loopback.host.create_qp(loopback.qp.spec);
        modify_to_rts(&mut loopback.host.nic, other.qpn, other.qpn, attributes());
        other.write_wqe(NOP, SIGNALLED, &[]);
        if view == DoorbellView::Register {
            // The first doorbell is overwritten before the NIC takes it.
            loopback.qp.dbrec.put_be32(4, 1);
        } else {
            loopback.qp.ring_doorbell(&mut loopback.host);
        }
        other.ring_doorbell(&mut loopback.host);
        assert_eq!(loopback.completions(), 2, "{view:?}");
        let shared = loopback.host.nic.violations().shared_register_writes();
        assert_eq!(shared, u64::from(view == DoorbellView::Exact));
    }
}
