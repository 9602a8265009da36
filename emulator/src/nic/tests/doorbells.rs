//! What starts a send queue, and what must not.

use super::rig::*;
use crate::nic::NicOptions;
use crate::nic::spec::*;

/// One NIC, one QP connected to itself.
struct Solo {
    host: Host,
    cq: TestCq,
    qp: TestQp,
    wire: super::wire::Wire,
}

impl Solo {
    fn new(view: DoorbellView) -> Self {
        let mut host = Host::with(NicOptions {
            view,
            ..NicOptions::default()
        });
        let cq = host.cq(64, 64);
        let mut qp = host.qp(host.qp_spec(cq.cqn));
        bring_up(&mut host.nic, qp.qpn, qp.qpn, attributes());
        qp.write(NOP, SIGNALLED, &[]);
        Self {
            host,
            cq,
            qp,
            wire: super::wire::Wire::new(),
        }
    }

    fn completions(&mut self) -> usize {
        self.host.nic.work(1, &mut self.wire, 64);
        self.cq.all().len()
    }

    fn first_bytes(&self) -> [u8; 8] {
        self.qp.sq.get(0, 8).try_into().unwrap()
    }
}

#[test]
fn a_record_alone_starts_nothing_in_the_strict_views() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut solo = Solo::new(view);
        solo.qp.dbrec.put_be32(4, 1);
        assert_eq!(solo.completions(), 0, "{view:?}");
        solo.host.store(0x900, solo.first_bytes());
        assert_eq!(
            solo.completions(),
            1,
            "{view:?}: either half of the register will do"
        );
    }
    let mut solo = Solo::new(DoorbellView::Records);
    solo.qp.dbrec.put_be32(4, 1);
    assert_eq!(solo.completions(), 1);
}

#[test]
fn a_doorbell_that_does_not_match_starts_nothing_and_is_written_down() {
    type Spoil = fn(&mut Solo, &mut [u8; 8]);
    let spoils: [(&str, Spoil); 6] = [
        ("another opcode", |_, bytes| bytes[3] = SEND),
        ("another index", |_, bytes| bytes[2] = 1),
        ("another length", |_, bytes| bytes[7] = 2),
        ("a QP that is not there", |_, bytes| bytes[6] = 9),
        ("a record that lags", |solo, _| solo.qp.dbrec.put_be32(4, 0)),
        ("a record that runs ahead", |solo, _| {
            solo.qp.dbrec.put_be32(4, 2)
        }),
    ];
    for (what, set_error) in spoils {
        let mut solo = Solo::new(DoorbellView::Exact);
        solo.qp.dbrec.put_be32(4, 1);
        let mut bytes = solo.first_bytes();
        set_error(&mut solo, &mut bytes);
        solo.host.store(0x800, bytes);
        assert_eq!(solo.completions(), 0, "{what}");
        assert_eq!(solo.host.nic.violations().count(), 1, "{what}");
    }
}

#[test]
fn a_doorbell_on_the_page_of_others_is_not_heard() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut solo = Solo::new(view);
        solo.qp.dbrec.put_be32(4, 1);
        let page = UarPage {
            page: 2,
            ..solo.host.uar()
        };
        let bytes = solo.first_bytes();
        solo.host.nic.doorbell(&UarWrite {
            page,
            offset: 0x800,
            bytes,
        });
        assert_eq!(solo.completions(), 0, "{view:?}");
    }
}

#[test]
fn a_doorbell_before_rts_is_a_violation() {
    let mut solo = Solo::new(DoorbellView::Exact);
    set_state(&mut solo.host.nic, solo.qp.qpn, 0);
    solo.qp.ring(&mut solo.host);
    let texts: Vec<_> = solo.host.nic.violations().recent().collect();
    assert!(texts.len() == 1 && texts[0].contains("Reset"), "{texts:?}");
}

#[test]
fn more_posted_than_the_ring_holds_is_a_violation() {
    let mut solo = Solo::new(DoorbellView::Exact);
    for _ in 0..64 {
        solo.qp.write(NOP, SIGNALLED, &[]);
    }
    solo.qp.ring(&mut solo.host);
    assert_eq!(solo.completions(), 0);
    assert_eq!(solo.host.nic.violations().count(), 1);
}

#[test]
fn one_doorbell_starts_everything_posted_before_it() {
    let mut solo = Solo::new(DoorbellView::Exact);
    for _ in 0..9 {
        solo.qp.write(NOP, SIGNALLED, &[]);
    }
    solo.qp.ring(&mut solo.host);
    assert_eq!(solo.completions(), 10);
}

#[test]
fn the_rest_of_a_blueflame_copy_is_no_doorbell() {
    let mut solo = Solo::new(DoorbellView::Exact);
    solo.qp.ring(&mut solo.host);
    solo.host.store(0x840, [0xff; 8]);
    assert_eq!(solo.completions(), 1);
    assert_eq!(solo.host.nic.violations().count(), 0);
}

#[test]
fn two_qps_on_one_register_are_both_served_and_noticed() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut solo = Solo::new(view);
        let mut other = solo.host.qp(solo.qp.spec);
        bring_up(&mut solo.host.nic, other.qpn, other.qpn, attributes());
        other.write(NOP, SIGNALLED, &[]);
        if view == DoorbellView::Register {
            // The first doorbell was overwritten before the NIC saw it.
            solo.qp.dbrec.put_be32(4, 1);
        } else {
            solo.qp.ring(&mut solo.host);
        }
        other.ring(&mut solo.host);
        assert_eq!(solo.completions(), 2, "{view:?}");
        let shared = solo.host.nic.violations().shared_register_writes();
        assert_eq!(shared, u64::from(view == DoorbellView::Exact));
    }
}
