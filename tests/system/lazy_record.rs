//! Completion queues that ignore overruns, whose doorbell record is written rarely.

use dat_engine::{
    Completion, CompletionQueue, ControlErrorKind, CqOptions, CqRecord, Endpoint, EndpointOptions,
    PostError, SendFlags, SendOp, SendRequest,
};

use crate::support::fixture::{Fixture, join};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn lazy(fixture: &Fixture, depth: u32) -> CompletionQueue {
    let options = CqOptions {
        depth,
        record: CqRecord::Lazy,
        ..CqOptions::default()
    };
    let cq = fixture.system.device.create_cq(&options).expect("a CQ");
    assert_eq!(cq.record(), CqRecord::Lazy);
    cq
}

/// Returns two connected endpoints with 4 requests and 3 receives, on one queue.
fn pair(fixture: &Fixture, cq: &CompletionQueue) -> [Endpoint; 2] {
    let options = EndpointOptions {
        send_depth: 4,
        recv_depth: 3,
        ..EndpointOptions::new(cq.handle(), cq.handle())
    };
    let mut ends = [0, 1].map(|_| {
        let end = fixture.domain.create_endpoint(&options);
        end.expect("an endpoint")
    });
    join(&mut ends);
    ends
}

/// Returns the consumer index that the device reads.
fn record(cq: &CompletionQueue) -> u32 {
    let at = cq.layout().expect("the direct path").dbrec;
    // SAFETY: a word of the doorbell record, which the queue keeps.
    u32::from_be(unsafe { at.as_ptr().read_volatile() })
}

fn nop(end: &mut Endpoint) -> Result<(), PostError> {
    // SAFETY: no memory.
    unsafe {
        end.post_send(&SendRequest {
            wr_id: 7,
            op: SendOp::Nop,
            segments: &[],
            flags: SIGNALED,
        })
    }
}

#[test]
fn the_record_is_written_once_per_lap_and_by_arms_which_raise_their_events() {
    let fixture = Fixture::new(8);
    let channel = fixture.system.device.create_channel().expect("a channel");
    let options = CqOptions {
        depth: 15,
        channel: Some(&channel),
        record: CqRecord::Lazy,
        ..CqOptions::default()
    };
    let mut cq = fixture.system.device.create_cq(&options).expect("a CQ");
    assert_eq!(cq.capacity(), 15);
    let mut ends = pair(&fixture, &cq);
    let (mut consumed, mut written) = (0, 0);
    for lap in 0..40 {
        let batches = lap % 2 == 1;
        for _ in 0..30 {
            fixture.recv(&mut ends[1], 1).expect("room");
            fixture.send(&mut ends[0], 2, SIGNALED).expect("room");
            fixture.system.run();
            if batches {
                let mut done = [Completion::default(); 4];
                assert_eq!(cq.poll_batch(&mut done), 2);
            } else {
                assert!(cq.poll().is_some() && cq.poll().is_some());
            }
            consumed += 2;
            let lap_ends = consumed & 15 < 2;
            if lap_ends && batches {
                // The run began before the end of the lap.
                assert!((1..=2).contains(&(consumed - record(&cq))), "{consumed}");
            } else if lap_ends {
                assert_eq!(record(&cq), consumed & !15, "after {consumed} completions");
            } else {
                assert_eq!(record(&cq), written, "after {consumed} completions");
            }
            written = record(&cq);
            assert!(!cq.may_hold_payload(), "other threads see what is consumed");
        }
        assert_eq!(cq.take_events().expect("alive"), 0, "not armed");
        cq.arm(false).expect("armed");
        assert_eq!(record(&cq), consumed, "lap {lap}");
        fixture.system.run();
        assert_eq!(cq.take_events().expect("alive"), 0, "nothing to report");
        nop(&mut ends[0]).expect("room");
        fixture.system.run();
        assert_eq!(cq.take_events().expect("alive"), 1, "lap {lap}");
        assert!(cq.poll().is_some() && cq.poll().is_none());
        consumed += 1;
        // Completions that are there before the arm raise an event at once.
        nop(&mut ends[1]).expect("room");
        fixture.system.run();
        cq.arm(false).expect("armed");
        fixture.system.run();
        assert_eq!(cq.take_events().expect("alive"), 1, "lap {lap}");
        assert!(cq.poll().is_some() && cq.poll().is_none());
        consumed += 1;
        written = record(&cq);
    }
}

#[test]
fn credits_keep_a_full_queue_from_overrunning() {
    let fixture = Fixture::new(8);
    let mut cq = lazy(&fixture, 14);
    let mut ends = pair(&fixture, &cq);
    for lap in 0..60 {
        if lap == 30 {
            // A reset keeps the limits.
            ends.iter_mut().for_each(|end| end.reset().expect("reset"));
            cq.process_commands();
            ends[0].limit(100, 100);
            join(&mut ends);
        }
        for end in &mut ends {
            assert_eq!((end.send_capacity(), end.recv_capacity()), (4, 3));
            (0..3).for_each(|_| fixture.recv(end, 1).expect("room"));
            assert_eq!(fixture.recv(end, 1), Err(PostError::QueueFull));
        }
        for end in &mut ends {
            (0..3).for_each(|_| fixture.send(end, 2, SIGNALED).expect("room"));
            // A marker counts, too.
            nop(end).expect("room");
            assert_eq!(nop(end), Err(PostError::QueueFull));
        }
        fixture.system.run();
        let mut of = [0; 3];
        while let Some(done) = cq.poll() {
            assert!(done.status.is_success(), "{done:?}");
            of[[1, 2, 7].iter().position(|&id| id == done.wr_id).unwrap()] += 1;
        }
        assert_eq!(of, [6, 6, 2], "lap {lap}");
    }
}

#[test]
fn an_endpoint_with_more_completions_than_the_queue_holds_is_refused() {
    let fixture = Fixture::new(64);
    let cq = lazy(&fixture, 15);
    let eager = &fixture.cq;
    let both = EndpointOptions::new(cq.handle(), cq.handle());
    let srq = Some(fixture.srq.handle());
    for (depths, srq, recv_cq) in [
        ((8, 8), None, cq.handle()),
        ((16, 1), None, eager.handle()),
        ((1, 1), srq, cq.handle()),
    ] {
        let options = EndpointOptions {
            send_depth: depths.0,
            recv_depth: depths.1,
            srq,
            recv_cq,
            ..both
        };
        let Err(error) = fixture.domain.create_endpoint(&options) else {
            panic!("{depths:?} fit in 15");
        };
        assert_eq!(error.kind(), ControlErrorKind::Invalid);
        let text = error.to_string();
        assert!(
            text.contains("ignores overruns") && text.contains("15"),
            "{text}"
        );
    }
    let fits = EndpointOptions {
        send_depth: 8,
        recv_depth: 7,
        ..both
    };
    fixture.domain.create_endpoint(&fits).expect("15 fit in 15");
}

#[test]
fn a_lazy_queue_is_not_resized() {
    let fixture = Fixture::new(8);
    let mut cq = lazy(&fixture, 15);
    let mut ends = pair(&fixture, &cq);
    nop(&mut ends[0]).expect("room");
    fixture.system.run();
    let error = cq.resize(100).expect_err("libmlx5 would lose completions");
    assert_eq!(error.kind(), ControlErrorKind::Unsupported);
    assert_eq!(cq.capacity(), 15);
    assert!(cq.poll().is_some(), "the completion stays");
}
