//! Devices with lower limits than an mlx5, on both data paths: defaults fit the
//! limits, and requests beyond them are refused.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::evd::arrival::EndpointGroup;
use crate::support::{
    End, Fixture, Pair, Shape, abilities, device, ep_info, evd_info, fails, fails_with,
    is_on_small_device, ok, post_srq,
};

/// Runs the rest of a test on devices with these limits.
macro_rules! on {
    ($test:ident, $limits:expr) => {
        if !is_on_small_device(concat!("small_devices::", stringify!($test)), $limits) {
            return;
        }
    };
}

/// Few segments, no reads: attributes that every device here supports.
fn modest() -> Shape {
    Shape {
        recvs: 4,
        requests: 4,
        iov: 1,
        evd_qlen: 8,
        reads: 0,
        ..Shape::default()
    }
}

/// A short message, which goes inline if the device allows that many bytes, a
/// long one and an RDMA write.
fn messages_pass(fixture: &Fixture, pair: &Pair) {
    let mut memory = fixture.memory(1 << 16);
    let pattern: Vec<u8> = (0..4096_u32).map(|at| (at % 251) as u8).collect();
    memory.write(0, &pattern);
    let (from, to) = (pair.active, pair.passive);
    for (tag, len) in [(1, 1), (2, 60), (3, 64), (4, 4096)] {
        ok(to.post_recv(&[memory.segment(1 << 15, 4096)], tag));
        ok(from.post_send(&[memory.segment(0, len)], tag, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        let (received, sent) = (to.received(), from.requested());
        assert_eq!(
            (received.status, received.cookie, received.length),
            (DAT_DTO_SUCCESS, tag, len as u64)
        );
        assert_eq!((sent.status, sent.cookie), (DAT_DTO_SUCCESS, tag));
        assert_eq!(memory.read(1 << 15, len), pattern[..len]);
    }
    ok(from.post_write(
        &[memory.segment(0, 48)],
        &memory.remote(1 << 14, 48),
        9,
        DAT_COMPLETION_DEFAULT_FLAG,
    ));
    fixture.run();
    assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
    assert_eq!(memory.read(1 << 14, 48), pattern[..48]);
}

/// Calls `dat_ep_create` with these attributes, or the defaults.
fn create(fixture: &Fixture, attributes: Option<&DAT_EP_ATTR>) -> (DAT_RETURN, End) {
    let mut end = End::without_ep(fixture, &modest());
    // SAFETY: live handles; the result is writable.
    let answer = unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            attributes.map_or(ptr::null(), ptr::from_ref),
            &raw mut end.ep,
        )
    };
    (answer, end)
}

/// Returns the attributes of an endpoint that was created with the defaults.
fn defaults(fixture: &Fixture) -> DAT_EP_ATTR {
    let (answer, end) = create(fixture, None);
    ok(answer);
    let attributes = ep_info(end.ep).ep_attr;
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_free(end.ep) });
    attributes
}

#[track_caller]
fn refused(fixture: &Fixture, change: impl FnOnce(&mut DAT_EP_ATTR)) {
    let mut attributes = modest().attributes();
    change(&mut attributes);
    let (answer, _) = create(fixture, Some(&attributes));
    fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
}

#[test]
fn without_inline_data_messages_pass() {
    on!(without_inline_data_messages_pass, "max_inline=0");
    let fixture = Fixture::new();
    messages_pass(&fixture, &Pair::new(&fixture, &Shape::default()));
    defaults(&fixture);
}

#[test]
fn with_a_little_inline_data_messages_pass() {
    on!(with_a_little_inline_data_messages_pass, "max_inline=30");
    let fixture = Fixture::new();
    messages_pass(&fixture, &Pair::new(&fixture, &Shape::default()));
    defaults(&fixture);
}

#[test]
fn with_one_segment_defaults_have_one() {
    on!(with_one_segment_defaults_have_one, "max_sge=1");
    let fixture = Fixture::new();
    let (adapter, _) = abilities(&fixture);
    assert_eq!(adapter.max_iov_segments_per_dto, 1);
    assert_eq!(adapter.max_iov_segments_per_rdma_write, 1);
    let has = defaults(&fixture);
    assert_eq!((has.max_recv_iov, has.max_request_iov), (1, 1));
    refused(&fixture, |attributes| attributes.max_recv_iov = 2);
    refused(&fixture, |attributes| attributes.max_request_iov = 2);
    messages_pass(&fixture, &Pair::new(&fixture, &modest()));
}

#[test]
fn reads_have_as_many_segments_as_the_device_reports() {
    on!(
        reads_have_as_many_segments_as_the_device_reports,
        "max_sge_rd=1"
    );
    let fixture = Fixture::new();
    let (adapter, _) = abilities(&fixture);
    assert_eq!(adapter.max_iov_segments_per_rdma_read, 1);
    assert_eq!(adapter.max_iov_segments_per_rdma_write, 30);
    let has = defaults(&fixture);
    assert_eq!((has.max_request_iov, has.max_rdma_read_iov), (4, 1));
    refused(&fixture, |attributes| attributes.max_rdma_read_iov = 2);
    let shape = Shape {
        iov: 1,
        ..Shape::default()
    };
    let mut attributes = shape.attributes();
    attributes.max_request_iov = 4;
    attributes.max_rdma_read_iov = 0;
    let end = || End::with_attributes(&fixture, &shape, &attributes);
    let pair = Pair::connect(&fixture, end(), end());
    let mut memory = fixture.memory(4096);
    memory.write(0, b"what is read");
    let halves = [memory.segment(1024, 6), memory.segment(2048, 6)];
    let remote = memory.remote(0, 12);
    let flags = DAT_COMPLETION_DEFAULT_FLAG;
    fails_with(
        pair.active.post_read(&halves, &remote, 1, flags),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG2,
    );
    ok(pair
        .active
        .post_read(&[memory.segment(1024, 12)], &remote, 2, flags));
    fixture.run();
    assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    assert_eq!(memory.read(1024, 12), b"what is read");
    messages_pass(&fixture, &pair);
}

#[test]
fn short_queues_cut_the_defaults() {
    on!(short_queues_cut_the_defaults, "max_qp_wr=8");
    let fixture = Fixture::new();
    assert_eq!(abilities(&fixture).0.max_dto_per_ep, 7);
    let has = defaults(&fixture);
    assert_eq!((has.max_recv_dtos, has.max_request_dtos), (7, 7));
    refused(&fixture, |attributes| attributes.max_request_dtos = 8);
    refused(&fixture, |attributes| attributes.max_recv_dtos = 8);
    messages_pass(&fixture, &Pair::new(&fixture, &modest()));
}

#[test]
fn short_completion_queues_cut_the_defaults() {
    on!(short_completion_queues_cut_the_defaults, "max_cqe=127");
    let fixture = Fixture::new();
    let (adapter, _) = abilities(&fixture);
    assert_eq!((adapter.max_evd_qlen, adapter.max_dto_per_ep), (127, 126));
    assert_eq!(adapter.max_recv_per_srq, 127);
    let mut evd = ptr::null_mut();
    // SAFETY: a live adapter; the result is writable.
    let answer = unsafe {
        dat_evd_create(
            fixture.ia,
            128,
            ptr::null_mut(),
            DAT_EVD_DTO_FLAG,
            &raw mut evd,
        )
    };
    fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD);
    let has = defaults(&fixture);
    assert_eq!((has.max_recv_dtos, has.max_request_dtos), (126, 126));
    // The events have no EVD: one completion queue has those of both kinds.
    let mut ep = ptr::null_mut();
    let null = ptr::null_mut();
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            null,
            null,
            null,
            ptr::null(),
            &raw mut ep,
        )
    });
    let has = ep_info(ep).ep_attr;
    assert_eq!((has.max_recv_dtos, has.max_request_dtos), (63, 62));
    messages_pass(&fixture, &Pair::new(&fixture, &modest()));
}

#[test]
fn without_rdma_reads_connections_work_and_reads_are_refused() {
    on!(
        without_rdma_reads_connections_work_and_reads_are_refused,
        "max_qp_rd_atom=0,max_qp_init_rd_atom=0"
    );
    let fixture = Fixture::new();
    let (adapter, _) = abilities(&fixture);
    assert_eq!(
        [
            adapter.max_rdma_read_per_ep_in,
            adapter.max_rdma_read_per_ep_out,
            adapter.max_rdma_read_in,
            adapter.max_rdma_read_out,
        ],
        [0; 4]
    );
    refused(&fixture, |attributes| attributes.max_rdma_read_in = 1);
    refused(&fixture, |attributes| attributes.max_rdma_read_out = 1);
    let pair = Pair::new(&fixture, &modest());
    let memory = fixture.memory(4096);
    for flags in [
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_BARRIER_FENCE_FLAG,
    ] {
        let (local, remote) = (memory.segment(0, 64), memory.remote(1024, 64));
        let answer = pair.active.post_read(&[local], &remote, 1, flags);
        fails(answer, DAT_MODEL_NOT_SUPPORTED);
    }
    messages_pass(&fixture, &pair);
}

#[test]
fn without_shared_receive_queues_the_rest_works() {
    on!(without_shared_receive_queues_the_rest_works, "no_srq");
    let fixture = Fixture::new();
    let (adapter, provider) = abilities(&fixture);
    assert_eq!(
        (
            adapter.max_srqs,
            adapter.max_ep_per_srq,
            adapter.max_recv_per_srq
        ),
        (0, 0, 0)
    );
    assert_eq!(provider.srq_supported, DAT_FALSE);
    assert_eq!(provider.srq_ep_pz_difference_supported, DAT_FALSE);
    assert_eq!(provider.srq_watermarks_supported, 0);
    assert_eq!(provider.srq_info_supported, 0);
    let mut wanted = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: DAT_SRQ_LW_DEFAULT,
    };
    let mut srq = ptr::null_mut();
    // SAFETY: live handles; attributes and result are local.
    let answer = unsafe { dat_srq_create(fixture.ia, fixture.pz, &raw mut wanted, &raw mut srq) };
    fails(answer, DAT_MODEL_NOT_SUPPORTED);
    let end = End::without_ep(&fixture, &modest());
    let attributes = modest().attributes();
    let mut ep = ptr::null_mut();
    // SAFETY: live handles, and none for the queue; the result is writable.
    let answer = unsafe {
        dat_ep_create_with_srq(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            ptr::null_mut(),
            &raw const attributes,
            &raw mut ep,
        )
    };
    fails(answer, DAT_MODEL_NOT_SUPPORTED);
    messages_pass(&fixture, &Pair::new(&fixture, &Shape::default()));
}

#[test]
fn a_short_shared_receive_queue_has_the_length_that_the_device_reports() {
    on!(
        a_short_shared_receive_queue_has_the_length_that_the_device_reports,
        // libmlx5 rounds segments up to 2^n - 1 before the kernel sees them.
        "max_srq_wr=15,max_srq_sge=3"
    );
    let fixture = Fixture::new();
    assert_eq!(abilities(&fixture).0.max_recv_per_srq, 15);
    let create = |max_recv_dtos, max_recv_iov| {
        let mut wanted = DAT_SRQ_ATTR {
            max_recv_dtos,
            max_recv_iov,
            low_watermark: DAT_SRQ_LW_DEFAULT,
        };
        let mut srq = ptr::null_mut();
        // SAFETY: live handles; attributes and result are local.
        let answer =
            unsafe { dat_srq_create(fixture.ia, fixture.pz, &raw mut wanted, &raw mut srq) };
        (answer, srq)
    };
    for (receives, segments) in [(16, 1), (1, 4)] {
        let (answer, _) = create(receives, segments);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    }
    let (answer, srq) = create(15, 3);
    ok(answer);
    let ends = [(); 2].map(|()| End::on_srq(&fixture, &modest(), srq));
    let pair = Pair::connect(&fixture, ends[0], ends[1]);
    let mut memory = fixture.memory(4096);
    memory.write(0, b"for every endpoint ");
    ok(post_srq(srq, &[memory.segment(1024, 64)], 1));
    ok(pair
        .active
        .post_send(&[memory.segment(0, 19)], 2, DAT_COMPLETION_DEFAULT_FLAG));
    fixture.run();
    assert_eq!(pair.passive.received().length, 19);
    assert_eq!(memory.read(1024, 19), b"for every endpoint ");
}

#[test]
fn without_memory_windows_the_rest_works() {
    on!(without_memory_windows_the_rest_works, "max_mw=0");
    let fixture = Fixture::new();
    let (adapter, _) = abilities(&fixture);
    assert_eq!((adapter.max_rmrs, adapter.max_rmr_target_address), (0, 0));
    let mut rmr = ptr::null_mut();
    // SAFETY: a live zone; the result is writable.
    let answer = unsafe { dat_rmr_create(fixture.pz, &raw mut rmr) };
    fails(answer, DAT_MODEL_NOT_SUPPORTED);
    // Their EVDs may carry bind completions all the same.
    messages_pass(&fixture, &Pair::for_windows(&fixture, &Shape::default()));
}

#[test]
fn an_evd_grows_though_completion_queues_cannot() {
    on!(an_evd_grows_though_completion_queues_cannot, "no_cq_resize");
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &modest());
    messages_pass(&fixture, &pair);
    for length in [1000, 8, 100] {
        // SAFETY: a live handle.
        ok(unsafe { dat_evd_resize(pair.active.request, length) });
        let now = evd_info(pair.active.request).evd_qlen;
        assert!(now >= length, "{now}");
    }
    // More endpoints than the first completion queue has room for.
    let many: Vec<DAT_EP_HANDLE> = (0..20)
        .map(|_| {
            let mut end = End::without_ep(&fixture, &modest());
            let attributes = modest().attributes();
            // SAFETY: live handles; the result is writable.
            ok(unsafe {
                dat_ep_create(
                    fixture.ia,
                    fixture.pz,
                    pair.active.recv,
                    pair.active.request,
                    end.connect,
                    &raw const attributes,
                    &raw mut end.ep,
                )
            });
            end.ep
        })
        .collect();
    messages_pass(&fixture, &pair);
    for ep in many {
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_free(ep) });
    }
}

/// The first completion queue is as long as sixteen endpoints with default
/// attributes need.
#[test]
fn events_come_as_they_arrived_though_completion_queues_cannot_grow() {
    on!(
        events_come_as_they_arrived_though_completion_queues_cannot_grow,
        "no_cq_resize"
    );
    let fixture = Fixture::new();
    let mut group = EndpointGroup::new(&fixture, 16, 16);
    group.has_queues(1);
    group.exchange();
}

/// If completion queues are short, an EVD uses several.
#[test]
fn a_short_completion_queue_has_the_length_that_the_device_reports() {
    on!(
        a_short_completion_queue_has_the_length_that_the_device_reports,
        "max_cqe=1023,no_cq_resize"
    );
    let fixture = Fixture::new();
    EndpointGroup::new(&fixture, 3, 16).has_queues(1);
    EndpointGroup::new(&fixture, 4, 16).has_queues(2);
}

/// The first completion queue of an EVD is long, unless there is no memory for
/// that: then it is as long as the first stream needs, and the next endpoint needs
/// another one.
#[test]
fn an_evd_gets_a_short_completion_queue_where_no_memory_is_left_for_a_long_one() {
    on!(
        an_evd_gets_a_short_completion_queue_where_no_memory_is_left_for_a_long_one,
        "no_cq_resize"
    );
    let fixture = Fixture::new();
    let emulator = device::emulator().expect("an emulated device");
    let queues = || emulator.nic().object_counts().cqs;
    // On the verbs path the first endpoint tries to resize a completion queue.
    messages_pass(&fixture, &Pair::new(&fixture, &modest()));
    for (refused, expected) in [(false, [2, 0]), (true, [2, 1])] {
        // The first of the two queues; a short one is the second try.
        let fault = refused.then(|| "enomem@1".parse().expect("a fault"));
        let before = queues();
        emulator.set_faults(fault.as_ref());
        let (answer, near) = create(&fixture, None);
        emulator.set_faults(None);
        ok(answer);
        let first = queues() - before;
        let mut far = End {
            connect: fixture.evd(8, DAT_EVD_CONNECTION_FLAG),
            ..near
        };
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                far.recv,
                far.request,
                far.connect,
                ptr::null(),
                &raw mut far.ep,
            )
        });
        let second = queues() - before - first;
        assert_eq!([first, second], expected, "refused: {refused}");
        messages_pass(&fixture, &Pair::connect(&fixture, near, far));
    }
    // The error is reported if there is no memory for a short one either.
    emulator.set_faults(Some(&"enomem@1,enomem@2".parse().expect("faults")));
    let (answer, _) = create(&fixture, None);
    emulator.set_faults(None);
    fails(answer, DAT_INSUFFICIENT_RESOURCES);
}

#[test]
fn a_device_without_anything_carries_messages() {
    on!(
        a_device_without_anything_carries_messages,
        "max_inline=0,max_sge=1,max_sge_rd=1,max_qp_wr=8,max_cqe=127,no_srq,max_mw=0,\
         max_qp_rd_atom=0,max_qp_init_rd_atom=0,no_cq_resize,no_atomics"
    );
    let fixture = Fixture::new();
    defaults(&fixture);
    messages_pass(&fixture, &Pair::new(&fixture, &modest()));
}
