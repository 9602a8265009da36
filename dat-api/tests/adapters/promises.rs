//! Tests of attributes that promise how transfers behave.

use dat_api::object::evd::Evd;
use dat_api::types::{DtoStatus, EpAttributes, EventData};

use crate::fixture::{self, Fixture, plain};
use crate::setup::lock_device;

/// `max_rdma_read_per_ep_*_guaranteed`: each of several endpoints can be created and connected with
/// the maximum of reads, and no other endpoint takes them away.
#[test]
fn reads_of_every_endpoint_are_guaranteed() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let is = fixture.ia.query().ia;
    assert!(is.max_rdma_read_per_ep_in_guaranteed && is.max_rdma_read_per_ep_out_guaranteed);
    let (most_in, most_out) = (is.max_rdma_read_per_ep_in, is.max_rdma_read_per_ep_out);
    let attributes = EpAttributes {
        max_rdma_read_in: most_in,
        max_rdma_read_out: most_out,
        ..plain()
    };
    let pairs = [(); 8].map(|()| {
        let evds = [fixture.evd(64), fixture.evd(64)];
        let eps = [
            fixture.ep(&evds[0], &attributes),
            fixture.ep(&evds[1], &attributes),
        ];
        fixture.join(&eps, &evds);
        (eps, evds)
    });
    for (eps, _) in &pairs {
        for ep in eps {
            let has = ep.query().attributes;
            assert_eq!(
                (has.max_rdma_read_in, has.max_rdma_read_out),
                (most_in, most_out)
            );
        }
        fixture::read(
            &eps[0],
            &[fixture.memory.local(0, 8)],
            1,
            &fixture.memory.remote(64, 8),
        )
        .expect("posted");
    }
    for (_, evds) in &pairs {
        done(&evds[0]);
    }
}

/// The next event is a successful completion.
fn done(evd: &Evd) {
    let event = fixture::next(evd);
    let is_good = matches!(
        event,
        EventData::Dto {
            status: DtoStatus::Success,
            ..
        }
    );
    assert!(is_good, "{event:?}");
}

/// `lmr_sync_req` is false: data that a peer has written are there without a call, and a peer reads
/// what was stored last.
#[test]
fn memory_needs_no_synchronisation() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    assert!(!fixture.ia.query().provider.lmr_sync_req);
    let (pair, memory) = (fixture.pair(), &fixture.memory);
    for round in 0..64u8 {
        memory.write(0, &[round; 8]);
        fixture::write(
            &pair.eps[0],
            &[memory.local(0, 8)],
            1,
            &memory.remote(64, 8),
        )
        .expect("posted");
        done(&pair.evds[0]);
        assert_eq!(memory.read(64, 8), [round; 8]);
        memory.write(64, &[!round; 8]);
        fixture::read(
            &pair.eps[0],
            &[memory.local(128, 8)],
            2,
            &memory.remote(64, 8),
        )
        .expect("posted");
        done(&pair.evds[0]);
        assert_eq!(memory.read(128, 8), [!round; 8]);
    }
}

/// `dto_async_return_guaranteed`: a post returns although its transfer cannot complete, because the
/// peer has no receive.
#[test]
fn posts_return_before_their_transfers_complete() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    assert!(fixture.ia.query().provider.dto_async_return_guaranteed);
    let pair = fixture.pair();
    fixture::send(&pair.eps[0], &[fixture.memory.local(0, 8)], 1).expect("posted");
    fixture::nothing(&pair.evds[0]);
    fixture::recv(&pair.eps[1], &[fixture.memory.local(64, 8)], 2).expect("posted");
    for evd in &pair.evds {
        done(evd);
    }
}
