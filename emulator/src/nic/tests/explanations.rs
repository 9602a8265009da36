//! The sentences that explain failures: each names the object and the cause. The
//! fixtures require a sentence for every event of a failure, in all tests.

use super::fixtures::*;
use crate::spec::*;

/// Checks that the explanations of a host are these, one for each list of words.
fn assert_explained(host: &Host, expected: &[&[&str]]) {
    let texts = host.events.take_explanations();
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, words) in texts.iter().zip(expected) {
        for word in *words {
            assert!(text.contains(word), "no {word:?} in {text:?}");
        }
    }
}

#[test]
fn an_overrun_is_explained_with_the_size_of_the_queue_and_how_far_it_is_behind() {
    let mut pair = Pair::new();
    // The program polls three completions and does not return the consumer index.
    let unreturned = pair.a.cq.dbrec.be32(0);
    for n in 0..65 {
        assert_eq!(pair.a.host.events.take_explanations(), Vec::<String>::new());
        pair.a.post(NOP, SIGNALLED, &[]);
        pair.run_until_idle();
        if n < 3 {
            pair.a.cq.poll().unwrap();
            pair.a.cq.dbrec.put_be32(0, unreturned);
        }
    }
    let (cq, qp) = (pair.a.cq.cqn.0, pair.a.qp.qpn.0);
    let queue = format!("IBV_EVENT_CQ_ERR: completion queue {cq:#x}: it overran: all 64 entries");
    let failed = format!("IBV_EVENT_QP_FATAL: queue pair {qp:#x}: ");
    let cause = format!("completion queue {cq:#x} has failed");
    let behind = "written 64 completions, and the consumer index in the doorbell record is 0, 64 \
                  behind";
    assert_explained(&pair.a.host, &[&[&queue, behind], &[&failed, &cause]]);
}

#[test]
fn the_refusal_of_a_peers_request_is_explained_with_its_cause() {
    type Target = fn(&mut Pair) -> Vec<u8>;
    let cases: [(Target, &str); 3] = [
        (
            |pair| raddr_segment(pair.b.memory.at(), pair.b.key ^ 0x10),
            "no memory region and no bound window has this key",
        ),
        (
            |pair| raddr_segment(pair.b.memory.at() - 1, pair.b.key),
            "the range is not inside the memory region or window",
        ),
        (
            |pair| {
                let access = Access::LOCAL_WRITE;
                let key = pair.b.host.register_buffer(&pair.b.memory, 4096, access);
                raddr_segment(pair.b.memory.at(), key)
            },
            "the access flags of the memory region or window do not permit it",
        ),
    ];
    for (target, cause) in cases {
        for (opcode, name) in [(WRITE, "RDMA WRITE"), (READ, "RDMA READ")] {
            let mut pair = Pair::new();
            let segments = [target(&mut pair), pair.a.data_segment(0, 100)];
            pair.a.post(opcode, SIGNALLED, &segments);
            pair.run_until_idle();
            let object = format!(
                "IBV_EVENT_QP_ACCESS_ERR: queue pair {:#x}: it refused {name} of the peer (queue \
                 pair {:#x}, ",
                pair.b.qp.qpn.0, pair.a.qp.qpn.0
            );
            assert_explained(&pair.b.host, &[&[&object, "100 bytes", cause]]);
        }
    }
}

#[test]
fn an_invalid_request_of_a_peer_is_explained_with_its_cause() {
    let mut pair = Pair::with_attributes(QpAttr {
        max_rd_atomic: 4,
        max_dest_rd_atomic: 1,
        ..attributes()
    });
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
    for _ in 0..4 {
        pair.a.post(READ, SIGNALLED, &segments);
    }
    pair.run_until_idle();
    let words: &[&str] = &["IBV_EVENT_QP_REQ_ERR: queue pair", "max_dest_rd_atomic"];
    assert_explained(&pair.b.host, &[words]);
}

#[test]
fn the_failure_of_a_port_a_device_and_a_queue_on_demand_is_explained() {
    let mut pair = Pair::new();
    let nic = &mut pair.a.host.nic;
    nic.set_port(PortAddress { device: 0, port: 1 }, false);
    nic.fail_qp(pair.a.qp.qpn).unwrap();
    nic.end_device(0, "the reason");
    let port: &[&str] = &["IBV_EVENT_PORT_ERR: port 1 of device 0", "mlx5-emu port"];
    let qp: &[&str] = &["IBV_EVENT_QP_FATAL: queue pair", "a fault of --faults"];
    let device: &[&str] = &["IBV_EVENT_DEVICE_FATAL: device 0: the reason"];
    assert_explained(&pair.a.host, &[port, qp, device]);
}

#[test]
fn a_violation_of_the_devices_contract_is_explained() {
    let mut host = Host::new(1);
    host.store_doorbell(0x40, [1; 8]);
    assert_explained(&host, &[&["store at offset 0x40 of a doorbell page"]]);
    assert_eq!(host.nic.violations().count(), 1);
}
