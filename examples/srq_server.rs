//! A server for many clients, whose endpoints take their receives from one
//! shared receive queue. `examples/c/srq_server.c` is the same in C.
//!
//! The queue has a low watermark. A second thread waits for its event, posts
//! the buffers again that the first one is done with, and arms the watermark
//! anew. The first thread takes all events: requests, connections, messages.
//!
//! Worth copying:
//! - Credits. A client may have [`WINDOW`] messages on the way that the server
//!   has not consumed, and the server tells each how many it has. Before it
//!   does, the queue must have a buffer for every message that all clients may
//!   send then. The watermark is that number, so the second thread usually has
//!   posted them; if that thread is late, the first one posts them. So no
//!   message ever finds the queue empty: on RoCE its sender would wait, on
//!   iWARP the connection would end.
//! - A message says by its endpoint's context whose it is, by its cookie in
//!   which buffer.
//! - An endpoint is kept until the last of its buffers is back.
//! - What goes wrong with one client ends that client, not the server.
//! - Nothing is allocated while messages come.

mod common;

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use clap::Parser;
use common::{Common, LINE, Outcome, wait};
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, ProtectionZone,
    SharedReceiveQueue,
};
use dat_api::types::{
    AsyncReason, CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};
use dat_api::{DatReturn, ReturnType};

/// Takes numbered messages of many clients, from one shared receive queue
///
/// Clients are `srq_client HOST`. It ends when so many clients as asked for
/// have come and gone. One that dies is reported and counts; the others are
/// served on, and the exit status is 3 in the end.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Clients to be served
    #[arg(short = 'c', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    clients: u32,
}

fn main() -> ExitCode {
    common::main(run)
}

/// Messages of one client on the way, at most. Clients know it.
const WINDOW: u64 = 8;
/// Bytes of a buffer.
const BYTES: usize = 256;
/// In cookies: the grant of a client, whose number is in the rest.
const GRANT: u64 = 1 << 63;

struct Client {
    endpoint: Endpoint,
    /// In the order of their requests.
    number: u64,
    up: bool,
    gone: bool,
    /// And that was said.
    failed: bool,
    /// How many messages it has announced.
    announced: u64,
    consumed: u64,
    /// How many of them it has been told of.
    granted: u64,
    /// A grant has no completion yet.
    granting: bool,
}

/// Buffers and the queue.
struct Buffers {
    shared: SharedReceiveQueue,
    memory: Memory,
    state: Mutex<State>,
    low: u32,
}

struct State {
    /// What may be posted again.
    done_with: Vec<u64>,
    /// How many are posted, or hold a message that was not seen yet.
    posted: u32,
    refills: u64,
}

fn run(options: Options) -> Outcome<()> {
    let clients = options.clients as usize;
    let low = options.clients * WINDOW as u32;
    let count = 2 * low;

    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.zone()?;
    let events = adapter.dispatcher(
        4 * options.clients + 16,
        EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR,
    )?;
    let buffers = Buffers {
        shared: zone.shared_receive_queue(count, 1)?,
        memory: zone.memory(
            count as usize * BYTES,
            MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE,
        )?,
        state: Mutex::new(State {
            done_with: (0..u64::from(count)).collect(),
            posted: 0,
            refills: 0,
        }),
        low,
    };
    buffers.post_all(&mut buffers.state())?;
    buffers.shared.set_low_watermark(low)?;
    let server = Server {
        grants: zone.memory(clients * LINE, MemPrivileges::LOCAL_READ)?,
        clients: std::iter::repeat_with(|| None).take(clients).collect(),
        asked: 0,
        zone,
        events,
        buffers: &buffers,
        served: 0,
        failed: 0,
    };
    let _listening = adapter.listen(options.common.port, &server.events)?;
    println!("listening on {}", options.common.port);

    let watermarks = adapter.async_events();
    thread::scope(|scope| {
        let refiller = scope.spawn(|| buffers.refill(&watermarks));
        let served = server.serve();
        // Ends the wait of the other thread.
        watermarks.end_waiting()?;
        refiller.join().expect("no panic")?;
        let Served { messages, failed } = served?;
        // The first time was no refill.
        let refills = buffers.state().refills - 1;
        println!("{messages} messages, refilled {refills} times");
        if failed > 0 {
            return Err(format!(
                "{failed} of {clients} clients did not send what they had announced"
            )
            .into());
        }
        Ok(())
    })
}

impl Buffers {
    fn post(&self, buffer: u64) -> Result<(), DatReturn> {
        let at = buffer as usize * BYTES;
        self.shared
            .post_recv(&[self.memory.segment(at..at + BYTES)], buffer)
    }

    /// Posts what can be posted.
    fn post_all(&self, state: &mut State) -> Result<(), DatReturn> {
        state.refills += u64::from(!state.done_with.is_empty());
        for buffer in state.done_with.drain(..) {
            self.post(buffer)?;
            state.posted += 1;
        }
        Ok(())
    }

    /// A message was seen that lies in this buffer, which nobody needs.
    fn give_back(&self, buffer: u64) {
        let mut state = self.state();
        state.posted -= 1;
        state.done_with.push(buffer);
    }

    /// Sees to it that there is a buffer for every message that the clients may
    /// send when all have been told of everything.
    fn are_enough(&self) -> Result<(), DatReturn> {
        let mut state = self.state();
        if state.posted < self.low {
            self.post_all(&mut state)?;
        }
        Ok(())
    }

    /// Posts buffers again whenever the watermark says so, until waiting for
    /// it is ended.
    fn refill(&self, watermarks: &EventDispatcher) -> Result<(), DatReturn> {
        loop {
            loop {
                match watermarks.wait(None) {
                    Ok(event) => match event.data {
                        EventData::Async {
                            reason: AsyncReason::Watermark,
                            ..
                        } => break,
                        _ => eprintln!("unexpected: {event:?}"),
                    },
                    Err(code) => match code.kind() {
                        Some(ReturnType::InterruptedCall) => {}
                        Some(ReturnType::InvalidState) => return Ok(()),
                        _ => return Err(code),
                    },
                }
            }
            // The buffers leave the queue before their messages are seen here:
            // there may be nothing to post yet. Then the event comes once more.
            thread::yield_now();
            let mut state = self.state();
            self.post_all(&mut state)?;
            if let Err(error) = self.shared.set_low_watermark(self.low) {
                return Err(error.code());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Server<'a> {
    zone: ProtectionZone,
    events: EventDispatcher,
    buffers: &'a Buffers,
    /// A cache line for the grants of each client.
    grants: Memory,
    /// A place for each that is wanted.
    clients: Vec<Option<Client>>,
    /// How many have asked, have come and gone, and have failed of those.
    asked: u64,
    served: usize,
    failed: usize,
}

/// What there was in the end.
struct Served {
    messages: u64,
    failed: usize,
}

impl Server<'_> {
    /// Serves until all clients have come and gone.
    fn serve(mut self) -> Outcome<Served> {
        let mut messages = 0;
        while self.served < self.clients.len() {
            let event = wait(&self.events)?;
            if let Some(request) = ConnectionRequest::from_event(&event) {
                self.admit(request)?;
                continue;
            }
            let (EventData::Dto { ep, .. } | EventData::Connection { ep, .. }) = event.data else {
                return Err(format!("unexpected: {event:?}").into());
            };
            let place = ep.context().unwrap_or(u64::MAX) as usize;
            let Some(Some(client)) = self.clients.get_mut(place) else {
                return Err(format!("an event of nobody: {event:?}").into());
            };
            match event.data {
                EventData::Connection {
                    kind: ConnectionKind::Established,
                    ..
                } => {
                    client.up = true;
                    println!(
                        "client {}: announces {} messages",
                        client.number, client.announced
                    );
                }
                EventData::Connection { kind, .. } => {
                    client.gone = true;
                    if !client.up {
                        eprintln!(
                            "client {}: has given up before it was connected ({kind:?})",
                            client.number
                        );
                    }
                }
                // A grant that fails does so with the connection, which has an
                // event of its own; the last one usually does, as the client
                // that has it leaves.
                EventData::Dto { cookie, .. } if cookie & GRANT != 0 => {
                    client.granting = false;
                }
                EventData::Dto {
                    cookie,
                    status,
                    length,
                    ..
                } => {
                    if status == DtoStatus::Success {
                        messages += client.takes(self.buffers, cookie, length)?;
                    }
                    self.buffers.give_back(cookie);
                }
                other => return Err(format!("client {}: {other:?}", client.number).into()),
            }
            client.grant(self.buffers, &self.grants, place)?;
            self.bid_farewell(place);
        }
        Ok(Served {
            messages,
            failed: self.failed,
        })
    }

    /// Frees the place of a client that is gone, once all that it has left is
    /// here.
    fn bid_farewell(&mut self, place: usize) {
        let Some(client) = &mut self.clients[place] else {
            return;
        };
        if !client.gone || client.granting || client.endpoint.recv_query().allocated > 0 {
            return;
        }
        let (number, consumed) = (client.number, client.consumed);
        if client.up {
            if !client.failed && consumed != client.announced {
                client.failed = true;
                eprintln!(
                    "client {number}: has gone after {consumed} of {} messages",
                    client.announced
                );
            }
            if client.failed {
                self.failed += 1;
            } else {
                println!("client {number}: {consumed} messages");
            }
            self.served += 1;
        }
        self.clients[place] = None;
    }

    fn admit(&mut self, mut request: ConnectionRequest) -> Outcome<()> {
        let number = self.asked;
        self.asked += 1;
        let present = self.clients.iter().flatten().count();
        let place = self.clients.iter().position(Option::is_none);
        let (Some(place), true) = (place, present + self.served < self.clients.len()) else {
            request.reject();
            return Ok(());
        };
        let announced = request.private_data();
        let Some(announced) = announced.first_chunk() else {
            eprintln!("a client of another kind: it does not say how much it will send");
            request.reject();
            return Ok(());
        };
        let mut endpoint = self.zone.endpoint(&EndpointOptions {
            shared: Some(&self.buffers.shared),
            ..EndpointOptions::new(&self.events)
        })?;
        endpoint.set_context(place as u64);
        // The window is a grant, too.
        self.buffers.are_enough()?;
        // If the client has given up meanwhile, an event tells.
        request.accept(&mut endpoint, &WINDOW.to_le_bytes())?;
        self.clients[place] = Some(Client {
            endpoint,
            number,
            up: false,
            gone: false,
            failed: false,
            announced: u64::from_le_bytes(*announced),
            consumed: 0,
            granted: 0,
            granting: false,
        });
        Ok(())
    }
}

impl Client {
    /// A message has come. If it is not what was agreed, there will be no more
    /// of this client. How many messages it was.
    fn takes(&mut self, buffers: &Buffers, buffer: u64, length: u64) -> Outcome<u64> {
        let mut text = [0; 8];
        buffers.memory.read(buffer as usize * BYTES, &mut text);
        let text = u64::from_le_bytes(text);
        if (length, text) == (8, self.consumed) {
            self.consumed += 1;
            return Ok(1);
        }
        if !self.failed {
            eprintln!(
                "client {}: message {} has {length} bytes and carries {text}",
                self.number, self.consumed
            );
        }
        self.failed = true;
        if !self.gone {
            self.endpoint.disconnect(false)?;
        }
        Ok(0)
    }

    /// Tells the client how much was consumed, once that is half a window more
    /// than it knows, or all. One grant at a time: its memory is the device's
    /// meanwhile, and the client has receives for two.
    fn grant(&mut self, buffers: &Buffers, grants: &Memory, place: usize) -> Outcome<()> {
        let news = self.consumed - self.granted;
        let due = news >= WINDOW / 2 || (news > 0 && self.consumed == self.announced);
        if !due || !self.up || self.gone || self.failed || self.granting {
            return Ok(());
        }
        buffers.are_enough()?;
        let at = place * LINE;
        grants.write(at, &self.consumed.to_le_bytes());
        self.endpoint.post_send(
            &[grants.segment(at..at + 8)],
            GRANT | place as u64,
            CompletionFlags::empty(),
        )?;
        self.granted = self.consumed;
        self.granting = true;
        Ok(())
    }
}
