//! Runs of a list leave the same bytes as single posts.

use super::*;

/// Returns a list with runs of sends of every kind, and with requests that end them.
fn requests<'a>(inline: &'a [Vec<Segment>], plain: &'a [Segment]) -> Vec<SendRequest<'a>> {
    let mut list = Vec::new();
    for (segments, at) in inline.iter().zip(0..) {
        // One in the middle of a run of equal lengths differs in its flags.
        let other = match at {
            5 => SendFlags::SOLICITED,
            _ => SendFlags::SIGNALED,
        };
        list.push(SendRequest {
            flags: SendFlags::INLINE | other,
            ..send(list.len() as u64, segments)
        });
    }
    for flags in [
        SendFlags::SIGNALED,
        SendFlags::empty(),
        SendFlags::SOLICITED | SendFlags::FENCE,
    ] {
        list.push(SendRequest {
            flags,
            ..send(list.len() as u64, plain)
        });
    }
    let write = SendOp::Write {
        remote_addr: 0x1122_3344_5566_7788,
        rkey: 0x99aa_bbcc,
    };
    for (op, segments) in [
        (write, plain),
        (SendOp::Send, &[]),
        (SendOp::Nop, &[]),
        (SendOp::SendImm(7), plain),
        (SendOp::Send, plain),
        (SendOp::Send, plain),
    ] {
        list.push(SendRequest {
            op,
            ..send(list.len() as u64, segments)
        });
    }
    list
}

/// Miri is slow.
const EACH: usize = if cfg!(miri) { 21 } else { 1 };

#[test]
fn a_list_has_the_bytes_of_single_posts() {
    let message = Memory::new(128, 0x3c);
    // Runs of equal lengths of one and of two WQEBBs, and lengths that repeat nothing.
    let lengths = [0, 6, 12, 12, 12, 12, 12, 64, 64, 44, 45, 45, 45, 18];
    let inline: Vec<_> = lengths
        .iter()
        .zip(0..)
        .map(|(&length, at)| vec![segment(message.addr(at % 3), length)])
        .collect();
    let plain = [segment(0x1000, 64)];
    let list = requests(&inline, &plain);
    for exclusive in [false, true] {
        // Every start, so that each WQE lies at the end of the ring once, and the
        // counter wraps.
        for start in (0..64u32).step_by(EACH) {
            let start = start.wrapping_sub(32);
            let make = || fixture(64, 1, 64, exclusive, start);
            let (mut listed, mut single) = (make(), make());
            listed.post_list(&list).unwrap();
            let mut counters = Vec::new();
            for request in &list {
                counters.push(single.producer.producer);
                single.post(request).unwrap();
            }
            assert_eq!(listed.ring.all(), single.ring.all(), "from {start}");
            assert_eq!(listed.record.all(), single.record.all(), "from {start}");
            let last = *counters.last().unwrap();
            let place = usize::from(last) % 64 * WQEBB;
            assert_eq!(listed.register.bytes(0, 8), listed.ring.bytes(place, 8));
            assert_eq!(listed.register.bytes(8, 504), [0; 504], "one doorbell");
            for (request, counter) in list.iter().zip(counters) {
                let expected = Retired {
                    wr_id: request.wr_id,
                    wr_data: 0,
                };
                assert_eq!(listed.retire(counter), expected);
                single.retire(counter);
                assert_eq!(listed.consumer.retired(), single.consumer.retired());
            }
            assert!(listed.producer.is_idle());
        }
    }
}

#[test]
fn the_last_of_a_run_is_rung() {
    let message = Memory::new(64, 0x3c);
    for length in [1, 44, 45, 64] {
        let segments = [segment(message.addr(0), length)];
        for flags in [SendFlags::INLINE, SendFlags::empty()] {
            let mut fixture = fixture(16, 1, 64, false, 0);
            let request = SendRequest {
                flags,
                ..send(1, &segments)
            };
            fixture.post_list(&[request; 3]).unwrap();
            let end = fixture.record.be32(4) as usize;
            let blocks = end / 3;
            let last = fixture.ring.bytes((end - blocks) * WQEBB, 8);
            assert_eq!(fixture.register.bytes(0, 8), last, "{length} {flags:?}");
        }
    }
}

#[test]
fn a_run_ends_where_the_queue_is_full() {
    let plain = [segment(0x1000, 8)];
    let mut fixture = fixture(8, 1, 0, false, 0);
    let list: Vec<_> = (0..20).map(|wr_id| send(wr_id, &plain)).collect();
    let full = ListError {
        posted: 8,
        error: PostError::QueueFull,
    };
    assert_eq!(fixture.post_list(&list), Err(full));
    assert_eq!(fixture.record.be32(4), 8);
    assert_eq!(fixture.retire(4).wr_id, 4);
    let full = ListError { posted: 5, ..full };
    assert_eq!(fixture.post_list(&list[8..]), Err(full));
    assert_eq!(fixture.record.be32(4), 13);
    assert_eq!(fixture.retire(12).wr_id, 12);
}

/// The message of a list entry, and the same as a request.
fn as_request<'a>(message: &'a Message, inline: u32) -> SendRequest<'a> {
    let flags = match message.segment.length <= inline {
        true => SendFlags::SIGNALED | SendFlags::INLINE,
        false => SendFlags::SIGNALED,
    };
    SendRequest {
        flags,
        ..send(message.wr_id, core::slice::from_ref(&message.segment))
    }
}

#[test]
fn messages_have_the_bytes_of_single_posts_and_their_lengths_as_data() {
    const INLINE: u32 = 40;
    let memory = Memory::new(64, 0x3c);
    // Both sides of the inline limit in turn, and runs of each.
    let lengths = [1, 40, 41, 60, 4, 50, 50, 44, 8, 8, 40, 64];
    let messages: Vec<_> = lengths
        .iter()
        .zip(0..)
        .map(|(&length, wr_id)| Message {
            segment: segment(memory.addr(0), length),
            wr_id,
        })
        .collect();
    for exclusive in [false, true] {
        for start in (0..64u32).step_by(EACH) {
            let start = start.wrapping_sub(32);
            let make = || fixture(64, 1, 64, exclusive, start);
            let (mut listed, mut single) = (make(), make());
            // SAFETY: the memory outlives the test.
            let posted = unsafe {
                let producer = &mut listed.producer;
                producer.try_post_messages(&messages, |&message| Some(message), INLINE)
            };
            let mut counters = Vec::new();
            for message in &messages[..posted] {
                counters.push(single.producer.producer);
                single.post(&as_request(message, INLINE)).unwrap();
            }
            // A message that wraps around the end of the ring ends the list.
            assert!(posted == lengths.len() || posted < lengths.len() && start % 64 > 40);
            assert_eq!(listed.ring.all(), single.ring.all(), "from {start}");
            assert_eq!(listed.record.all(), single.record.all(), "from {start}");
            for (message, counter) in messages.iter().zip(counters) {
                let expected = Retired {
                    wr_id: message.wr_id,
                    wr_data: message.segment.length,
                };
                assert_eq!(listed.retire(counter), expected);
            }
            assert!(listed.producer.is_idle());
        }
    }
}

#[test]
fn messages_stop_at_the_first_that_is_refused_and_at_a_full_queue() {
    let mut fixture = fixture(8, 1, 0, false, 0);
    let message = |wr_id| Message {
        segment: segment(0x1000, 8),
        wr_id,
    };
    let list: Vec<_> = (0..20).map(message).collect();
    let mut post = |list: &[Message], except: u64| {
        let pick = |it: &Message| (it.wr_id != except).then_some(*it);
        // SAFETY: no device reads the memory.
        let posted = unsafe { fixture.producer.try_post_messages(list, pick, 0) };
        (posted, fixture.record.be32(4))
    };
    assert_eq!(post(&list, 0), (0, 0), "nothing is rung");
    assert_eq!(post(&list, 3), (3, 3));
    assert_eq!(post(&[], 0), (0, 3));
    assert_eq!(post(&list[3..], 99), (5, 8), "eight fit");
    assert_eq!(post(&list[8..], 99), (0, 8));
    assert_eq!(fixture.retire(4).wr_id, 4);
    // The counter of retired requests is read again.
    // SAFETY: as above.
    let posted = unsafe {
        let producer = &mut fixture.producer;
        producer.try_post_messages(&list[8..], |&message| Some(message), 0)
    };
    assert_eq!(posted, 5);
    assert_eq!(fixture.retire(12).wr_id, 12);
}
