//! A server that blocks: it answers the pings of several clients, and uses no
//! processor time while no message or request arrives. `ping_pong HOST` is a
//! client.
//!
//! Worth copying:
//! - One thread and one event dispatcher serve everything: connection requests,
//!   connections that begin and end, and messages. The context of an endpoint
//!   holds the client's number, so no event needs a search.
//! - Endpoints, memory and receives are created before clients connect. When a
//!   client leaves, its endpoint is reset, its receive is posted again, and the
//!   next client uses both.
//! - An answer waits until the send before it has completed.

mod common;

use std::process::ExitCode;

use clap::Parser;
use common::{Common, LINE, Outcome, wait};
use dat_api::safe::{Adapter, ConnectionRequest, Endpoint, EndpointOptions, Memory, WaitPolicy};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};

/// Answers pings of several clients, and sleeps in between
///
/// Clients are `ping_pong HOST`.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Clients at a time; more are rejected
    #[arg(short = 'c', long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Number of clients after which the server ends; unlimited by default
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// Bytes of the longest message
    #[arg(short = 's', long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    size: u32,
}

fn main() -> ExitCode {
    common::main(run)
}

const RECEIVE: u64 = 0;
const SEND: u64 = 1;

/// The endpoint and memory for one client.
struct ClientSlot {
    endpoint: Endpoint,
    /// Offset of the received message in the shared memory; the answer follows
    /// it.
    at: usize,
    taken: bool,
    /// The connection is established. A message may arrive before the event that
    /// says so, but the server cannot send yet.
    up: bool,
    /// Length in bytes of a message that is not answered yet.
    message: Option<usize>,
    /// The previous answer has no completion yet.
    sending: bool,
    answered: u64,
}

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.create_zone()?;
    let size = options.size as usize;
    let room = size.next_multiple_of(LINE);
    let clients = options.clients as usize;
    let memory = zone.allocate(
        2 * room * clients,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
    )?;
    // Blocks without spinning, whatever DAT_WAIT says. The queue grows with the
    // completions of its endpoints; the length given here is for the other
    // events.
    let events = adapter.create_dispatcher_with_policy(
        4 * options.clients + 16,
        EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR,
        WaitPolicy::Block,
    )?;
    let mut places = (0..clients)
        .map(|number| {
            let endpoint = zone.create_endpoint(&EndpointOptions::new(&events))?;
            endpoint.set_context(number as u64);
            let mut place = ClientSlot {
                endpoint,
                at: 2 * room * number,
                taken: false,
                up: false,
                message: None,
                sending: false,
                answered: 0,
            };
            place.receive(&memory, size)?;
            Ok(place)
        })
        .collect::<Outcome<Vec<_>>>()?;
    let mut text = vec![0; size];
    let _listening = adapter.listen(options.common.port, &events)?;
    println!("listening on {}", options.common.port);

    let mut gone = 0;
    while options.count.is_none_or(|count| gone < count) {
        let event = wait(&events)?;
        if let Some(request) = ConnectionRequest::from_event(&event) {
            // A request that is dropped without an answer is rejected.
            if let Some(place) = places.iter_mut().find(|place| !place.taken) {
                request.accept(&mut place.endpoint, &[])?;
                place.taken = true;
            }
            continue;
        }
        let (EventData::Dto { ep, .. } | EventData::Connection { ep, .. }) = event.data else {
            return Err(format!("unexpected: {event:?}").into());
        };
        let number = ep
            .context()
            .ok_or("an event of an endpoint that was freed")?;
        let place = &mut places[number as usize];
        match event.data {
            EventData::Connection {
                kind: ConnectionKind::Established,
                ..
            } => {
                place.up = true;
                place.answer(&memory, room, &mut text)?;
            }
            EventData::Connection { kind, .. } => {
                println!(
                    "client {gone}: {} messages answered, {kind:?}",
                    place.answered
                );
                gone += 1;
                place.clear(&memory, size)?;
            }
            // A receive that was flushed when the client left; `clear` posts it
            // again.
            EventData::Dto {
                status: DtoStatus::Flushed,
                ..
            } => {}
            EventData::Dto {
                status: DtoStatus::Success,
                cookie,
                length,
                ..
            } => {
                match cookie {
                    SEND => place.sending = false,
                    _ => place.message = Some(length as usize),
                }
                place.answer(&memory, room, &mut text)?;
            }
            // The connection breaks, and an event reports that.
            other => eprintln!("client {number}: {other:?}"),
        }
    }
    Ok(())
}

impl ClientSlot {
    fn receive(&mut self, memory: &Memory, size: usize) -> Outcome<()> {
        let buffer = memory.segment(self.at..self.at + size);
        Ok(self
            .endpoint
            .post_recv(&[buffer], RECEIVE, CompletionFlags::empty())?)
    }

    /// Answers a message if there is one and the memory for the answer is not in
    /// use by the device.
    fn answer(&mut self, memory: &Memory, room: usize, text: &mut [u8]) -> Outcome<()> {
        if self.sending || !self.up {
            return Ok(());
        }
        let Some(length) = self.message.take() else {
            return Ok(());
        };
        let out = self.at + room;
        memory.read(self.at, &mut text[..length]);
        memory.write(out, &text[..length]);
        // Posted before the answer, because the next message may arrive after it.
        self.receive(memory, text.len())?;
        let answer = memory.segment(out..out + length);
        self.endpoint
            .post_send(&[answer], SEND, CompletionFlags::empty())?;
        self.sending = true;
        self.answered += 1;
        Ok(())
    }

    /// Prepares for the next client. The reset drops events of the last client
    /// that were not dequeued yet.
    fn clear(&mut self, memory: &Memory, size: usize) -> Outcome<()> {
        self.endpoint.reset()?;
        (self.taken, self.up, self.sending) = (false, false, false);
        (self.message, self.answered) = (None, 0);
        self.receive(memory, size)
    }
}
