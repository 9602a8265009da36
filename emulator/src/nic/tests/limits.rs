//! A NIC that can do less: objects are counted, and requests that only the
//! device sees are looked at.

use super::rig::*;
use crate::limits::Limits;
use crate::nic::NicOptions;
use crate::nic::spec::*;

const LOCAL_QP_OPERATION: u8 = 0x02;

fn limited(slot: u8, text: &str) -> Host {
    let limits: Limits = text.parse().unwrap();
    Host::with(NicOptions {
        slot,
        limits,
        ..NicOptions::default()
    })
}

#[test]
fn objects_beyond_the_limits_are_out_of_memory() {
    let full = Some(Errno(libc::ENOMEM));
    let mut host = limited(1, "max_pd=2,max_cq=1,max_qp=1,max_srq=1,max_mr=2,max_mw=1");
    let context = host.context;
    let second = host.nic.alloc_pd(context).unwrap();
    assert_eq!(host.nic.alloc_pd(context).err(), full);
    host.nic.dealloc_pd(second).unwrap();
    host.nic.alloc_pd(context).unwrap();

    let cq = host.cq(64, 64);
    let again = *host.nic.cq_spec(cq.cqn).unwrap();
    assert_eq!(host.nic.create_cq(&again).err(), full);
    let qp = host.qp(host.qp_spec(cq.cqn));
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
    // Windows and regions do not take each other's place, and what goes makes
    // room again.
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

fn world(limits: &str) -> World {
    World::of(
        end(limited(1, limits), |_| {}),
        end(Host::new(2), |_| {}),
        attributes(),
    )
}

/// Syndrome of the one request that is posted.
fn outcome_of(limits: &str, opcode: u8, list: impl FnOnce(&mut World) -> Vec<Vec<u8>>) -> u8 {
    let mut world = world(limits);
    let list = list(&mut world);
    world.a.post(opcode, SIGNALLED, &list);
    world.run();
    let completions = world.a.cq.all();
    assert_eq!(completions.len(), 1);
    let refused = completions[0].syndrome == LOCAL_QP_OPERATION;
    assert_eq!(world.a.host.nic.violations().count(), u64::from(refused));
    completions[0].syndrome
}

#[test]
fn inline_data_beyond_the_limit_fails() {
    let write =
        |bytes: &'static [u8]| move |world: &mut World| vec![world.b.remote(0), inline(bytes)];
    assert_eq!(outcome_of("max_inline=8", WRITE, write(&[7; 8])), OK);
    let failed = outcome_of("max_inline=8", WRITE, write(&[7; 9]));
    assert_eq!(failed, LOCAL_QP_OPERATION);
    let failed = outcome_of("max_inline=0", WRITE, write(&[7; 1]));
    assert_eq!(failed, LOCAL_QP_OPERATION);
    // Two pieces count together, and what is not inline does not count.
    let two = |world: &mut World| vec![world.b.remote(0), inline(&[1; 5]), inline(&[2; 4])];
    assert_eq!(outcome_of("max_inline=9", WRITE, two), OK);
    assert_eq!(outcome_of("max_inline=8", WRITE, two), LOCAL_QP_OPERATION);
    let gathered = |world: &mut World| {
        let local = pointer(64, world.a.key, world.a.memory.at());
        vec![world.b.remote(0), local]
    };
    assert_eq!(outcome_of("max_inline=0", WRITE, gathered), OK);
}

#[test]
fn a_read_into_too_many_segments_fails() {
    let into = |count: u64| {
        move |world: &mut World| {
            let (key, at) = (world.a.key, world.a.memory.at());
            let local = (0..count).map(|n| pointer(8, key, at + 8 * n));
            std::iter::once(world.b.remote(0)).chain(local).collect()
        }
    };
    assert_eq!(outcome_of("max_sge_rd=1", READ, into(1)), OK);
    assert_eq!(
        outcome_of("max_sge_rd=1", READ, into(2)),
        LOCAL_QP_OPERATION
    );
    assert_eq!(outcome_of("max_sge_rd=1", WRITE, into(2)), OK);
}
