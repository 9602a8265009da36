//! A server whose endpoint takes its receives from a shared receive queue.
//!
//! The queue has a low watermark. A second thread waits for its event, posts
//! the buffers again that the first one is done with, and arms the watermark
//! anew. The first takes messages, checks them, and ends when the client
//! disconnects. `examples/c/srq_server.c` is the same in C.
//!
//! `cargo run --example srq_server -- [ADAPTER [QUALIFIER [MESSAGES]]]`

use std::env;
use std::error::Error;
use std::sync::Mutex;
use std::thread;

use dat_api::safe::{
    Adapter, ConnectionRequest, EndpointOptions, EventDispatcher, Memory, SharedReceiveQueue,
};
use dat_api::types::{
    AsyncReason, ConnectionKind, DtoStatus, EvdFlags, Event, EventData, MemPrivileges,
};
use dat_api::{DatReturn, ReturnType};

const BUFFERS: usize = 64;
const LOW: u32 = 16;
const BYTES: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "mlx5_0".into());
    let qualifier = words.next().map_or(Ok(18515), |word| word.parse())?;
    let count: u64 = words.next().map_or(Ok(1000), |word| word.parse())?;

    let adapter = Adapter::open(&name)?;
    let zone = adapter.zone()?;
    let memory = zone.memory(
        BUFFERS * BYTES,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
    )?;
    let received = adapter.dispatcher(BUFFERS as u32, EvdFlags::DTO)?;
    let connection = adapter.dispatcher(8, EvdFlags::CONNECTION)?;
    let requests = adapter.dispatcher(8, EvdFlags::CR)?;

    let shared = zone.shared_receive_queue(BUFFERS as u32, 1)?;
    for buffer in 0..BUFFERS {
        post(&shared, &memory, buffer)?;
    }
    shared.set_low_watermark(LOW)?;

    let mut endpoint = zone.endpoint(&EndpointOptions {
        recv: Some(&received),
        request: None,
        connect: Some(&connection),
        shared: Some(&shared),
        attributes: None,
    })?;
    let _listening = adapter.listen(qualifier, &requests)?;
    println!("listening on {qualifier}");
    let event = requests.wait(None)?;
    ConnectionRequest::from_event(&event)
        .ok_or("no connection request")?
        .accept(&mut endpoint, &[])?;
    expect(&connection, ConnectionKind::Established)?;

    let done_with = Mutex::new(Vec::with_capacity(BUFFERS));
    let watermarks = adapter.async_events();
    thread::scope(|scope| {
        let refiller = scope.spawn(|| refill(&watermarks, &shared, &memory, &done_with));
        for number in 0..count {
            let buffer = message(&received.wait(None)?, &memory, number)?;
            done_with.lock().expect("no panic").push(buffer);
        }
        expect(&connection, ConnectionKind::Disconnected)?;
        // Ends the wait of the other thread.
        watermarks.end_waiting()?;
        let refills = refiller.join().expect("no panic")?;
        println!("{count} messages, refilled {refills} times");
        Ok(())
    })
}

fn post(shared: &SharedReceiveQueue, memory: &Memory, buffer: usize) -> Result<(), DatReturn> {
    let at = buffer * BYTES;
    shared.post_recv(&[memory.segment(at..at + BYTES)], buffer as u64)
}

/// Posts buffers again whenever the watermark says so, until waiting for
/// it is ended. Answers how often.
fn refill(
    watermarks: &EventDispatcher,
    shared: &SharedReceiveQueue,
    memory: &Memory,
    done_with: &Mutex<Vec<usize>>,
) -> Result<u64, DatReturn> {
    for refills in 0.. {
        loop {
            match watermarks.wait(None) {
                Ok(event) if is_watermark(&event) => break,
                Ok(event) => eprintln!("unexpected: {event:?}"),
                Err(error) => match error.kind() {
                    Some(ReturnType::InterruptedCall) => {}
                    Some(ReturnType::InvalidState) => return Ok(refills),
                    _ => return Err(error),
                },
            }
        }
        // The buffers leave the queue before their messages are seen here:
        // there may be nothing to post yet.
        loop {
            let again = std::mem::take(&mut *done_with.lock().expect("no panic"));
            if !again.is_empty() {
                for buffer in again {
                    post(shared, memory, buffer)?;
                }
                break;
            }
            thread::yield_now();
        }
        shared.set_low_watermark(LOW)?;
    }
    Ok(0)
}

fn is_watermark(event: &Event) -> bool {
    matches!(
        event.data,
        EventData::Async {
            reason: AsyncReason::Watermark,
            ..
        }
    )
}

/// Checks a message; answers which buffer it is in.
fn message(event: &Event, memory: &Memory, expected: u64) -> Result<usize, Box<dyn Error>> {
    let EventData::Dto {
        cookie,
        status: DtoStatus::Success,
        length: 8,
        ..
    } = event.data
    else {
        return Err(format!("message {expected}: {event:?}").into());
    };
    let buffer = cookie as usize;
    let mut number = [0; 8];
    memory.read(buffer * BYTES, &mut number);
    match u64::from_le_bytes(number) {
        number if number == expected => Ok(buffer),
        number => Err(format!("message {expected} carries {number}").into()),
    }
}

fn expect(events: &EventDispatcher, expected: ConnectionKind) -> Result<(), Box<dyn Error>> {
    match events.wait(None)?.data {
        EventData::Connection { kind, .. } if kind == expected => Ok(()),
        other => Err(format!("{other:?} instead of {expected:?}").into()),
    }
}
