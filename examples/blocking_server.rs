//! A server that sleeps: it answers the pings of several clients, and uses no
//! processor while none of them wants something. `ping_pong HOST` is a client.
//!
//! Worth copying:
//! - One thread, one event dispatcher for everything: requests for connections,
//!   connections that begin and end, messages. What an event is about is known
//!   by the context of its endpoint, without a search.
//! - Endpoints, memory and receives are there before clients come. One that has
//!   left gives its place to the next: the endpoint is reset, and its receive
//!   posted again.
//! - An answer may have to wait until the one before it is done.

mod common;

use std::process::ExitCode;

use clap::Parser;
use common::{Common, LINE, Outcome, wait};
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, WaitPolicy,
};
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
    /// End when so many clients have come and gone; without it, never
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

/// A place for one client.
struct Place {
    endpoint: Endpoint,
    /// Of the received message, in the memory of all; the answer is behind it.
    at: usize,
    taken: bool,
    /// The connection is up. A message may come before the event that says so,
    /// and nothing can be sent yet.
    up: bool,
    /// Bytes of a message that is not answered yet.
    message: Option<usize>,
    /// The answer before it has no completion yet.
    sending: bool,
    answered: u64,
}

fn run(options: Options) -> Outcome<()> {
    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.zone()?;
    let size = options.size as usize;
    let room = size.next_multiple_of(LINE);
    let clients = options.clients as usize;
    let memory = zone.memory(
        2 * room * clients,
        MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
    )?;
    // Sleeps at once, whatever DAT_WAIT says. Completions bring room of their
    // own; the length is for the rest.
    let events = EventDispatcher::with_policy(
        &adapter,
        4 * options.clients + 16,
        EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR,
        WaitPolicy::Block,
    )?;
    let mut places = (0..clients)
        .map(|number| {
            let endpoint = zone.endpoint(&EndpointOptions::new(&events))?;
            endpoint.set_context(number as u64);
            let mut place = Place {
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
        if let Some(mut request) = ConnectionRequest::from_event(&event) {
            // Dropped without an answer a request is rejected.
            if let Some(place) = places.iter_mut().find(|place| !place.taken) {
                request.accept(&mut place.endpoint, &[])?;
                place.taken = true;
            }
            continue;
        }
        let (EventData::Dto { ep, .. } | EventData::Connection { ep, .. }) = event.data else {
            return Err(format!("unexpected: {event:?}").into());
        };
        let number = ep.context().ok_or("an event of an endpoint that is gone")?;
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
            // What was left when the client went; `clear` posts it anew.
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
            // The connection breaks, and says so by an event.
            other => eprintln!("client {number}: {other:?}"),
        }
    }
    Ok(())
}

impl Place {
    fn receive(&mut self, memory: &Memory, size: usize) -> Outcome<()> {
        let buffer = memory.segment(self.at..self.at + size);
        Ok(self
            .endpoint
            .post_recv(&[buffer], RECEIVE, CompletionFlags::empty())?)
    }

    /// Answers, unless there is nothing to answer, or the memory for it is still
    /// the device's.
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
        // Before the answer, after which the next message may come.
        self.receive(memory, text.len())?;
        let answer = memory.segment(out..out + length);
        self.endpoint
            .post_send(&[answer], SEND, CompletionFlags::empty())?;
        self.sending = true;
        self.answered += 1;
        Ok(())
    }

    /// Ready for another client. Events of the last one that were not taken
    /// yet are dropped with the reset.
    fn clear(&mut self, memory: &Memory, size: usize) -> Outcome<()> {
        self.endpoint.reset()?;
        (self.taken, self.up, self.sending) = (false, false, false);
        (self.message, self.answered) = (None, 0);
        self.receive(memory, size)
    }
}
