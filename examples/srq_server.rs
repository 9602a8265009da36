//! A server for many clients, whose endpoints take their receives from one shared
//! receive queue. `examples/c/srq_server.c` is the same program in C.
//!
//! The queue has a low watermark. A second thread waits for the watermark's
//! event, reposts the buffers that the first thread has released, and arms the
//! watermark again. The first thread takes all other events: requests,
//! connections, messages.
//!
//! Worth copying:
//! - Credits: a client may have [`WINDOW`] messages in flight that the server has
//!   not consumed. The server grants further messages as it consumes them. Before
//!   a grant, the queue must have a buffer for every message that all clients may
//!   then send. The watermark is that number, so usually the second thread has
//!   posted the buffers; if it is late, the first thread posts them. Therefore no
//!   message finds the queue empty. On RoCE such a message's sender would wait;
//!   on iWARP the connection would break.
//! - The context of a message's endpoint identifies the client; the message's
//!   cookie identifies the buffer.
//! - An endpoint is kept until its last buffer has come back.
//! - An error of one client ends that client, not the server.
//! - Nothing is allocated while messages arrive.

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
use dat_api::{DatError, Refusal, ReturnType};

/// Receives numbered messages of many clients through one shared receive queue
///
/// Clients are `srq_client HOST`. The server ends when all clients have connected
/// and left. A client that fails is reported and counted; the server continues
/// with the others, and ends with exit status 3.
#[derive(Parser)]
#[command(after_help = common::STATUSES)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Number of clients to serve
    #[arg(short = 'c', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    clients: u32,
}

fn main() -> ExitCode {
    common::main(run)
}

/// Messages that one client may have in flight. The server sends this number to its
/// clients.
const WINDOW: u64 = 8;
/// Size of a buffer in bytes.
const BYTES: usize = 256;
/// Marks the cookie of a grant; the other bits are the client's number.
const GRANT: u64 = 1 << 63;

struct Client {
    endpoint: Endpoint,
    /// In the order of the requests.
    number: u64,
    up: bool,
    gone: bool,
    /// An error was reported.
    failed: bool,
    /// Number of messages that the client has announced.
    announced: u64,
    consumed: u64,
    /// Number of consumed messages that were reported to the client.
    granted: u64,
    /// A grant has not completed yet.
    granting: bool,
}

/// The buffers and the queue that they are posted to.
struct Buffers {
    shared: SharedReceiveQueue,
    memory: Memory,
    state: Mutex<State>,
    low: u32,
}

struct State {
    /// Buffers that may be posted again.
    done_with: Vec<u64>,
    /// Number of buffers that are posted, or hold a message that was not read yet.
    posted: u32,
    refills: u64,
}

fn run(options: Options) -> Outcome<()> {
    let clients = options.clients as usize;
    let low = options.clients * WINDOW as u32;
    let count = 2 * low;

    let adapter = Adapter::open(&options.common.adapter)?;
    let zone = adapter.create_zone()?;
    let events = adapter.create_dispatcher(
        4 * options.clients + 16,
        EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR,
    )?;
    let buffers = Buffers {
        shared: zone.create_shared_receive_queue(count, 1)?,
        memory: zone.allocate(
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
        grants: zone.allocate(clients * LINE, MemPrivileges::LOCAL_READ)?,
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
        // Ends the wait of the second thread.
        watermarks.set_unwaitable()?;
        refiller.join().expect("no panic")?;
        let Served { messages, failed } = served?;
        // The first post was not a refill.
        let refills = buffers.state().refills - 1;
        println!("{messages} messages, refilled {refills} times");
        if failed > 0 {
            return Err(format!(
                "{failed} of {clients} clients did not send all announced messages"
            )
            .into());
        }
        Ok(())
    })
}

impl Buffers {
    fn post(&self, buffer: u64) -> Result<(), Refusal> {
        let at = buffer as usize * BYTES;
        self.shared
            .post_recv(&[self.memory.segment(at..at + BYTES)], buffer)
    }

    /// Posts all free buffers.
    fn post_all(&self, state: &mut State) -> Result<(), Refusal> {
        state.refills += u64::from(!state.done_with.is_empty());
        for buffer in state.done_with.drain(..) {
            self.post(buffer)?;
            state.posted += 1;
        }
        Ok(())
    }

    /// Releases a buffer, whose message has been read.
    fn release(&self, buffer: u64) {
        let mut state = self.state();
        state.posted -= 1;
        state.done_with.push(buffer);
    }

    /// Makes sure that a buffer is posted for every message that the clients may
    /// send once all grants have arrived.
    fn ensure_posted(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.posted < self.low {
            self.post_all(&mut state)?;
        }
        Ok(())
    }

    /// Reposts buffers whenever the watermark is reported, until the wait is
    /// ended.
    fn refill(&self, watermarks: &EventDispatcher) -> Result<(), DatError> {
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
                        _ => return Err(code.into()),
                    },
                }
            }
            // A buffer leaves the queue before its message is read here, so there
            // may be nothing to post yet. The watermark, armed again, then
            // reports once more.
            thread::yield_now();
            let mut state = self.state();
            self.post_all(&mut state)?;
            self.shared.set_low_watermark(self.low)?;
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
    /// An entry for each client.
    clients: Vec<Option<Client>>,
    /// Number of clients that have connected, that have left, and that have
    /// failed.
    asked: u64,
    served: usize,
    failed: usize,
}

/// Result of the run.
struct Served {
    messages: u64,
    failed: usize,
}

impl Server<'_> {
    /// Serves until all clients have left.
    fn serve(mut self) -> Outcome<Served> {
        let mut messages = 0;
        while self.served < self.clients.len() {
            let event = wait(&self.events)?;
            if let Some(request) = ConnectionRequest::from_event(&event) {
                self.answer_request(request)?;
                continue;
            }
            let (EventData::Dto { ep, .. } | EventData::Connection { ep, .. }) = event.data else {
                return Err(format!("unexpected: {event:?}").into());
            };
            let place = ep.context().unwrap_or(u64::MAX) as usize;
            let Some(Some(client)) = self.clients.get_mut(place) else {
                return Err(format!("an event of an unknown endpoint: {event:?}").into());
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
                            "client {}: left before the connection was established ({kind:?})",
                            client.number
                        );
                    }
                }
                // A grant fails together with the connection, whose own event
                // reports the failure. The last grant usually fails, because the
                // client leaves as soon as it has arrived.
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
                        messages += client.handle_message(self.buffers, cookie, length)?;
                    }
                    self.buffers.release(cookie);
                }
                other => return Err(format!("client {}: {other:?}", client.number).into()),
            }
            client.grant(self.buffers, &self.grants, place)?;
            self.release_client(place);
        }
        Ok(Served {
            messages,
            failed: self.failed,
        })
    }

    /// Frees the entry of a client that has left, once all its buffers have come
    /// back.
    fn release_client(&mut self, place: usize) {
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
                    "client {number}: left after {consumed} of {} messages",
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

    fn answer_request(&mut self, request: ConnectionRequest) -> Outcome<()> {
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
            eprintln!("rejected: the request does not announce a number of messages");
            request.reject();
            return Ok(());
        };
        let options = EndpointOptions::new(&self.events).shared(&self.buffers.shared);
        let mut endpoint = self.zone.create_endpoint(&options)?;
        endpoint.set_context(place as u64);
        // The window counts as a grant.
        self.buffers.ensure_posted()?;
        // If the client has left, an event reports it.
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
    /// Handles a message. Disconnects the client if the message differs from what
    /// was agreed. Returns the number of messages, 0 or 1.
    fn handle_message(&mut self, buffers: &Buffers, buffer: u64, length: u64) -> Outcome<u64> {
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
            self.endpoint.disconnect_abruptly()?;
        }
        Ok(0)
    }

    /// Reports to the client how many messages were consumed, once that is half a
    /// window more than the client knows, or all. One grant at a time: the device
    /// owns the grant's memory until the completion, and the client has receives
    /// for two.
    fn grant(&mut self, buffers: &Buffers, grants: &Memory, place: usize) -> Outcome<()> {
        let news = self.consumed - self.granted;
        let due = news >= WINDOW / 2 || (news > 0 && self.consumed == self.announced);
        if !due || !self.up || self.gone || self.failed || self.granting {
            return Ok(());
        }
        buffers.ensure_posted()?;
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
